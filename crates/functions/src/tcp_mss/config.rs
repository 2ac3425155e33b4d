//! Configuration as written in a policy; the README documents each key.

use values::ConfigError;

use crate::numbers::within;

/// Configuration of the clamp. At least one key is required.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Limit on segments in both directions, in bytes of payload.
    pub max: Option<u16>,
    /// Limit that hosts inside announce.
    pub max_from_inside: Option<u16>,
    /// Limit that hosts outside announce.
    pub max_from_outside: Option<u16>,
    /// MTUs from which limits follow.
    pub to_path_mtu: Option<PathMtu>,
}

/// MTUs of the path in bytes of IP packet. At least one side is required.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathMtu {
    /// Of the path inside.
    pub inside: Option<u16>,
    /// Of the path outside.
    pub outside: Option<u16>,
}

/// The lowest limit: the segments that a host may send without an option of its peer (RFC 9293
/// 3.7.1).
pub const SEGMENT_MIN: u16 = 536;

/// The lowest MTU: datagrams of this length every IPv4 host accepts (RFC 791 3.1).
pub const MTU_MIN: u16 = 576;

/// The lowest MTU of an IPv6 link (RFC 8200 5).
const MTU_MIN_V6: u16 = 1280;

/// Lengths of the headers that the maximum segment size leaves out, without options (RFC 6691 2).
const HEADERS_V4: u16 = 40;
const HEADERS_V6: u16 = 60;

impl Config {
    /// Returns the limits on packets from inside and outside, for IPv4 and IPv6.
    pub(super) fn limits(&self) -> Result<[[u16; 2]; 2], ConfigError> {
        for (key, limit) in [
            ("max", self.max),
            ("max_from_inside", self.max_from_inside),
            ("max_from_outside", self.max_from_outside),
        ] {
            if let Some(limit) = limit {
                within(key, limit.into(), SEGMENT_MIN.into()..=u16::MAX.into())?;
            }
        }
        let path = self.path_limits()?;
        let is_empty = self.max.or(self.max_from_inside).or(self.max_from_outside).is_none();
        if is_empty && self.to_path_mtu.is_none() {
            return Err(ConfigError::new(
                "no limit: `max`, `max_from_inside`, `max_from_outside` or `to_path_mtu` is required",
            ));
        }
        Ok([self.max_from_inside, self.max_from_outside].map(|own| {
            let own = own.or(self.max).unwrap_or(u16::MAX);
            path.map(|path| path.min(own))
        }))
    }

    /// Returns the limits by the path's MTU, for IPv4 and IPv6.
    fn path_limits(&self) -> Result<[u16; 2], ConfigError> {
        let Some(path) = &self.to_path_mtu else { return Ok([u16::MAX; 2]) };
        for (key, mtu) in [("inside", path.inside), ("outside", path.outside)] {
            if let Some(mtu) = mtu {
                within(&format!("to_path_mtu.{key}"), mtu.into(), MTU_MIN.into()..=u16::MAX.into())?;
            }
        }
        // A segment crosses both sides.
        let mtu = path.inside.into_iter().chain(path.outside).min();
        let mtu = mtu
            .ok_or_else(|| ConfigError::new("`to_path_mtu` must give the MTU `inside`, `outside` or both"))?;
        Ok([mtu - HEADERS_V4, mtu.max(MTU_MIN_V6) - HEADERS_V6])
    }
}
