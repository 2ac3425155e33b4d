//! The bytes of messages, as they are declared: golden frames, any values, truncation, damage.
//! `RIVULET_BLESS=1` rewrites `golden.txt`: after that, say in `cluster::wire::VERSION` that the
//! format is another one, unless messages or last fields were only added.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod samples;

use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use protocol::message::{FromDispatcher, FromPeer, FromUnit, MessageInfo};
use protocol::wire::{FrameError, Reader};

use samples::pieces;

/// The messages of one kind of sender.
struct Group<M: 'static> {
    name: &'static str,
    messages: &'static [MessageInfo],
    read: fn(&mut Reader<'_>) -> Result<M, FrameError>,
    write: fn(&M, &mut Vec<u8>),
}

macro_rules! group {
    ($group:ident) => {
        Group {
            name: stringify!($group),
            messages: $group::MESSAGES,
            read: $group::read,
            write: $group::write,
        }
    };
}

impl<M: Debug + PartialEq> Group<M> {
    fn written(&self, message: &M) -> Vec<u8> {
        let mut bytes = Vec::new();
        (self.write)(message, &mut bytes);
        bytes
    }

    /// Reads a message, and returns the number of bytes after it, too.
    fn read(&self, bytes: &[u8]) -> Result<(M, usize), FrameError> {
        let mut from = Reader::new(bytes);
        let message = (self.read)(&mut from)?;
        Ok((message, from.rest().len()))
    }

    /// Each message is read as it was written, whatever follows; and no part of one is, unless an
    /// earlier version ended there.
    fn check(&self, numbers: &[u64], more: &[u8]) -> Result<(), TestCaseError> {
        let mut numbers = numbers.iter().copied().cycle();
        for message in self.messages {
            let pieces = pieces(message, &mut || numbers.next().unwrap());
            let bytes = pieces.concat();
            let (found, left) = self.read(&[&bytes, more].concat()).unwrap();
            prop_assert_eq!(left, more.len());
            let shown = format!("{found:?}");
            prop_assert!(shown.starts_with(message.name), "{} is not {}", shown, message.name);
            prop_assert_eq!(self.written(&found), bytes.clone());
            let is_end = |cut: usize| {
                let mut ends = pieces.iter().scan(0, |sum, piece| {
                    *sum += piece.len();
                    Some(*sum)
                });
                let end = ends.position(|end| end == cut);
                end.is_some_and(|end| message.fields[end..].iter().all(|field| field.since > 1))
            };
            for cut in 0..bytes.len() {
                match self.read(&bytes[..cut]) {
                    Ok((earlier, 0)) if is_end(cut) => {
                        prop_assert!(self.written(&earlier).starts_with(&bytes[..cut]));
                    }
                    found => {
                        prop_assert_eq!(found, Err(FrameError::Truncated), "{} of {}", cut, message.name)
                    }
                }
            }
        }
        Ok(())
    }

    /// Any bytes are a message, which is then written and read again, or an error.
    fn check_damaged(&self, bytes: &[u8]) -> Result<(), TestCaseError> {
        if let Ok((message, _)) = self.read(bytes) {
            let written = self.written(&message);
            prop_assert_eq!(self.read(&written), Ok((message, 0)));
        }
        Ok(())
    }

    fn check_tags(&self) {
        let tags: BTreeSet<u8> = self.messages.iter().map(|message| message.tag).collect();
        assert_eq!(tags.len(), self.messages.len(), "{}", self.name);
        for tag in (0..=u8::MAX).filter(|tag| !tags.contains(tag)) {
            assert_eq!(self.read(&[tag]), Err(FrameError::UnknownKind(tag)), "{}", self.name);
        }
    }

    /// Two frames of each message: counted from an odd number, and from an even one, so that flags
    /// are set in one of them.
    fn golden(&self, text: &mut String) {
        for message in self.messages {
            for first in [1, 2] {
                let mut numbers = first..;
                let pieces = pieces(message, &mut || numbers.next().unwrap());
                let (found, left) = self.read(&pieces.concat()).unwrap();
                assert_eq!((self.written(&found), left), (pieces.concat(), 0), "{}", message.name);
                write!(text, "{}::{}", self.name, message.name).unwrap();
                for piece in pieces {
                    text.push(' ');
                    piece.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
                }
                text.push('\n');
            }
        }
    }
}

proptest! {
    #[test]
    fn messages_are_read_as_they_were_written(
        numbers in prop::collection::vec(prop_oneof![0u64..70_000, any::<u64>()], 1..40),
        more in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        group!(FromDispatcher).check(&numbers, &more)?;
        group!(FromUnit).check(&numbers, &more)?;
        group!(FromPeer).check(&numbers, &more)?;
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(
        bytes in prop::collection::vec(prop_oneof![0u8..10, any::<u8>()], 0..120),
    ) {
        group!(FromDispatcher).check_damaged(&bytes)?;
        group!(FromUnit).check_damaged(&bytes)?;
        group!(FromPeer).check_damaged(&bytes)?;
    }
}

#[test]
fn tags_are_distinct_and_others_are_unknown() {
    group!(FromDispatcher).check_tags();
    group!(FromUnit).check_tags();
    group!(FromPeer).check_tags();
}

#[test]
fn golden_frames_stay() {
    let mut text = String::new();
    group!(FromDispatcher).golden(&mut text);
    group!(FromUnit).golden(&mut text);
    group!(FromPeer).golden(&mut text);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages/golden.txt");
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    for (found, expected) in text.lines().zip(golden.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(text.len(), golden.len(), "RIVULET_BLESS=1 cargo test -p protocol --test messages writes it");
}
