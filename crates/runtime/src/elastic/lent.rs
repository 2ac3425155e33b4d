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
    /// Lends the graph and the buffers of the calling thread to the transport.
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
