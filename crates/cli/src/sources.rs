//! Captures as a source of frames, merged by time.

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};

use ::io::capture::{CaptureDirection, CaptureReader, ReadError};
use anyhow::Context;
pub use observe::port_file::{PortFile, name_standard_stream, port_named};
use packet::LinkType;
use runtime::{Frame, Ingress, Ports, TimeJumps};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use telemetry::Merge;

use crate::signals;

/// Period of the checks for a stop signal while reading standard input.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

use timeline::Timeline;

mod timeline;

/// The captures of a run.
pub struct Sources {
    sources: Vec<Source>,
    /// Source of the latest frame, to be advanced before the next.
    taken: Option<usize>,
}

struct Source {
    path: PathBuf,
    from: Option<u16>,
    reader: CaptureReader,
    /// Frames read ahead to learn their times.
    ahead: VecDeque<BufferedFrame>,
    /// Time of the first of them.
    next_ns: Option<u64>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    timeline: Timeline,
    /// The error that ended the source early.
    broken: Option<ReadError>,
    /// Departing packets, see [`Sources::passed_over`].
    passed_over: u64,
    /// Ports by name, and whether each belongs to an external node.
    ports: Vec<(String, u16, bool)>,
    /// Packets that programs sent, see [`Sources::passed_over`].
    of_programs: u64,
}

/// A frame read ahead.
struct BufferedFrame {
    stamp_ns: Option<u64>,
    from: Ingress,
    link: LinkType,
    wire_len: u32,
    data: Vec<u8>,
}

/// Timestamps after the next frame's that are considered.
const STAMPS_AHEAD: usize = 2;

/// Maximum number of frames read ahead to find one with a timestamp.
const AHEAD_MAX: usize = 1_024;

impl Sources {
    /// Opens the captures.
    pub fn open(files: &[PortFile], ports: &Ports) -> anyhow::Result<Sources> {
        let mut sources = Vec::new();
        for file in files {
            let from = match &file.port {
                Some(name) => Some(port_named(ports, name)?),
                None => None,
            };
            let opened = match file.path == Path::new("-") {
                true => CaptureReader::new(WatchedStdin),
                false => CaptureReader::open(&file.path),
            };
            let reader = opened.with_context(|| format!("cannot read {}", file.path.display()))?;
            let mut source = Source {
                path: file.path.clone(),
                from,
                reader,
                ahead: VecDeque::new(),
                next_ns: None,
                spare: Vec::new(),
                timeline: Timeline::default(),
                broken: None,
                passed_over: 0,
                ports: ports.all().iter().map(|of| (of.name.clone(), of.number, of.is_of_node)).collect(),
                of_programs: 0,
            };
            source.place_next();
            sources.push(source);
        }
        Ok(Sources { sources, taken: None })
    }

    /// Returns the next frame by time; of simultaneous ones, that of the source named first.
    pub fn next(&mut self) -> Option<(Frame<'_>, Ingress)> {
        if let Some(taken) = self.taken.take() {
            self.sources[taken].advance();
        }
        let (timestamp_ns, at) = match &self.sources[..] {
            [only] => (only.next_ns?, 0),
            all => all.iter().enumerate().filter_map(|(i, s)| Some((s.next_ns?, i))).min()?,
        };
        self.taken = Some(at);
        let source = &self.sources[at];
        let BufferedFrame { from, link, wire_len, ref data, .. } = *source.ahead.front()?;
        Some((Frame { timestamp_ns, link, wire_len, data }, from))
    }

    /// Returns the counts of missing, broken and jumping timestamps.
    pub fn time_jumps(&self) -> TimeJumps {
        let mut jumps = TimeJumps::default();
        self.sources.iter().for_each(|source| jumps.merge(&source.timeline.jumps));
        jumps
    }

    /// Returns the bytes read so far from all captures, as stored.
    pub fn position(&self) -> u64 {
        self.sources.iter().map(|source| source.reader.position()).sum()
    }

    /// Returns a message for each capture with skipped packets: a file of `rivulet capture` has
    /// each packet on arrival and on departure, and only arriving ones are read. Packets that
    /// programs of external nodes sent are skipped, too: the run continues after these nodes by
    /// itself.
    pub fn passed_over(&self) -> Vec<String> {
        let said = self.sources.iter().flat_map(|source| {
            let of_kinds = [
                (source.passed_over, "departing packets of a `rivulet capture` file"),
                (source.of_programs, "packets that programs of external nodes sent"),
            ];
            let skipped = of_kinds.into_iter().filter(|(count, _)| *count > 0);
            skipped.map(|(count, what)| format!("{}: skipped {count} {what}", source.path.display()))
        });
        said.collect()
    }

    /// Returns a message for each capture that ended early: file, position and error.
    pub fn broken(&self) -> Vec<String> {
        let broken = self.sources.iter().filter_map(|s| Some((s, s.broken.as_ref()?)));
        broken.map(|(source, error)| format!("{}: {error}", source.path.display())).collect()
    }
}

/// Standard input that ends on a stop signal, where a plain read of a pipe would block.
struct WatchedStdin;

impl Read for WatchedStdin {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let stdin = std::io::stdin();
        loop {
            if signals::is_stopped() {
                return Ok(0);
            }
            // A signal interrupts the poll; one just before it is noticed after the timeout.
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                // Bypasses the standard library's buffer, which `poll` does not know.
                Ok(_) => match rustix::io::read(&stdin, &mut *bytes) {
                    Err(Errno::INTR) => {}
                    read => return Ok(read?),
                },
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Source {
    /// Discards the current frame and moves on to the next.
    fn advance(&mut self) {
        self.spare.extend(self.ahead.pop_front().map(|ahead| ahead.data));
        self.place_next();
    }

    /// Determines the next frame's time. If its timestamp does not continue from the latest one,
    /// the following ones are read ahead.
    fn place_next(&mut self) {
        while self.ahead.is_empty() && self.read_ahead() {}
        let Some(stamp_ns) = self.ahead.front().map(|next| next.stamp_ns) else {
            self.next_ns = None;
            return;
        };
        let continued = self.timeline.continued(stamp_ns);
        self.next_ns = continued.or_else(|| Some(self.place_by_following(stamp_ns)));
    }

    #[cold]
    fn place_by_following(&mut self, stamp_ns: Option<u64>) -> u64 {
        let following = |ahead: &VecDeque<BufferedFrame>| {
            let mut stamps = ahead.iter().skip(1).filter_map(|ahead| ahead.stamp_ns);
            std::array::from_fn::<_, STAMPS_AHEAD, _>(|_| stamps.next())
        };
        while following(&self.ahead).contains(&None) && self.ahead.len() < AHEAD_MAX && self.read_ahead() {}
        let stamps: Vec<u64> = following(&self.ahead).into_iter().flatten().collect();
        self.timeline.at(stamp_ns, &stamps)
    }

    /// Returns the port that an interface of a `rivulet capture` file is named after, and whether
    /// it belongs to an external node.
    fn port_of(&self, interface: u32) -> Option<(u16, bool)> {
        let name = self.reader.interfaces().get(interface as usize)?.name.as_ref()?;
        let port = self.ports.iter().find(|(port, ..)| port == name);
        port.map(|&(_, number, is_of_node)| (number, is_of_node))
    }

    /// Reads one frame ahead. Returns false at the end or on an error; frames before an error
    /// count.
    fn read_ahead(&mut self) -> bool {
        match self.reader.next() {
            Ok(Some(record)) => {
                let mut data = self.spare.pop().unwrap_or_default();
                data.clear();
                data.extend_from_slice(record.data);
                let (interface, link, wire_len) = (record.interface, record.link_type, record.wire_len);
                let timestamp_ns = record.timestamp_ns;
                let stamp_ns = self.reader.has_time().then_some(timestamp_ns);
                let direction = self.reader.direction();
                let port = direction.filter(|_| self.from.is_none()).and_then(|_| self.port_of(interface));
                let skipped = match (direction, port) {
                    (Some(CaptureDirection::Out), _) => Some(&mut self.passed_over),
                    (_, Some((_, true))) => Some(&mut self.of_programs),
                    _ => None,
                };
                if let Some(skipped) = skipped {
                    *skipped += 1;
                    self.spare.push(data);
                    return true;
                }
                let from = self.from.or(port.map(|(number, _)| number));
                let from = from.map_or(Ingress::Interface(interface), Ingress::Port);
                self.ahead.push_back(BufferedFrame { stamp_ns, from, link, wire_len, data });
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.broken = Some(error);
                false
            }
        }
    }
}
