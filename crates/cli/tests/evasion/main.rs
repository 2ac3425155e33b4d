//! Compares what `ids` sees with what a real host reads. An attacker with raw packets plays against
//! the kernel's TCP server across a router, and both directions are recorded. A rule for each
//! letter must report a letter if and only if the server's application read it.
//!
//! Requires root, iproute2 and python3. Without them it prints `SKIPPED` and passes, except where
//! `CI=true`.
//!
//! `RIVULET_EVASION=WORDS` plays only techniques with these words in their names;
//! `RIVULET_EVASION_KEEP=FILE` keeps the recording.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

mod judge;
mod place;
mod talk;
mod techniques;
mod wire;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use place::Place;
use talk::{Recorded, Talk};
use wire::Family;

/// Client port of the first connection.
const PORT_FIRST: u16 = 10_000;

/// Places that play techniques in parallel.
const PLACES: usize = 6;

/// A technique that was played.
struct Played {
    name: String,
    family: Family,
    port: u16,
    read: BTreeSet<u8>,
}

/// Techniques with another outcome than they should have, and the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "AO option",
        "kernels with and without TCP-AO differ: the receiver's acknowledgment decides, if it arrives in time",
    ),
    ("acknowledges what is long past: decoy before (at once)", HEADER_PREDICTION),
    ("acknowledges the SYN alone, less one: decoy before (at once)", HEADER_PREDICTION),
    ("an acknowledgment from before it (at once)", HEADER_PREDICTION),
    (
        "waiting: a chain of overlaps",
        "whether two segments become one depends on the shape of the kernel's tree",
    ),
    (
        "another host's Ethernet address",
        "it requires an attacker on the last link, whose switch keeps such frames from the host",
    ),
    ("bytes before the SYN", "of connections whose opening was not seen, bytes count at once"),
    ("fragments: one to another Ethernet address", "as above"),
    (
        "fragments: eight bytes, then the rest",
        "Rivulet drops a TCP header in two fragments (RFC 3128): `fragment-illegal`",
    ),
    (
        "fragments: overlap, other order, filled",
        "later fragments wait for the first one, and come in that order",
    ),
];

/// Such techniques in inline mode.
const IN_LINE_EXCEPTIONS: &[(&str, &str)] = &[];

const HEADER_PREDICTION: &str =
    "Linux takes old acknowledgements by header prediction, which depends on its memory";

fn is_letter(byte: &u8) -> bool {
    byte.is_ascii_alphabetic()
}

fn letters(set: &BTreeSet<u8>) -> String {
    set.iter().map(|byte| *byte as char).collect()
}

/// One play of a technique: its name, IP version, port, and whether it waits for answers.
struct Task {
    technique: usize,
    name: String,
    family: Family,
    port: u16,
    waits: bool,
}

/// Returns every `each`th of all plays.
fn tasks(each: usize) -> Vec<Task> {
    let wanted = std::env::var("RIVULET_EVASION").unwrap_or_default();
    let mut tasks = Vec::new();
    for (technique, one) in techniques::all().iter().enumerate() {
        for family in [Family::V4, Family::V6] {
            for waits in [true, false] {
                let name = format!("{}{}", one.name, if waits { "" } else { " (at once)" });
                let is_of = one.family.is_none_or(|only| only == family);
                if is_of && (waits || one.may_hurry) && name.contains(&wanted) {
                    let port = PORT_FIRST + tasks.len() as u16;
                    tasks.push(Task { technique, name, family, port, waits });
                }
            }
        }
    }
    // The number of plays of a technique is rarely a multiple, so each technique has its turn.
    tasks.into_iter().step_by(each).collect()
}

/// Plays the tasks, and returns the recording.
fn play(place: &mut Place, tasks: &[Task], patience_ms: u64) -> (Vec<Played>, Vec<Recorded>) {
    let all = techniques::all();
    let mut record = Vec::new();
    for task in tasks {
        let mut talk = Talk::new(place, &mut record, task.family, task.port);
        talk.patience = Duration::from_millis(patience_ms);
        talk.waits = task.waits;
        (all[task.technique].play)(&mut talk);
        talk.finish();
    }
    std::thread::sleep(Duration::from_millis(300));
    let played = tasks.iter().map(|task| {
        let family = if task.family == Family::V4 { "4" } else { "6" };
        let read = place.read(family, task.port).into_iter().filter(is_letter).collect();
        Played { name: task.name.clone(), family: task.family, port: task.port, read }
    });
    (played.collect(), record)
}

/// Plays all techniques in several places in parallel, since they mostly wait. With a policy,
/// `rivulet up` is in line. Returns one recording.
fn play_all(policy: Option<&str>, each: usize) -> (Vec<Played>, Vec<Recorded>) {
    let tasks = tasks(each);
    let patience_ms = if policy.is_some() { 5 } else { 2 };
    let parts: Vec<_> = std::thread::scope(|scope| {
        let part =
            |(number, tasks)| scope.spawn(move || play(&mut Place::new(number, policy), tasks, patience_ms));
        let threads: Vec<_> = tasks.chunks(tasks.len().div_ceil(PLACES)).enumerate().map(part).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (mut played, mut record) = (Vec::new(), Vec::new());
    for (some, recorded) in parts {
        played.extend(some);
        record.extend(recorded);
    }
    record.sort_by_key(|recorded: &Recorded| recorded.time_ns);
    (played, record)
}

/// Returns whether the tests can run here.
fn can_be_played() -> bool {
    static MISSING: LazyLock<Option<String>> = LazyLock::new(place::missing);
    let Some(why) = &*MISSING else { return true };
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("SKIPPED: {why}");
    false
}

/// In line, no letter of a `drop` rule reaches the application. Plays every seventh one, which
/// takes long, or all with `RIVULET_EVASION_ALL=1`.
#[test]
fn in_line_nothing_that_a_rule_drops_reaches_the_application() {
    if !can_be_played() {
        return;
    }
    let each = if std::env::var_os("RIVULET_EVASION_ALL").is_some() { 1 } else { 7 };
    let mut wrong = Vec::new();
    for attack in ["M", "m"] {
        let rules = format!(
            "drop tcp any any -> any 8080:8089 (msg:\\\"attack\\\"; content:\\\"{attack}\\\"; sid:1;)"
        );
        let (played, _) = play_all(Some(&judge::policy_of(&format!("\"{rules}\""), "prevent", "")), each);
        let without = played.iter().filter(|one| one.read.is_empty()).count();
        println!("{attack}: {} techniques played, of {without} nothing was read", played.len());
        // Otherwise nothing passes in line at all.
        let passed = played.iter().filter(|one| one.read.contains(&b'A')).count();
        assert!(passed > played.len() / 2, "{passed} of {}", played.len());
        for one in played.iter().filter(|one| one.read.contains(&attack.as_bytes()[0])) {
            wrong.push(format!("{:?} {} {}", one.family, one.name, letters(&one.read)));
        }
    }
    wrong.retain(|line| !IN_LINE_EXCEPTIONS.iter().any(|(name, _)| line.contains(name)));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn rules_match_exactly_what_the_application_reads() {
    if !can_be_played() {
        return;
    }
    let (played, record) = play_all(None, 1);
    let dir = tempfile::tempdir().unwrap();
    let capture = dir.path().join("evasion.pcap");
    judge::write(&capture, &record);
    if let Some(keep) = std::env::var_os("RIVULET_EVASION_KEEP") {
        std::fs::copy(&capture, keep).unwrap();
    }
    let ours = judge::rivulet(dir.path(), &capture, "");
    let theirs = judge::suricata(dir.path(), &capture);
    let (mut table, mut wrong) = (String::new(), Vec::new());
    let mut sums = [[0usize; 2]; 2];
    let none = BTreeSet::new();
    for one in &played {
        let key = (one.family, one.port);
        let seen = [
            Some(ours.get(&key).unwrap_or(&none)),
            theirs.as_ref().map(|all| all.get(&key).unwrap_or(&none)),
        ];
        let mut said = Vec::new();
        for (number, seen) in seen.into_iter().enumerate() {
            let Some(seen) = seen else {
                said.push("-".to_owned());
                continue;
            };
            let missed: BTreeSet<u8> = one.read.difference(seen).copied().collect();
            let more: BTreeSet<u8> = seen.difference(&one.read).copied().collect();
            sums[number][0] += usize::from(!missed.is_empty());
            sums[number][1] += usize::from(!more.is_empty());
            said.push(match (missed.is_empty(), more.is_empty()) {
                (true, true) => "same".to_owned(),
                _ => format!("missed [{}] more [{}]", letters(&missed), letters(&more)),
            });
        }
        let line = format!(
            "{:?} {:<70} {:<26} | {:<52} | {}",
            one.family,
            one.name,
            letters(&one.read),
            said[0],
            said[1]
        );
        let _ = writeln!(table, "{line}");
        let is_excepted = EXCEPTIONS.iter().any(|(name, _)| one.name.contains(name));
        if said[0] != "same" && !is_excepted {
            wrong.push(format!("{line} (port {})", one.port));
        }
    }
    println!("{table}");
    println!("{} techniques played", played.len());
    println!("rivulet: {} missed, {} with false alarms", sums[0][0], sums[0][1]);
    println!("suricata: {} missed, {} with false alarms", sums[1][0], sums[1][1]);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
