//! The limits in SPECIFICATION.md equal those of the code, and the names in it exist.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Constants and their values, by the paths in the page.
macro_rules! constants {
    ($($($segment:ident)::+),+ $(,)?) => {
        vec![$((stringify!($($segment)::+).replace(' ', ""), $($segment)::+ as u64)),+]
    };
}

#[test]
fn limits_equal_those_of_the_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SPECIFICATION.md");
    let page = fs::read_to_string(page).unwrap();
    let mut promised: Vec<(String, u64)> = page.lines().filter_map(promise).collect();
    let mut real = constants![
        graph::BRANCHING_NFS_MAX,
        graph::GROUP_MAX,
        graph::GROUP_NS,
        graph::PACKET_NS,
        graph::fragments::WAITING_MAX,
        graph::streams::DATAGRAMS_MAX,
        graph::streams::DATAGRAM_TIMEOUT_NS,
        graph::streams::WINDOW_MAX,
        functions::dos::BURST_MAX,
        functions::dos::SOURCES_MAX,
        functions::firewall::ANSWERS_PER_S,
        functions::firewall::SOURCES_MAX,
        functions::firewall::SOURCE_ANSWERS_PER_S,
        functions::firewall::classify::RULES_MAX,
        functions::firewall::classify::TABLES_BYTES_MAX,
        functions::firewall::parse::ERRORS_MAX,
        functions::firewall::parse::ERRORS_SHOWN,
        functions::http::BUFFER_MAX,
        functions::http::BUFFER_MEMORY,
        functions::http::LINE_MAX,
        functions::http::METHODS_MAX,
        functions::ids::LOOKBACK_BYTES,
        functions::ids::LENGTH_MAX,
        functions::ids::PARTS_MAX,
        functions::ids::MAIL_DEPTH_MAX,
        functions::ids::DEFERRED_BYTES,
        functions::ids::CANDIDATES_MAX,
        functions::ids::FLOWBITS_MAX,
        functions::ids::EXCERPT_BYTES,
        functions::ids::CODINGS_MAX,
        functions::ids::TEXT_BYTES,
        functions::ids::ENTRIES_MAX,
        functions::http::PORTS_MAX,
        functions::http::PROBE_MAX,
        functions::http::SEARCH_MAX,
        functions::lb::maglev::SLOTS_MAX,
        functions::lb::maglev::WEIGHT_MAX,
        functions::mirror::MTU_MIN_V4,
        functions::mirror::MTU_MIN_V6,
        functions::mirror::SESSION_MAX,
        functions::mirror::SNAP_MIN,
        functions::mirror::VNI_MAX,
        functions::mptcp::CONNECTIONS_MAX,
        functions::mptcp::CONNECTION_IDLE_NS,
        functions::mptcp::SEEN_BYTES_MAX,
        functions::mptcp::SEEN_RANGES_MAX,
        functions::nat::EXTERNAL_MAX,
        functions::re::CACHE_MAX,
        functions::re::CACHE_MIN,
        functions::re::HELLO_INTERVAL_NS,
        functions::re::MISSING_MAX,
        functions::re::NETWORKS_MAX,
        functions::re::PAYLOAD_MAX,
        functions::re::PAYLOAD_MIN,
        functions::re::SAMPLES_MAX,
        functions::re::REPORT_INTERVAL_NS,
        functions::re::TOKENS_MAX,
        functions::redundancy::CACHE_MAX,
        functions::redundancy::CACHE_MIN,
        functions::redundancy::CHUNKS_MAX,
        functions::redundancy::CHUNK_SAMPLES_MAX,
        functions::redundancy::PORTS_MAX,
        functions::tcp_mss::MTU_MIN,
        functions::tcp_mss::SEGMENT_MIN,
        functions::tunnel::MTU_MIN,
        functions::vpn::INBOUND_MAX,
        functions::vpn::NETWORKS_MAX,
        functions::vpn::REPLAY_WINDOW,
        functions::vpn::TUNNELS_MAX,
        functions::policer::METERS_MAX,
        functions::policer::OVERHEAD_MAX,
        functions::policer::marker::SIZE_MAX,
        functions::whitelist::MEMBERS_MAX,
        functions::whitelist::SERVICES_MAX,
        l3::ANNOUNCED_MAX,
        l3::ANNOUNCEMENTS_PER_MS,
        l3::ERRORS_PER_SECOND,
        l3::NEIGHBOURS_MAX,
        l3::ROUTES_MAX,
        l3::PENDING_PER_NEIGHBOUR_MAX,
        l3::SENDERS_MAX,
        io::capture::BLOCK_BYTES_MAX,
        io::capture::COMMENT_BYTES_MAX,
        io::capture::INTERFACES_MAX,
        io::capture::NAME_BYTES_MAX,
        io::capture::RECORD_BYTES_MAX,
        io::traffic::FLOWS_MAX,
        io::traffic::FRAME_BYTES_MAX,
        nf::CACHED_PAYLOAD_MAX,
        nf::EFFECTS_MAX,
        nf::EVENTS_MAX,
        nf::EVENT_FIELDS_MAX,
        nf::EVENT_TEXTS_MAX,
        nf::METERS_SCANNED_MAX,
        nf::RECORD_MAX,
        nf::PLAN_SHAPE_MAX,
        runtime::shards::RING,
        runtime::shards::WORKERS_MAX,
        runtime::BATCH,
        runtime::POLL_SLEEP_NS_MAX,
        runtime::POLL_SLEEP_NS_MIN,
        runtime::STREAM_MEMORY_MAX,
        packet::OUTER_MATCH_LEN_MAX,
        packet::HEADROOM,
        packet::LARGE_ROOM,
        packet::PacketPool::LARGE_MAX,
        packet::SHIM_LEN_MAX,
        packet::SMALL_ROOM,
        packet::parse::EXTENSION_MAX,
        packet::parse::SHIM_MAX,
        packet::parse::TUNNEL_MAX,
        packet::parse::VXLAN_PORTS_MAX,
        policy::CONFIG_FAULTS_MAX,
        policy::DEPTH_MAX,
        policy::DIAGNOSTICS_MAX,
        policy::NAME_BYTES_MAX,
        policy::NODES_MAX,
        policy::NODE_ATTRIBUTES_MAX,
        runtime::external::streams::ANSWERS_MAX,
        runtime::external::streams::CHUNK_BYTES_MAX,
        runtime::external::tags::GENEVE_TAG_BITS,
        runtime::external::tags::VLAN_TAG_BITS,
        policy::RESOLVED_BYTES_MAX,
        policy::SOURCE_BYTES_MAX,
        protocol::message::AHEAD_MAX,
        protocol::message::CHANGING_MAX,
        protocol::message::TARGETS_MAX,
        cluster::addresses::ADDRESSES_MAX,
        cluster::policies::DIGESTS_MAX,
        cluster::policies::POLICY_BYTES_MAX,
        cluster::remote::IN_FLIGHT_MAX,
        cluster::remote::UNIT_IN_FLIGHT_MAX,
        runtime::transport::IN_FLIGHT_MAX,
        runtime::transport::MAILS,
        runtime::transport::RETURNS,
        runtime::transport::RING,
        runtime::transport::THREADS_MAX,
        nf::AFFINITY_GROUPS_MAX,
        l3::IN_USE_MAX,
        store::policy::PARTS_MAX,
        runtime::elastic::COPY_PATIENCE_NS,
        runtime::elastic::GROUP_WAITING_MAX,
        runtime::elastic::INTERVALS_MAX,
        runtime::elastic::FLOWS_MAX,
        runtime::elastic::TOKENS_MAX,
        runtime::elastic::TOKENS_SCANNED_MAX,
        runtime::elastic::UNITS_MAX,
        protocol::dispatcher::BUCKETS_MAX,
        protocol::dispatcher::DISPLACED_AFTER_NS,
        protocol::dispatcher::FLOWS_MAX,
        protocol::dispatcher::FORGOTTEN_PER_BUCKET,
        protocol::dispatcher::MOVES_PER_BUCKET,
        protocol::dispatcher::RSS_BUCKETS_MAX,
        protocol::dispatcher::FLOWS_SCANNED_PER_BUCKET,
        protocol::dispatcher::TARGETS_COUNT_MAX,
        sim::INTERVALS_MAX,
        sim::scenario::RECORDED_MAX,
        sim::scenario::COPIES_MAX,
        sim::STATE_MAX,
        sim::scenario::UNITS_MAX,
        protocol::unit::FLOWS_MAX,
        protocol::unit::OWNERSHIPS_MAX,
        protocol::unit::TOMBSTONES_MAX,
        protocol::unit::BACKOFF_DOUBLINGS_MAX,
    ];
    for driver in io::port::DRIVERS {
        let path = |limit: &str| format!("io::port::{}::{limit}", driver.info.name);
        real.extend(driver.info.limits.iter().map(|limit| (path(limit.name), limit.value)));
    }
    promised.sort();
    real.sort();
    assert_eq!(promised, real);
}

/// Words in code spans that are programs and settings of others.
const FOREIGN: [&str; 4] = ["nmap", "ping", "traceroute", "txqueuelen"];

#[test]
fn names_in_code_spans_exist() {
    let sources: String = sources(&workspace("crates")).into_iter().map(|(_, text)| text).collect();
    let known: BTreeSet<&str> = sources.split(|c: char| !is_word(c)).collect();
    let mut missing = Vec::new();
    for page in ["SPECIFICATION.md", "docs/commands/run.md"] {
        for span in code_spans(&fs::read_to_string(workspace(page)).unwrap()) {
            let fault = match span.split(' ').collect::<Vec<_>>()[..] {
                ["rivulet", command, ..] => (!is_command(command)).then_some("no such command"),
                ["cargo", "test" | "bench", "-p", name, ref rest @ ..] => test_fault(name, rest),
                [word] if FOREIGN.contains(&word) || !word.chars().all(|c| is_word(c) || c == '.') => None,
                [word] => {
                    let is_known = |part| known.contains(part);
                    (!word.split('.').all(is_known)).then_some("no such name in the sources")
                }
                _ => None,
            };
            missing.extend(fault.map(|fault| format!("{page}: `{span}`: {fault}")));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Returns what is wrong with `cargo test -p NAME ...`: the crate, a test program or a filter of
/// tests does not exist.
fn test_fault(name: &str, rest: &[&str]) -> Option<&'static str> {
    let package = workspace("crates").join(name);
    if !package.exists() {
        return Some("no such crate");
    }
    let mut files = Vec::new();
    let mut filters = Vec::new();
    let mut words = rest.iter();
    while let Some(&word) = words.next() {
        match word {
            "--test" | "--bench" => {
                let folder = if word == "--test" { "tests" } else { "benches" };
                let program = package.join(folder).join(words.next().copied().unwrap_or_default());
                match [program.with_extension("rs"), program].into_iter().find(|path| path.exists()) {
                    Some(path) => files.extend(sources(&path)),
                    None => return Some("no such test program"),
                }
            }
            "--features" => drop(words.next()),
            option if option.starts_with("--") => {}
            filter => filters.push(filter),
        }
    }
    if files.is_empty() {
        files = sources(&package);
    }
    let has = |filter: &str| files.iter().any(|(path, text)| path.contains(filter) || text.contains(filter));
    (!filters.into_iter().all(has)).then_some("no test of this name")
}

/// Checks if the program has this command.
fn is_command(name: &str) -> bool {
    let program = Command::new(env!("CARGO_BIN_EXE_rivulet")).args([name, "--help"]).output();
    program.unwrap().status.success()
}

fn is_word(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c)
}

fn workspace(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the Rust files in a folder, or a file, by path, with their text.
fn sources(path: &Path) -> Vec<(String, String)> {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        return entries.flat_map(|entry| sources(&entry)).collect();
    }
    let is_source = path.extension().is_some_and(|extension| extension == "rs");
    let read = is_source.then(|| (path.display().to_string(), fs::read_to_string(path).unwrap()));
    read.into_iter().collect()
}

/// Returns the code spans of a page without code blocks.
fn code_spans(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Returns constant and value of a row in a table of limits, if it names a constant.
fn promise(line: &str) -> Option<(String, u64)> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let &["", _, limit, constant, _, ""] = &cells[..] else { return None };
    let constant = constant.strip_prefix('`')?.strip_suffix('`')?;
    let limit =
        limit.replace(',', "").parse().unwrap_or_else(|_| panic!("{constant}: `{limit}` is not a number"));
    Some((constant.to_owned(), limit))
}
