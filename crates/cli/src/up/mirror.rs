//! Mirrors arriving and departing packets to `rivulet capture --connect`. The client has no part in
//! forwarding and cannot slow it down.
//!
//! The socket that locks an interface accepts one client at a time, of root or of the same user. A
//! thread writes to the client from a bounded queue. Packets that the queue cannot take are
//! counted, and the next packet's comment reports the count.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Result, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use io::capture::{CaptureDirection, CaptureFormat, CaptureRecord, CaptureWriter, FormatKind, Notes};
use nf::{Alert, Event, FlowReport};
use packet::{LinkType, Packet};
use runtime::{Frame, Ingress, Intake, Output, Ports, Runner};
use rustix::net::sockopt::socket_peercred;

use observe::sinks::SharedBuffer;

/// The request of a client, on a line of its own.
pub const REQUEST: &[u8] = b"capture\n";

/// The answer before the capture; any other line is the reason of a refusal.
pub const ACCEPTED: &str = "ok";

/// Maximum number of bytes in the queue; packets beyond are not mirrored.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// Capacity of the queue in chunks. The limit in bytes takes effect first.
const QUEUE_PIECES_MAX: usize = 4096;

/// Clients of each interface's socket that are served at once.
const CLIENTS_MAX: usize = 2;

/// Timeout of a request.
const ASKING: Duration = Duration::from_secs(2);

/// Timer of the checks that an idle client is still connected.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Time that a client has at the end to read the rest of the queue.
const ENDING: Duration = Duration::from_secs(1);

/// State shared between the threads.
#[derive(Default)]
struct MirrorState {
    /// A client is connected, or its request is being read.
    is_taken: AtomicBool,
    /// A new client waits for the data path.
    has_come: AtomicBool,
    sender: Mutex<Option<SyncSender<Vec<u8>>>>,
    queued: AtomicUsize,
}

/// The data path's end.
pub struct Mirror {
    desk: Arc<MirrorState>,
    names: BTreeMap<u16, String>,
    listener: Option<Listener>,
}

/// A connected client.
struct Listener {
    writer: CaptureWriter,
    tape: SharedBuffer,
    interfaces: BTreeMap<(u16, LinkType), u32>,
    sender: SyncSender<Vec<u8>>,
    /// Packets written since the last chunk was queued.
    written: u64,
    /// Packets lost since the last written one.
    lost: u64,
}

impl Mirror {
    /// Creates a mirror of these ports, without a client.
    pub fn new(ports: &Ports) -> Mirror {
        let names = ports.all().iter().map(|port| (port.number, port.name.clone())).collect();
        Mirror { desk: Arc::default(), names, listener: None }
    }

    /// Starts to accept clients on these sockets.
    pub fn serve(&self, sockets: Vec<UnixListener>) -> Result<()> {
        for socket in sockets {
            // One thread serves a client while another one refuses further clients.
            for _ in 0..CLIENTS_MAX {
                let (desk, socket) = (Arc::clone(&self.desk), socket.try_clone()?);
                let work = move || {
                    loop {
                        match socket.accept() {
                            // Errors of a client affect no other.
                            Ok((stream, _)) => drop(desk.receive(stream)),
                            Err(_) => std::thread::sleep(LOOK_EVERY),
                        }
                    }
                };
                std::thread::Builder::new().name("mirror".to_owned()).spawn(work)?;
            }
        }
        Ok(())
    }

    /// Returns whether there is a client. Costs one load of a flag while there is none.
    pub fn is_on(&mut self) -> bool {
        if self.desk.has_come.load(Ordering::Relaxed) && self.desk.has_come.swap(false, Ordering::Acquire) {
            let sender = self.desk.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.listener = sender.map(Listener::new);
            if self.announce_ports().is_none() {
                self.listener = None;
            }
        }
        self.listener.is_some()
    }

    /// Starts a capture with its ports, so that a capture without packets is valid.
    fn announce_ports(&mut self) -> Option<()> {
        let listener = self.listener.as_mut()?;
        for (&port, name) in &self.names {
            let number = listener.interfaces.len() as u32;
            listener.writer.add_interface(number, name, LinkType::Ethernet).ok()?;
            listener.interfaces.insert((port, LinkType::Ethernet), number);
        }
        Some(())
    }

    /// Adds a packet.
    fn add(
        &mut self,
        port: u16,
        way: CaptureDirection,
        timestamp_ns: u64,
        link: LinkType,
        wire_len: u32,
        data: &[u8],
    ) {
        let Some(listener) = &mut self.listener else { return };
        let name = self.names.get(&port).map_or("", String::as_str);
        // A packet that cannot be encoded counts as lost.
        if listener.add(port, name, way, timestamp_ns, link, wire_len, data).is_none() {
            listener.lost += 1;
        }
    }

    /// Queues the added packets for the client's thread if there is room, and forgets a client that
    /// has disconnected.
    pub fn flush(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        if listener.writer.flush().is_err() {
            self.listener = None;
            return;
        }
        let piece = listener.tape.take();
        if piece.is_empty() {
            return;
        }
        let (len, written) = (piece.len(), std::mem::take(&mut listener.written));
        let has_room = self.desk.queued.load(Ordering::Relaxed) + len <= QUEUE_BYTES_MAX;
        let sent = has_room.then(|| {
            self.desk.queued.fetch_add(len, Ordering::Relaxed);
            listener.sender.try_send(piece)
        });
        match sent {
            Some(Ok(())) => {}
            Some(Err(std::sync::mpsc::TrySendError::Disconnected(_))) => {
                self.desk.queued.store(0, Ordering::Relaxed);
                self.listener = None;
            }
            Some(Err(std::sync::mpsc::TrySendError::Full(_))) => {
                self.desk.queued.fetch_sub(len, Ordering::Relaxed);
                listener.lost += written;
            }
            None => listener.lost += written,
        }
    }

    /// Ends the capture, and gives the client a moment to read the rest.
    pub fn finish(mut self) {
        self.flush();
        if self.listener.take().is_some() {
            let end = Instant::now() + ENDING;
            while self.desk.is_taken.load(Ordering::Acquire) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Listener {
    fn new(sender: SyncSender<Vec<u8>>) -> Listener {
        let tape = SharedBuffer::default();
        let format = CaptureFormat { kind: FormatKind::Pcapng, gzip: false };
        let writer = CaptureWriter::new(tape.clone(), format).with_directions();
        Listener { writer, tape, interfaces: BTreeMap::new(), sender, written: 0, lost: 0 }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a record")]
    fn add(
        &mut self,
        port: u16,
        name: &str,
        way: CaptureDirection,
        timestamp_ns: u64,
        link: LinkType,
        wire_len: u32,
        data: &[u8],
    ) -> Option<()> {
        let next = self.interfaces.len() as u32;
        let interface = match self.interfaces.get(&(port, link)) {
            Some(&interface) => interface,
            None => {
                self.writer.add_interface(next, name, link).ok()?;
                self.interfaces.insert((port, link), next);
                next
            }
        };
        let comment = (self.lost > 0).then(|| format!("{} packets before this one are missing", self.lost));
        let notes = Notes { comment: comment.as_deref(), direction: Some(way), packet_id: None };
        let record = CaptureRecord { timestamp_ns, interface, link_type: link, wire_len, data };
        self.writer.write_noted(&record, &notes).ok()?;
        self.lost = 0;
        self.written += 1;
        Some(())
    }
}

impl MirrorState {
    /// Serves a client: reads its request, and writes to it until either side ends.
    fn receive(&self, mut stream: UnixStream) -> Result<()> {
        stream.set_read_timeout(Some(ASKING))?;
        let mut request = [0; REQUEST.len()];
        stream.read_exact(&mut request)?;
        stream.set_write_timeout(Some(ASKING))?;
        let peer = socket_peercred(stream.as_fd())?.uid.as_raw();
        let refusal = if request != REQUEST {
            Some("this Rivulet has another version")
        } else if peer != 0 && Some(peer) != own_user() {
            Some("permission denied; only root and the user that runs Rivulet may capture its packets")
        } else if self.is_taken.swap(true, Ordering::AcqRel) {
            Some("another `rivulet capture --connect` is running")
        } else {
            None
        };
        if let Some(why) = refusal {
            return writeln!(stream, "{why}");
        }
        let done = self.show(stream);
        self.queued.store(0, Ordering::Relaxed);
        self.is_taken.store(false, Ordering::Release);
        done
    }

    fn show(&self, mut stream: UnixStream) -> Result<()> {
        writeln!(stream, "{ACCEPTED}")?;
        // A client may pause, as on a full disk; it misses the packets of that time.
        stream.set_write_timeout(None)?;
        let (sender, pieces) = sync_channel(QUEUE_PIECES_MAX);
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        self.has_come.store(true, Ordering::Release);
        while let Some(piece) = next(&pieces, &mut stream) {
            self.queued.fetch_sub(piece.len().min(self.queued.load(Ordering::Relaxed)), Ordering::Relaxed);
            stream.write_all(&piece)?;
        }
        Ok(())
    }
}

/// Returns the next chunk; `None` if there will be none, or the client has disconnected.
fn next(pieces: &Receiver<Vec<u8>>, stream: &mut UnixStream) -> Option<Vec<u8>> {
    loop {
        match pieces.recv_timeout(LOOK_EVERY) {
            Ok(piece) => return Some(piece),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                stream.set_read_timeout(Some(Duration::from_millis(1))).ok()?;
                match stream.read(&mut [0]) {
                    Ok(0) => return None,
                    Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                        return None;
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns the user that this process runs as.
fn own_user() -> Option<u32> {
    std::fs::metadata("/proc/self").ok().map(|found| found.uid())
}

/// Mirrors arriving packets, and passes them to the runner unchanged.
pub struct Arriving<'a>(pub &'a RefCell<&'a mut Mirror>);

impl Intake for Arriving<'_> {
    fn receive(&mut self, runner: &mut Runner, frame: Frame<'_>, ingress: Ingress) {
        if let Ingress::Port(port) = ingress {
            let Frame { timestamp_ns, link, wire_len, data } = frame;
            self.0.borrow_mut().add(port, CaptureDirection::In, timestamp_ns, link, wire_len, data);
        }
        runner.enqueue(frame, ingress);
    }
}

/// Mirrors departing packets, and passes all output on.
pub struct Leaving<'a, O>(pub &'a RefCell<&'a mut Mirror>, pub &'a mut O);

impl<O: Output> Output for Leaving<'_, O> {
    type Error = O::Error;

    fn packet(&mut self, port: u16, packet: &Packet) -> std::result::Result<(), O::Error> {
        let meta = packet.meta();
        let (time_ns, data) = (meta.transit.timestamp_ns, packet.data());
        self.0.borrow_mut().add(port, CaptureDirection::Out, time_ns, meta.link, meta.wire_len, data);
        self.1.packet(port, packet)
    }

    fn alert(&mut self, function: &str, alert: &Alert) -> std::result::Result<(), O::Error> {
        self.1.alert(function, alert)
    }

    fn event(&mut self, function: &str, event: Event<'_>) -> std::result::Result<(), O::Error> {
        self.1.event(function, event)
    }

    fn flow(&mut self, report: &FlowReport, now_ns: u64) -> std::result::Result<(), O::Error> {
        self.1.flow(report, now_ns)
    }
}
