//! The operator's requests, between two batches.

use crate::batch::Core;
use crate::operator::{OperatorDesk, OperatorHandle, OperatorRequest, REQUESTS_PER_BATCH, RunStatus};
use crate::runner::Runner;

impl Runner {
    /// Opens the operators' desk. An earlier one ends.
    pub fn open_to_operators(&mut self) -> OperatorHandle {
        let (desk, handle) = OperatorDesk::open();
        self.operator = Some(desk);
        handle
    }

    /// Answers up to [`REQUESTS_PER_BATCH`] requests.
    #[inline]
    pub(super) fn answer_operator(&mut self) {
        for _ in 0..REQUESTS_PER_BATCH {
            let Some(request) = self.operator.as_ref().and_then(OperatorDesk::next) else { return };
            match request {
                OperatorRequest::Status(reply) => reply(Ok(self.run_status())),
                request => {
                    let Some(units) = self.backend.units_mut() else {
                        request.refuse();
                        continue;
                    };
                    let core =
                        Core { graph: &mut self.assembly.graph, out: &mut self.out, pool: &mut self.pool };
                    units.operate(request, core);
                }
            }
        }
    }

    fn run_status(&self) -> RunStatus {
        let ports = || self.ports.iter().map(|(_, counted)| counted);
        RunStatus {
            policy: self.name.clone(),
            packets_in: ports().map(|counted| counted.packets_in).sum(),
            packets_out: ports().map(|counted| counted.packets_out).sum(),
            dispatcher: self.backend.units().map(|units| units.dispatcher_status()),
        }
    }
}
