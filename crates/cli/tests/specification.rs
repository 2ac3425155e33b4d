//! The limits in SPECIFICATION.md are those of the code.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

/// Constants and their values, by the paths that the page names them by.
macro_rules! constants {
    ($($($segment:ident)::+),+ $(,)?) => {
        vec![$((stringify!($($segment)::+).replace(' ', ""), $($segment)::+ as u64)),+]
    };
}

#[test]
fn limits_are_those_of_the_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SPECIFICATION.md");
    let page = fs::read_to_string(page).unwrap();
    let mut promised: Vec<(String, u64)> = page.lines().filter_map(promise).collect();
    let mut real = constants![
        chain::GROUP_MAX,
        chain::GROUP_NS,
        chain::PACKET_NS,
        chain::fragments::WAITING_MAX,
        chain::streams::DATAGRAMS_MAX,
        chain::streams::DATAGRAM_TIMEOUT_NS,
        chain::streams::WINDOW_MAX,
        functions::dos::BURST_MAX,
        functions::dos::SOURCES_MAX,
        functions::firewall::ANSWERS_PER_S,
        functions::firewall::SOURCES_MAX,
        functions::firewall::SOURCE_ANSWERS_PER_S,
        functions::firewall::classify::RULES_MAX,
        functions::firewall::classify::TABLES_MAX_BYTES,
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
        functions::http::PORTS_MAX,
        functions::http::PROBE_MAX,
        functions::http::SEARCH_MAX,
        functions::lb::maglev::SLOTS_MAX,
        functions::lb::maglev::WEIGHT_MAX,
        functions::nat::EXTERNAL_MAX,
        functions::re::CACHE_MAX,
        functions::re::CACHE_MIN,
        functions::re::HELLO_INTERVAL_NS,
        functions::re::MISSING_MAX,
        functions::re::NETWORKS_MAX,
        functions::re::PAYLOAD_MAX,
        functions::re::PAYLOAD_MIN,
        functions::re::SAMPLES_MAX,
        functions::re::TELL_INTERVAL_NS,
        functions::re::TOKENS_MAX,
        functions::redundancy::CACHE_MAX,
        functions::redundancy::CACHE_MIN,
        functions::redundancy::CHUNKS_MAX,
        functions::redundancy::CHUNK_SAMPLES_MAX,
        functions::redundancy::PORTS_MAX,
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
        host::ERRORS_PER_SECOND,
        host::NEIGHBOURS_MAX,
        host::QUEUE_MAX,
        io::capture::MAX_BLOCK_BYTES,
        io::capture::MAX_COMMENT_BYTES,
        io::capture::MAX_INTERFACES,
        io::capture::MAX_NAME_BYTES,
        io::capture::MAX_RECORD_BYTES,
        io::port::DPDK_BUFFERS,
        io::port::DPDK_MEMORY_MIB,
        io::port::DPDK_RING,
        io::port::MEMIF_CALL_MAX_MS,
        io::port::MEMIF_PAUSE_MS,
        io::port::MEMIF_REGIONS_MAX,
        io::port::MEMIF_REGION_MAX_BYTES,
        io::port::QUEUES_MAX,
        io::port::QUEUE_MAX,
        io::port::QUEUE_MIN,
        io::port::SENDING_MAX,
        io::port::WAITING_MAX,
        io::traffic::MAX_FLOWS,
        io::traffic::MAX_FRAME_BYTES,
        nf::CONTENT_MAX,
        nf::EFFECTS_MAX,
        nf::EVENTS_MAX,
        nf::EVENT_FIELDS_MAX,
        nf::EVENT_TEXTS_MAX,
        nf::METERS_LOOKED_AT,
        nf::RECORD_MAX,
        nf::SHAPE_MAX,
        node::shards::RING,
        node::shards::WORKERS_MAX,
        node::BATCH,
        node::POLL_SLEEP_MAX_NS,
        node::POLL_SLEEP_MIN_NS,
        node::STREAM_MEMORY_MAX,
        packet::COVER_LEN_MAX,
        packet::HEADROOM,
        packet::LARGE_ROOM,
        packet::Pool::LARGE_MAX,
        packet::SHIM_LEN_MAX,
        packet::SMALL_ROOM,
        packet::parse::EXTENSION_MAX,
        packet::parse::SHIM_MAX,
        packet::parse::TUNNEL_MAX,
        policy::MAX_DEPTH,
        policy::MAX_DIAGNOSTICS,
        policy::MAX_NAME_BYTES,
        policy::MAX_NODES,
        policy::MAX_RESOLVED_BYTES,
        policy::MAX_SOURCE_BYTES,
        proto::AHEAD_MAX,
        proto::CHANGING_MAX,
        proto::TARGETS_MAX,
        node::threads::IN_FLIGHT_MAX,
        node::threads::MAILS,
        node::threads::RETURNS,
        node::threads::RING,
        node::threads::THREADS_MAX,
        node::units::EPOCHS_MAX,
        node::units::FLOWS_MAX,
        node::units::UNITS_MAX,
        router::BUCKETS_MAX,
        router::DISPLACED_AFTER_NS,
        router::FLOWS_MAX,
        router::FORGOTTEN_PER_BUCKET,
        router::MOVES_PER_BUCKET,
        router::RSS_BUCKETS_MAX,
        router::SLOTS_PER_BUCKET,
        router::TARGETS_COUNT_MAX,
        sim::EPOCHS_MAX,
        sim::workload::RECORDED_MAX,
        sim::scenario::COPIES_MAX,
        sim::STATE_MAX,
        sim::scenario::UNITS_MAX,
        unit::SLOTS_MAX,
        unit::TENURES_MAX,
        unit::BEGUN_MAX,
        unit::TOLD_MAX,
        unit::PAST_MAX,
        unit::AGAIN_DOUBLINGS,
    ];
    promised.sort();
    real.sort();
    assert_eq!(promised, real);
}

/// The constant and the value that a row of a table of limits promises, if it names a constant.
fn promise(line: &str) -> Option<(String, u64)> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let &["", _, limit, constant, _, ""] = &cells[..] else { return None };
    let constant = constant.strip_prefix('`')?.strip_suffix('`')?;
    let limit =
        limit.replace(',', "").parse().unwrap_or_else(|_| panic!("{constant}: `{limit}` is no number"));
    Some((constant.to_owned(), limit))
}
