//! Policies fitted to a capture: its own addresses are inside, served, or translated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::sums;
use crate::traces::Recorded;

/// The functions that a capture passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Wire,
    Nat,
    Balance,
    Tunnel,
    Firewall,
    Monitor,
    Police,
    Whitelist,
    Dos,
    Http,
    Redundancy,
    /// NAT, load balancer, monitor, and a firewall that allows nearly everything.
    Graph,
    /// All functions.
    All,
}

impl Kind {
    /// Returns whether packets leave unchanged.
    pub fn changes_nothing(self) -> bool {
        matches!(
            self,
            Kind::Wire
                | Kind::Firewall
                | Kind::Monitor
                | Kind::Whitelist
                | Kind::Dos
                | Kind::Http
                | Kind::Redundancy
        )
    }

    fn line(self) -> &'static str {
        match self {
            Kind::Wire => "inside <-> outside",
            Kind::Nat => "inside <-> n <-> outside",
            Kind::Balance => "inside <-> l <-> outside",
            Kind::Tunnel => "inside <-> t <-> outside",
            Kind::Firewall => "inside <-> f <-> outside",
            Kind::Monitor => "inside <-> m <-> outside",
            Kind::Police => "inside <-> p <-> outside",
            Kind::Whitelist => "inside <-> w <-> outside",
            Kind::Dos => "inside <-> d <-> outside",
            Kind::Http => "inside <-> h <-> outside",
            Kind::Redundancy => "inside <-> r <-> outside",
            Kind::Graph => "inside <-> n <-> l <-> m <-> f <-> outside",
            Kind::All => "inside <-> p <-> n <-> w <-> d <-> f <-> h <-> r <-> l <-> m <-> outside",
        }
    }

    /// Returns the policy, with addresses from these records.
    pub fn policy(self, records: &[Recorded]) -> String {
        let ends = Ends::of(records);
        let line = self.line();
        let mut text = format!(
            "Port<0> inside {{ prefixes: [{}] }};\nPort<1> outside;\nsettings {{ seed: 7 }};\npipelet {{ {line}; }}\n",
            ends.prefixes().join(", ")
        );
        if line.contains(" n ") {
            text += &nat(&ends);
        }
        if line.contains(" l ") {
            text += &balancer(&ends, "l", "nat");
        }
        if line.contains(" t ") {
            text += &balancer(&ends, "t", "gue");
        }
        if line.contains(" f ") {
            let loose = matches!(self, Kind::Graph | Kind::All);
            let (default, tcp) = if loose { ("allow", "loose") } else { ("reject", "strict") };
            text +=
                &format!("Firewall f {{ default: {default}, tcp: {tcp}, rules: \"\"\"\n{RULES}\"\"\" }};\n");
        }
        if line.contains(" m ") {
            text += "Monitor m { active_timeout: 10s };\n";
        }
        if line.contains(" p ") {
            text += POLICER;
        }
        if line.contains(" h ") {
            text += "HTTP h { anomalies: alert };\n";
        }
        if line.contains(" r ") {
            text += "RedundancyMeter r { window: 16, sample: 64, events_from: 1KB };\n";
        }
        if line.contains(" w ") {
            text += "Whitelist w { services: [53, 67, 68, 443], others: pass, alert_above: 1pps };\n";
        }
        if line.contains(" d ") {
            text += "DosPreventer d { flow_rate: 1kpps, packets: 10k, connections: 100, alert_every: 1s };\n";
        }
        text
    }
}

/// Tight, so that packets of all colours occur; red packets pass with another DSCP.
const POLICER: &str = "Policer p { rate: 20kbps, burst: 2KB, peak_rate: 40kbps, per: source, meters: 16, \
     green: { remark: af11 }, yellow: { remark: precedence }, red: { remark: cs1 } };\n";

const RULES: &str = r#"
deny state invalid log as "invalid"
allow out tcp flags SYN,!ACK log as "opened"
allow out udp to any port 1-32767
allow any_direction {icmp, icmp6}
deny in udp to any port 0-1023
"#;

/// Endpoints of a capture's first IP packets.
#[derive(Default)]
struct Ends {
    v4: Option<(Ipv4Addr, Ipv4Addr)>,
    v6: Option<(Ipv6Addr, Ipv6Addr)>,
}

impl Ends {
    fn of(records: &[Recorded]) -> Ends {
        let mut ends = Ends::default();
        for record in records {
            match sums::ends(record.link, &record.data) {
                Some((IpAddr::V4(from), IpAddr::V4(to))) if can_be_served_v4(to) => {
                    ends.v4.get_or_insert((from, to));
                }
                Some((IpAddr::V6(from), IpAddr::V6(to))) if can_be_served_v6(to) => {
                    ends.v6.get_or_insert((from, to));
                }
                _ => {}
            }
        }
        ends
    }

    /// Networks of the first senders, which are inside.
    fn prefixes(&self) -> Vec<String> {
        let v4 = self.v4.map(|(from, _)| format!("{from}/24"));
        let v6 = self.v6.map(|(from, _)| format!("{from}/64"));
        let mut prefixes: Vec<_> = v4.into_iter().chain(v6).collect();
        if prefixes.is_empty() {
            prefixes.push("0.0.0.0/0".to_owned());
        }
        prefixes
    }
}

fn can_be_served_v4(to: Ipv4Addr) -> bool {
    !to.is_multicast() && !to.is_broadcast() && !to.is_unspecified() && !to.is_loopback()
}

fn can_be_served_v6(to: Ipv6Addr) -> bool {
    !to.is_multicast() && !to.is_unspecified() && !to.is_loopback()
}

fn nat(ends: &Ends) -> String {
    let nptv6 = ends.v6.map_or_else(String::new, |(from, _)| {
        let s = from.segments();
        let inside = Ipv6Addr::new(s[0], s[1], s[2], s[3], 0, 0, 0, 0);
        format!("nptv6: [{{ inside: {inside}/64, outside: 2001:2:0:1::/64 }}],")
    });
    format!(
        "NAT n {{ external: [198.18.0.1-198.18.0.4], untranslated: pass, tcp_opens_with: any, log: mappings, {nptv6} }};\n"
    )
}

/// Returns a load balancer with the first receivers as its services.
fn balancer(ends: &Ends, name: &str, mode: &str) -> String {
    let mut services = Vec::new();
    if let Some((_, to)) = ends.v4 {
        services.push(service("four", to.into(), mode, ["198.19.0.1", "198.19.0.2", "198.19.0.3"]));
    }
    if let Some((_, to)) = ends.v6 {
        services.push(service("six", to.into(), mode, ["2001:2:0:2::1", "2001:2:0:2::2", "2001:2:0:2::3"]));
    }
    if services.is_empty() {
        services.push(service(
            "none",
            [192, 0, 2, 80].into(),
            mode,
            ["198.19.0.1", "198.19.0.2", "198.19.0.3"],
        ));
    }
    format!(
        "LB {name} {{ services: [{}], answer_ping: true, tunnel: {{ source4: 198.18.1.0/24, source6: 2001:2:0:3::/64 }} }};\n",
        services.join(", ")
    )
}

fn service(name: &str, vip: IpAddr, mode: &str, servers: [&str; 3]) -> String {
    let servers =
        servers.iter().enumerate().map(|(i, address)| format!("{{ name: s{i}, address: {address} }}"));
    let servers: Vec<_> = servers.collect();
    format!("{{ name: {name}, vip: {vip}, protocol: any, mode: {mode}, servers: [{}] }}", servers.join(", "))
}
