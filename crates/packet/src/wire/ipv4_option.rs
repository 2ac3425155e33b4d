//! IPv4 options. RFC 791 section 3.1.

use super::WireError;
use super::bytes::Tlvs;

const NAME: &str = "IPv4";

/// An option of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Option<'a> {
    /// Copied flag, class and number.
    pub kind: u8,
    /// Data after the length; empty for the one-byte "no operation".
    pub data: &'a [u8],
}

impl Ipv4Option<'_> {
    /// No operation.
    pub const NO_OPERATION: u8 = 1;
    /// Record route.
    pub const RECORD_ROUTE: u8 = 7;
    /// Internet timestamp.
    pub const TIMESTAMP: u8 = 68;
    /// Loose source route.
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict source route.
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Router alert. RFC 2113.
    pub const ROUTER_ALERT: u8 = 148;

    /// Checks if each fragment carries it, rather than the first only.
    pub const fn is_copied(&self) -> bool {
        self.kind & 0x80 != 0
    }
}

/// Walks the options of a header; the list's end is not an item.
#[derive(Clone, Debug)]
pub struct Options<'a>(Tlvs<'a>);

impl<'a> Options<'a> {
    /// Returns the options in `bytes`, those between the fixed fields and the payload.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Options(Tlvs { header: NAME, rest: bytes })
    }
}

impl<'a> Iterator for Options<'a> {
    /// An error, for a length that cannot be, is the last item.
    type Item = Result<Ipv4Option<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|(kind, data)| Ipv4Option { kind, data }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_walked_to_their_end() {
        let options: Vec<_> = Options::new(&[1, 148, 4, 0, 0, 0, 7, 7]).map(Result::unwrap).collect();
        assert_eq!(options.len(), 2);
        assert_eq!(options[0].kind, Ipv4Option::NO_OPERATION);
        assert_eq!(options[1], Ipv4Option { kind: Ipv4Option::ROUTER_ALERT, data: &[0, 0] });
        assert!(options[1].is_copied());
    }

    #[test]
    fn an_impossible_length_ends_the_walk() {
        let mut options = Options::new(&[1, 148, 9, 0, 0, 0, 7, 7]);
        assert!(options.next().unwrap().is_ok());
        assert!(options.next().unwrap().is_err());
        assert!(options.next().is_none());
    }
}
