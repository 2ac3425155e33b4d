//! Ways to have the host read what an observer does not, or the other way round.

mod fragments;
mod handshakes;
mod ignored;
mod orders;
mod others;

use crate::talk::Talk;
use crate::wire::Family;

/// A way to hide.
pub struct Technique {
    pub name: String,
    /// The IP version that it is of, if of one alone.
    pub family: Option<Family>,
    /// Whether it is played without waiting for answers, too.
    pub may_hurry: bool,
    pub play: Box<dyn Fn(&mut Talk<'_>)>,
}

impl Technique {
    fn new(name: impl Into<String>, play: impl Fn(&mut Talk<'_>) + 'static) -> Technique {
        Technique { name: name.into(), family: None, may_hurry: true, play: Box::new(play) }
    }

    fn only(mut self, family: Family) -> Technique {
        self.family = Some(family);
        self
    }

    fn slowly(mut self) -> Technique {
        self.may_hurry = false;
        self
    }
}

/// All of them.
pub fn all() -> Vec<Technique> {
    [ignored::all(), orders::all(), handshakes::all(), fragments::all(), others::all()]
        .into_iter()
        .flatten()
        .collect()
}
