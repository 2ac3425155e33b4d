//! The graph and buffers of the calling thread, at the transport during a call.

use std::ops::{Deref, DerefMut};

use super::Elastic;
use crate::batch::Core;
use crate::transport::Transport;

/// The dispatcher's end while its transport has the graph and the buffers of the calling thread.
/// They return when it is dropped, after a panic, too.
pub(super) struct Lent<'a, T: Transport> {
    elastic: &'a mut Elastic<T>,
    core: Core<'a>,
}

impl<T: Transport> Elastic<T> {
    /// Moves the graph and the buffers of the calling thread to the transport.
    pub(super) fn lend<'a>(&'a mut self, mut core: Core<'a>) -> Lent<'a, T> {
        self.transport.core().swap(&mut core);
        Lent { elastic: self, core }
    }
}

impl<T: Transport> Deref for Lent<'_, T> {
    type Target = Elastic<T>;

    fn deref(&self) -> &Elastic<T> {
        self.elastic
    }
}

impl<T: Transport> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut Elastic<T> {
        self.elastic
    }
}

impl<T: Transport> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        self.elastic.transport.core().swap(&mut self.core);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

    use std::panic::{AssertUnwindSafe, catch_unwind};

    use graph::{Graph, Options};
    use packet::{Packet, PacketPool};
    use protocol::message::{FromDispatcher, Stamp, UnitId};
    use protocol::unit::Counters;

    use super::*;
    use crate::elastic::UnitsConfig;
    use crate::transport::{Absent, Fleet, LocalGraph, Return, Started, UnitChange, UnitLink, UnitReports};

    /// A transport that panics with each packet.
    struct Broken(LocalGraph);

    impl UnitLink for Broken {
        type Access<'a> = &'a mut LocalGraph;

        fn core(&mut self) -> &mut LocalGraph {
            &mut self.0
        }

        fn packet(&mut self, _: u64, _: UnitId, _: Stamp, _: Packet) {
            panic!("broken");
        }

        fn message(&mut self, _: u64, _: UnitId, _: FromDispatcher) {}

        fn receive(&mut self) -> Option<Box<Return>> {
            None
        }

        fn end_batch(&mut self, _: u64) {}

        fn has_pending(&self) -> bool {
            false
        }

        fn handle_timeout(&mut self, _: u64) {}

        fn next_timeout_ns(&self) -> u64 {
            u64::MAX
        }
    }

    impl Fleet for Broken {
        fn is_ready(&self, unit: UnitId, units_min: u16) -> bool {
            unit.0 < units_min
        }

        fn start(&mut self, _: UnitId) -> Started {
            Started::Unchanged
        }

        fn poll_change(&mut self) -> Option<UnitChange> {
            None
        }

        fn control(&mut self, _: usize, _: &str) {}

        fn finish(&mut self) {}

        fn has_finished(&mut self) -> bool {
            true
        }
    }

    impl Transport for Broken {
        type FastLane = Absent;
        type Barrier = Absent;
        type Nodes = Absent;
        type Federation = Absent;

        fn fast_lane(&mut self) -> Option<&mut Absent> {
            None
        }

        fn barrier(&mut self) -> Option<&mut Absent> {
            None
        }

        fn nodes(&self) -> Option<&Absent> {
            None
        }

        fn nodes_mut(&mut self) -> Option<&mut Absent> {
            None
        }

        fn federation(&mut self) -> Option<&mut Absent> {
            None
        }
    }

    impl UnitReports for Broken {
        fn is_deferred(&self) -> bool {
            true
        }

        fn unit_counters(&self) -> Vec<Counters> {
            Vec::new()
        }
    }

    #[test]
    fn graph_and_buffers_return_after_a_panic() {
        let options = Options { flows_max: 77, ..Options::default() };
        let mut graph = Box::new(Graph::new(Vec::new(), options).unwrap());
        let broken = Broken(LocalGraph::placeholder(&graph).unwrap());
        let config = UnitsConfig::default();
        let dispatcher = config.dispatcher_of_threads(graph.options());
        let mut elastic = Elastic::with_transport(config, dispatcher, broken).unwrap();
        let (mut out, mut pool) = (Vec::new(), PacketPool::new(4));
        // UDP from 10.0.0.1 to 10.0.0.2.
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17];
        frame.extend([0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 99, 0, 53, 0, 8, 0, 0]);
        let mut batch = vec![Packet::from_bytes(&frame)];
        let process = AssertUnwindSafe(|| elastic.process(&mut graph, &mut batch, &mut out, &mut pool));
        assert!(catch_unwind(process).is_err());
        assert_eq!(graph.options().flows_max, 77, "the graph is the caller's again");
        assert!(pool.has_room(frame.len()), "and so are the buffers");
        assert_eq!(elastic.transport.core().graph.options().flows_max, 1);
    }
}
