//! Reports of units to their dispatchers.
//!
//! A report is a frame with the number of packets that leave, and a frame for each of these after
//! it: so none is longer than a link takes.

use graph::Datagram;
use packet::{FlowKey, LinkType, Packet, Side};
use protocol::message::{FlowId, FromUnit, UnitId};
use protocol::unit::FlowAlias;
use protocol::wire::{FrameError, Reader, Wire};
use runtime::transport::Return;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::put;

/// Bits of the first byte.
const READY: u8 = 1;
const FAILED: u8 = 2;
const ANSWERED: u8 = 4;
const LEFT: u8 = 8;

/// The order of the ends of an alias, if it is not known; otherwise 1 if they are turned.
const UNKNOWN: u8 = 2;

const KEY_LEN: usize = size_of::<FlowKey>();
const SIDES: [Side; 2] = [Side::Inside, Side::Outside];

/// Appends a report without its packets. Buffers and effects stay at the unit.
pub(super) fn write_report(out: &mut Vec<u8>, report: &Return) {
    let flags = [
        (report.is_ready, READY),
        (report.has_failed, FAILED),
        (report.has_answered, ANSWERED),
        (report.has_left, LEFT),
    ];
    out.push(flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag));
    put!(out, report.unit.0, report.lost, report.through, report.due_ns);
    put!(out, report.aliases.len() as u32);
    for (flow, alias) in &report.aliases {
        flow.write(out);
        out.extend_from_slice(alias.key.as_bytes());
    }
    put!(out, report.fragments.len() as u32);
    for (datagram, passed, at_ns) in &report.fragments {
        let (key, reversed, id) = datagram.parts();
        out.extend_from_slice(key.as_bytes());
        out.push(reversed.into());
        put!(out, id, at_ns);
        let (key, reversed) = passed.unwrap_or_default();
        out.extend_from_slice(&[passed.is_some().into(), reversed.into()]);
        out.extend_from_slice(key.as_bytes());
    }
    put!(out, report.messages.len() as u32);
    report.messages.iter().for_each(|message| message.write(out));
}

/// Appends the orders of the ends of aliases, which a report begins without.
pub(super) fn write_orders(out: &mut Vec<u8>, report: &Return) {
    put!(out, report.aliases.len() as u32);
    let order = |is_turned: Option<bool>| is_turned.map_or(UNKNOWN, u8::from);
    out.extend(report.aliases.iter().map(|(_, alias)| order(alias.is_turned)));
}

/// Reads them.
pub(super) fn read_orders(from: &mut Reader<'_>, report: &mut Return) -> Result<(), FrameError> {
    let count = from.count(1)?;
    for at in 0..count {
        let order = from.u8()?;
        if let Some((_, alias)) = report.aliases.get_mut(at) {
            alias.is_turned = (order < UNKNOWN).then_some(order == 1);
        }
    }
    Ok(())
}

/// Reads a report. `hash` returns the hash of a key.
pub(super) fn read_report(
    from: &mut Reader<'_>,
    hash: impl Fn(&FlowKey) -> u64,
) -> Result<Return, FrameError> {
    let flags = from.u8()?;
    let mut report = Return {
        is_ready: flags & READY != 0,
        has_failed: flags & FAILED != 0,
        has_answered: flags & ANSWERED != 0,
        has_left: flags & LEFT != 0,
        unit: UnitId(from.u16()?),
        lost: from.u64()?,
        through: from.u64()?,
        due_ns: from.u64()?,
        ..Return::default()
    };
    for _ in 0..from.count(8 + KEY_LEN)? {
        let (flow, key) = (FlowId::read(from)?, read_key(from)?);
        report.aliases.push((flow, FlowAlias { key, hash: hash(&key), is_turned: None }));
    }
    for _ in 0..from.count(2 * KEY_LEN)? {
        let (key, reversed, id, at_ns) = (read_key(from)?, bool::read(from)?, from.u32()?, from.u64()?);
        let (has_passed, is_reversed) = (bool::read(from)?, bool::read(from)?);
        let passed = (read_key(from)?, is_reversed);
        let datagram = Datagram::from_parts(key, reversed, id);
        report.fragments.push((datagram, has_passed.then_some(passed), at_ns));
    }
    for _ in 0..from.count(1)? {
        report.messages.push(FromUnit::read(from)?);
    }
    Ok(report)
}

fn read_key(from: &mut Reader<'_>) -> Result<FlowKey, FrameError> {
    FlowKey::read_from_bytes(from.bytes(KEY_LEN)?).map_err(|_| FrameError::Invalid("key"))
}

/// The fields before the frame of a packet that leaves.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct OutputHead {
    timestamp_ns: U64,
    ingress: U16,
    egress: U16,
    link: U16,
    wire_len: U32,
    outer_l3: U16,
    l3: U16,
    l4: U16,
    side: u8,
}

/// Appends a packet that leaves.
pub fn write_output(out: &mut Vec<u8>, packet: &Packet) {
    let meta = packet.meta();
    let transit = meta.transit;
    let head = OutputHead {
        timestamp_ns: transit.timestamp_ns.into(),
        ingress: transit.ingress.into(),
        egress: transit.egress.into(),
        link: meta.link.number().into(),
        wire_len: meta.wire_len.into(),
        outer_l3: meta.outer_l3.into(),
        l3: meta.l3.into(),
        l4: meta.l4.into(),
        side: transit.side as u8,
    };
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(packet.data());
}

/// Reads a packet that leaves. `buffer` makes one of a frame.
///
/// # Errors
/// If it is not one, or there is no buffer.
pub fn read_output(
    from: &mut Reader<'_>,
    buffer: impl FnOnce(&[u8]) -> Option<Packet>,
) -> Result<Packet, FrameError> {
    let head = from.head::<OutputHead>()?;
    let side = *SIDES.get(usize::from(head.side)).ok_or(FrameError::Invalid("side"))?;
    let (offsets, frame) = ([head.outer_l3.get(), head.l3.get(), head.l4.get()], from.rest());
    if offsets.iter().any(|&offset| usize::from(offset) > frame.len()) {
        return Err(FrameError::Invalid("offset"));
    }
    let mut packet = buffer(frame).ok_or(FrameError::Invalid("length"))?;
    let meta = packet.meta_mut();
    let transit = &mut meta.transit;
    (transit.timestamp_ns, transit.side) = (head.timestamp_ns.get(), side);
    (transit.ingress, transit.egress) = (head.ingress.get(), head.egress.get());
    meta.link = LinkType::from_number(head.link.get());
    meta.wire_len = head.wire_len.get().max(frame.len() as u32);
    [meta.outer_l3, meta.l3, meta.l4] = offsets;
    Ok(packet)
}
