//! State that graphs on several threads share.

use std::sync::Arc;

use nf::SharedHandle;

use super::Graph;
use crate::flow_table::{FlowTable, Ledger};
use crate::stages::Stages;

/// The state that the functions of a graph share with those of other graphs ([`Graph::sharing`]).
pub struct Sharing<'g> {
    stages: &'g mut Stages,
    table: &'g mut FlowTable,
}

impl Graph {
    /// Returns the state that functions share with those of other graphs.
    pub fn sharing(&mut self) -> Sharing<'_> {
        let (flows, stages) = self.pipeline.parts();
        Sharing { stages, table: &mut flows.table }
    }
}

impl Sharing<'_> {
    /// Returns the shared state of each function, for graphs of the same functions on other threads
    /// to [`join`](Sharing::join).
    pub fn share(self) -> Vec<SharedHandle> {
        self.stages.share()
    }

    /// Shares state with the graph that returned this. The graph must have no flows yet.
    pub fn join(self, commons: Vec<SharedHandle>) {
        self.stages.join(commons);
    }

    /// Fetches shared state. Other graphs wait for it until [`Sharing::give_back`].
    pub fn fetch(self) {
        self.stages.all.iter_mut().for_each(|stage| stage.open());
    }

    /// Gives shared state back.
    pub fn give_back(self) {
        self.stages.all.iter_mut().for_each(|stage| stage.close());
    }

    /// Ends the sharing: the graphs that joined this one are gone.
    pub fn part(self) {
        self.stages.all.iter_mut().for_each(|stage| stage.part());
    }

    /// Claims aliases in this ledger, which graphs with other shares of the flows use, too. The
    /// graph must have no flows yet.
    pub fn claim_aliases_in(self, ledger: Arc<dyn Ledger>) {
        self.table.set_ledger(ledger);
    }
}
