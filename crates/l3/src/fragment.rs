//! Fragmentation of IPv4 packets larger than the MTU (RFC 791 3.2).

use packet::wire::{ethernet, ipv4};

/// Returns the frames of a packet's fragments, each with at most `mtu` bytes of IP. `None` if it
/// must not be fragmented.
pub fn cut(frame: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let (link, packet) = frame.split_at_checked(ethernet::HEADER_LEN)?;
    let whole = ipv4::Packet::new_checked(packet).ok()?;
    let header_len = whole.header_len();
    // Offsets count in units of eight bytes.
    let step = mtu.checked_sub(header_len)? / 8 * 8;
    if step == 0 || whole.dont_fragment() {
        return None;
    }
    let payload = whole.payload();
    let count = payload.len().div_ceil(step);
    let fragments = payload.chunks(step).enumerate().map(|(number, part)| {
        let mut fragment = [link, &packet[..header_len], part].concat();
        if number > 0 {
            leave_out_options(&mut fragment[ethernet::HEADER_LEN..][ipv4::HEADER_LEN..header_len]);
        }
        let mut header = ipv4::Packet::new_unchecked(&mut fragment[ethernet::HEADER_LEN..]);
        header.set_total_len((header_len + part.len()) as u16);
        header.set_more_fragments(whole.more_fragments() || number + 1 < count);
        header.set_fragment_offset(whole.fragment_offset() + (number * step) as u16);
        header.fill_checksum();
        fragment
    });
    Some(fragments.collect())
}

/// Replaces options without the copied flag by no-operations, as later fragments require.
fn leave_out_options(options: &mut [u8]) {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const COPIED: u8 = 0x80;
    let mut at = 0;
    while let Some(&kind) = options.get(at).filter(|&&kind| kind != END) {
        let len = match options.get(at + 1) {
            Some(&len) if kind != NO_OPERATION => usize::from(len).max(2),
            _ => 1,
        };
        let end = options.len().min(at + len);
        if kind & COPIED == 0 {
            options[at..end].fill(NO_OPERATION);
        }
        at = end;
    }
}
