//! Frames: the messages of a link, each with its kind first.

use packet::{FlowKey, Packet};
use protocol::message::{FlowId, FromDispatcher, FromPeer, Handover, Stamp, UnitId};
use protocol::trace::FlowTimeline;
use protocol::wire::{FrameError, Reader, Wire, put_sized};
use runtime::transport::{Mail, Return, RouteStage, ToUnit};
use zerocopy::{FromBytes, IntoBytes};

use super::control::{Assignment, Hello};
use super::figures::{FigureChanges, UnitFigures};
use super::kind;
use super::packets::{ArrivedPacket, read_packet, write_packet};
use super::policies::{PolicyFrame, read_policy_frame, read_texts, write_texts};
use super::put;
use super::reports::{read_orders, read_report, write_orders, write_report};
use super::timelines::{TimelineQuestion, read_timeline, write_rows};
use crate::policies::{Digest, NumberedDigest, PolicyTexts};

/// A received frame.
pub enum ArrivedFrame<'a> {
    /// The first frame of each end.
    Hello(Hello),
    /// An input for a unit, other than a packet.
    Input(ToUnit),
    /// A packet for a unit.
    Packet(ArrivedPacket<'a>),
    /// Assignment of a unit to the receiver.
    Assign(Assignment),
    /// End of the receiver's assignment, after it was drained.
    Stopped,
    /// A policy for the receiver to read, and its digest at the sender; zeros in earlier versions.
    Policy(PolicyTexts, Digest),
    /// Order to hand all flows over, end this link, and then run this policy.
    Renew(NumberedDigest),
    /// Order to end this link after a drain; the sender then assigns another unit.
    Part,
    /// All units, by number.
    Units(Vec<UnitAddress>),
    /// A report of a unit, and its context.
    Report(Box<Return>, ReportContext),
    /// A packet of a unit's output: [`read_output`](super::read_output) reads the rest.
    Output(Reader<'a>),
    /// Figures of a unit.
    Figures(Box<UnitFigures>),
    /// Changed figures of a unit's functions.
    FiguresChanged(FigureChanges),
    /// Question for the last lines of a flow's timeline.
    TimelineAsked(TimelineQuestion),
    /// The answer to the question of this number. The lines name no host: it is the sender.
    Timeline(u64, FlowTimeline),
    /// Announcement of a unit's end; it hands its flows over before.
    Leave,
    /// Outcome of reading a policy.
    PolicyRead {
        /// The digest sent with it; zeros in earlier versions.
        asked: Digest,
        /// Its digest, or the reason why the sender cannot run it.
        read: Result<Digest, String>,
    },
    /// Announcement that the sender has handed its flows over and ends the link.
    Gone,
    /// A message of the ownership protocol from a unit.
    Peer {
        /// The sender.
        unit: UnitId,
        /// The message.
        message: FromPeer,
        /// Packets that the unit had reported before it sent this.
        through: u64,
        /// The unit's estimate of the dispatcher's clock; 0 if unknown.
        now_ns: u64,
    },
    /// A late packet, forwarded by a unit.
    Forwarded(ArrivedPacket<'a>),
    /// A frame for another unit, which the sender cannot reach; the receiver relays it.
    Relay(UnitId, &'a [u8]),
    /// A frame of this unit, relayed by the dispatcher: [`ArrivedFrame::Peer`] or
    /// [`ArrivedFrame::Forwarded`].
    Relayed(UnitId, &'a [u8]),
    /// A packet of another dispatcher's interface, and the stage of its route.
    Passed(RouteStage, ArrivedPacket<'a>),
    /// Claim of this key for a flow of the sender.
    Claim(KeyClaim),
    /// Grant of all claims of the receiver up to this number.
    Granted(u64),
    /// Release of this key by the sender.
    Released(FlowKey),
    /// A frame about the policies of nodes.
    OfPolicies(PolicyFrame),
    /// The total of packets that the sender has taken over from the receiver's process. With true,
    /// the sender ends, and takes over no more.
    Taken(u64, bool),
}

/// A report that must take effect before another one: the report of a unit, up to this many
/// packets. So a flow's packets leave in order although two units have processed them.
pub type PriorReport = (UnitId, u64);

/// The other units on which a report depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportContext {
    /// Reports of other units that must take effect before this one.
    pub priors: Vec<PriorReport>,
    /// Packets forwarded and received so far, by the other unit, if changed since the last report.
    pub forwards: Vec<(UnitId, ForwardCounts)>,
    /// True if the report arrives after all output that was sent before it. Otherwise some of that
    /// output may arrive later.
    pub is_complete: bool,
}

/// Packets that a unit has exchanged with another one since its start, because their flows had
/// moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardCounts {
    /// Packets forwarded to the other unit.
    pub sent: u64,
    /// Packets received from the other unit.
    pub received: u64,
    /// The link to the other unit is lost: no more packets are exchanged on it.
    pub is_cut: bool,
}

/// The address of a unit, for other units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitAddress {
    /// The unit.
    pub unit: UnitId,
    /// Name of its node.
    pub name: String,
    /// Address and port.
    pub address: String,
}

/// A claim of a key for a flow of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    /// Number of the claim. A grant covers all claims up to its number.
    pub number: u64,
    /// Time of the dispatchers' logical clock: the latest claim holds.
    pub time: u64,
    /// The key.
    pub key: FlowKey,
}

/// Appends the first frame of a link.
pub fn write_hello(out: &mut Vec<u8>, hello: &Hello) {
    out.push(kind::HELLO);
    hello.write(out);
}

/// Appends an input for a unit.
pub fn write_input(out: &mut Vec<u8>, input: &ToUnit) {
    match input {
        ToUnit::Time(now_ns) => {
            out.push(kind::TIME);
            put!(out, now_ns);
        }
        ToUnit::Step(now_ns) => {
            out.push(kind::STEP);
            put!(out, now_ns);
        }
        ToUnit::Answer => out.push(kind::ANSWER),
        ToUnit::Packet(_, stamp, packet) => write_packet_input(out, stamp, packet),
        ToUnit::Message(now_ns, message) => write_message(out, *now_ns, message),
        ToUnit::Control(stage, command) => {
            out.push(kind::CONTROL);
            put!(out, *stage as u32);
            put_sized(out, command.as_bytes());
        }
        ToUnit::Figures => out.push(kind::FIGURES),
        ToUnit::Reset => out.push(kind::RESET),
        ToUnit::Resume => out.push(kind::RESUME),
        ToUnit::Finish => out.push(kind::FINISH),
    }
}

/// Appends a packet for a unit.
pub fn write_packet_input(out: &mut Vec<u8>, stamp: &Stamp, packet: &Packet) {
    out.push(kind::PACKET);
    write_packet(out, stamp, packet);
}

/// Appends a message of the dispatcher at a time of its clock.
fn write_message(out: &mut Vec<u8>, now_ns: u64, message: &FromDispatcher) {
    out.push(kind::MESSAGE);
    put!(out, now_ns);
    message.write(out);
}

/// Appends the assignment of a node.
pub fn write_assignment(out: &mut Vec<u8>, assignment: &Assignment) {
    out.push(kind::ASSIGN);
    assignment.write(out);
}

/// Appends the end of a node's assignment, after it was drained.
pub fn write_stopped(out: &mut Vec<u8>) {
    out.push(kind::STOPPED);
}

/// Appends a policy. `digest`: the digest that the receiver should compute.
pub fn write_policy(out: &mut Vec<u8>, policy: &PolicyTexts, digest: &Digest) {
    out.push(kind::POLICY);
    write_texts(out, policy);
    out.extend_from_slice(digest);
}

/// Appends the order to run another policy.
pub fn write_renew(out: &mut Vec<u8>, NumberedDigest { number, digest }: &NumberedDigest) {
    out.push(kind::RENEW);
    out.extend_from_slice(digest);
    put!(out, number);
}

/// Appends the order to end this link after a drain, and to wait for the next one.
pub fn write_part(out: &mut Vec<u8>) {
    out.push(kind::PART);
}

/// Appends the addresses of all units.
pub fn write_units(out: &mut Vec<u8>, units: &[UnitAddress]) {
    out.push(kind::UNITS);
    put!(out, units.len() as u32);
    for UnitAddress { unit, name, address } in units {
        put!(out, unit.0);
        put_sized(out, name.as_bytes());
        put_sized(out, address.as_bytes());
    }
}

/// Appends a report of a unit without its packets.
pub fn write_report_frame(out: &mut Vec<u8>, report: &Return, context: &ReportContext) {
    out.push(kind::REPORT);
    write_report(out, report);
    let ReportContext { priors, forwards, is_complete } = context;
    put!(out, priors.len() as u32);
    priors.iter().for_each(|(unit, through)| put!(out, unit.0, through));
    put!(out, forwards.len() as u32);
    for (unit, counts) in forwards {
        put!(out, unit.0, counts.sent, counts.received);
        out.push(counts.is_cut.into());
    }
    out.push((*is_complete).into());
    write_orders(out, report);
}

/// Appends the kind of an output packet; [`write_output`](super::write_output) appends the rest.
pub fn begin_output(out: &mut Vec<u8>) {
    out.push(kind::OUTPUT);
}

/// Appends a unit's figures.
pub fn write_figures(out: &mut Vec<u8>, figures: &UnitFigures) {
    out.push(kind::FIGURES_OF_UNIT);
    figures.write(out);
}

/// Appends changed figures of a unit's functions.
pub fn write_figure_changes(out: &mut Vec<u8>, changes: &FigureChanges) {
    out.push(kind::FIGURES_CHANGED);
    changes.write(out);
}

/// Appends a question for the last lines of a flow's timeline.
pub fn write_timeline_asked(out: &mut Vec<u8>, question: &TimelineQuestion) {
    out.push(kind::TIMELINE_ASKED);
    question.write(out);
}

/// Appends the answer to the question of this number.
pub fn write_timeline(out: &mut Vec<u8>, question: u64, timeline: &FlowTimeline) {
    out.push(kind::TIMELINE);
    put!(out, question);
    write_rows(out, timeline);
}

/// Appends the announcement of a unit's end.
pub fn write_leave(out: &mut Vec<u8>) {
    out.push(kind::LEAVE);
}

/// Appends the outcome of reading a policy: its digest, or the reason why the sender cannot run it.
pub fn write_policy_read(out: &mut Vec<u8>, read: &Result<Digest, String>, asked: &Digest) {
    out.push(kind::POLICY_READ);
    out.extend_from_slice(read.as_ref().unwrap_or(&[0; 32]));
    put_sized(out, read.as_ref().err().map_or("", String::as_str).as_bytes());
    out.extend_from_slice(asked);
}

/// Appends the last message of a link.
pub fn write_gone(out: &mut Vec<u8>) {
    out.push(kind::GONE);
}

/// Appends a message or packet for another unit. `through`: the packets that the sender has
/// reported; `now_ns`: its estimate of the dispatcher's clock, 0 if unknown.
pub fn write_mail(out: &mut Vec<u8>, mail: &Mail, through: u64, now_ns: u64) {
    match mail {
        Mail::Message(from, message) => {
            out.push(kind::PEER);
            put!(out, from.0, through);
            message.write(out);
            put!(out, now_ns);
        }
        Mail::Packet(stamp, packet) => {
            out.push(kind::FORWARDED);
            write_packet(out, stamp, packet);
        }
    }
}

/// Appends the header of a frame that the dispatcher relays to this unit; the frame follows.
pub fn begin_relay(out: &mut Vec<u8>, to: UnitId) {
    out.push(kind::RELAY);
    put!(out, to.0);
}

/// Appends a relayed frame of this unit.
pub fn write_relayed(out: &mut Vec<u8>, from: UnitId, frame: &[u8]) {
    out.push(kind::RELAYED);
    put!(out, from.0);
    out.extend_from_slice(frame);
}

/// Appends a packet for another dispatcher, with the stage of its route.
pub fn write_passed(out: &mut Vec<u8>, stage: RouteStage, packet: &Packet) {
    let no_flow = FlowId { index: 0, generation: 0 };
    let stamp = Stamp { flow: no_flow, seq: 0, epoch: 0, handover: Handover::None, targets: None };
    out.extend_from_slice(&[kind::PASSED, stage as u8]);
    write_packet(out, &stamp, packet);
}

/// Appends a claim of a key.
pub fn write_claim(out: &mut Vec<u8>, claim: &KeyClaim) {
    out.push(kind::CLAIM);
    put!(out, claim.number);
    out.extend_from_slice(claim.key.as_bytes());
    put!(out, claim.time);
}

/// Appends a grant of all claims up to this number.
pub fn write_granted(out: &mut Vec<u8>, number: u64) {
    out.push(kind::GRANTED);
    put!(out, number);
}

/// Appends the release of a key.
pub fn write_released(out: &mut Vec<u8>, key: &FlowKey) {
    out.push(kind::RELEASED);
    out.extend_from_slice(key.as_bytes());
}

/// Appends the total of packets taken over from another dispatcher; `is_last` if the sender ends.
pub fn write_taken(out: &mut Vec<u8>, taken: u64, is_last: bool) {
    out.push(kind::TAKEN);
    put!(out, taken);
    out.push(is_last.into());
}

fn read_key(from: &mut Reader<'_>) -> Result<FlowKey, FrameError> {
    FlowKey::read_from_bytes(from.bytes(size_of::<FlowKey>())?).map_err(|_| FrameError::Invalid("key"))
}

/// Parses a frame. `now_ns`: the receiver's clock, as set by the dispatcher; `hash` returns the
/// hash of a flow's key.
///
/// # Errors
/// If it is malformed. [`FrameError::UnknownKind`] is no fault: a later version may have the kind.
pub fn read_frame(
    frame: &[u8],
    now_ns: u64,
    hash: impl Fn(&FlowKey) -> u64,
) -> Result<ArrivedFrame<'_>, FrameError> {
    let mut from = Reader::new(frame);
    let input = match from.u8()? {
        kind::HELLO => return Hello::read(&mut from).map(ArrivedFrame::Hello),
        kind::PACKET => return read_packet(&mut from, now_ns).map(ArrivedFrame::Packet),
        kind::UNITS => return read_units(&mut from).map(ArrivedFrame::Units),
        kind::REPORT => {
            let mut report = read_report(&mut from, hash)?;
            let priors = (0..from.count(10)?).map(|_| Ok((UnitId(from.u16()?), from.u64()?)));
            let priors = priors.collect::<Result<_, FrameError>>()?;
            let forwards = (0..from.count(19)?).map(|_| read_forward(&mut from)).collect::<Result<_, _>>()?;
            let context = ReportContext { priors, forwards, is_complete: from.u8()? != 0 };
            read_orders(&mut from, &mut report)?;
            return Ok(ArrivedFrame::Report(Box::new(report), context));
        }
        kind::OUTPUT => return Ok(ArrivedFrame::Output(from)),
        kind::ASSIGN => return Assignment::read(&mut from).map(ArrivedFrame::Assign),
        kind::FIGURES_OF_UNIT => {
            return Ok(ArrivedFrame::Figures(Box::new(UnitFigures::read(&mut from)?)));
        }
        kind::FIGURES_CHANGED => {
            return FigureChanges::read(&mut from).map(ArrivedFrame::FiguresChanged);
        }
        kind::TIMELINE_ASKED => return TimelineQuestion::read(&mut from).map(ArrivedFrame::TimelineAsked),
        kind::TIMELINE => {
            return Ok(ArrivedFrame::Timeline(from.u64()?, read_timeline(&mut from)?));
        }
        kind::LEAVE => return Ok(ArrivedFrame::Leave),
        kind::POLICY => {
            let texts = read_texts(&mut from)?;
            return Ok(ArrivedFrame::Policy(texts, read_digest_if_any(&mut from)?));
        }
        kind::RENEW => {
            let digest = from.array()?;
            // An earlier version has no numbers.
            let number = if from.is_empty() { 0 } else { from.u64()? };
            return Ok(ArrivedFrame::Renew(NumberedDigest { number, digest }));
        }
        kind::PART => return Ok(ArrivedFrame::Part),
        kind::POLICY_READ => {
            let (digest, reason) = (from.array()?, from.text()?.to_owned());
            let asked = read_digest_if_any(&mut from)?;
            let read = if reason.is_empty() { Ok(digest) } else { Err(reason) };
            return Ok(ArrivedFrame::PolicyRead { asked, read });
        }
        kind::GONE => return Ok(ArrivedFrame::Gone),
        kind::STOPPED => return Ok(ArrivedFrame::Stopped),
        kind::PASSED => {
            let stage = RouteStage::of_number(from.u8()?).ok_or(FrameError::Invalid("passage"))?;
            return Ok(ArrivedFrame::Passed(stage, read_packet(&mut from, now_ns)?));
        }
        kind::CLAIM => {
            let (number, key) = (from.u64()?, read_key(&mut from)?);
            // An earlier version has only the number.
            let time = if from.is_empty() { number } else { from.u64()? };
            return Ok(ArrivedFrame::Claim(KeyClaim { number, time, key }));
        }
        kind::GRANTED => return Ok(ArrivedFrame::Granted(from.u64()?)),
        kind::RELEASED => return Ok(ArrivedFrame::Released(read_key(&mut from)?)),
        kind::TAKEN => return Ok(ArrivedFrame::Taken(from.u64()?, bool::read(&mut from)?)),
        kind::PEER => {
            let (unit, through) = (UnitId(from.u16()?), from.u64()?);
            let message = FromPeer::read(&mut from)?;
            // Earlier versions have no time.
            let now_ns = if from.is_empty() { 0 } else { from.u64()? };
            return Ok(ArrivedFrame::Peer { unit, message, through, now_ns });
        }
        kind::FORWARDED => return read_packet(&mut from, now_ns).map(ArrivedFrame::Forwarded),
        kind::RELAY => return Ok(ArrivedFrame::Relay(UnitId(from.u16()?), from.rest())),
        kind::RELAYED => return Ok(ArrivedFrame::Relayed(UnitId(from.u16()?), from.rest())),
        kind::TIME => ToUnit::Time(from.u64()?),
        kind::STEP => ToUnit::Step(from.u64()?),
        kind::ANSWER => ToUnit::Answer,
        kind::MESSAGE => ToUnit::Message(from.u64()?, FromDispatcher::read(&mut from)?),
        kind::CONTROL => ToUnit::Control(from.u32()? as usize, from.text()?.into()),
        kind::FIGURES => ToUnit::Figures,
        kind::RESET => ToUnit::Reset,
        kind::RESUME => ToUnit::Resume,
        kind::FINISH => ToUnit::Finish,
        other => {
            let of_policies = read_policy_frame(other, &mut from).ok_or(FrameError::UnknownKind(other))?;
            return of_policies.map(ArrivedFrame::OfPolicies);
        }
    };
    Ok(ArrivedFrame::Input(input))
}

fn read_forward(from: &mut Reader<'_>) -> Result<(UnitId, ForwardCounts), FrameError> {
    let unit = UnitId(from.u16()?);
    let counts = ForwardCounts { sent: from.u64()?, received: from.u64()?, is_cut: bool::read(from)? };
    Ok((unit, counts))
}

fn read_digest_if_any(from: &mut Reader<'_>) -> Result<Digest, FrameError> {
    if from.is_empty() { Ok(Digest::default()) } else { from.array() }
}

fn read_units(from: &mut Reader<'_>) -> Result<Vec<UnitAddress>, FrameError> {
    (0..from.count(10)?)
        .map(|_| {
            Ok(UnitAddress {
                unit: UnitId(from.u16()?),
                name: from.text()?.to_owned(),
                address: from.text()?.to_owned(),
            })
        })
        .collect()
}
