//! The driver `memif`: memory shared with another process (memif, version 2), as in VPP, libmemif
//! and DPDK.
//!
//! The ends meet at a socket. The client makes memory with buffers and two rings, one per
//! direction; the server takes it over. From there on, frames bypass the kernel, except for
//! interrupts to a sleeping end. Frames are Ethernet frames; a long one may use several buffers.
//!
//! The other end is not trusted: see `queue.rs` and `region.rs`. Impossible values end the
//! connection, with a reason. Without a peer, the port is down.

mod channel;
mod config;
mod doorbell;
mod message;
mod queue;
mod region;
mod ring;
mod session;

use std::cell::Cell;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use channel::{Channel, Listener, Received};
use config::Role;
pub use config::{MemifConfig, MemifConfigError};
use message::Message;
use queue::{Batch, Receiver, RingFault, Sender};
use session::{Client, Progress, Queues, Server, Session, SessionEnd};
pub use session::{REGION_BYTES_MAX, REGIONS_MAX};

use rustix::thread::CapabilitySet;

use super::driver::{Driver, DriverInfo, PortPart, Readiness, Refreshed, SystemCall, limits};
use super::link::LinkState;
use super::{Counters, TransmitBurst, is_too_long};

/// Calls of `receive` between checks of the control channel, unless a thread waited for the port.
const CHECK_AFTER: u32 = 1_024;

/// Milliseconds from the peer's call until the connection must be up.
pub const CALL_MS_MAX: u64 = 1_000;

/// Milliseconds without calls after a connection has ended or failed.
pub const PAUSE_MS: u64 = 250;

/// Attempts to find room in a full ring while awake, with this number of pauses after each: some
/// tens of microseconds, enough for another core to take a batch.
const SPINS: u32 = 20;
const SPIN_PAUSES: u32 = 64;

/// Further attempts, with a nap after each: a millisecond or two at most, so that the peer may get
/// a core.
const NAPS: u32 = 10;
const NAP: Duration = Duration::from_micros(50);

/// Messages, and calls, that are handled in a row.
const MESSAGES_MAX: usize = 16;

/// One part of a port of shared memory. The first part connects and receives; all send.
pub struct MemifPort {
    shared: Arc<MemifShared>,
    endpoint: Option<Box<Endpoint>>,
}

/// State that all parts of a port share.
pub struct MemifShared {
    config: Arc<MemifConfig>,
    address: [u8; 6],
    /// One of [`DOWN`], [`UP`] and [`FAILED`].
    state: AtomicU8,
    outlet: Mutex<SendSide>,
}

/// No peer is connected.
const DOWN: u8 = 0;
/// Connected.
const UP: u8 = 1;
/// Connected, but the peer violated the protocol while a frame was sent.
const FAILED: u8 = 2;

/// The sending side, which all parts share.
#[derive(Default)]
struct SendSide {
    sender: Option<Sender>,
    fault: Option<RingFault>,
    /// A wait for room was in vain: senders do not wait again until there is some.
    is_stuck: bool,
}

/// The connection and the receiving side.
struct Endpoint {
    /// A server's listener.
    listener: Option<Listener>,
    state: State,
    batch: Batch,
    /// Calls of `receive` since the control channel was checked.
    receives: u32,
    /// Somebody may be waiting for the port.
    may_be_waited_for: Cell<bool>,
    /// A file descriptor that is always readable.
    ready: OwnedFd,
    /// End of the pause without calls.
    pause: Option<Instant>,
    /// Error of the last call that failed.
    failed_call: Option<ErrorKind>,
    /// The link changed since the last call of `take_link_change`.
    has_news: bool,
    why: Option<String>,
    /// The last reported reason of a failed call, which is not reported again.
    reported: String,
}

enum State {
    Alone,
    /// A call has come or was made, and must succeed until `end`.
    Calling {
        channel: Channel,
        session: Session,
        end: Instant,
    },
    Connected {
        channel: Channel,
        receiver: Receiver,
    },
}

impl Driver for MemifPort {
    const INFO: DriverInfo = DriverInfo {
        name: "memif",
        syntax: "memif:SOCKET[,KEY=VALUE...]",
        example: "memif:/run/rivulet/in.sock,role=client",
        peer: "VPP, a DPDK program, another Rivulet",
        is_for_interfaces: false,
        modes: &["memif"],
        capabilities: CapabilitySet::empty(),
        capabilities_kept: CapabilitySet::empty(),
        // To connect again. A server removes the file of its socket, no folder.
        system_calls: &[
            SystemCall::any("memfd_create", libc::SYS_memfd_create),
            SystemCall::any("ftruncate", libc::SYS_ftruncate),
            SystemCall::any("eventfd2", libc::SYS_eventfd2),
            SystemCall::any("preadv2", libc::SYS_preadv2),
            SystemCall::only("unlinkat", libc::SYS_unlinkat, 2, 0),
        ],
        limits: limits![CALL_MS_MAX, PAUSE_MS, REGIONS_MAX, REGION_BYTES_MAX],
    };

    type Spec = MemifConfig;
    /// The state of the first part, for the others.
    type Shared = Option<Arc<MemifShared>>;

    fn parse(text: &str) -> std::result::Result<MemifConfig, String> {
        text.parse().map_err(|error: MemifConfigError| error.to_string())
    }

    fn name(config: &MemifConfig) -> String {
        config.name()
    }

    fn mtu(config: &MemifConfig) -> Option<u32> {
        Some(config.mtu.into())
    }

    fn check(_: CapabilitySet) -> Readiness {
        Readiness::ready("no capability is needed")
    }

    /// Opens one end of an interface of shared memory; the other end is in another process. The
    /// link is up while both are connected. A server that does not listen yet is not an error.
    ///
    /// # Errors
    /// A server's: [`ErrorKind::AddrInUse`] if another program listens at the socket,
    /// [`ErrorKind::AlreadyExists`] if the path is something else. A client's, if it may not call
    /// the server. Those of the system.
    fn open(config: &MemifConfig, part: PortPart, first: &mut Option<Arc<MemifShared>>) -> Result<MemifPort> {
        if let Some(shared) = first.as_ref().filter(|_| part.index > 0) {
            return Ok(MemifPort { shared: Arc::clone(shared), endpoint: None });
        }
        let config = Arc::new(config.clone());
        let listener = match config.role {
            Role::Server => Some(Listener::open(&config.socket)?),
            Role::Client => None,
        };
        let shared = Arc::new(MemifShared {
            address: config.address(),
            config,
            state: AtomicU8::new(DOWN),
            outlet: Mutex::default(),
        });
        let mut endpoint = Endpoint {
            listener,
            state: State::Alone,
            batch: Batch::new(),
            receives: 0,
            may_be_waited_for: Cell::new(false),
            ready: doorbell::make(1)?,
            pause: None,
            failed_call: None,
            has_news: false,
            why: None,
            reported: String::new(),
        };
        match endpoint.call_server(&shared) {
            // The server may start later.
            Err(error) if !is_not_there(&error) => return Err(error),
            _ => {}
        }
        *first = Some(Arc::clone(&shared));
        Ok(MemifPort { shared, endpoint: Some(Box::new(endpoint)) })
    }

    fn link(&self) -> Result<LinkState> {
        Ok(LinkState {
            is_up: self.shared.state.load(Ordering::Acquire) == UP,
            mtu: self.shared.config.mtu.into(),
            address: Some(self.shared.address),
        })
    }

    /// Calls the server, if this is a client without a connection.
    fn refresh(&mut self) -> Result<Refreshed> {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.call_server(&self.shared)?;
        }
        Ok(Refreshed::Unchanged)
    }

    fn take_link_change(&mut self) -> bool {
        self.endpoint.as_mut().is_some_and(|endpoint| std::mem::take(&mut endpoint.has_news))
    }

    fn take_reason(&mut self) -> Option<String> {
        self.endpoint.as_mut()?.why.take()
    }

    /// Returns interrupts, the connection, and the listener. One is ready at once if a frame is
    /// there.
    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        let Some(endpoint) = &self.endpoint else { return Vec::new() };
        endpoint.may_be_waited_for.set(true);
        let listener = endpoint.listener.as_ref().filter(|_| endpoint.accepts_calls()).map(AsFd::as_fd);
        let (channel, interrupt, ready) = match &endpoint.state {
            State::Alone => (None, None, None),
            State::Calling { channel, .. } => (Some(channel.as_fd()), None, None),
            State::Connected { channel, receiver } => {
                let ready = receiver.sleep().then(|| endpoint.ready.as_fd());
                (Some(channel.as_fd()), Some(receiver.interrupt()), ready)
            }
        };
        [listener, channel, interrupt, ready].into_iter().flatten().collect()
    }

    fn receive(&mut self, counters: &mut Counters, mut each: impl FnMut(&[u8])) -> Result<()> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        endpoint.poll_channel(&self.shared);
        let State::Connected { receiver, .. } = &mut endpoint.state else { return Ok(()) };
        if let Err(fault) = receiver.receive(&mut endpoint.batch) {
            endpoint.end(&self.shared, SessionEnd::Here(fault.to_string()));
            return Ok(());
        }
        counters.unreadable += endpoint.batch.unreadable;
        for frame in endpoint.batch.frames() {
            counters.received(frame);
            each(frame);
        }
        Ok(())
    }

    fn send(&mut self, burst: &TransmitBurst, counters: &mut Counters) {
        if burst.lens.is_empty() {
            return;
        }
        let mut outlet = self.shared.outlet();
        let mtu = self.shared.config.mtu.into();
        let mut fault = None;
        for frame in burst.frames() {
            let outlet = &mut *outlet;
            let Some(sender) = outlet.sender.as_mut().filter(|_| fault.is_none()) else {
                counters.down += 1;
                continue;
            };
            if is_too_long(frame, mtu) {
                counters.too_long += 1;
                continue;
            }
            match put(sender, frame, &mut outlet.is_stuck) {
                Ok(true) => {
                    counters.sent += 1;
                    counters.sent_bytes += frame.len() as u64;
                }
                Ok(false) => counters.no_room += 1,
                Err(found) => {
                    fault = Some(found);
                    counters.down += 1;
                }
            }
        }
        match fault {
            None => {
                if let Some(sender) = &mut outlet.sender {
                    sender.publish();
                }
            }
            Some(_) => {
                *outlet = SendSide { sender: None, fault, is_stuck: false };
                // The receiving part ends the connection.
                self.shared.state.store(FAILED, Ordering::Release);
            }
        }
    }
}

impl MemifShared {
    fn outlet(&self) -> std::sync::MutexGuard<'_, SendSide> {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    /// Returns whether calls are accepted: a pending call is completed first.
    fn accepts_calls(&self) -> bool {
        self.pause.is_none() && !matches!(self.state, State::Calling { .. })
    }

    /// Calls the server, if this is a client without a connection.
    fn call_server(&mut self, shared: &MemifShared) -> Result<()> {
        let waits = self.pause.is_some_and(|until| Instant::now() < until);
        if self.listener.is_some() || waits || !matches!(self.state, State::Alone) {
            return Ok(());
        }
        let channel =
            Channel::open(&shared.config.socket).inspect_err(|error| self.record_failed_call(error))?;
        self.failed_call = None;
        let session = Session::Client(Box::new(Client::new(Arc::clone(&shared.config))));
        self.begin(channel, session);
        self.handle_messages(shared);
        Ok(())
    }

    /// Records a failed call. A missing server is not reported, any other error once.
    fn record_failed_call(&mut self, error: &Error) {
        let before = self.failed_call.replace(error.kind());
        if before != self.failed_call && !is_not_there(error) {
            self.why = Some(format!("cannot connect to the other end: {error}"));
            self.has_news = true;
        }
    }

    fn begin(&mut self, channel: Channel, session: Session) {
        let end = Instant::now() + Duration::from_millis(CALL_MS_MAX);
        self.state = State::Calling { channel, session, end };
    }

    /// Handles the control channel, if it is time: at once if somebody may have waited for it, or a
    /// call is pending.
    #[inline]
    fn poll_channel(&mut self, shared: &MemifShared) {
        self.receives += 1;
        let was_waited = self.may_be_waited_for.take();
        let is_due = was_waited
            || self.receives >= CHECK_AFTER
            || matches!(self.state, State::Calling { .. })
            || shared.state.load(Ordering::Relaxed) == FAILED;
        if is_due {
            self.poll_channel_now(shared, was_waited);
        }
    }

    #[cold]
    fn poll_channel_now(&mut self, shared: &MemifShared, was_waited: bool) {
        self.receives = 0;
        if let (true, State::Connected { receiver, .. }) = (was_waited, &self.state) {
            receiver.wake();
        }
        let fault = shared.outlet().fault.take();
        if let Some(fault) = fault {
            self.end(shared, SessionEnd::Here(fault.to_string()));
        }
        if self.pause.is_some_and(|until| Instant::now() >= until) {
            self.pause = None;
        }
        self.accept_calls(shared);
        self.handle_messages(shared);
    }

    /// Accepts the next call; calls during a connection are refused.
    fn accept_calls(&mut self, shared: &MemifShared) {
        for _ in 0..MESSAGES_MAX {
            if !self.accepts_calls() {
                return;
            }
            let Some(channel) = self.listener.as_ref().and_then(Listener::accept) else { return };
            if matches!(self.state, State::Connected { .. }) {
                let reason = "already connected".to_owned();
                // If the message cannot be sent, the peer is gone.
                let _ = channel.send(&Message::Disconnect { code: 0, reason }, None);
                continue;
            }
            let (server, hello) = Server::new(Arc::clone(&shared.config));
            if channel.send(&hello, None).is_ok() {
                self.begin(channel, Session::Server(Box::new(server)));
            }
        }
    }

    /// Handles the peer's messages.
    fn handle_messages(&mut self, shared: &MemifShared) {
        for _ in 0..MESSAGES_MAX {
            let channel = match &self.state {
                State::Alone => return,
                State::Calling { channel, .. } | State::Connected { channel, .. } => channel,
            };
            let (bytes, file) = match channel.receive() {
                Received::Nothing => {
                    if matches!(&self.state, State::Calling { end, .. } if Instant::now() >= *end) {
                        self.end(shared, SessionEnd::Here("it sends nothing".to_owned()));
                    }
                    return;
                }
                Received::Message(bytes, file) => (bytes, file),
                Received::Other => {
                    return self.end(shared, SessionEnd::Here("invalid message size".to_owned()));
                }
                Received::End => return self.end(shared, SessionEnd::ByPeer("it is gone".to_owned())),
            };
            let (channel, progress) = match &mut self.state {
                State::Alone => return,
                State::Calling { channel, session, .. } => (channel, session.handle_message(&bytes, file)),
                State::Connected { .. } => return self.end(shared, session::handle_later_message(&bytes)),
            };
            let reported = match &progress {
                Ok(Progress::Send(message, file)) => channel.send(message, file.as_ref().map(AsFd::as_fd)),
                Ok(Progress::Connected(Some(message), _)) => channel.send(message, None),
                _ => Ok(()),
            };
            match (progress, reported) {
                (Err(ended), _) => return self.end(shared, ended),
                (_, Err(_)) => return self.end(shared, SessionEnd::ByPeer("it is gone".to_owned())),
                (Ok(Progress::Send(..)), _) => {}
                (Ok(Progress::Connected(_, queues)), _) => self.connect(shared, *queues),
            }
        }
    }

    fn connect(&mut self, shared: &MemifShared, queues: Queues) {
        let State::Calling { channel, .. } = std::mem::replace(&mut self.state, State::Alone) else { return };
        let Queues { receiver, sender, peer } = queues;
        self.state = State::Connected { channel, receiver };
        *shared.outlet() = SendSide { sender: Some(sender), fault: None, is_stuck: false };
        shared.state.store(UP, Ordering::Release);
        self.has_news = true;
        self.why = Some(format!("connected with {peer}")).filter(|_| !peer.is_empty());
        self.reported.clear();
    }

    /// Ends the connection for a reason, and sends it to the peer, unless the peer sent it.
    fn end(&mut self, shared: &MemifShared, ended: SessionEnd) {
        *shared.outlet() = SendSide::default();
        shared.state.store(DOWN, Ordering::Release);
        let state = std::mem::replace(&mut self.state, State::Alone);
        let why = match ended {
            SessionEnd::ByPeer(reason) if reason.is_empty() => {
                "the other end closed the connection".to_owned()
            }
            SessionEnd::ByPeer(reason) => format!("the other end: {reason}"),
            SessionEnd::Here(reason) => {
                if let State::Calling { channel, .. } | State::Connected { channel, .. } = &state {
                    // If the message cannot be sent, the peer is gone.
                    let reason = reason.clone();
                    let _ = channel.send(&Message::Disconnect { code: 0, reason }, None);
                }
                format!("refused: {reason}")
            }
        };
        self.pause = Some(Instant::now() + Duration::from_millis(PAUSE_MS));
        if matches!(state, State::Connected { .. }) || why != self.reported {
            self.reported.clone_from(&why);
            self.has_news = true;
            self.why = Some(why);
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let State::Connected { channel, .. } = &self.state {
            let reason = "interface closed".to_owned();
            let _ = channel.send(&Message::Disconnect { code: 0, reason }, None);
        }
    }
}

/// Puts a frame into the ring. If it is full, waits a moment for room, unless the last wait was in
/// vain.
#[inline]
fn put(sender: &mut Sender, frame: &[u8], is_stuck: &mut bool) -> std::result::Result<bool, RingFault> {
    if sender.put(frame)? {
        *is_stuck = false;
        return Ok(true);
    }
    if !*is_stuck {
        sender.publish();
        for look in 0..SPINS + NAPS {
            match look {
                0..SPINS => (0..SPIN_PAUSES).for_each(|_| std::hint::spin_loop()),
                _ => std::thread::sleep(NAP),
            }
            if sender.put(frame)? {
                return Ok(true);
            }
        }
        *is_stuck = true;
    }
    Ok(false)
}

/// Returns whether no server listens at present.
fn is_not_there(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::WouldBlock)
}
