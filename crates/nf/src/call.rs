//! What a stage calls its function for, packet by packet: to process it, or to run state functions in place of that.

use crate::{Context, NetworkFunction, PacketView, Verdict};

/// What is done with a packet by a function. A trait, not a closure, so that it can be said that it is inlined.
pub(crate) trait Call<N: NetworkFunction> {
    /// Whether it may change what becomes of packet and flow: a rule says that if state functions run.
    const DECIDES: bool;

    fn on(
        &self,
        function: &N,
        packet: &mut PacketView<'_>,
        state: &mut N::State,
        context: &mut Context<'_>,
    ) -> Verdict;
}

/// It is processed.
pub(crate) struct Process;

/// State functions of these numbers run.
pub(crate) struct Functions<'f>(pub &'f [u16]);

impl<N: NetworkFunction> Call<N> for Process {
    const DECIDES: bool = true;

    #[inline(always)]
    fn on(
        &self,
        function: &N,
        packet: &mut PacketView<'_>,
        state: &mut N::State,
        context: &mut Context<'_>,
    ) -> Verdict {
        function.process(packet, state, context)
    }
}

impl<N: NetworkFunction> Call<N> for Functions<'_> {
    const DECIDES: bool = false;

    #[inline(always)]
    fn on(
        &self,
        function: &N,
        packet: &mut PacketView<'_>,
        state: &mut N::State,
        context: &mut Context<'_>,
    ) -> Verdict {
        for &id in self.0 {
            function.state_function(id, packet, state, context);
        }
        Verdict::Forward
    }
}
