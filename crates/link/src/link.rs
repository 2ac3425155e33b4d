//! One end of a link.

mod path;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use std::fmt;

use crate::acks::AckState;
use crate::config::{Config, LinkConfigError, packet_max};
use crate::counters::Counters;
use crate::ended::EndedLink;
use crate::errors::{PacketError, SendError};
use crate::events::{DeadReason, LinkEvent};
use crate::keys::{LinkKeys, ReceiveKeys, SendKeys, connection_id};
use crate::life::{Life, SilenceLimits};
use crate::mtu::{MtuChange, PathMtu};
use crate::queue::SliceQueue;
use crate::receiving::{Inbox, StreamMessage};
use crate::recovery::{Fate, Recovery};
use crate::sending::BlockQueue;
use crate::sent::Sent;

pub use transmit::{TRANSMIT_BYTES_MAX, TRANSMIT_DATAGRAMS_MAX, Transmit};

/// One end of a link: a state machine without clock and socket.
///
/// The caller gives it received datagrams and the time, and sends what it returns:
///
/// 1. [`handle_datagram`](PeerLink::handle_datagram) for each datagram that the socket has;
/// 2. [`handle_timeout`](PeerLink::handle_timeout) if
///    [`next_timeout_ns`](PeerLink::next_timeout_ns) has passed, after all datagrams that the socket
///    has;
/// 3. [`poll_message`](PeerLink::poll_message), [`poll_packet`](PeerLink::poll_packet) and
///    [`poll_event`](PeerLink::poll_event) until they return none;
/// 4. [`poll_transmit`](PeerLink::poll_transmit) until it returns none, also after messages and
///    packets were given to it.
///
/// `now_ns` is monotonic; an earlier time than before counts as the latest one.
pub struct PeerLink {
    config: Config,
    now_ns: u64,
    send_id: u64,
    receive_id: u64,
    send_keys: SendKeys,
    receive_keys: ReceiveKeys,
    /// The number of the next datagram.
    next_number: u64,
    acks: AckState,
    recovery: Recovery,
    mtu: PathMtu,
    /// The length of the peer's probe that must be answered.
    answer: Option<u16>,
    blocks: BlockQueue,
    inbox: Inbox,
    packets_out: SliceQueue<()>,
    packets_in: SliceQueue<()>,
    /// Set if the next datagram begins with packets, if messages wait as well.
    is_packets_turn: bool,
    /// An acknowledgement in the making.
    ack_frame: Vec<u8>,
    life: Life,
    dead: Option<DeadReason>,
    events: PendingEvents,
    /// The system has refused the smallest datagrams.
    is_too_narrow: bool,
    counters: Counters,
}

impl fmt::Debug for PeerLink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("PeerLink");
        fields.field("is_up", &self.life.is_up()).field("dead", &self.dead).field("counters", &self.counters);
        fields.finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct PendingEvents {
    up: bool,
    room: bool,
    dead: bool,
    mtu: Option<MtuChange>,
    too_narrow: bool,
    /// Set if a message was refused since the last event of room.
    is_room_awaited: bool,
}

impl PeerLink {
    /// Begins a link.
    ///
    /// # Errors
    ///
    /// A setting that cannot be used, or equal secrets.
    pub fn new(config: Config, keys: &LinkKeys, now_ns: u64) -> Result<PeerLink, LinkConfigError> {
        config.check()?;
        if keys.send == keys.receive {
            return Err(LinkConfigError::SameSecrets);
        }
        Ok(PeerLink {
            now_ns,
            send_id: connection_id(&keys.send),
            receive_id: connection_id(&keys.receive),
            send_keys: SendKeys::new(keys.send, config.key_datagrams, config.key_bytes),
            receive_keys: ReceiveKeys::new(keys.receive),
            next_number: 1,
            acks: AckState::new(config.ack_delay_ns, config.heartbeat_ns),
            recovery: Recovery::new(config.mtu_base, config.initial_rtt_ns, config.ack_delay_ns),
            mtu: PathMtu::new(config.mtu_base, config.mtu),
            answer: None,
            blocks: BlockQueue::new(config.mtu_base, config.send_buffer),
            inbox: Inbox::new(config.receive_window as u64, config.message_max),
            packets_out: SliceQueue::new(),
            packets_in: SliceQueue::new(),
            is_packets_turn: false,
            ack_frame: Vec::new(),
            life: Life::new(
                SilenceLimits {
                    up_within_ns: config.up_within_ns,
                    missed: config.heartbeats_missed.into(),
                    heartbeat_ns: config.heartbeat_ns,
                    least_ns: config.silence_min_ns,
                    most_ns: config.silence_max_ns,
                },
                now_ns,
            ),
            dead: None,
            events: PendingEvents::default(),
            is_too_narrow: false,
            counters: Counters::default(),
            config,
        })
    }

    /// Sends a message: exactly once, in order within its stream. Streams do not wait for each
    /// other, but all for [`ORDERED`](crate::ORDERED), and that for all. A27
    ///
    /// # Errors
    ///
    /// It was not accepted; nothing happened.
    #[inline]
    pub fn send_message(&mut self, stream: u16, message: &[u8]) -> Result<(), SendError> {
        if self.dead.is_some() {
            return Err(SendError::Dead);
        }
        if message.len() > self.config.message_max {
            return Err(SendError::TooLarge { len: message.len(), max: self.config.message_max });
        }
        if !self.blocks.push(stream, message) {
            return Err(self.refuse_message());
        }
        self.counters.messages_sent += 1;
        self.counters.message_bytes_sent += message.len() as u64;
        Ok(())
    }

    /// Sends a message as [`send_message`](PeerLink::send_message) does, without a copy: `write`
    /// appends it to the bytes that it gets, and must not change these.
    ///
    /// # Errors
    ///
    /// It was not accepted; nothing happened. [`SendError::Full`] if the link [has no
    /// room](PeerLink::has_room) for the longest message; `write` was not called then.
    #[inline]
    pub fn write_message(&mut self, stream: u16, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), SendError> {
        if self.dead.is_some() {
            return Err(SendError::Dead);
        }
        if !self.has_room() {
            return Err(self.refuse_message());
        }
        let (mut len, max) = (0, self.config.message_max);
        let counted = |out: &mut Vec<u8>| {
            let start = out.len();
            write(out);
            len = out.len() - start;
        };
        if !self.blocks.write(stream, max, counted) {
            return Err(SendError::TooLarge { len, max });
        }
        self.counters.messages_sent += 1;
        self.counters.message_bytes_sent += len as u64;
        Ok(())
    }

    /// Returns whether the link accepts a message of any permitted length.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.blocks.can_write(self.config.message_max)
    }

    /// Sends a packet, which the network may lose, repeat or reorder. It is never divided and never
    /// sent again by the link; replays do not arrive.
    ///
    /// # Errors
    ///
    /// It was not accepted, and is counted.
    #[inline]
    pub fn send_packet(&mut self, packet: &[u8]) -> Result<(), PacketError> {
        if self.dead.is_some() {
            return Err(PacketError::Dead);
        }
        let max = self.packet_max();
        if packet.len() > max {
            self.counters.packets_too_large += 1;
            return Err(PacketError::TooLarge { len: packet.len(), max });
        }
        if !has_packet_room(&self.packets_out, packet.len(), self.config.packet_buffer) {
            self.counters.packets_full += 1;
            return Err(PacketError::Full);
        }
        self.packets_out.push((), packet);
        Ok(())
    }

    /// Counts a message without room.
    #[cold]
    fn refuse_message(&mut self) -> SendError {
        self.counters.messages_full += 1;
        self.events.is_room_awaited = true;
        SendError::Full
    }

    /// Returns whether [`PeerLink::poll_message`] would return a message.
    #[inline]
    #[must_use]
    pub fn has_message(&self) -> bool {
        self.inbox.is_ready()
    }

    /// Takes the next received message. It stays valid until the next call.
    #[inline]
    pub fn poll_message(&mut self) -> Option<StreamMessage<'_>> {
        let message = self.inbox.poll()?;
        self.counters.messages_received += 1;
        self.counters.message_bytes_received += message.bytes.len() as u64;
        Some(message)
    }

    /// Takes the next received packet. It stays valid until the next call.
    #[inline]
    pub fn poll_packet(&mut self) -> Option<&[u8]> {
        let ((), packet) = self.packets_in.pop()?;
        self.counters.packets_received += 1;
        Some(packet)
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        if std::mem::take(&mut self.events.up) {
            return Some(LinkEvent::Up);
        }
        if std::mem::take(&mut self.events.room) {
            return Some(LinkEvent::Room);
        }
        if let Some(change) = self.events.mtu.take() {
            return Some(LinkEvent::Mtu { size: self.mtu.size(), change });
        }
        if std::mem::take(&mut self.events.too_narrow) {
            return Some(LinkEvent::TooNarrow);
        }
        let reason = self.dead?;
        std::mem::take(&mut self.events.dead).then_some(LinkEvent::Dead(reason))
    }

    /// Returns the time of the next [`PeerLink::handle_timeout`]; none after the link's end.
    #[must_use]
    pub fn next_timeout_ns(&self) -> Option<u64> {
        if self.dead.is_some() {
            return None;
        }
        let recovery_ns = self.recovery.next_timeout_ns().unwrap_or(u64::MAX);
        let mtu_ns = self.mtu.next_timeout_ns().unwrap_or(u64::MAX);
        let timeout_ns = recovery_ns.min(mtu_ns).min(self.acks.next_timeout_ns()).min(self.dead_at_ns());
        Some(timeout_ns.max(self.now_ns))
    }

    /// Handles timeouts. The caller hands over all received datagrams before, so that a process
    /// that was suspended does not take its peer for dead, and calls
    /// [`PeerLink::poll_transmit`] after.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let now_ns = self.advance(now_ns);
        if self.dead.is_some() {
            return;
        }
        if self.dead_at_ns() <= now_ns {
            return self.end(DeadReason::Silent);
        }
        let had_probe = self.recovery.must_probe();
        let rtt_ns = self.recovery.rtt.smoothed_ns();
        let mut decisions =
            Decisions { blocks: &mut self.blocks, mtu: &mut self.mtu, counters: &mut self.counters, rtt_ns };
        let mut is_narrower = false;
        self.recovery.handle_timeout(now_ns, |sent, fate| is_narrower |= decisions.decide(sent, fate));
        let has_timed_out = self.recovery.must_probe() && !had_probe;
        self.counters.probe_timeouts += u64::from(has_timed_out);
        if is_narrower || has_timed_out && self.mtu.is_suspect(self.recovery.timeouts()) {
            self.lower_mtu(self.mtu.above_size());
        }
        self.mtu.handle_timeout(now_ns, self.life.heard_ns());
    }

    /// Returns the silence after which the peer is given up: `heartbeats_missed` times the
    /// heartbeat or the smoothed round-trip time, if this is longer, or twice the longest silence
    /// of late that the peer ended, from `silence_min_ns` to `silence_max_ns`; before the first
    /// datagram `up_within_ns`.
    #[must_use]
    pub fn silence_ns(&self) -> u64 {
        self.life.limit_ns(self.now_ns, self.rtt_ns())
    }

    /// Returns the silence after which the peer is late: this many heartbeats, or smoothed
    /// round-trip times if these are longer, or twice the longest silence of late that the peer
    /// ended.
    #[must_use]
    pub fn late_after_ns(&self, now_ns: u64, missed: u32) -> u64 {
        self.life.late_after_ns(now_ns, self.rtt_ns(), missed.into())
    }

    /// Returns the peer's silence so far, except for the time when [this end did not
    /// run](PeerLink::excuse).
    #[must_use]
    pub fn silent_ns(&self, now_ns: u64) -> u64 {
        self.life.silent_ns(now_ns)
    }

    /// Notes that this end did not run for a time that has just ended: that is no silence of the
    /// peer. Called after [`PeerLink::handle_datagram`] for all datagrams that the socket has, and
    /// before [`PeerLink::handle_timeout`].
    pub fn excuse(&mut self, stall_ns: u64, now_ns: u64) {
        let now_ns = self.advance(now_ns);
        self.life.excuse(stall_ns, now_ns);
    }

    /// Sends no message and no packet until the peer acknowledges a datagram that is sent from now
    /// on, which shows that it still has the link. Does nothing before the first datagram of the
    /// peer.
    pub fn doubt(&mut self) {
        self.life.doubt(self.next_number);
        self.acks.hurry();
    }

    /// Returns whether the peer is known to have the link: false after [`PeerLink::doubt`], until
    /// it has answered.
    #[inline]
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.life.is_confirmed()
    }

    /// Returns whether a datagram of the peer has arrived.
    #[inline]
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.life.is_up()
    }

    /// Ends the link, and returns what notifies the peer.
    #[must_use]
    pub fn into_ended(self) -> EndedLink {
        EndedLink::new((self.send_id, self.receive_id), self.send_keys, self.next_number)
    }

    /// Returns the connection id of datagrams to this end (see
    /// [`connection_of`](crate::connection_of)).
    #[must_use]
    pub fn receive_id(&self) -> u64 {
        self.receive_id
    }

    /// Returns the length of datagrams that the path is known to carry, at most.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.mtu.size()
    }

    /// Returns the length of the longest packet now.
    #[must_use]
    pub fn packet_max(&self) -> usize {
        packet_max(self.mtu.size())
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the smoothed round-trip time, in ns.
    #[must_use]
    pub fn rtt_ns(&self) -> u64 {
        self.recovery.rtt.smoothed_ns()
    }

    /// Returns the time of the peer's last authentic datagram; before the first, that of the link's
    /// beginning.
    #[must_use]
    pub fn heard_ns(&self) -> u64 {
        self.life.heard_ns()
    }

    /// Returns the bytes in flight and the congestion window.
    #[must_use]
    pub fn in_flight(&self) -> (u64, u64) {
        (self.recovery.in_flight(), self.recovery.congestion.window())
    }

    /// Returns the cost of received messages that are incomplete, wait for earlier ones, or wait
    /// for the caller. It never exceeds [`Config::receive_window`].
    #[must_use]
    pub fn held_cost(&self) -> u64 {
        self.inbox.held_cost()
    }

    /// Returns whether the peer has acknowledged every message.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.blocks.is_idle()
    }

    /// Returns about how many datagrams the messages fill that wait to be sent: a caller that
    /// expects more may wait until they fill a [`Transmit`].
    #[must_use]
    pub fn unsent_datagrams(&self) -> u64 {
        self.blocks.unsent()
    }

    /// Returns the reason for the link's end, if it has ended.
    #[must_use]
    pub fn dead(&self) -> Option<DeadReason> {
        self.dead
    }

    fn dead_at_ns(&self) -> u64 {
        self.life.dead_at_ns(self.now_ns, self.rtt_ns())
    }

    #[inline]
    fn advance(&mut self, now_ns: u64) -> u64 {
        self.now_ns = self.now_ns.max(now_ns);
        self.now_ns
    }

    fn end(&mut self, reason: DeadReason) {
        if self.dead.is_none() {
            self.dead = Some(reason);
            self.events.dead = true;
        }
    }
}

/// Returns whether a queue of packets has room for another one. Empty packets count as well.
#[inline]
fn has_packet_room(queue: &SliceQueue<()>, len: usize, max: usize) -> bool {
    queue.len_bytes() + queue.len() * PACKET_COST + len <= max
}

/// Bytes that a packet counts in the packet buffer, beyond its own.
const PACKET_COST: usize = 16;

/// Applies decisions about datagrams.
struct Decisions<'a> {
    blocks: &'a mut BlockQueue,
    mtu: &'a mut PathMtu,
    counters: &'a mut Counters,
    rtt_ns: u64,
}

impl Decisions<'_> {
    /// Applies one; returns whether the path seems to have become narrower.
    #[inline]
    fn decide(&mut self, sent: Sent, fate: Fate) -> bool {
        let size = sent.size as usize;
        match (fate, sent.piece) {
            (Fate::Acked | Fate::Late, piece) => {
                self.counters.datagrams_late += u64::from(fate == Fate::Late);
                self.mtu.note_acked(size, sent.at_ns);
                if let Some(piece) = piece {
                    self.blocks.note_acked(piece);
                }
                false
            }
            (Fate::Lost, piece) => {
                self.counters.datagrams_lost += 1;
                if let Some(piece) = piece {
                    self.blocks.note_lost(piece, sent.number);
                }
                self.mtu.note_lost(size, sent.at_ns, self.rtt_ns)
            }
        }
    }
}
