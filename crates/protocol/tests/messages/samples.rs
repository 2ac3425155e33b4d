//! Messages of all kinds, made of numbers by their declarations: equal numbers make equal messages.
#![allow(dead_code)] // Not every test needs all of it.

use protocol::message::MessageInfo;
use protocol::wire::{FrameError, Reader, WireForm};

/// Limit on the bytes of a state or delta.
const STATE_MAX: u64 = 300;

/// Limit on the values of a list.
const LIST_MAX: u64 = 8;

/// Returns the bytes of a message: the tag, and then those of each field.
pub fn pieces(message: &MessageInfo, number: &mut dyn FnMut() -> u64) -> Vec<Vec<u8>> {
    let mut pieces = vec![vec![message.tag]];
    for field in message.fields {
        let mut bytes = Vec::new();
        put(&field.form, number, &mut bytes);
        pieces.push(bytes);
    }
    pieces
}

/// Returns the message that these numbers make, over and over.
pub fn sample<M>(
    message: &MessageInfo,
    numbers: &[u64],
    read: fn(&mut Reader<'_>) -> Result<M, FrameError>,
) -> Result<M, FrameError> {
    let mut numbers = numbers.iter().copied().cycle();
    let bytes = pieces(message, &mut || numbers.next().unwrap_or(0)).concat();
    read(&mut Reader::new(&bytes))
}

fn put(form: &WireForm, number: &mut dyn FnMut() -> u64, out: &mut Vec<u8>) {
    match form {
        WireForm::Number(len) => out.extend_from_slice(&number().to_be_bytes()[8 - len..]),
        WireForm::Flag => out.push((number() % 2) as u8),
        WireForm::Choice(words) => out.push((number() % words.len() as u64) as u8),
        WireForm::Sized => {
            let len = number() % STATE_MAX;
            out.extend_from_slice(&(len as u32).to_be_bytes());
            out.extend((0..len).map(|_| number() as u8));
        }
        WireForm::Parts(parts) => parts.iter().for_each(|part| put(&part.form, number, out)),
        WireForm::Cases(cases) => {
            let at = number() % cases.len() as u64;
            out.push(at as u8);
            cases[at as usize].parts.iter().for_each(|part| put(&part.form, number, out));
        }
        WireForm::List(form) => {
            let len = number() % LIST_MAX;
            out.extend_from_slice(&(len as u16).to_be_bytes());
            (0..len).for_each(|_| put(form, number, out));
        }
        WireForm::Optional(form) => {
            put(&WireForm::Flag, number, out);
            if out.ends_with(&[1]) {
                put(form, number, out);
            }
        }
    }
}
