//! Entries of the systemd journal, received in its place.
//!
//! The library sends them to a fixed path, so the test puts its own socket there, in a mount
//! namespace. Without `unshare` it prints `SKIPPED` and passes, except where `CI=true`.

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use super::*;

/// Binds the folder `$0` to the journal's and runs the command.
const IN_PLACE: &str = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                        mount --bind \"$0\" /run/systemd/journal && exec \"$@\"";

/// An entry by the names of its fields; a name may be repeated.
type Entry = BTreeMap<String, Vec<String>>;

/// Parses a datagram of the journal's native protocol: `NAME=value` lines, or a line with the name,
/// the value's length in 8 bytes (little endian), the value and a newline.
fn entry(mut datagram: &[u8]) -> Entry {
    let mut entry = Entry::new();
    while let Some(end) = datagram.iter().position(|&byte| byte == b'\n') {
        let (line, rest) = (&datagram[..end], &datagram[end + 1..]);
        let (name, value) = match line.iter().position(|&byte| byte == b'=') {
            Some(at) => {
                datagram = rest;
                (&line[..at], &line[at + 1..])
            }
            None => {
                let (len, rest) = rest.split_at(8);
                let (value, rest) = rest.split_at(u64::from_le_bytes(len.try_into().unwrap()) as usize);
                datagram = rest.strip_prefix(b"\n").unwrap();
                (line, value)
            }
        };
        let [name, value] = [name, value].map(|text| String::from_utf8(text.to_vec()).unwrap());
        let is_field = |byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_');
        assert!(!name.starts_with('_') && name.bytes().all(is_field), "the journal discards `{name}`");
        entry.entry(name).or_default().push(value);
    }
    assert!(datagram.is_empty(), "the last field ends");
    entry
}

/// Runs the command and returns the entries, and standard error; `None` without namespaces.
fn entries(place: &Place, line: &str) -> Option<(Vec<Entry>, String)> {
    let can_unshare = Command::new("unshare").args(["-rm", "true"]).output();
    if !can_unshare.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no mount namespaces");
        println!("SKIPPED: no mount namespaces");
        return None;
    }
    std::fs::create_dir(place.path("journal")).unwrap();
    let socket = UnixDatagram::bind(place.path("journal/socket")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let reader = std::thread::spawn(move || {
        let (mut entries, mut bytes) = (Vec::new(), vec![0; 1 << 20]);
        loop {
            match socket.recv(&mut bytes).unwrap() {
                // The library's probe whether the journal is there.
                0 if entries.is_empty() => {}
                0 => return entries,
                len => entries.push(entry(&bytes[..len])),
            }
        }
    });
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", IN_PLACE]).arg(place.path("journal"));
    command.arg(env!("CARGO_BIN_EXE_rivulet")).args(["--log-format", "journald"]);
    command.args(line.split_whitespace()).current_dir(place.dir.path()).env_remove("RIVULET_LOG");
    let output = command.output().unwrap();
    UnixDatagram::unbound().unwrap().send_to(&[], place.path("journal/socket")).unwrap();
    Some((reader.join().unwrap(), stderr(&output)))
}

#[test]
fn events_are_entries_with_their_fields() {
    let place = log::place();
    let Some((entries, stderr)) = entries(&place, log::RUN) else { return };
    assert_eq!(stderr, "", "all is in the journal");
    let named = |message: &str| -> Vec<_> { entries.iter().filter(|e| e["MESSAGE"] == [message]).collect() };
    let [applied] = named("policy applied")[..] else { panic!("{entries:?}") };
    for (name, value) in [
        ("PRIORITY", "5"),
        ("SYSLOG_IDENTIFIER", "rivulet"),
        ("TARGET", "rivulet::policy"),
        ("POLICY", "p.rvl"),
        ("FUNCTIONS", "1"),
    ] {
        assert_eq!(applied[name], [value], "{name}: {applied:?}");
    }
    let [executed] = named("command executed")[..] else { panic!("{entries:?}") };
    assert_eq!(
        (&executed["PLACE"][..], &executed["COMMAND"][..]),
        (&["script:1".to_owned()][..], &["1ms p rate 2Mbps".to_owned()][..])
    );
    assert!(named("unit started").iter().all(|started| started["UNIT"][0].parse::<u16>().is_ok()));
    assert_eq!(named("policy ended")[0]["PACKETS_IN"], ["3000"]);
}

#[test]
fn error_is_an_entry() {
    let place = Place::new();
    let Some((entries, stderr)) = entries(&place, "run none.rvl --read none.pcap") else { return };
    assert_eq!(stderr, "");
    let [error] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(error["PRIORITY"], ["3"]);
    assert!(error["MESSAGE"][0].contains("none.rvl"), "{error:?}");
}
