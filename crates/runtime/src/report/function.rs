//! Functions: their counters, rules, pools, meters, contents and buffers.

use std::collections::BTreeMap;

use graph::Graph;
use nf::{CounterDeclaration, CounterValue, RuleCounters};
use serde::{Serialize, Serializer};
use telemetry::{CountKind, Counts, Merge, record};

use super::is_zero;

record! {
    /// The counters of a function.
    #[derive(Clone, Debug, Serialize)]
    pub struct FunctionReport [function, type] {
        /// Its name in the policy.
        pub name: String,
        /// Its type.
        #[serde(rename = "type")]
        pub kind: &'static str = key("type"),
        /// Packets that entered the function, from both sides; without those dropped earlier.
        pub packets: u64 = counter("function_packets"),
        /// Bytes that entered the function.
        pub bytes: u64 = counter("function_bytes"),
        /// Packets dropped by the function.
        pub drops: u64 = counter("function_drops"),
        /// Panics of the function; absent without any. See [`on_panic`](settings.md).
        #[serde(skip_serializing_if = "is_zero")]
        pub panics: u64 = counter("function_panics"),
        /// The message of its last panic; absent without any.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub last_panic: Option<String>,
        /// The function's own counters, by name; its manual lists them (`rivulet nf show TYPE`).
        /// Each has a [metric](metrics.md#counters-of-functions).
        pub counters: BTreeMap<String, CounterReport> = nested(),
        /// Its rules, left out without any; see below.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub rules: Vec<RuleReport>,
        /// Its pools by name; see below.
        pub pools: BTreeMap<&'static str, PoolReport>,
        /// Its tables of meters by name, left out without any; see below.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub meters: BTreeMap<&'static str, MetersReport>,
        /// Payloads that it remembers, by name, left out without any; see below.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub contents: BTreeMap<&'static str, ContentsReport>,
        /// The growing buffers of its flows, absent without any; see below.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub buffers: Option<BuffersReport> = nested(),
        /// Packets on the slow path while cycles were counted.
        #[serde(skip)]
        pub walked: u64 = hidden(),
        /// CPU cycles of the function for a packet on the slow path, where they can be counted.
        #[serde(skip)]
        pub cycles_per_packet: Option<f64> = hidden_level("function_cycles_per_packet"),
    }
}

impl FunctionReport {
    /// Adds the counters of the same function elsewhere.
    pub(super) fn add(&mut self, other: &FunctionReport) {
        let cycles = [&*self, other].map(|of| of.cycles_per_packet.unwrap_or(0.0) * of.walked as f64);
        self.cycles_per_packet = self.cycles_per_packet.or(other.cycles_per_packet);
        self.walked += other.walked;
        if let Some(per_packet) = &mut self.cycles_per_packet {
            *per_packet = (cycles[0] + cycles[1]) / self.walked.max(1) as f64;
        }
        self.last_panic = self.last_panic.take().or_else(|| other.last_panic.clone());
        self.rules.iter_mut().zip(&other.rules).for_each(|(rule, other)| rule.add(other));
        self.merge(other);
    }

    /// Adds those of the same function of a unit at another node, which has tables of its own. All
    /// units take items of the same pools.
    pub(super) fn add_elsewhere(&mut self, other: &FunctionReport) {
        self.add(other);
        for (name, pool) in &mut self.pools {
            let Some(other) = other.pools.get(name) else { continue };
            pool.in_use += other.in_use;
            pool.peak += other.peak;
            pool.exhausted += other.exhausted;
            pool.held += other.held;
            pool.holds_cut += other.holds_cut;
        }
        for (name, meters) in &mut self.meters {
            let Some(other) = other.meters.get(name) else { continue };
            meters.in_use += other.in_use;
            meters.forgotten += other.forgotten;
            meters.refused += other.refused;
        }
        for (name, contents) in &mut self.contents {
            let Some(other) = other.contents.get(name) else { continue };
            contents.kept_bytes += other.kept_bytes;
            contents.displaced += other.displaced;
        }
    }

    /// Visits the numbers of pools, meters and contents that change.
    pub(super) fn visit_tables(&mut self, visit: &mut dyn FnMut(CountKind, &mut u64)) {
        let (total, current) = (CountKind::Total, CountKind::Current);
        for pool in self.pools.values_mut() {
            pool.in_use.visit_counts(current, visit);
            pool.peak.visit_counts(total, visit);
            pool.exhausted.visit_counts(total, visit);
            pool.held.visit_counts(current, visit);
            pool.holds_cut.visit_counts(total, visit);
        }
        for meters in self.meters.values_mut() {
            meters.in_use.visit_counts(current, visit);
            meters.forgotten.visit_counts(total, visit);
            meters.refused.visit_counts(total, visit);
        }
        for contents in self.contents.values_mut() {
            contents.kept_bytes.visit_counts(total, visit);
            contents.displaced.visit_counts(total, visit);
        }
    }
}

/// A function's own counter. It serializes as its value.
#[derive(Clone, Debug)]
pub struct CounterReport {
    /// Its declaration.
    pub declared: &'static CounterDeclaration,
    /// Its label, if any: name and value.
    pub label: Option<(&'static str, String)>,
    /// Its value.
    pub count: u64,
}

impl CounterReport {
    fn of(value: CounterValue<'_>) -> CounterReport {
        let CounterValue { declared, label, count } = value;
        CounterReport { declared, label: label.map(|(of, value)| (of.label, value.to_owned())), count }
    }
}

impl Serialize for CounterReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.count)
    }
}

impl Counts for CounterReport {
    fn visit_counts(&mut self, kind: CountKind, visit: &mut dyn FnMut(CountKind, &mut u64)) {
        visit(kind, &mut self.count);
    }
}

impl Merge for CounterReport {
    fn merge(&mut self, other: &CounterReport) {
        self.count += other.count;
    }
}

record! {
    /// A rule of a function.
    #[derive(Clone, Debug, Serialize)]
    pub struct RuleReport [function, rule, name, place] {
        /// Its number, from 1; 0: none of them, `name` explains.
        pub number: u32,
        /// Its name.
        pub name: String,
        /// File and line, such as `x.rules:12`; empty if unknown.
        pub place: String,
        /// Flows matched by the rule.
        pub flows: u64 = counter("rule_flows"),
        /// Packets matched by the rule.
        pub packets: u64 = counter("rule_packets"),
        /// Bytes matched by the rule, where the function counts them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bytes: Option<u64> = counter("rule_bytes"),
        /// Time of the last packet that the rule matched, if any.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub last_hit_ns: Option<u64> = level_ns("rule_last_hit_timestamp_seconds"),
    }
}

impl RuleReport {
    fn of(counters: &RuleCounters) -> RuleReport {
        let RuleCounters { label, flows, packets, bytes, last_hit_ns } = counters;
        RuleReport {
            number: label.number,
            name: label.name.to_string(),
            place: label.place.to_string(),
            flows: *flows,
            packets: *packets,
            bytes: *bytes,
            last_hit_ns: (*last_hit_ns > 0).then_some(*last_hit_ns),
        }
    }

    fn add(&mut self, other: &RuleReport) {
        self.merge(other);
        self.last_hit_ns = self.last_hit_ns.max(other.last_hit_ns);
    }
}

record! {
    /// A pool of items that flows take, such as a NAT's ports.
    #[derive(Clone, Debug, Serialize)]
    pub struct PoolReport [function, pool] {
        /// Items in a pool.
        pub size: u32 = gauge("pool_size"),
        /// Items of a pool in use; at the end, after all flows returned theirs.
        pub in_use: u32 = gauge("pool_in_use"),
        /// Most items in use at once.
        pub peak: u32,
        /// Requests that found a pool exhausted.
        pub exhausted: u64 = counter("pool_exhausted"),
        /// Items of a pool that only their last user gets, for some time.
        pub held: u32 = gauge("pool_held"),
        /// Items handed out to others while they were held, since no other was free.
        pub holds_cut: u64 = counter("pool_holds_cut"),
    }
}

record! {
    /// A table of meters.
    #[derive(Clone, Debug, Serialize)]
    pub struct MetersReport [function, meters] {
        /// Meters in a table.
        pub size: usize = gauge("meters_size"),
        /// Meters of a table in use.
        pub in_use: usize = gauge("meters_in_use"),
        /// Meters that were full again, and displaced by others.
        pub forgotten: u64 = counter("meters_forgotten"),
        /// Requests that found no free meter.
        pub refused: u64 = counter("meters_refused"),
    }
}

record! {
    /// Payloads that a function remembers.
    #[derive(Clone, Debug, Serialize)]
    pub struct ContentsReport [function, contents] {
        /// Limit on the bytes of payloads.
        pub size_bytes: usize = gauge("contents_size_bytes"),
        /// Bytes of memory, with the index.
        pub memory_bytes: usize = gauge("contents_memory_bytes"),
        /// Bytes of all payloads so far.
        pub kept_bytes: u64 = counter("contents_kept_bytes"),
        /// Fingerprints displaced while their payloads were kept.
        pub displaced: u64 = counter("contents_displaced"),
    }
}

record! {
    /// The growing buffers of a function's flows.
    #[derive(Clone, Debug, Serialize)]
    pub struct BuffersReport [function] {
        /// Bytes in the growing buffers of flows.
        pub used_bytes: usize = gauge("buffers_used_bytes"),
        /// Bytes that found no room in the growing buffers of flows.
        pub refused_bytes: u64 = counter("buffers_refused_bytes"),
        /// Growing buffers displaced by those of other flows.
        pub gave_way: u64 = counter("buffers_displaced"),
    }
}

/// Returns the reports of a graph's functions.
pub(super) fn of_all(graph: &Graph, names: &[String]) -> Vec<FunctionReport> {
    let stages = graph.stages().iter().zip(names).enumerate();
    stages
        .map(|(number, (stage, name))| {
            let (descriptor, counted, shared) = (stage.descriptor(), stage.counters(), stage.shared());
            let counters = shared.counters.iter().map(|value| (value.key(), CounterReport::of(value)));
            let pools = shared.pools.iter().map(|pool| {
                let report = PoolReport {
                    size: pool.size(),
                    in_use: pool.in_use(),
                    peak: pool.peak(),
                    exhausted: pool.exhausted(),
                    held: pool.held(),
                    holds_cut: pool.holds_cut(),
                };
                (pool.name(), report)
            });
            let meters = shared.meters.iter().filter(|meters| meters.capacity() > 0).map(|meters| {
                let report = MetersReport {
                    size: meters.capacity(),
                    in_use: meters.in_use(),
                    forgotten: meters.forgotten(),
                    refused: meters.refused(),
                };
                (meters.name(), report)
            });
            let contents = shared.contents.iter().map(|contents| {
                let report = ContentsReport {
                    size_bytes: contents.capacity(),
                    memory_bytes: contents.memory(),
                    kept_bytes: contents.kept_bytes(),
                    displaced: contents.displaced(),
                };
                (contents.name(), report)
            });
            let walked = graph.report().walked().get(number).copied().unwrap_or_default();
            FunctionReport {
                name: name.clone(),
                kind: descriptor.name,
                packets: counted.packets,
                bytes: counted.bytes,
                drops: counted.drops,
                panics: counted.panics,
                last_panic: stage.last_panic(),
                counters: counters.collect(),
                rules: shared.rules.iter().map(RuleReport::of).collect(),
                pools: pools.collect(),
                meters: meters.collect(),
                contents: contents.collect(),
                buffers: shared.buffers.as_ref().map(|buffers| BuffersReport {
                    used_bytes: buffers.used_bytes(),
                    refused_bytes: buffers.refused_bytes(),
                    gave_way: buffers.evictions(),
                }),
                walked: walked.packets,
                cycles_per_packet: (walked.cycles > 0 && walked.packets > 0)
                    .then(|| walked.cycles as f64 / walked.packets as f64),
            }
        })
        .collect()
}
