//! Policies that nodes of a cluster get while they run.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use cluster::policies::{GraphMaker, PolicyReader, PolicyTexts, ReadPolicy};
use cluster::remote::{NewPolicy, PolicyMaker, check_sharing};
use policy::Policy;
use runtime::{Assembly, RunningPolicy};

use crate::policies::{NodePolicy, read_for_node};

/// Reads policies on a thread of their own.
#[derive(Default)]
pub struct PolicyThread {
    outcome: Option<Receiver<Result<NodePolicy, String>>>,
}

impl PolicyReader for PolicyThread {
    fn begin(&mut self, texts: PolicyTexts) {
        let (sender, receiver) = channel();
        self.outcome = Some(receiver);
        let read = move || {
            let policy = read_for_node(&texts);
            // Errors in configurations of functions are found when they are made.
            let checked = policy.and_then(|policy| policy.assemble(0).map(|_| policy));
            // The receiver is gone if a newer policy has replaced this one.
            let _ = sender.send(checked);
        };
        // Without a thread, the other end is gone, too.
        let _ = std::thread::Builder::new().name("policy".to_owned()).spawn(read);
    }

    fn poll(&mut self) -> Option<Result<ReadPolicy, String>> {
        let outcome = match self.outcome.as_ref()?.try_recv() {
            Ok(outcome) => outcome,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err("the thread that reads it has failed".to_owned()),
        };
        self.outcome = None;
        Some(outcome.map(|policy| ReadPolicy { digest: policy.digest, make: graphs_of(policy) }))
    }
}

/// Returns a maker of a policy's graphs.
pub fn graphs_of(policy: NodePolicy) -> GraphMaker {
    Box::new(move |seed| policy.assemble(seed).map(|assembly| assembly.graph))
}

/// Returns a maker of policies that a dispatcher's nodes can take over from the present one.
pub fn maker(policy: Arc<Policy>, assembly: &Assembly) -> PolicyMaker {
    let (seed, is_offloaded) = (assembly.seed, assembly.graph.options().offloaded);
    let running = RunningPolicy::new(policy, assembly);
    Arc::new(move |texts| {
        let policy = read_for_node(&texts)?;
        let mut assembly = policy.assemble(seed)?;
        let sources = &policy.policy.report.sources;
        running.check_change(&policy.policy, &assembly).map_err(|fault| fault.line(sources))?;
        check_sharing(&assembly).map_err(|error| error.to_string())?;
        if is_offloaded {
            assembly.graph.expect_offloaded();
        }
        Ok(NewPolicy { texts, digest: policy.digest, graph: assembly.graph })
    })
}
