//! The `settings` of a policy: options of the run.

use graph::streams::{Differing, HostPolicy, LowTtl, StreamOptions, Urgent, WhenMemoryFull};
use graph::{Guards, NotIp, Options, Shares, Timeouts, WhenFull};
use nf::stage::OnPanic;
use nf::{AFFINITY_GROUPS_MAX, AffinityGroups};
use packet::{TunnelPorts, VXLAN_PORTS_MAX};
use serde::{Deserialize, Deserializer};
use values::{ByteCount, Nanos};

/// Limit on flows. Their records and indices are allocated at the start, some 20 GB for this many.
pub const FLOWS_MAX: u32 = 1 << 26;

/// The keys of `settings { ... }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Limit on flows (`flows: 1M`), 1 to [`FLOWS_MAX`].
    #[serde(deserialize_with = "flows")]
    pub flows: u32,
    /// Treatment of a new flow when the table is full.
    pub when_full: WhenFullSetting,
    /// Shares of the table that decide which flow is evicted when it is full.
    pub shares: ShareSettings,
    /// IP header that the flow key is taken from: the `outer`most or the `inner`most.
    pub key: KeySetting,
    /// Treatment of frames that are not IP.
    pub not_ip: NotIpSetting,
    /// Treatment by filters of packets that a wire's link needs.
    pub link_control: LinkControlSetting,
    /// Treatment of well-formed packets that no host may send.
    pub sanity: SanitySettings,
    /// UDP ports of tunnels.
    pub tunnels: TunnelSettings,
    /// Drops packets with a wrong IPv4 header checksum.
    pub verify_ipv4_checksum: bool,
    /// Use of VLANs in flow keys.
    pub vlan: VlanSetting,
    /// Limit on fragmented datagrams that are tracked.
    pub fragments: u32,
    /// Timeout of fragments that wait for their first one.
    pub fragment_timeout: Nanos,
    /// Timeouts of flows, unless an NF sets them.
    pub timeouts: TimeoutSettings,
    /// Reassembly of TCP streams for NFs that inspect them.
    pub streams: StreamSettings,
    /// Lets packets with a cached rule take the fast path.
    pub consolidate: bool,
    /// Treatment of a packet at which an NF panics.
    pub on_panic: OnPanicSetting,
    /// Affinity groups among which NFs divide their pools; by default [`nf::AFFINITY_GROUPS`] on a
    /// cluster, and none on one machine.
    #[serde(deserialize_with = "affinity_groups")]
    pub affinity_groups: Option<u16>,
    /// Seed of everything random; by default random for each run (and shown in its report).
    pub seed: Option<u64>,
}

/// `when_full`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum WhenFullSetting {
    /// The least useful flow is evicted, see [`ShareSettings`].
    EvictOldest,
    /// The new flow is refused.
    RefuseNew,
}

/// `vlan`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum VlanSetting {
    /// Each VLAN is a separate network.
    Key,
    /// A flow may use several VLANs.
    Ignore,
}

/// `on_panic`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum OnPanicSetting {
    /// It is dropped, and its flow ends.
    Drop,
    /// It skips the NF; the NF's state of the flow is reset.
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
    /// They pass unchanged, unless a firewall denies by default. Packets that a link needs always
    /// pass.
    Auto,
    /// They pass unchanged.
    Pass,
    /// They are dropped.
    Drop,
}

/// `link_control`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum LinkControlSetting {
    /// They pass filters regardless of the rules.
    Pass,
    /// The rules of filters apply.
    Rules,
}

/// `sanity`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SanitySettings {
    /// Packets from or to addresses that must not be on a link.
    pub martians: SanitySetting,
    /// Packets from an address to itself.
    pub land: SanitySetting,
    /// Packets with a source route.
    pub source_routes: SanitySetting,
    /// Packets with a time to live of 0.
    pub ttl_zero: SanitySetting,
    /// IP in MPLS, PPPoE or LLC/SNAP.
    pub encapsulated: SanitySetting,
}

/// A key of `sanity`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SanitySetting {
    /// They are dropped if a firewall denies by default.
    #[default]
    Auto,
    /// They are dropped.
    Drop,
    /// They are processed like others.
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
    /// TCP connections during their handshake or end.
    pub tcp_transitory: Nanos,
    /// UDP with packets in both directions.
    pub udp: Nanos,
    /// UDP with packets in one direction.
    pub udp_unreplied: Nanos,
    /// ICMP queries.
    pub icmp: Nanos,
    /// Anything else.
    pub other: Nanos,
}

/// `shares`: the share of a full table beyond which flows of a class or of a source are evicted
/// first, in percent.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShareSettings {
    /// UDP with packets in one direction.
    pub udp_unanswered: Percent,
    /// TCP connections before the end of their handshake.
    pub tcp_half_open: Percent,
    /// Anything but TCP and UDP.
    pub other: Percent,
    /// UDP with packets in both directions.
    pub udp_answered: Percent,
    /// Flows of one source, whatever their class.
    pub per_source: Percent,
}

/// A percentage from 1 to 100.
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
    /// Host with the policy for overlapping bytes that is followed.
    pub policy: HostPolicySetting,
    /// Memory of all out-of-order queues together, up to [`STREAM_MEMORY_MAX`].
    #[serde(deserialize_with = "stream_memory")]
    pub memory: ByteCount,
    /// Memory of one direction's out-of-order queue.
    #[serde(deserialize_with = "stream_memory")]
    pub memory_per_stream: ByteCount,
    /// Share of the memory that flows of one source may have once it is three quarters full, in
    /// percent.
    pub per_source: Percent,
    /// Position of urgent bytes.
    pub urgent: UrgentSetting,
    /// Packets with a lower time to live may not reach their host.
    pub ttl_min: Option<u8>,
    /// With an NF that prevents attacks: lets packets pass only if hosts read them as inspected.
    pub normalize: bool,
    /// With an NF that prevents attacks: treatment of packets below `ttl_min`.
    pub low_ttl: LowTtlSetting,
    /// With an NF that prevents attacks: treatment of segments that differ from earlier bytes.
    pub differing: DifferingSetting,
    /// With an NF that prevents attacks: treatment of segments that find no memory.
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
    /// They get the bytes that arrived first.
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
    /// Separately from the stream.
    OutOfBand,
    /// In the stream.
    Inline,
}

/// Limit on the memory of out-of-order queues.
pub const STREAM_MEMORY_MAX: u64 = 16 << 30;

/// `streams.policy`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum HostPolicySetting {
    /// The bytes that arrived first.
    First,
    /// The bytes that arrived last.
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
            affinity_groups: None,
            seed: None,
        }
    }
}

impl Settings {
    /// Returns the affinity groups; `seed` applies if the settings name none.
    fn groups(&self, seed: u64) -> Option<AffinityGroups> {
        AffinityGroups::new(self.affinity_groups?, self.seed.unwrap_or(seed))
    }

    /// Returns the graph's options; `seed` if the settings name none.
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
            affinity_groups: self.groups(seed),
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

fn affinity_groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let count = u64::deserialize(deserializer)?;
    match u16::try_from(count) {
        Ok(count @ 1..=AFFINITY_GROUPS_MAX) => Ok(Some(count)),
        _ => Err(serde::de::Error::custom(format!(
            "expected 1 to {AFFINITY_GROUPS_MAX} affinity groups, found {count}"
        ))),
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
