//! Truncated, changed and random files: whole records first, then an error, never a panic, a hang
//! or a large allocation.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

mod support;

use proptest::prelude::*;
use support::{Builder, Owned, gzipped, read_all};

fn pcap(big: bool) -> Vec<u8> {
    let header = Builder::new(big).pcap_header(0xa1b2_3c4d, 4, 1);
    header
        .pcap_record(1, 2, 60, b"first")
        .pcap_record(3, 4, 61, b"second packet")
        .pcap_record(5, 6, 0, b"")
        .bytes
}

fn pcapng(big: bool) -> Vec<u8> {
    Builder::new(big)
        .section()
        .interface(1, |b| b.option(2, b"eth0").option(9, &[6]))
        .enhanced(0, 1, 60, b"first")
        .block(4, |b| b.u8s(&[7; 40]))
        .block(3, |b| b.u32(6).u8s(b"second"))
        .section()
        .interface(101, |b| b)
        .block(2, |b| b.u16(0).u16(0).u64(9).u32(5).u32(5).u8s(b"third"))
        .bytes
}

fn valid_files() -> Vec<Vec<u8>> {
    vec![pcap(false), pcap(true), pcapng(false), pcapng(true)]
}

/// Returns whether `part` is the beginning of `whole`.
fn is_prefix(part: &[Owned], whole: &[Owned]) -> bool {
    part.len() <= whole.len() && part == &whole[..part.len()]
}

#[test]
fn a_truncated_file_yields_its_whole_records_first() {
    for file in valid_files() {
        let (whole, error) = read_all(&file);
        assert_eq!((whole.len(), error.is_none()), (3, true));
        let mut longest = 0;
        for cut in 0..file.len() {
            let (part, error) = read_all(&file[..cut]);
            assert!(is_prefix(&part, &whole), "cut at {cut}");
            assert!(part.len() >= longest, "cut at {cut} lost a record");
            longest = part.len();
            let end = error.map(|error| error.offset().unwrap());
            assert!(end.is_none_or(|offset| offset <= cut as u64));
        }
    }
}

#[test]
fn each_record_appears_as_soon_as_its_last_byte_does() {
    for big in [false, true] {
        let file = pcap(big);
        let ends = [24 + 16 + 5, 24 + 16 + 5 + 16 + 13, file.len()];
        for cut in 24..=file.len() {
            let (part, error) = read_all(&file[..cut]);
            assert_eq!(part.len(), ends.iter().filter(|&&end| end <= cut).count());
            assert_eq!(error.is_none(), cut == 24 || ends.contains(&cut), "cut at {cut}");
        }
    }
}

#[test]
fn a_truncated_gzip_file_yields_its_whole_records_first() {
    for file in valid_files() {
        let (whole, _) = read_all(&file);
        let zipped = gzipped(&file);
        for cut in 0..zipped.len() {
            assert!(is_prefix(&read_all(&zipped[..cut]).0, &whole), "cut at {cut}");
        }
    }
}

#[test]
fn an_absurd_length_takes_no_memory() {
    let claims_a_lot = Builder::new(false).section().u32(1).u32(16 << 20).u8s(b"but has little").bytes;
    let (_, error) = read_all(&claims_a_lot);
    assert!(
        error.unwrap().to_string().contains("a block of 16777216 bytes, found the end of the file after 22")
    );
}

#[test]
fn interfaces_are_bounded() {
    let mut file = Builder::new(false).section();
    for _ in 0..=io::capture::INTERFACES_MAX {
        file = file.interface(1, |b| b);
    }
    let (_, error) = read_all(&file.bytes);
    assert!(error.unwrap().to_string().contains("a number of interfaces of at most 16384"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_bytes(mut file in proptest::collection::vec(any::<u8>(), 0..400), kind in 0..6_usize) {
        let magics: [&[u8]; 6] = [
            b"",
            &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0],
            &[0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4],
            &[0x0a, 0x0d, 0x0d, 0x0a],
            &[0x1f, 0x8b, 8, 0],
            &[0x34, 0xcd, 0xb2, 0xa1, 2, 0, 3, 0],
        ];
        let magic = magics[kind];
        file.splice(..magic.len().min(file.len()), magic.iter().copied());
        read_all(&file);
    }

    #[test]
    fn changed_bytes(which in 0..4_usize, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut file = valid_files().swap_remove(which);
        for (at, value) in changes {
            let index = at.index(file.len());
            file[index] = value;
        }
        read_all(&file);
        read_all(&gzipped(&file));
    }
}
