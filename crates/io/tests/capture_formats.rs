//! All variants of the formats are read, and written files are read back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

mod support;

use std::io::Cursor;

use io::capture::{
    COMMENT_BYTES_MAX, CaptureDirection, CaptureFormat, CaptureReader, CaptureWriter, FormatKind, Notes,
    RECORD_BYTES_MAX, ReadError, WriteError,
};
use packet::LinkType;
use proptest::prelude::*;
use support::{Builder, Owned, drain, gzipped, read_all};

const SECOND: u64 = 1_000_000_000;

fn ethernet(timestamp_ns: u64, wire_len: u32, data: &[u8]) -> Owned {
    Owned { timestamp_ns, interface: 0, link_type: LinkType::Ethernet, wire_len, data: data.to_vec() }
}

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for (big, (magic, fraction_ns)) in
        [false, true].into_iter().flat_map(|big| [(big, (0xa1b2_c3d4, 1_000)), (big, (0xa1b2_3c4d, 1))])
    {
        let file = Builder::new(big)
            .pcap_header(magic, 4, 1)
            .pcap_record(1, 2, 60, b"abc")
            .pcap_record(u32::MAX, 999_999, u32::MAX, b"")
            .pcap_record(7, 0, 1, b"wire length below")
            .bytes;
        let expected = vec![
            ethernet(SECOND + 2 * fraction_ns, 60, b"abc"),
            ethernet(u64::from(u32::MAX) * SECOND + 999_999 * fraction_ns, u32::MAX, b""),
            ethernet(7 * SECOND, 1, b"wire length below"),
        ];
        for file in [gzipped(&file), file] {
            let (records, error) = read_all(&file);
            assert_eq!(records, expected);
            assert!(error.is_none(), "{error:?}");
        }
    }
}

#[test]
fn pcap_with_the_modified_header_and_old_length_orders() {
    let modified = Builder::new(false).pcap_header(0xa1b2_cd34, 4, 0x1400_0071);
    let modified = modified.u32(1).u32(2).u32(3).u32(64).u32(9).u16(0x800).u16(0).u8s(b"abc").bytes;
    let expected = Owned { link_type: LinkType::LinuxSll, ..ethernet(SECOND + 2_000, 64, b"abc") };
    assert_eq!(read_all(&modified).0, [expected]);

    for (minor, first, second) in [(2, 60, 3), (3, 60, 3), (3, 3, 60), (4, 3, 60)] {
        let file = Builder::new(true).pcap_header(0xa1b2_c3d4, minor, 1);
        let file = file.u32(1).u32(0).u32(first).u32(second).u8s(b"abc").bytes;
        assert_eq!(read_all(&file).0, [ethernet(SECOND, 60, b"abc")], "version 2.{minor}");
    }
}

#[test]
fn pcapng_with_sections_interfaces_resolutions_and_all_packet_blocks() {
    for (big, other) in [(false, true), (true, false)] {
        let first = Builder::new(big)
            .section()
            .interface(1, |b| b.option(2, b"eth0"))
            .block(0x0bad, |b| b.u8s(b"unknown block"))
            .enhanced(0, 5_000_001, 60, b"micro")
            .interface(101, |b| {
                b.option(9, &[9]).option(14, &if big { 10_i64.to_be_bytes() } else { 10_i64.to_le_bytes() })
            })
            .enhanced(1, 42, 5, b"nano+")
            .block(3, |b| b.u32(6).u8s(b"simple"))
            .block(2, |b| b.u16(1).u16(9).u32(0).u32(7).u32(3).u32(99).u8s(b"old"))
            .bytes;
        let second = Builder::new(other)
            .section()
            .interface(113, |b| b.option(9, &[0x80 | 2]))
            .enhanced(0, 6, 4, b"bin.")
            .bytes;
        let file = [first, second].concat();
        let packet = |timestamp_ns, interface, link_type, wire_len, data: &[u8]| Owned {
            timestamp_ns,
            interface,
            link_type,
            wire_len,
            data: data.to_vec(),
        };
        let expected = vec![
            packet(5 * SECOND + 1_000, 0, LinkType::Ethernet, 60, b"micro"),
            packet(10 * SECOND + 42, 1, LinkType::RawIp, 5, b"nano+"),
            packet(0, 0, LinkType::Ethernet, 6, b"simple"),
            packet(10 * SECOND + 7, 1, LinkType::RawIp, 99, b"old"),
            packet(SECOND + SECOND / 2, 2, LinkType::LinuxSll, 4, b"bin."),
        ];
        let mut reader = CaptureReader::new(Cursor::new(gzipped(&file))).unwrap();
        let (records, error) = drain(&mut reader);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(records, expected);
        assert_eq!(reader.position(), file.len() as u64);
        let interfaces = reader.interfaces();
        assert_eq!(interfaces.len(), 3);
        assert_eq!(interfaces[0].name.as_deref(), Some("eth0"));
        assert_eq!(interfaces[1].name, None);
    }
}

#[test]
fn a_simple_packet_is_cut_to_its_interfaces_snapshot_length() {
    let file = Builder::new(false)
        .section()
        .block(1, |b| b.u16(1).u16(0).u32(3))
        .block(3, |b| b.u32(60).u8s(b"abc"));
    assert_eq!(read_all(&file.bytes).0, [ethernet(0, 60, b"abc")]);
}

#[test]
fn concatenated_gzip_members_are_one_file() {
    let file = Builder::new(false).pcap_header(0xa1b2_c3d4, 4, 1).pcap_record(1, 2, 60, b"abc").bytes;
    let members = [gzipped(&file[..30]), gzipped(&file[30..])].concat();
    let (records, error) = read_all(&members);
    assert_eq!((records.len(), error.is_none()), (1, true));
}

#[test]
fn errors_name_the_byte_the_expectation_and_the_finding() {
    let pcap = Builder::new(false).pcap_header(0xa1b2_c3d4, 4, 1);
    let section = Builder::new(true).section();
    let start = section.bytes.len() as u64;
    let with_interface = section.clone().interface(1, |b| b);
    let behind_interface = with_interface.bytes.len() as u64;
    let oversized = RECORD_BYTES_MAX + 1;
    let cases: Vec<(Vec<u8>, u64, &str)> = vec![
        (Vec::new(), 0, "a magic number of 4 bytes, found the end of the file after 0"),
        (b"GET / HTTP".to_vec(), 0, "found the bytes [47, 45, 54, 20]"),
        (Builder::new(false).u32(0xa1b2_c3d4).u16(3).u16(0).u8s(&[0; 16]).bytes, 4, "found version 3.0"),
        (pcap.clone().u32(0).u32(0).u32(oversized).u32(0).bytes, 24, "of at most 266240, found 266241"),
        (pcap.clone().u32(0).u32(0).u32(9).u32(9).u8s(b"abc").bytes, 24, "a record of 25 bytes"),
        (pcap.u32(0).bytes, 24, "a record header of 16 bytes, found the end of the file after 4"),
        (section.clone().u32(7).u32(64 << 20).bytes, start, "a block length of at most 16777216"),
        (section.clone().u32(7).u32(8).bytes, start + 4, "12 or more"),
        (section.clone().u32(7).u32(13).bytes, start + 4, "a multiple of 4"),
        (section.clone().u32(7).u32(16).u32(0).u32(12).bytes, start + 12, "the block's length"),
        (section.clone().u32(7).u32(16).u32(0).bytes, start, "a block of 16 bytes"),
        (section.clone().enhanced(0, 0, 1, b"x").bytes, start + 8, "an interface of this section, found 0"),
        (section.clone().block(3, |b| b.u32(1).u8s(b"x")).bytes, start + 8, "an interface of this section"),
        (
            section.interface(1, |b| b.u16(2).u16(400)).bytes,
            start + 16,
            "an option that ends within its block",
        ),
        (
            with_interface.block(6, |b| b.u32(0).u64(0).u32(5).u32(5).u8s(b"four")).bytes,
            behind_interface,
            "has room for, found 5",
        ),
    ];
    for (file, offset, words) in cases {
        let (_, error) = read_all(&file);
        let error = error.unwrap_or_else(|| panic!("no error, expected {words}"));
        assert_eq!(error.offset(), Some(offset), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_failed_open_names_the_file() {
    let error = CaptureReader::open("/nowhere/in.pcap").unwrap_err();
    assert!(matches!(error, ReadError::Open { .. }));
    assert!(error.to_string().contains("/nowhere/in.pcap"));
}

#[test]
fn the_format_follows_the_name() {
    let format = |kind, gzip| CaptureFormat { kind, gzip };
    assert_eq!(CaptureFormat::of_path("-"), format(FormatKind::Pcap, false));
    assert_eq!(CaptureFormat::of_path("a.pcap"), format(FormatKind::Pcap, false));
    assert_eq!(CaptureFormat::of_path("a.pcapng"), format(FormatKind::Pcapng, false));
    assert_eq!(CaptureFormat::of_path("dir.pcapng/a.pcap.gz"), format(FormatKind::Pcap, true));
    assert_eq!(CaptureFormat::of_path("a.PCAPNG.GZ"), format(FormatKind::Pcapng, true));
}

fn write_file(
    format: CaptureFormat,
    write: impl FnOnce(&mut CaptureWriter) -> Result<(), WriteError>,
) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = CaptureWriter::create(file.path(), format).unwrap();
    write(&mut writer).unwrap();
    writer.finish().unwrap();
    std::fs::read(file.path()).unwrap()
}

#[test]
fn pcap_refuses_a_second_link_type_and_says_what_to_do() {
    let file = write_file(CaptureFormat::default(), |writer| {
        writer.write(&ethernet(1, 60, b"abc").record())?;
        let second = Owned { link_type: LinkType::RawIp, interface: 1, ..ethernet(2, 60, b"abc") };
        let error = writer.write(&second.record()).unwrap_err();
        assert!(error.to_string().contains("write pcapng"), "{error}");
        writer.write(&Owned { interface: 1, ..ethernet(3, 60, b"def") }.record())
    });
    let (records, error) = read_all(&file);
    assert_eq!(records, [ethernet(1, 60, b"abc"), ethernet(3, 60, b"def")]);
    assert!(error.is_none());
}

#[test]
fn refused_records_leave_the_file_whole() {
    for kind in [FormatKind::Pcap, FormatKind::Pcapng] {
        let file = write_file(CaptureFormat { kind, gzip: false }, |writer| {
            let long = vec![0; RECORD_BYTES_MAX as usize + 1];
            assert!(matches!(
                writer.write(&ethernet(0, 0, &long).record()),
                Err(WriteError::RecordTooLong { bytes }) if bytes == long.len()
            ));
            let late = ethernet(u64::MAX, 0, b"late");
            assert_eq!(writer.write(&late.record()).is_ok(), kind == FormatKind::Pcapng);
            let far = Owned { interface: u32::MAX, ..ethernet(0, 0, b"") };
            assert!(matches!(writer.write(&far.record()), Err(WriteError::TooManyInterfaces { .. })));
            Ok(())
        });
        assert!(read_all(&file).1.is_none());
    }
}

#[test]
fn declared_interfaces_keep_their_order_and_names() {
    let file = write_file(CaptureFormat { kind: FormatKind::Pcapng, gzip: false }, |writer| {
        writer.add_interface(0, "clients", LinkType::Ethernet)?;
        writer.add_interface(1, &"ü".repeat(200), LinkType::RawIp)?;
        let again = writer.add_interface(0, "again", LinkType::Ethernet);
        assert!(matches!(again, Err(WriteError::InterfaceExists { interface: 0 })));
        writer.write(&Owned { interface: 1, link_type: LinkType::RawIp, ..ethernet(9, 1, b"x") }.record())
    });
    let mut reader = CaptureReader::new(Cursor::new(file)).unwrap();
    assert_eq!(drain(&mut reader).0[0].interface, 1);
    assert_eq!(reader.interfaces()[0].name.as_deref(), Some("clients"));
    assert_eq!(reader.interfaces()[1].name.as_deref(), Some("ü".repeat(127).as_str()));
}

#[test]
fn notes_stand_behind_their_record() {
    let notes =
        Notes { comment: Some("why"), direction: Some(CaptureDirection::Out), packet_id: Some(0x0102) };
    // Cut at a character's end.
    let long = "\u{e9}".repeat(COMMENT_BYTES_MAX);
    let records = [ethernet(1, 60, b"abcde"), ethernet(2, 60, b"fgh"), ethernet(3, 60, b"ijkl")];
    let write = |writer: &mut CaptureWriter| {
        writer.write_noted(&records[0].record(), &notes)?;
        writer.write(&records[1].record())?;
        writer.write_noted(&records[2].record(), &Notes { comment: Some(&long), ..Notes::default() })
    };
    let file = write_file(CaptureFormat { kind: FormatKind::Pcapng, gzip: false }, write);
    assert_eq!(read_all(&file).0, records);
    let options = [
        &b"abcde\0\0\0"[..],
        &[1, 0, 3, 0],
        b"why\0",
        &[2, 0, 4, 0, 2, 0, 0, 0],
        &[5, 0, 8, 0, 2, 1, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0],
    ]
    .concat();
    assert!(file.windows(options.len()).any(|window| window == options));
    let cut = [&b"ijkl"[..], &[1, 0, 0, 16], &long.as_bytes()[..COMMENT_BYTES_MAX], &[0, 0, 0, 0]].concat();
    assert!(file.windows(cut.len()).any(|window| window == cut));
    // pcap drops them.
    let file = write_file(CaptureFormat::default(), write);
    assert_eq!(read_all(&file).0, records);
}

#[test]
fn an_empty_capture_is_a_capture() {
    for (kind, gzip) in [(FormatKind::Pcap, false), (FormatKind::Pcapng, false), (FormatKind::Pcap, true)] {
        let (records, error) = read_all(&write_file(CaptureFormat { kind, gzip }, |_| Ok(())));
        assert!(records.is_empty() && error.is_none());
    }
}

#[test]
fn a_failing_output_is_reported_by_finish() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for gzip in [false, true] {
        let mut writer = CaptureWriter::new(Full, CaptureFormat { kind: FormatKind::Pcap, gzip });
        writer.write(&ethernet(1, 60, b"abc").record()).unwrap();
        assert!(matches!(writer.finish(), Err(WriteError::Io(_))));
    }
}

fn any_record(link_types: &'static [LinkType]) -> impl Strategy<Value = Owned> {
    let data = proptest::collection::vec(any::<u8>(), 0..200);
    (0..u64::from(u32::MAX) * SECOND, 0..link_types.len(), any::<u32>(), data).prop_map(
        move |(timestamp_ns, interface, wire_len, data)| Owned {
            timestamp_ns,
            interface: interface as u32,
            link_type: link_types[interface],
            wire_len,
            data,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn pcapng_round_trip(
        records in proptest::collection::vec(any_record(&[LinkType::Ethernet, LinkType::RawIp, LinkType::Other(147)]), 0..20),
        gzip: bool,
    ) {
        let file = write_file(CaptureFormat { kind: FormatKind::Pcapng, gzip }, |writer| {
            writer.add_interface(0, "a", LinkType::Ethernet)?;
            writer.add_interface(1, "b", LinkType::RawIp)?;
            records.iter().try_for_each(|record| writer.write(&record.record()))
        });
        let (read, error) = read_all(&file);
        prop_assert!(error.is_none());
        prop_assert_eq!(read, records);
    }

    #[test]
    fn pcap_round_trip(
        mut records in proptest::collection::vec(any_record(&[LinkType::LinuxSll2]), 0..20),
        gzip: bool,
        micro: bool,
    ) {
        let kind = if micro { FormatKind::PcapMicroseconds } else { FormatKind::Pcap };
        let file = write_file(CaptureFormat { kind, gzip }, |writer| {
            records.iter().try_for_each(|record| writer.write(&record.record()))
        });
        if micro {
            records.iter_mut().for_each(|record| record.timestamp_ns -= record.timestamp_ns % 1_000);
        }
        let (read, error) = read_all(&file);
        prop_assert!(error.is_none());
        prop_assert_eq!(read, records);
    }
}
