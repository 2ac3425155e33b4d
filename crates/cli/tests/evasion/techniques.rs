//! Techniques that make the host read what an observer does not, or vice versa.

mod fragments;
mod handshakes;
mod ignored;
mod orders;
mod others;

use crate::talk::Talk;
use crate::wire::Family;

/// An evasion technique.
pub struct Technique {
    pub name: String,
    /// The only IP version that it applies to.
    pub family: Option<Family>,
    /// It is also played without waiting for answers.
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

/// Returns all techniques.
pub fn all() -> Vec<Technique> {
    [ignored::all(), orders::all(), handshakes::all(), fragments::all(), others::all()]
        .into_iter()
        .flatten()
        .collect()
}
