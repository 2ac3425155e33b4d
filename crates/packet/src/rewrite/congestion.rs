//! Congestion marks in IP headers (RFC 3168) on decapsulation (RFC 6040).

use crate::checksum::Delta;

/// Codepoints of explicit congestion notification (RFC 3168 5), the lower two bits of a traffic
/// class.
mod ecn {
    pub const MASK: u8 = 3;
    pub const NOT_ECT: u8 = 0;
    pub const ECT_1: u8 = 1;
    pub const CE: u8 = 3;
}

/// Returns the traffic class of a packet of class `inner` after decapsulation from class `outer`.
/// `None` if it must be dropped because the congestion mark would be lost (RFC 6040 4.2, figure 4).
/// The DSCP is the inner one (RFC 4301 5.1.2.1).
#[inline]
pub fn class_after_decap(inner: u8, outer: u8) -> Option<u8> {
    let (own, outer) = (inner & ecn::MASK, outer & ecn::MASK);
    let ecn = match (own, outer) {
        (ecn::NOT_ECT, ecn::CE) => return None,
        (ecn::NOT_ECT | ecn::CE, _) => own,
        (_, ecn::CE | ecn::ECT_1) => outer,
        _ => own,
    };
    Some(inner & !ecn::MASK | ecn)
}

/// Returns the traffic class (DSCP and ECN) of the IP header in `header`; 0 if it is not there.
#[inline(always)]
pub(super) fn traffic_class(header: &[u8]) -> u8 {
    match *header {
        [first, class, ..] if first >> 4 == 4 => class,
        [first, second, ..] => first << 4 | second >> 4,
        _ => 0,
    }
}

/// Sets the traffic class and updates the checksum.
pub(super) fn set_traffic_class(header: &mut [u8], to: u8) {
    match header {
        [first, class, _, _, _, _, _, _, _, _, high, low, ..] if *first >> 4 == 4 => {
            let delta = Delta::of16(u16::from_be_bytes([*first, *class]), u16::from_be_bytes([*first, to]));
            *class = to;
            [*high, *low] = delta.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
        }
        [first, second, ..] => {
            *first = *first & 0xf0 | to >> 4;
            *second = *second & 0x0f | to << 4;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 6040 figure 4: rows by the inner ECN field, columns by the outer one (Not-ECT, ECT(1),
    // ECT(0), CE, in order of their numbers).
    #[test]
    fn congestion_follows_rfc_6040() {
        let rows = [
            [Some(0), Some(0), Some(0), None],
            [Some(1), Some(1), Some(1), Some(3)],
            [Some(2), Some(1), Some(2), Some(3)],
            [Some(3), Some(3), Some(3), Some(3)],
        ];
        for (inner, row) in rows.into_iter().enumerate() {
            for (outer, expected) in row.into_iter().enumerate() {
                assert_eq!(
                    class_after_decap(0xb0 | inner as u8, 0x10 | outer as u8),
                    expected.map(|ecn| 0xb0 | ecn)
                );
            }
        }
    }

    #[test]
    fn traffic_class_reads_back() {
        let mut header = [0x45, 0xb8, 0, 20, 1, 2, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
        let sum = crate::checksum::checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        set_traffic_class(&mut header, 0xa3);
        assert_eq!((header[0], traffic_class(&header)), (0x45, 0xa3));
        assert!(crate::checksum::verify(crate::checksum::sum(&header)));
        let mut header = [0x60, 0x0a, 0xbc, 0xde];
        set_traffic_class(&mut header, 0xb9);
        assert_eq!((header, traffic_class(&header)), ([0x6b, 0x9a, 0xbc, 0xde], 0xb9));
    }
}
