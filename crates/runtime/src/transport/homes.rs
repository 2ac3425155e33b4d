//! Several dispatchers: each is the *home* of a share of the flows.
//!
//! A packet may arrive at any of them. One that belongs to a flow of another dispatcher is passed
//! on to it:
//!
//! ```text
//! arrived --fragment--> datagram's home --> flow's home --its key is an alias--> owner
//!    |                                          ^                                  ^  |
//!    +--------------- a new key ----------------+                                  |  | the flow
//!    +------------------------- the alias of a flow -------------------------------+  | has ended
//!                                                                                     v
//!                                                        returned: the home of its key
//! ```
//!
//! Each arrow leads to a later way, so no packet goes round.

/// The way that a packet has come to a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Passage {
    /// It arrived at an interface.
    Arrived = 0,
    /// It is a fragment, and this dispatcher knows the others of its datagram.
    Datagram = 1,
    /// Its flow begins here, unless it belongs to another one by an alias.
    Home = 2,
    /// Its flow is here, by an alias.
    Owner = 3,
    /// The flow with its alias has ended, and its key has its home here.
    Returned = 4,
}

impl Passage {
    /// Returns the way with this number.
    pub fn of_number(number: u8) -> Option<Passage> {
        let all = [Passage::Arrived, Passage::Datagram, Passage::Home, Passage::Owner, Passage::Returned];
        all.into_iter().find(|way| *way as u8 == number)
    }
}

/// The place where a packet must go: a dispatcher's number, and the way that it has come then.
pub type Elsewhere = (u16, Passage);
