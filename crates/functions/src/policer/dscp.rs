//! Differentiated services code points: names, and the colours of assured forwarding.

use nf::PacketView;

use super::marker::PacketColour;

/// A differentiated services code point (RFC 2474), 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// Returns the code point with this number, if there is one.
    pub fn new(number: u8) -> Option<Dscp> {
        (number < 64).then_some(Dscp(number))
    }

    /// Returns the code point of the flow's IP header; 0 without one.
    #[inline]
    pub fn of(packet: &PacketView<'_>) -> Dscp {
        match *packet.network() {
            [first, second, ..] if first >> 4 == 6 => Dscp((first << 4 | second >> 4) >> 2),
            [_, second, ..] => Dscp(second >> 2),
            _ => Dscp(0),
        }
    }

    /// Returns the number.
    #[inline]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns the assured forwarding class, 1 to 4, and the drop precedence, 1 to 3 (RFC 2597 6).
    fn assured(self) -> Option<(u8, u8)> {
        let (class, precedence) = (self.0 >> 3, self.0 >> 1 & 3);
        (self.0 & 1 == 0 && (1..=4).contains(&class) && precedence > 0).then_some((class, precedence))
    }

    /// Returns the colour of a packet with this code point: the drop precedence of assured
    /// forwarding, otherwise green.
    #[inline]
    pub fn colour(self) -> PacketColour {
        match self.assured() {
            Some((_, 2)) => PacketColour::Yellow,
            Some((_, 3)) => PacketColour::Red,
            _ => PacketColour::Green,
        }
    }

    /// Returns the code point of the same assured forwarding class with the colour's drop
    /// precedence; other code points stay.
    #[inline]
    pub fn with_precedence_of(self, colour: PacketColour) -> Dscp {
        self.assured().map_or(self, |(class, _)| assured(class, colour as u8 + 1))
    }
}

/// Returns the code point with this name: `af11` to `af43`, `cs0` to `cs7`, `ef`, `va`, `le`, `df`
/// or `be`.
pub fn named(name: &str) -> Option<Dscp> {
    let digit = |byte: u8, digits: std::ops::RangeInclusive<u8>| {
        let value = byte.wrapping_sub(b'0');
        digits.contains(&value).then_some(value)
    };
    match *name.to_ascii_lowercase().as_bytes() {
        [b'a', b'f', class, precedence] => Some(assured(digit(class, 1..=4)?, digit(precedence, 1..=3)?)),
        [b'c', b's', class] => Some(Dscp(digit(class, 0..=7)? << 3)),
        [b'e', b'f'] => Some(Dscp(46)),
        [b'v', b'a'] => Some(Dscp(44)),
        [b'l', b'e'] => Some(Dscp(1)),
        [b'd', b'f'] | [b'b', b'e'] => Some(Dscp(0)),
        _ => None,
    }
}

fn assured(class: u8, precedence: u8) -> Dscp {
    Dscp(class << 3 | precedence << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_registry() {
        // IANA, Differentiated Services Field Codepoints.
        for (name, number) in [
            ("cs0", 0),
            ("CS1", 8),
            ("cs7", 56),
            ("af11", 10),
            ("AF12", 12),
            ("af13", 14),
            ("af21", 18),
            ("af33", 30),
            ("af43", 38),
            ("ef", 46),
            ("va", 44),
            ("le", 1),
            ("be", 0),
        ] {
            assert_eq!(named(name).map(Dscp::number), Some(number), "{name}");
        }
        for wrong in ["", "af", "af1", "af10", "af14", "af51", "cs8", "af111", "é"] {
            assert_eq!(named(wrong), None, "{wrong}");
        }
        assert_eq!(Dscp::new(64), None);
    }

    #[test]
    fn only_assured_forwarding_has_colours() {
        for number in 0..64 {
            let dscp = Dscp(number);
            let colour = match number {
                12 | 20 | 28 | 36 => PacketColour::Yellow,
                14 | 22 | 30 | 38 => PacketColour::Red,
                _ => PacketColour::Green,
            };
            assert_eq!(dscp.colour(), colour, "{number}");
            let is_assured = colour != PacketColour::Green || [10, 18, 26, 34].contains(&number);
            for colour in [PacketColour::Green, PacketColour::Yellow, PacketColour::Red] {
                let remarked = dscp.with_precedence_of(colour);
                assert_eq!(remarked.colour(), if is_assured { colour } else { PacketColour::Green });
                assert_eq!(remarked.number() >> 3, number >> 3);
                assert!(is_assured || remarked == dscp);
            }
        }
    }
}
