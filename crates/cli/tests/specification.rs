//! The limits in SPECIFICATION.md equal those of the code.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

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
        functions::ids::HEAD_BYTES,
        functions::ids::REPEATED_MAX,
        functions::ids::BODY_MAX,
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
        runtime::elastic::GROUP_WAITING_MAX,
        runtime::elastic::INTERVALS_MAX,
        runtime::elastic::FLOWS_MAX,
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
        sim::workload::RECORDED_MAX,
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

/// Returns constant and value of a row in a table of limits, if it names a constant.
fn promise(line: &str) -> Option<(String, u64)> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let &["", _, limit, constant, _, ""] = &cells[..] else { return None };
    let constant = constant.strip_prefix('`')?.strip_suffix('`')?;
    let limit =
        limit.replace(',', "").parse().unwrap_or_else(|_| panic!("{constant}: `{limit}` is not a number"));
    Some((constant.to_owned(), limit))
}
