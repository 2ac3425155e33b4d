//! Values of the options of `rivulet traffic`.

use std::str::FromStr;

use clap::ValueEnum;
use io::traffic::{Attacks, FlowLength, FrameBytes, FrameRate, Pacing, Payload, Protocols};
use values::{Quantity, QuantityKind};

/// Length of the frame check sequence, which captures and profiles do not include.
const FCS_BYTES: u16 = 4;

/// Parses a number with an optional multiplier: `5000`, `100k`, `1M`.
pub fn count(text: &str) -> Result<u64, String> {
    let quantity = Quantity::parse(text).map_err(|error| error.to_string())?;
    match quantity {
        Quantity { kind: QuantityKind::Count, value } if value > 0 => Ok(value),
        _ => Err("expected a number of at least 1, such as 5000, 100k or 1M".to_owned()),
    }
}

/// `--rate`: packets or bits per second.
#[derive(Clone, Copy, Debug)]
pub struct Pps(pub FrameRate);

impl FromStr for Pps {
    type Err = String;

    fn from_str(text: &str) -> Result<Pps, String> {
        let quantity = Quantity::parse(text).map_err(|error| error.to_string())?;
        match quantity.kind {
            QuantityKind::Count | QuantityKind::PacketRate => {
                Ok(Pps(FrameRate::PacketsPerSecond(quantity.value as f64)))
            }
            QuantityKind::BitRate => Ok(Pps(FrameRate::BitsPerSecond(quantity.value as f64))),
            other => {
                Err(format!("expected packets or bits per second, such as 200k or 1Gbps, found {other}"))
            }
        }
    }
}

/// `--size`: bytes on the wire including the frame check sequence.
#[derive(Clone, Copy, Debug)]
pub struct PacketBytes(pub FrameBytes);

impl FromStr for PacketBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<PacketBytes, String> {
        let bytes = |text: &str| {
            text.parse().ok().and_then(|bytes: u16| bytes.checked_sub(FCS_BYTES)).ok_or_else(|| {
                format!("expected bytes such as 64, a range such as 64-1518, or imix, found `{text}`")
            })
        };
        Ok(PacketBytes(match text.split_once('-') {
            _ if text.eq_ignore_ascii_case("imix") => FrameBytes::Imix,
            Some((least, most)) => FrameBytes::Range(bytes(least)?, bytes(most)?),
            None => FrameBytes::Fixed(bytes(text)?),
        }))
    }
}

/// `--protocols`: weights of the kinds of flows.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolMix(pub Protocols);

impl FromStr for ProtocolMix {
    type Err = String;

    fn from_str(text: &str) -> Result<ProtocolMix, String> {
        let mut protocols = Protocols { tcp: 0.0, udp: 0.0, icmp: 0.0, fragments: 0.0 };
        for part in text.split(',') {
            let (kind, weight) = named_number(part)?;
            let place = match kind {
                "tcp" => &mut protocols.tcp,
                "udp" => &mut protocols.udp,
                "icmp" => &mut protocols.icmp,
                "fragments" => &mut protocols.fragments,
                _ => {
                    return Err(format!(
                        "`{kind}` is not a kind of flow; expected tcp, udp, icmp or fragments"
                    ));
                }
            };
            *place = weight;
        }
        Ok(ProtocolMix(protocols))
    }
}

/// `--attack`: a kind of attack and its share of all packets.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    kind: AttackKind,
    share: f64,
}

#[derive(Clone, Copy, Debug)]
enum AttackKind {
    Scan,
    SynFlood,
    UdpFlood,
    Land,
    Malformed,
}

impl Attack {
    /// Sets the attack's share.
    pub fn add_to(&self, attacks: &mut Attacks) {
        let place = match self.kind {
            AttackKind::Scan => &mut attacks.port_scan,
            AttackKind::SynFlood => &mut attacks.syn_flood,
            AttackKind::UdpFlood => &mut attacks.udp_flood,
            AttackKind::Land => &mut attacks.land,
            AttackKind::Malformed => &mut attacks.malformed,
        };
        *place = self.share;
    }
}

impl FromStr for Attack {
    type Err = String;

    fn from_str(text: &str) -> Result<Attack, String> {
        let (kind, share) = named_number(text)?;
        let kind = match kind {
            "scan" | "port-scan" => AttackKind::Scan,
            "syn-flood" => AttackKind::SynFlood,
            "udp-flood" => AttackKind::UdpFlood,
            "land" => AttackKind::Land,
            "malformed" => AttackKind::Malformed,
            _ => {
                return Err(format!(
                    "`{kind}` is not an attack; expected scan, syn-flood, udp-flood, land or malformed"
                ));
            }
        };
        Ok(Attack { kind, share })
    }
}

/// Parses `NAME=NUMBER`.
fn named_number(text: &str) -> Result<(&str, f64), String> {
    let wrong = || format!("expected NAME=NUMBER, found `{text}`");
    let (name, number) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.trim(), number.trim().parse().map_err(|_| wrong())?))
}

/// `--flow-length`: packets with data in a flow.
#[derive(Clone, Copy, Debug)]
pub struct Length(pub FlowLength);

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Length, String> {
        let wrong = || format!("expected endless, 10, mean:10 or tail:4:1.3, found `{text}`");
        let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
        let parts: Vec<_> = text.split(':').collect();
        Ok(Length(match parts[..] {
            ["endless"] => FlowLength::Endless,
            ["mean", mean] => FlowLength::Geometric(number(mean)?),
            ["tail", least, alpha] => FlowLength::Pareto { least: number(least)?, alpha: number(alpha)? },
            [packets] => FlowLength::Fixed(packets.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        }))
    }
}

/// `--pacing`: the arrival process.
#[derive(Clone, Copy, Debug)]
pub struct Pace(pub Pacing);

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Pace, String> {
        Ok(Pace(match text {
            "constant" => Pacing::Constant,
            "poisson" => Pacing::Poisson,
            "bursts" => Pacing::OnOff { burst_packets: 20.0, gap_median_ns: 600_000.0, gap_sigma: 1.0 },
            _ => return Err(format!("expected constant, poisson or bursts, found `{text}`")),
        }))
    }
}

/// `--payload`: the payload of packets.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PayloadKind {
    /// Random bytes
    Random,
    /// HTTP/1.1 requests
    Http,
    /// Zeros
    Zero,
}

impl From<PayloadKind> for Payload {
    fn from(contents: PayloadKind) -> Payload {
        match contents {
            PayloadKind::Random => Payload::Random,
            PayloadKind::Http => Payload::Http,
            PayloadKind::Zero => Payload::Zero,
        }
    }
}

/// Describes a preset in one line.
pub fn preset_summary(name: &str) -> &'static str {
    match name {
        "mix" => "1,000 flows, mostly TCP over IPv4, heavy-tailed, Internet mix of sizes, both directions",
        "smallest" => "64-byte UDP over IPv4 at a constant 1 Mpps, endless flows, one direction",
        "web" => "HTTP over TCP, few popular flows, in bursts",
        "churn" => "short flows, 10,000 new ones per second",
        "elephants" => "few long flows of long packets among many short ones",
        "attack" => "the mix, two fifths of which are scans, floods and malformed packets",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::traffic::TrafficProfile;

    #[test]
    fn every_preset_has_a_summary() {
        for name in TrafficProfile::PRESETS {
            assert!(!preset_summary(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn values_are_parsed() {
        assert_eq!(count("100k"), Ok(100_000));
        assert_eq!("64".parse::<PacketBytes>().unwrap().0, FrameBytes::Fixed(60));
        assert_eq!("64-1518".parse::<PacketBytes>().unwrap().0, FrameBytes::Range(60, 1514));
        assert_eq!("IMIX".parse::<PacketBytes>().unwrap().0, FrameBytes::Imix);
        assert_eq!("1Mpps".parse::<Pps>().unwrap().0, FrameRate::PacketsPerSecond(1e6));
        assert_eq!("1Gbps".parse::<Pps>().unwrap().0, FrameRate::BitsPerSecond(1e9));
        assert_eq!("tcp=1,udp=0.5".parse::<ProtocolMix>().unwrap().0.udp, 0.5);
        assert_eq!("mean:3".parse::<Length>().unwrap().0, FlowLength::Geometric(3.0));
        let mut attacks = Attacks::default();
        "scan=0.25".parse::<Attack>().unwrap().add_to(&mut attacks);
        assert_eq!(attacks.port_scan, 0.25);
    }

    #[test]
    fn wrong_values_are_refused() {
        assert!(count("0").is_err() && count("10s").is_err() && count("").is_err());
        assert!("3".parse::<PacketBytes>().is_err() && "a-b".parse::<PacketBytes>().is_err());
        assert!("10s".parse::<Pps>().is_err());
        assert!("tcp".parse::<ProtocolMix>().is_err() && "sctp=1".parse::<ProtocolMix>().is_err());
        assert!("flood=1".parse::<Attack>().is_err() && "scan=x".parse::<Attack>().is_err());
        assert!("tail:1".parse::<Length>().is_err() && "".parse::<Length>().is_err());
        assert!("slow".parse::<Pace>().is_err());
    }
}
