//! The `settings` of a policy: options of the run.

use graph::streams::{Differing, HostPolicy, LowTtl, StreamOptions, Urgent, WhenMemoryFull};
use graph::{Guards, NotIp, Options, Shares, Timeouts, WhenFull};
use nf::stage::OnPanic;
use packet::{TunnelPorts, VXLAN_PORTS_MAX};
use serde::{Deserialize, Deserializer};
use values::{ByteCount, Nanos};

/// Flows that a policy may ask for at most: their records and indices are reserved at the start,
/// some 20 GB for these.
pub const FLOWS_MAX: u32 = 1 << 26;

/// What `settings { ... }` may say.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Flows at most (`flows: 1M`), 1 to [`FLOWS_MAX`].
    #[serde(deserialize_with = "flows")]
    pub flows: u32,
    /// What happens to a new flow when the table is full.
    pub when_full: WhenFullSetting,
    /// Which flows give way when the table is full.
    pub shares: ShareSettings,
    /// Which IP header makes the flow: the `outer`most or the `inner`most.
    pub key: KeySetting,
    /// What happens to frames that are not IP.
    pub not_ip: NotIpSetting,
    /// What happens to packets of a wire that its link needs, at filters.
    pub link_control: LinkControlSetting,
    /// What happens to well-formed packets that nobody may send.
    pub sanity: SanitySettings,
    /// The UDP ports by which tunnels are known.
    pub tunnels: TunnelSettings,
    /// Whether packets with a wrong IPv4 header checksum are dropped.
    pub verify_ipv4_checksum: bool,
    /// Whether VLANs are part of flows' keys.
    pub vlan: VlanSetting,
    /// Fragmented datagrams kept track of at most.
    pub fragments: u32,
    /// How long fragments wait for their first one.
    pub fragment_timeout: Nanos,
    /// How long flows are kept, where no function says it.
    pub timeouts: TimeoutSettings,
    /// How TCP streams are put together, for functions that look into them.
    pub streams: StreamSettings,
    /// Whether packets that are known to be treated as others of their flow take the fast path.
    pub consolidate: bool,
    /// What becomes of a packet at which a function panics.
    pub on_panic: OnPanicSetting,
    /// Seed of all that is random; without it, one is drawn for the run (and shown in its report).
    pub seed: Option<u64>,
}

/// `when_full`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum WhenFullSetting {
    /// The least useful flow goes, see [`ShareSettings`].
    EvictOldest,
    /// The new flow is refused.
    RefuseNew,
}

/// `vlan`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum VlanSetting {
    /// Each VLAN is a network of its own.
    Key,
    /// Flows are the same whatever VLANs their packets come in.
    Ignore,
}

/// `on_panic`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum OnPanicSetting {
    /// It is dropped, and its flow ends.
    Drop,
    /// It passes the function by, whose state of the flow begins anew.
    Bypass,
}

/// `key`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum KeySetting {
    /// The outermost IP header.
    Outer,
    /// The innermost one.
    Inner,
}

/// `not_ip`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum NotIpSetting {
    /// They pass untouched, unless a firewall denies what its rules do not allow; what a link needs
    /// passes anyhow.
    Auto,
    /// They pass untouched.
    Pass,
    /// They are dropped.
    Drop,
}

/// `link_control`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum LinkControlSetting {
    /// They pass filters, whose rules do not matter to them.
    Pass,
    /// Filters' rules decide.
    Rules,
}

/// `sanity`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SanitySettings {
    /// From or to addresses that must not be on a link.
    pub martians: SanitySetting,
    /// From an address to itself.
    pub land: SanitySetting,
    /// With a source route.
    pub source_routes: SanitySetting,
    /// With a time to live of 0.
    pub ttl_zero: SanitySetting,
    /// IP in MPLS, PPPoE or LLC/SNAP.
    pub encapsulated: SanitySetting,
}

/// A key of `sanity`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SanitySetting {
    /// They are dropped if a firewall denies what its rules do not allow.
    #[default]
    Auto,
    /// They are dropped.
    Drop,
    /// They go through the functions like others.
    Pass,
}

impl SanitySetting {
    fn choice(self) -> Option<bool> {
        match self {
            SanitySetting::Auto => None,
            SanitySetting::Drop => Some(true),
            SanitySetting::Pass => Some(false),
        }
    }
}

/// `tunnels`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TunnelSettings {
    /// UDP ports of VXLAN, up to [`VXLAN_PORTS_MAX`].
    #[serde(deserialize_with = "vxlan_ports")]
    pub vxlan: Vec<u16>,
}

impl Default for TunnelSettings {
    fn default() -> TunnelSettings {
        let ports = TunnelPorts::DEFAULT.vxlan.into_iter().filter(|&port| port != 0);
        TunnelSettings { vxlan: ports.collect() }
    }
}

impl TunnelSettings {
    fn ports(&self) -> TunnelPorts {
        let mut vxlan = [0; VXLAN_PORTS_MAX];
        vxlan.iter_mut().zip(&self.vxlan).for_each(|(to, &port)| *to = port);
        TunnelPorts { vxlan }
    }
}

/// `timeouts`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutSettings {
    /// TCP connections that are open.
    pub tcp_established: Nanos,
    /// TCP connections that open or close.
    pub tcp_transitory: Nanos,
    /// UDP, once both sides have spoken.
    pub udp: Nanos,
    /// UDP, while only one side has.
    pub udp_unreplied: Nanos,
    /// ICMP queries.
    pub icmp: Nanos,
    /// Anything else.
    pub other: Nanos,
}

/// `shares`: what each class of flows, and each source, may hold of a full table before its flows
/// give way, in percent.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShareSettings {
    /// UDP of which only one side was seen.
    pub udp_unanswered: Percent,
    /// TCP connections before the end of their handshake.
    pub tcp_half_open: Percent,
    /// Anything but TCP and UDP.
    pub other: Percent,
    /// UDP of which both sides were seen.
    pub udp_answered: Percent,
    /// Flows of one source, whatever their class.
    pub per_source: Percent,
}

/// A part of a hundred, 1 to 100.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "u64")]
pub struct Percent(u8);

impl TryFrom<u64> for Percent {
    type Error = String;

    fn try_from(percent: u64) -> Result<Percent, String> {
        match u8::try_from(percent) {
            Ok(percent @ 1..=100) => Ok(Percent(percent)),
            _ => Err(format!("expected a percentage from 1 to 100, found {percent}")),
        }
    }
}

impl Default for ShareSettings {
    fn default() -> ShareSettings {
        let Shares { udp_unanswered, tcp_half_open, other, udp_answered, per_source } = Shares::default();
        ShareSettings {
            udp_unanswered: Percent(udp_unanswered),
            tcp_half_open: Percent(tcp_half_open),
            other: Percent(other),
            udp_answered: Percent(udp_answered),
            per_source: Percent(per_source),
        }
    }
}

/// `streams`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamSettings {
    /// Which bytes count where segments overlap, as hosts of this kind have it.
    pub policy: HostPolicySetting,
    /// Memory for segments that came too early, all flows together, up to [`STREAM_MEMORY_MAX`].
    #[serde(deserialize_with = "stream_memory")]
    pub memory: ByteCount,
    /// The same for one direction of a flow.
    #[serde(deserialize_with = "stream_memory")]
    pub memory_per_stream: ByteCount,
    /// What the flows of one source may hold of it once three quarters are taken, in percent.
    pub per_source: Percent,
    /// Where hosts read urgent bytes.
    pub urgent: UrgentSetting,
    /// Packets with a time to live below this may end before they reach their host.
    pub ttl_min: Option<u8>,
    /// Whether packets pass only if hosts take them as they are inspected, where a function
    /// prevents attacks.
    pub normalize: bool,
    /// What becomes of packets with a lower one, where a function prevents attacks.
    pub low_ttl: LowTtlSetting,
    /// What becomes of segments that differ from what was sent before, where a function prevents
    /// attacks.
    pub differing: DifferingSetting,
    /// What becomes of segments that there is no memory to keep, where a function prevents attacks.
    pub when_full: StreamWhenFull,
}

/// `streams.low_ttl`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum LowTtlSetting {
    /// They are dropped.
    Drop,
    /// Their time to live is raised.
    Raise,
}

/// `streams.differing`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum DifferingSetting {
    /// They are dropped.
    Drop,
    /// They get the bytes that were sent first.
    Replace,
}

/// `streams.when_full`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum StreamWhenFull {
    /// They pass.
    Pass,
    /// They are dropped.
    Drop,
}

/// `streams.urgent`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum UrgentSetting {
    /// Beside the stream.
    OutOfBand,
    /// In the stream.
    Inline,
}

/// Memory that a policy may ask for segments that came too early.
pub const STREAM_MEMORY_MAX: u64 = 16 << 30;

/// `streams.policy`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum HostPolicySetting {
    /// Those that came first.
    First,
    /// Those that came last.
    Last,
    /// As BSD and Windows hosts.
    Bsd,
    /// As Linux hosts.
    Linux,
}

impl Default for StreamSettings {
    fn default() -> StreamSettings {
        let options = StreamOptions::default();
        StreamSettings {
            policy: HostPolicySetting::Linux,
            memory: ByteCount(options.memory as u64),
            memory_per_stream: ByteCount(u64::from(options.memory_per_stream)),
            per_source: Percent(options.per_source),
            urgent: UrgentSetting::OutOfBand,
            ttl_min: options.ttl_min,
            normalize: options.normalize,
            low_ttl: LowTtlSetting::Drop,
            differing: DifferingSetting::Drop,
            when_full: StreamWhenFull::Drop,
        }
    }
}

impl StreamSettings {
    fn options(&self) -> StreamOptions {
        StreamOptions {
            policy: match self.policy {
                HostPolicySetting::First => HostPolicy::First,
                HostPolicySetting::Last => HostPolicy::Last,
                HostPolicySetting::Bsd => HostPolicy::Bsd,
                HostPolicySetting::Linux => HostPolicy::Linux,
            },
            memory: usize::try_from(self.memory.0).unwrap_or(usize::MAX),
            memory_per_stream: u32::try_from(self.memory_per_stream.0).unwrap_or(u32::MAX),
            per_source: self.per_source.0,
            // The graph's own.
            seed: 0,
            urgent: match self.urgent {
                UrgentSetting::OutOfBand => Urgent::OutOfBand,
                UrgentSetting::Inline => Urgent::Inline,
            },
            ttl_min: self.ttl_min,
            normalize: self.normalize,
            low_ttl: match self.low_ttl {
                LowTtlSetting::Drop => LowTtl::Drop,
                LowTtlSetting::Raise => LowTtl::Raise,
            },
            differing: match self.differing {
                DifferingSetting::Drop => Differing::Drop,
                DifferingSetting::Replace => Differing::Replace,
            },
            inline: false,
            when_full: match self.when_full {
                StreamWhenFull::Pass => WhenMemoryFull::Pass,
                StreamWhenFull::Drop => WhenMemoryFull::Drop,
            },
        }
    }
}

impl Default for TimeoutSettings {
    fn default() -> TimeoutSettings {
        let t = Timeouts::default();
        let ns = |ms: u32| Nanos(u64::from(ms) * 1_000_000);
        TimeoutSettings {
            tcp_established: ns(t.tcp_established_ms),
            tcp_transitory: ns(t.tcp_transitory_ms),
            udp: ns(t.udp_ms),
            udp_unreplied: ns(t.udp_unreplied_ms),
            icmp: ns(t.icmp_ms),
            other: ns(t.other_ms),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        let options = Options::default();
        Settings {
            flows: options.flows_max,
            when_full: WhenFullSetting::EvictOldest,
            shares: ShareSettings::default(),
            key: KeySetting::Outer,
            not_ip: NotIpSetting::Auto,
            link_control: LinkControlSetting::Pass,
            sanity: SanitySettings::default(),
            tunnels: TunnelSettings::default(),
            verify_ipv4_checksum: false,
            vlan: VlanSetting::Key,
            fragments: options.fragments_max as u32,
            fragment_timeout: Nanos(options.fragment_timeout_ns),
            timeouts: TimeoutSettings::default(),
            streams: StreamSettings::default(),
            consolidate: options.consolidate,
            on_panic: OnPanicSetting::Drop,
            seed: None,
        }
    }
}

impl Settings {
    /// The graph's options; `seed` if the settings name none.
    pub fn options(&self, seed: u64) -> Options {
        let ms = |t: Nanos| u32::try_from(t.0.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        let (t, shares) = (&self.timeouts, &self.shares);
        Options {
            flows_max: self.flows,
            when_full: match self.when_full {
                WhenFullSetting::EvictOldest => WhenFull::EvictOldest,
                WhenFullSetting::RefuseNew => WhenFull::RefuseNew,
            },
            shares: Shares {
                udp_unanswered: shares.udp_unanswered.0,
                tcp_half_open: shares.tcp_half_open.0,
                other: shares.other.0,
                udp_answered: shares.udp_answered.0,
                per_source: shares.per_source.0,
            },
            timeouts: Timeouts {
                tcp_established_ms: ms(t.tcp_established),
                tcp_transitory_ms: ms(t.tcp_transitory),
                udp_ms: ms(t.udp),
                udp_unreplied_ms: ms(t.udp_unreplied),
                icmp_ms: ms(t.icmp),
                other_ms: ms(t.other),
            },
            not_ip: match self.not_ip {
                NotIpSetting::Auto => NotIp::AsFunctions,
                NotIpSetting::Pass => NotIp::Pass,
                NotIpSetting::Drop => NotIp::Drop,
            },
            inner: self.key == KeySetting::Inner,
            tunnel_ports: self.tunnels.ports(),
            offloaded: false,
            remembers_ports: false,
            guards: Guards {
                martians: self.sanity.martians.choice(),
                land: self.sanity.land.choice(),
                source_routes: self.sanity.source_routes.choice(),
                ttl_zero: self.sanity.ttl_zero.choice(),
                encapsulated: self.sanity.encapsulated.choice(),
            },
            verify_ipv4_checksum: self.verify_ipv4_checksum,
            ignore_vlans: self.vlan == VlanSetting::Ignore,
            fragments_max: self.fragments as usize,
            fragment_timeout_ns: self.fragment_timeout.0,
            streams: self.streams.options(),
            consolidate: self.consolidate,
            on_panic: match self.on_panic {
                OnPanicSetting::Drop => OnPanic::Drop,
                OnPanicSetting::Bypass => OnPanic::Bypass,
            },
            seed: self.seed.unwrap_or(seed),
            cycles: None,
        }
    }
}

fn vxlan_ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u16>, D::Error> {
    let ports: Vec<u16> = Vec::deserialize(deserializer)?;
    match ports.len() {
        0..=VXLAN_PORTS_MAX if !ports.contains(&0) => Ok(ports),
        _ => Err(serde::de::Error::custom(format!("expected up to {VXLAN_PORTS_MAX} UDP ports, 1 to 65535"))),
    }
}

fn flows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let flows = u64::deserialize(deserializer)?;
    match u32::try_from(flows) {
        Ok(flows @ 1..=FLOWS_MAX) => Ok(flows),
        _ => Err(serde::de::Error::custom(format!("expected 1 to {FLOWS_MAX} flows, found {flows}"))),
    }
}

fn stream_memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteCount, D::Error> {
    match ByteCount::deserialize(deserializer)? {
        memory if memory.0 <= STREAM_MEMORY_MAX => Ok(memory),
        memory => {
            let most = ByteCount(STREAM_MEMORY_MAX);
            Err(serde::de::Error::custom(format!("expected at most {most} of memory, found {memory}")))
        }
    }
}
