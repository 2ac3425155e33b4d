//! Settings of a link.

use crate::datagram::{DATAGRAM_MAX, DATAGRAM_OVERHEAD};
use crate::flow_control::{INITIAL_GRANT, PART_COST};
use crate::frames::{ACK_LEN_MAX, FRAME_HEAD, PROBE_LEN};
use crate::keys::{KEY_BYTES_MAX, KEY_DATAGRAMS_MAX};
use crate::sending::{BLOCK_PARTS_MAX, block_capacity, blocks_of, part_capacity};

/// Length of a message, at most.
pub const MESSAGE_MAX: usize = 16 << 20;

/// The least [`Config::mtu_base`].
pub const MTU_MIN: usize = 512;

/// The greatest [`Config::receive_window`], [`Config::send_buffer`] and [`Config::packet_buffer`].
pub const BUFFER_MAX: usize = 1 << 30;

/// Settings of a link. Both ends should have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Length of a datagram (the payload of UDP) that every path must carry, from [`MTU_MIN`] on.
    /// The link begins with it, and falls back to it.
    pub mtu_base: usize,
    /// Length of a datagram, at most, up to [`DATAGRAM_MAX`](crate::DATAGRAM_MAX). The link
    /// discovers the length that the path carries (RFC 8899). If it equals `mtu_base`, all have
    /// this length.
    pub mtu: usize,
    /// An end sends something at least this often, in ns.
    pub heartbeat_ns: u64,
    /// Heartbeats, or round trips if these take longer, without a datagram from the peer, after
    /// which it is given up.
    pub heartbeats_missed: u32,
    /// Silence before which no peer is given up, in ns.
    pub silence_min_ns: u64,
    /// Silence after which a peer is given up in any case, in ns.
    pub silence_max_ns: u64,
    /// Time for the first datagram from the peer, in ns.
    pub up_within_ns: u64,
    /// Delay of an acknowledgement, at most, in ns.
    pub ack_delay_ns: u64,
    /// The round-trip time before the first measurement, in ns.
    pub initial_rtt_ns: u64,
    /// Length of a message, at most: up to [`MESSAGE_MAX`].
    pub message_max: usize,
    /// Cost of received messages that the caller has not taken, at most (see
    /// [`PART_COST`]). It must cover a message of `message_max` in fragments.
    pub receive_window: usize,
    /// Bytes of messages that the peer has not acknowledged, at most. Each block counts as full.
    pub send_buffer: usize,
    /// Bytes of packets that wait to be sent, and to be taken by the caller, each, at most.
    pub packet_buffer: usize,
    /// Datagrams sent under one key: up to [`KEY_DATAGRAMS_MAX`].
    pub key_datagrams: u64,
    /// Bytes sent under one key: up to [`KEY_BYTES_MAX`].
    pub key_bytes: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mtu_base: 1_232, // IPv6 carries 1,280 bytes everywhere (RFC 8200 5).
            mtu: 8_972,
            heartbeat_ns: 5_000_000,
            heartbeats_missed: 4,
            silence_min_ns: 0,
            silence_max_ns: 1_000_000_000,
            up_within_ns: 5_000_000_000,
            ack_delay_ns: 200_000,
            initial_rtt_ns: 1_000_000,
            message_max: MESSAGE_MAX,
            receive_window: 32 << 20,
            send_buffer: 32 << 20,
            packet_buffer: 1 << 20,
            key_datagrams: KEY_DATAGRAMS_MAX,
            key_bytes: KEY_BYTES_MAX,
        }
    }
}

/// A setting of a link that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkConfigError {
    /// A setting is too small or too large.
    #[error("link: {name} is {value}; it must be from {least} to {most}")]
    Range {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The least value, given the other settings.
        least: u64,
        /// The greatest value.
        most: u64,
    },
    /// Both secrets are the same, so both ends would use the same keys.
    #[error("link: both directions have the same secret; export one for each")]
    SameSecrets,
}

impl Config {
    /// Verifies that the settings can be used together.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), LinkConfigError> {
        let range = |name, value: u64, least: u64, most: u64| {
            let fault = LinkConfigError::Range { name, value, least, most };
            if (least..=most).contains(&value) { Ok(()) } else { Err(fault) }
        };
        let size = |name, value: usize, least: usize, most: usize| {
            range(name, value as u64, least as u64, most as u64)
        };
        const HOUR_NS: u64 = 3_600_000_000_000;
        size("mtu_base", self.mtu_base, MTU_MIN, DATAGRAM_MAX)?;
        let mtu_most = DATAGRAM_MAX.min(part_capacity(self.mtu_base) * BLOCK_PARTS_MAX);
        size("mtu", self.mtu, self.mtu_base, mtu_most.max(self.mtu_base))?;
        range("heartbeat_ns", self.heartbeat_ns, 1_000, HOUR_NS)?;
        range("heartbeats_missed", self.heartbeats_missed.into(), 1, 1_000_000)?;
        range("silence_min_ns", self.silence_min_ns, 0, self.silence_max_ns)?;
        range("silence_max_ns", self.silence_max_ns, self.heartbeat_ns, HOUR_NS)?;
        range("up_within_ns", self.up_within_ns, self.heartbeat_ns, HOUR_NS)?;
        range("ack_delay_ns", self.ack_delay_ns, 0, self.heartbeat_ns)?;
        range("initial_rtt_ns", self.initial_rtt_ns, 1, HOUR_NS)?;
        size("message_max", self.message_max, 1, MESSAGE_MAX)?;
        let capacity = block_capacity(self.mtu_base);
        let blocks = blocks_of(self.message_max, capacity);
        let cost = self.message_max + blocks * PART_COST as usize;
        let least = cost.max(INITIAL_GRANT as usize).max(2 * block_capacity(self.mtu));
        size("receive_window", self.receive_window, least, BUFFER_MAX)?;
        let largest = block_capacity(self.mtu);
        let bytes = (blocks * capacity).max(blocks_of(self.message_max, largest) * largest);
        size("send_buffer", self.send_buffer, bytes, BUFFER_MAX)?;
        size("packet_buffer", self.packet_buffer, self.mtu, BUFFER_MAX)?;
        range("key_datagrams", self.key_datagrams, 1, KEY_DATAGRAMS_MAX)?;
        range("key_bytes", self.key_bytes, 1, KEY_BYTES_MAX)
    }

    /// Returns these settings with datagrams of up to this length, whatever the path carries.
    #[must_use]
    pub fn with_fixed_mtu(self, mtu: usize) -> Config {
        Config { mtu_base: mtu, mtu, ..self }
    }
}

/// Returns the length of the longest packet that fits a datagram.
pub(crate) fn packet_max(mtu: usize) -> usize {
    mtu.saturating_sub(DATAGRAM_OVERHEAD + FRAME_HEAD)
}

// An acknowledgement and the answer to a probe fit every datagram.
const _: () = assert!(ACK_LEN_MAX + PROBE_LEN + DATAGRAM_OVERHEAD < MTU_MIN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_together() {
        assert_eq!(Config::default().check(), Ok(()));
        let small =
            Config { message_max: 1_000, receive_window: 65_536, send_buffer: 32_768, ..Config::default() };
        assert_eq!(small.check(), Ok(()));
        let jumbo = Config { mtu: DATAGRAM_MAX, ..Config::default() };
        assert_eq!(jumbo.check(), Ok(()));
        let fault = Config { mtu_base: 511, ..Config::default() }.check().unwrap_err();
        assert_eq!(fault.to_string(), "link: mtu_base is 511; it must be from 512 to 65507");
        let fault = Config { mtu: 1_231, ..Config::default() }.check().unwrap_err();
        assert_eq!(fault.to_string(), "link: mtu is 1231; it must be from 1232 to 65507");
        let fault = Config { mtu_base: 512, mtu: DATAGRAM_MAX, ..Config::default() }.check().unwrap_err();
        assert_eq!(fault.to_string(), "link: mtu is 65507; it must be from 512 to 29632");
        let fault = Config { receive_window: MESSAGE_MAX, ..Config::default() }.check().unwrap_err();
        assert!(matches!(fault, LinkConfigError::Range { name: "receive_window", .. }), "{fault}");
        let fault = Config { send_buffer: MESSAGE_MAX, ..Config::default() }.check().unwrap_err();
        assert!(matches!(fault, LinkConfigError::Range { name: "send_buffer", .. }), "{fault}");
        let fault = Config { ack_delay_ns: 6_000_000, ..Config::default() }.check().unwrap_err();
        assert!(matches!(fault, LinkConfigError::Range { name: "ack_delay_ns", .. }), "{fault}");
    }
}
