//! Flowlets: where a flow is cut.

use crate::dispatcher::config::{Config, Granularity};
use crate::dispatcher::fleet::Fleet;
use crate::dispatcher::flow::Flow;
use crate::dispatcher::flows::FlowMatch;
use crate::dispatcher::owners::{Owners, sound_target};
use crate::dispatcher::units::{UnitState, Units};
use crate::message::UnitId;

/// The reason for a new flowlet of a known flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowletCut {
    /// A gap precedes it (S29).
    Gap,
    /// The previous one reached its size limit (S29).
    Size,
    /// The mode cuts here.
    Granularity,
    /// The unit is draining.
    Drain,
    /// The unit is silent, and another one may have the state.
    Silence,
    /// Other units than before shall have replicas.
    Targets,
}

/// The rules for cutting flows into flowlets.
pub(crate) struct Cuts {
    mode: Granularity,
    /// T, in ns.
    gap_ns: u64,
    /// B, in bytes on the wire.
    size_max: u64,
    /// Size above which a flowlet is likely to be cut (S62); `u64::MAX` if none is.
    push_above: u64,
    /// Size below which a flowlet is neither cut nor likely to be; 0 in modes without such a size.
    midst_end: u64,
    /// Longest silence within a flowlet, in ns.
    midst_gap_ns: u64,
    /// Flows leave a draining unit once their states are copied, and are not cut before.
    pre_copy: bool,
}

impl Cuts {
    pub fn new(config: &Config) -> Cuts {
        Cuts {
            mode: config.mode,
            gap_ns: config.gap_ns,
            size_max: config.size_max,
            push_above: config.push_above(),
            midst_end: match config.mode {
                Granularity::Flowlet => config.push_above().min(config.size_max).saturating_add(1),
                Granularity::Flow => u64::MAX,
                _ => 0,
            },
            midst_gap_ns: if config.mode == Granularity::Flow { u64::MAX } else { config.gap_ns },
            pre_copy: config.pre_copy,
        }
    }

    /// Returns true if a packet, with which its flowlet has this many bytes, may begin a flowlet or
    /// end one, so that its [cut](Cuts::cut) must be looked for.
    #[inline(always)]
    pub fn may_cut(&self, now_ns: u64, flow: &Flow, bytes: u64) -> bool {
        let silence_ns = now_ns.saturating_sub(flow.last_seen_ns());
        silence_ns > self.midst_gap_ns || bytes >= self.midst_end
    }

    /// From now on, [any packet](Cuts::may_cut) may end a flowlet.
    pub fn look_for_all(&mut self) {
        self.midst_end = 0;
    }

    /// Returns the cut if a packet of `len` bytes begins a flowlet of a known flow (S29, S32).
    #[inline]
    pub fn cut(
        &self,
        now_ns: u64,
        found: FlowMatch,
        len: u32,
        owners: &Owners,
        fleet: &Fleet,
    ) -> Option<FlowletCut> {
        let flow = owners.flows().get(found.index);
        if !fleet.units().is_active(flow.owner()) {
            // A group moves at once, when the next timers are handled.
            if owners.group_of(found.index).is_some() {
                return None;
            }
            if !self.leaves_with_copy(flow.owner(), fleet.units()) {
                return Some(FlowletCut::Drain);
            }
        }
        // Its state cannot be fetched now, but a replica may be the same.
        if fleet.units().is_passed_over(flow.owner()) {
            let has_refuge = sound_target(owners, found.index, fleet.units()).is_some();
            return (has_refuge && owners.group_of(found.index).is_none()).then_some(FlowletCut::Silence);
        }
        if flow.has_ended_flowlet() {
            return Some(FlowletCut::Targets);
        }
        let by_mode = match self.mode {
            Granularity::Flowlet => return self.cut_by_packet(now_ns, flow, len),
            Granularity::Flow => false,
            Granularity::SmartFlow { every_ns } => {
                now_ns / every_ns != owners.flows().flowlet(found.index).started_ns() / every_ns
            }
            Granularity::Packet => true,
            Granularity::Rss { .. } => {
                fleet.bucket_owner(found.hash).is_some_and(|owner| owner != flow.owner())
            }
        };
        by_mode.then_some(FlowletCut::Granularity)
    }

    /// Returns the cut if a packet of `len` bytes comes after a gap, or is too large for its
    /// flowlet (S29, S46, Pseudocode 1 l.14-25).
    #[inline]
    fn cut_by_packet(&self, now_ns: u64, flow: &Flow, len: u32) -> Option<FlowletCut> {
        if now_ns.saturating_sub(flow.last_seen_ns()) > self.gap_ns {
            return Some(FlowletCut::Gap);
        }
        (flow.bytes_with(len) > self.size_max).then_some(FlowletCut::Size)
    }

    /// Returns true if flows stay at a unit during a flowlet until their states have been copied.
    #[cold]
    fn leaves_with_copy(&self, unit: UnitId, units: &Units) -> bool {
        self.pre_copy && units.state(unit) == UnitState::Draining
    }

    /// Returns true if the flowlet is likely to be cut after a packet of `len` bytes (S62).
    #[inline]
    pub fn is_near_its_end(&self, flow: &Flow, len: u32) -> bool {
        flow.bytes_with(len) > self.push_above
    }
}
