//! Statistics of packets, to compare with the published ones of the traces (S86).

use serde::Serialize;

use super::LARGE_BYTES;
use crate::arriving::Arriving;

/// Limit on counted sizes; larger ones count as this.
const SIZES: usize = 16_384;

/// Counts the packets of a workload.
#[derive(Clone, Debug)]
pub struct WorkloadStatistics {
    packets: u64,
    bytes: u64,
    /// Packets of each size.
    sizes: Vec<u64>,
    /// Bytes of each flow, by its number.
    flows: Vec<u64>,
}

/// Statistics of packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Flows with packets.
    pub flows: u64,
    /// Median packet size.
    pub packet_median_bytes: u64,
    /// Share of flows with more than 10 KB.
    pub flows_above_10kb: f64,
    /// Mean rate, in bits per second.
    pub rate_mean_bps: f64,
}

impl WorkloadStatistics {
    /// Creates statistics of no packets.
    pub fn new() -> WorkloadStatistics {
        WorkloadStatistics { packets: 0, bytes: 0, sizes: vec![0; SIZES], flows: Vec::new() }
    }

    /// Counts a packet.
    #[inline]
    pub fn add(&mut self, packet: &Arriving) {
        self.packets += 1;
        self.bytes += u64::from(packet.len);
        self.sizes[(packet.len as usize).min(SIZES - 1)] += 1;
        let flow = packet.flow as usize;
        if flow >= self.flows.len() {
            self.flows.resize(flow + 1, 0);
        }
        self.flows[flow] += u64::from(packet.len);
    }

    /// Returns the statistics over this time.
    pub fn finish(&self, time_ns: u64) -> Statistics {
        let mut below = 0;
        let median = self.sizes.iter().position(|&count| {
            below += count;
            2 * below >= self.packets
        });
        let flows = self.flows.iter().filter(|&&bytes| bytes > 0).count() as u64;
        let large = self.flows.iter().filter(|&&bytes| bytes as f64 > LARGE_BYTES).count();
        Statistics {
            packets: self.packets,
            bytes: self.bytes,
            flows,
            packet_median_bytes: median.unwrap_or(0) as u64,
            flows_above_10kb: large as f64 / flows.max(1) as f64,
            rate_mean_bps: self.bytes as f64 * 8e9 / time_ns.max(1) as f64,
        }
    }
}

impl Default for WorkloadStatistics {
    fn default() -> WorkloadStatistics {
        WorkloadStatistics::new()
    }
}
