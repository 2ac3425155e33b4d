//! `rivulet doctor`: checks whether this machine is ready for `rivulet up`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use io::port::{DRIVERS, InterfaceStatus, interface_status};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;

use crate::output::{self, Format, Table, thousands};

/// Checks whether this machine and its network interfaces are ready for `rivulet up`
///
/// Changes nothing. The exit code is 1 if a check fails.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Network interfaces to check [default: all Ethernet interfaces]
    pub interfaces: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

const EXAMPLES: &str = "\
Examples:
  rivulet doctor
  rivulet doctor eth0 eth1
  rivulet doctor -o json | jq '.[] | select(.state != \"ok\")'";

/// Receive buffer that `rivulet up` requests for an interface, in bytes.
const BUFFER: u64 = 16 << 20;

/// The result of a check.
#[derive(Debug, Serialize)]
struct Finding {
    check: String,
    state: State,
    found: String,
    /// Remedy; empty if none is needed.
    advice: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// It works, with a limitation.
    Note,
    /// It does not work.
    Fail,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Note => "note",
            State::Fail => "FAIL",
        }
    }
}
fn finding(check: &str, state: State, found: impl Into<String>, advice: &str) -> Finding {
    let advice = if state == State::Ok { "" } else { advice };
    Finding { check: check.to_owned(), state, found: found.into(), advice: advice.to_owned() }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut findings = machine();
    let names = if args.interfaces.is_empty() { all_interfaces() } else { args.interfaces.clone() };
    if names.is_empty() {
        findings.push(finding("interfaces", State::Fail, "none", "add an Ethernet interface"));
    }
    findings.extend(names.iter().flat_map(|name| interface(name)));
    match args.output {
        Format::Json => output::print_json(&findings)?,
        Format::Table => output::print(&render(&findings))?,
    }
    let fails = findings.iter().any(|finding| finding.state == State::Fail);
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn render(findings: &[Finding]) -> String {
    let mut table = Table::new(&["check", "state", "found"]);
    for finding in findings {
        table.row(vec![finding.check.clone(), finding.state.name().to_owned(), finding.found.clone()]);
    }
    let mut text = table.render();
    for finding in findings.iter().filter(|finding| !finding.advice.is_empty()) {
        text += &format!("\n{}: {}", finding.check, finding.advice);
    }
    if findings.iter().all(|finding| finding.advice.is_empty()) { text } else { text + "\n" }
}

/// Checks of the machine.
fn machine() -> Vec<Finding> {
    let kernel = read("/proc/sys/kernel/osrelease");
    let is_new = version(&kernel).is_some_and(|version| version >= (4, 20));
    let state = if is_new { State::Ok } else { State::Fail };
    let mut findings = vec![finding("kernel", state, kernel, "Linux 4.20 or later is required")];

    let had = capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
    let fallback =
        DRIVERS.iter().rfind(|driver| driver.info.is_for_interfaces).map(|driver| driver.info.name);
    for driver in DRIVERS {
        let readiness = driver.check(had);
        let state = match readiness.is_ready {
            true => State::Ok,
            // Interfaces have no other driver.
            false if fallback == Some(driver.info.name) => State::Fail,
            false => State::Note,
        };
        findings.push(finding(
            &format!("driver {}", driver.info.name),
            state,
            readiness.found,
            readiness.advice,
        ));
    }

    let buffer = read("/proc/sys/net/core/rmem_max").parse().unwrap_or(0);
    let has_room = buffer >= BUFFER || had.contains(CapabilitySet::NET_ADMIN);
    findings.push(finding(
        "receive buffers",
        if has_room { State::Ok } else { State::Note },
        format!("up to {} bytes", thousands(if has_room { buffer.max(BUFFER) } else { buffer })),
        "bursts may be lost: run `sysctl -w net.core.rmem_max=16777216`, or start with CAP_NET_ADMIN",
    ));

    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    findings.push(finding("CPU cores", State::Ok, cores.to_string(), ""));
    let pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let huge = pages.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    findings.push(finding(
        "huge pages",
        if matches!(huge, Some("always" | "madvise")) { State::Ok } else { State::Note },
        huge.unwrap_or("not available"),
        "lookups in large flow tables are slower: `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`",
    ));
    let has_cycles = io::cycles::counter().is_some();
    findings.push(finding(
        "cycle counter",
        if has_cycles { State::Ok } else { State::Note },
        if has_cycles { "available" } else { "not available" },
        "reports contain no cycles per packet",
    ));
    let forwards =
        [("ipv4", "/proc/sys/net/ipv4/ip_forward"), ("ipv6", "/proc/sys/net/ipv6/conf/all/forwarding")];
    for (version, path) in forwards {
        let is_on = read(path) == "1";
        findings.push(finding(
            &format!("{version} forwarding of the kernel"),
            if is_on { State::Note } else { State::Ok },
            if is_on { "on" } else { "off" },
            "the kernel also forwards packets that arrive on interfaces with addresses, so packets may be duplicated; \
             turn it off, or remove the addresses",
        ));
    }
    findings
}

/// Checks of one interface.
fn interface(name: &str) -> Vec<Finding> {
    let of = |check: &str| format!("{name}: {check}");
    let InterfaceStatus { link, has_ipv4, has_ipv6, driver: chosen, fallback } = match interface_status(name)
    {
        Ok(status) => status,
        Err(error) => return vec![finding(name, State::Fail, error.to_string(), "see `ip link`")],
    };
    let sys = Path::new("/sys/class/net").join(name);
    let is_ethernet = link.address.is_some();
    let mut findings = vec![finding(
        &of("kind"),
        if is_ethernet { State::Ok } else { State::Fail },
        if is_ethernet { driver(&sys) } else { "not Ethernet".to_owned() },
        "only Ethernet interfaces can be ports",
    )];
    let is_tun = sys.join("tun_flags").exists();
    findings.push(finding(
        &of("link"),
        if link.is_up { State::Ok } else { State::Note },
        if link.is_up { "up" } else { "down" },
        &match is_tun {
            true => format!(
                "`ip link set {name} up`; it has a carrier while a program holds its other end, as Rivulet does with the port `tap:{name}`"
            ),
            false => format!("`ip link set {name} up`, and check its carrier"),
        },
    ));
    findings.push(finding(&of("MTU"), State::Ok, link.mtu.to_string(), ""));
    let addresses = match (has_ipv4, has_ipv6) {
        (true, true) => "IPv4 and IPv6",
        (true, false) => "IPv4",
        (false, true) => "IPv6",
        (false, false) => "none",
    };
    let routes = (read("/proc/net/route"), read("/proc/net/ipv6_route"));
    let is_needed = is_default_route(name, &routes.0, &routes.1) || all_interfaces().len() == 1;
    findings.push(finding(
        &of("addresses of the system"),
        if has_ipv4 || has_ipv6 { State::Note } else { State::Ok },
        addresses,
        &match is_needed {
            true => "the default route of this machine: as a port, its addresses are still answered by the system, and without \
                 them the machine, and perhaps your session, is disconnected; use another interface"
                .to_owned(),
            false => format!("the system answers there beside Rivulet; unless you want that, run `ip addr flush dev {name} scope global`"),
        },
    ));
    if is_ethernet {
        findings.push(finding(
            &of("driver"),
            if fallback.is_some() { State::Note } else { State::Ok },
            match &fallback {
                Some(_) => chosen.to_owned(),
                None => format!("{chosen}, if it can be opened"),
            },
            &fallback.map_or_else(String::new, |fallback| {
                format!("slower than {}: {}", fallback.refused, fallback.reason)
            }),
        ));
    }
    let master = sys.join("master");
    if let Ok(master) = fs::read_link(master) {
        let master = master.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        findings.push(finding(
            &of("bridge or bond"),
            State::Note,
            format!("part of {master}"),
            &format!("the bridge or bond also carries its frames: run `ip link set {name} nomaster`, or use {master}"),
        ));
    }
    findings
}

/// Returns whether a default route uses the interface, by the kernel's IPv4 and IPv6 tables.
fn is_default_route(name: &str, ipv4: &str, ipv6: &str) -> bool {
    let is_zero = |field: Option<&&str>| field.is_some_and(|field| field.bytes().all(|digit| digit == b'0'));
    let fields = |line: &'_ str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let v4 = ipv4.lines().map(fields).any(|fields| {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        fields.first() == Some(&name) && is_zero(fields.get(1)) && is_zero(fields.get(7))
    });
    let v6 = ipv6.lines().map(fields).any(|fields| {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        fields.last() == Some(&name) && is_zero(fields.first()) && is_zero(fields.get(1))
    });
    v4 || v6
}

/// Returns the driver's name and the number of receive queues.
fn driver(sys: &Path) -> String {
    let name =
        fs::read_link(sys.join("device/driver")).ok().and_then(|path| Some(path.file_name()?.to_owned()));
    let or_else = if sys.join("tun_flags").exists() { "TAP" } else { "virtual" };
    let name = name.map_or_else(|| or_else.to_owned(), |name| name.to_string_lossy().into_owned());
    let queues = fs::read_dir(sys.join("queues")).map_or(0, |queues| {
        queues.flatten().filter(|queue| queue.file_name().to_string_lossy().starts_with("rx-")).count()
    });
    format!("{name}, {queues} receive queues")
}

/// Returns the Ethernet interfaces, sorted by name.
fn all_interfaces() -> Vec<String> {
    let all = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<_> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| interface_status(name).is_ok_and(|status| status.link.address.is_some()));
    names.sort();
    names
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Parses major and minor version of a kernel release, such as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_is_found_in_the_kernels_tables() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                  eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                  eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let zeros = "0".repeat(32);
        let v6 = format!(
            "{zeros} 00 {zeros} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth2\n\
             fe800000000000000000000000000000 40 {zeros} 00 {zeros} 00000100 00000001 00000000 00000001 eth1\n"
        );
        let found = ["eth0", "eth1", "eth2", "eth"].map(|name| is_default_route(name, v4, &v6));
        assert_eq!(found, [true, false, true, false]);
    }

    #[test]
    fn kernel_releases_are_parsed() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("4.19.0"), Some((4, 19)));
        assert_eq!(version("unknown"), None);
    }
}
