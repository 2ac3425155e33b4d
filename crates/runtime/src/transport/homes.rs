//! Several dispatchers: each is the *home* of a share of the flows.
//!
//! A packet may arrive at any of them. It is passed on to the dispatcher of its flow:
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

use nf::AffinityGroup;
use packet::{FlowKey, Packet};
use protocol::dispatcher::AliasChange;

/// The other dispatchers, with flows of their own. Without them, all flows are this dispatcher's.
pub trait Federation {
    /// Returns the dispatcher that tracks a datagram, by the hash of its fragments; none if it is
    /// this one.
    fn datagram_elsewhere(&self, hash: u64) -> Option<u16>;

    /// Returns the dispatcher that must number a packet of a flow that this one does not have; none
    /// if it is this one.
    fn elsewhere(
        &mut self,
        key: &FlowKey,
        hash: u64,
        group: Option<AffinityGroup>,
        passage: Passage,
    ) -> Option<Elsewhere>;

    /// Passes a packet on to another dispatcher.
    fn pass_on(&mut self, to: Elsewhere, packet: Packet);

    /// Returns the next packet that another dispatcher has passed on to this one.
    fn take_passed(&mut self) -> Option<(Packet, Passage)>;

    /// Makes a change of an alias known to other dispatchers. What units have reported with it
    /// leaves once they know it.
    fn announce(&mut self, change: AliasChange);

    /// Returns the next key that a flow of another dispatcher has taken.
    fn poll_claimed(&mut self) -> Option<FlowKey>;
}

/// The way of a packet to a dispatcher.
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
