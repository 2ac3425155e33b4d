//! What the NAT logs, as alerts: who had which external endpoint or block when (RFC 6888 REQ-12).
//!
//! An alert carries the flow that caused it, and so the subscriber; its signature number says the rest:
//!
//! ```text
//!  31  28 27 26 25 24 23       16 15             0
//! +------+-----+-----+-----------+----------------+
//! | what |  0  |class|  address  | (first) port   |
//! +------+-----+-----+-----------+----------------+
//! ```
//!
//! `what` is 1 for a block taken, 2 for one given back, 3 for a mapping made, 4 for one gone. `class` is 0 for TCP, 1 for
//! UDP, 2 for ICMP (0 for blocks, which span all three). `address` counts the external addresses in rising order from 0.

use nf::{Context, Severity};

use super::space::{Class, Place};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// A subscriber got a block of ports.
    BlockTaken = 1,
    /// It gave it back.
    BlockFreed = 2,
    /// An inside endpoint got an external one.
    MappingMade = 3,
    /// It gave it back.
    MappingFreed = 4,
}

/// The category of these alerts.
pub const CATEGORY: &str = "address translation";
const NOTICE: Severity = 3;

/// Logs what happened to an external endpoint, or to the block that begins with it.
pub(super) fn log(context: &mut Context<'_>, what: What, place: Place) {
    let text = match what {
        What::BlockTaken => "NAT port block taken",
        What::BlockFreed => "NAT port block given back",
        What::MappingMade => "NAT mapping made",
        What::MappingFreed => "NAT mapping given back",
    };
    context.alert(signature_id(what, place), text, CATEGORY, NOTICE);
}

fn signature_id(what: What, place: Place) -> u32 {
    // There are at most 256 addresses (EXTERNAL_MAX).
    (what as u32) << 28
        | (place.class as u32) << 24
        | (place.address as u32 & 0xff) << 16
        | u32::from(place.port)
}

/// What a signature number says: what happened, the class's, the address's number, and the port.
pub fn decode(signature_id: u32) -> Option<(What, u8, u8, u16)> {
    let what = match signature_id >> 28 {
        1 => What::BlockTaken,
        2 => What::BlockFreed,
        3 => What::MappingMade,
        4 => What::MappingFreed,
        _ => return None,
    };
    Some((what, (signature_id >> 24 & 3) as u8, (signature_id >> 16) as u8, signature_id as u16))
}

impl Place {
    /// The place that stands for a whole block.
    pub(super) fn of_block(address: usize, first_port: u16) -> Place {
        Place { class: Class::Tcp, address, port: first_port }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back() {
        let place = Place { class: Class::Icmp, address: 255, port: 65_535 };
        let id = signature_id(What::MappingFreed, place);
        assert_eq!(decode(id), Some((What::MappingFreed, 2, 255, 65_535)));
        assert_eq!(decode(7), None);
    }
}
