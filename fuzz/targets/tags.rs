//! Any frames of a program, and any frames that are tagged for it: tags and packets come back as
//! they were written, and whatever else is read is within its bounds (E24).
//!
//! Input: a byte for the carrier, one for the number of bits, eight for the tag, then a frame.

#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::TagCarrier;
use runtime::external::tags::{TagCodec, TunnelEnds};

fuzz_target!(|data: &[u8]| {
    let Some((&[carrier, bits, ref tag @ ..], frame)) = data.split_first_chunk::<10>() else { return };
    let (carrier, bits_max) =
        if carrier & 1 == 0 { (TagCarrier::Vlan, 12) } else { (TagCarrier::Geneve, 64) };
    let bits = u32::from(bits) % bits_max + 1;
    let tag = u64::from_be_bytes(*tag) >> (64 - bits);
    let Some(codec) = TagCodec::new(carrier, bits, TunnelEnds::of(0, 0)) else { return };
    let (mut out, mut untagged) = (Vec::new(), Vec::new());
    let (packet, read) = codec.read(frame, &mut untagged);
    assert!(packet.len() <= frame.len());
    assert!(read.is_err() || read.is_ok_and(|read| bits == 64 || read >> bits == 0));
    if !codec.write(frame, tag, 0, &mut out) {
        assert!(frame.len() < 14 || carrier == TagCarrier::Geneve);
        return;
    }
    if carrier == TagCarrier::Geneve {
        // The program answers from its end.
        (26..30).for_each(|at| out.swap(at, at + 4));
    }
    assert_eq!(codec.read(&out, &mut untagged), (frame, Ok(tag)));
});
