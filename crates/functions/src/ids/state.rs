//! What is kept of a flow.

use dissect::detect::Detector;
use dissect::{ssh, tls};
use http::Exchange;
use literals::Cursor;
use nf::AlertFlow;
use packet::Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::marks::Marks;
use super::standing::Standing;

/// What is kept of a flow, beside its growing buffers.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct State {
    /// Its marks.
    pub marks: Marks,
    /// What alerts tell of its size.
    pub size: Size,
    /// Where in each stream the window begins.
    pub window_start: [u64; 2],
    /// HTTP's parser.
    pub exchange: Exchange,
    /// The search for patterns, by direction: 32 bytes each.
    pub cursors: [Cursor; 2],
    /// The readers of other protocols.
    pub tls: [tls::Stream; 2],
    /// See there.
    pub ssh: [ssh::Reader; 2],
    /// What the flow speaks.
    pub detector: Detector,
    /// 1: a rule dropped the flow.
    pub is_dropped: u8,
    /// Whether its connection is established.
    pub standing: Standing,
    reserved: [u8; PADDING],
}

/// Packets and bytes of a flow so far, by direction.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Size {
    /// When the first packet came.
    start_ns: u64,
    bytes: [u64; 2],
    packets: [u32; 2],
}

impl Size {
    /// A packet comes.
    pub fn packet(&mut self, direction: Direction, now_ns: u64, bytes: usize) {
        let at = direction.index();
        if self.packets == [0; 2] {
            self.start_ns = now_ns;
        }
        self.packets[at] = self.packets[at].saturating_add(1);
        self.bytes[at] = self.bytes[at].saturating_add(bytes as u64);
    }

    /// As alerts tell it.
    pub fn told(self) -> AlertFlow {
        AlertFlow { start_ns: self.start_ns, packets: self.packets.map(u64::from), bytes: self.bytes }
    }
}

/// Up to a multiple of eight bytes.
const PADDING: usize =
    (2 * (size_of::<tls::Stream>() + size_of::<ssh::Reader>()) + size_of::<Detector>() + 2).wrapping_neg()
        % 8;

// S25: what the search for patterns keeps of a direction.
const _: () = assert!(size_of::<Cursor>() <= 64);

impl State {
    /// A new connection begins on the same ports.
    pub fn restart(&mut self) {
        let State { marks, size, is_dropped, standing, .. } = *self;
        *self = State { marks, size, is_dropped, standing, ..State::default() };
    }
}

/// The growing buffers of a flow: for each direction, these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The last bytes of the stream.
    Window,
    /// Rules that may still hold: see [`super::candidates`].
    Candidates,
    /// A line or message of the application protocol that is not complete yet.
    Line,
    /// What is known of an HTTP message that is not complete yet.
    Progress,
    /// Its text, as far as it has come.
    Text,
    /// Rules whose literal was found since it began, and that look for it in the body: four bytes each.
    InBody,
}

/// Growing buffers of a flow.
pub const KEPT: usize = 12;

impl Kept {
    /// The buffer's number in the descriptor.
    pub fn of(self, direction: Direction) -> usize {
        self as usize * 2 + direction.index()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_size_is_what_the_manual_says() {
        assert_eq!(size_of::<State>(), 416);
    }
}
