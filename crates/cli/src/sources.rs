//! Captures as a source of frames: one or several, in order of time.

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};

use ::io::capture::{CaptureDirection, CaptureReader, ReadError};
use anyhow::{Context, bail};
use packet::LinkType;
use runtime::{Frame, Ingress, Ports, TimeJumps};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::signals;

/// How often it is looked whether a signal asks for the end while standard input is waited for.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

use timeline::Timeline;

mod timeline;

/// `--read [PORT=]FILE`: a capture, and the port that all its packets come in by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFile {
    /// The port's name or number, if one is given.
    pub port: Option<String>,
    /// The file; `-` is standard input or output.
    pub path: PathBuf,
}

impl std::str::FromStr for PortFile {
    type Err = std::convert::Infallible;

    /// What comes before the first `=` is a port, unless a file with the whole name is there.
    fn from_str(text: &str) -> Result<PortFile, Self::Err> {
        Ok(match text.split_once('=') {
            Some((port, path)) if !port.contains('/') && !Path::new(text).exists() => {
                PortFile { port: Some(port.to_owned()), path: path.into() }
            }
            _ => PortFile { port: None, path: text.into() },
        })
    }
}

/// The captures of a run, read side by side.
pub struct Sources {
    sources: Vec<Source>,
    /// The source whose frame was handed out last, and that is to read on.
    taken: Option<usize>,
}

struct Source {
    path: PathBuf,
    from: Option<u16>,
    reader: CaptureReader,
    /// Frames read ahead, to know which source is to be next, and what time the next ones have.
    ahead: VecDeque<Ahead>,
    /// When the first of them came.
    next_ns: Option<u64>,
    /// Room for frames that is reused.
    spare: Vec<Vec<u8>>,
    timeline: Timeline,
    /// What ended the source early.
    broken: Option<ReadError>,
    /// Packets that had left already, see [`Sources::passed_over`].
    passed_over: u64,
}

/// A frame that was read ahead.
struct Ahead {
    stamp_ns: Option<u64>,
    interface: u32,
    link: LinkType,
    wire_len: u32,
    data: Vec<u8>,
}

/// Stamps behind the next frame's that are looked at.
const STAMPS_AHEAD: usize = 2;

/// Frames that are read ahead at most, to find one with a time.
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
            };
            source.place_next();
            sources.push(source);
        }
        Ok(Sources { sources, taken: None })
    }

    /// The next frame in order of time; of frames at the same time, that of the source named first.
    pub fn next(&mut self) -> Option<(Frame<'_>, Ingress)> {
        if let Some(taken) = self.taken.take() {
            self.sources[taken].advance();
        }
        let times = self.sources.iter().enumerate().filter_map(|(i, s)| Some((s.next_ns?, i)));
        let (timestamp_ns, at) = times.min()?;
        self.taken = Some(at);
        let source = &self.sources[at];
        let Ahead { interface, link, wire_len, ref data, .. } = *source.ahead.front()?;
        let from = source.from.map_or(Ingress::Interface(interface), Ingress::Port);
        Some((Frame { timestamp_ns, link, wire_len, data }, from))
    }

    /// What was found of missing, broken and jumping stamps.
    pub fn time_jumps(&self) -> TimeJumps {
        self.sources.iter().fold(TimeJumps::default(), |sum, source| sum + source.timeline.jumps)
    }

    /// Bytes read of all captures so far, as stored in them.
    pub fn position(&self) -> u64 {
        self.sources.iter().map(|source| source.reader.position()).sum()
    }

    /// What is to be said of packets that were not taken: in a file of `rivulet capture` each
    /// packet stands as it came and as it left, and what left did not come.
    pub fn passed_over(&self) -> Vec<String> {
        let sources = self.sources.iter().filter(|source| source.passed_over > 0);
        let said = sources.map(|Source { path, passed_over, .. }| {
            format!(
                "{}: {passed_over} packets are passed over, as they had left already: `rivulet capture` wrote it",
                path.display()
            )
        });
        said.collect()
    }

    /// What ended captures early, said for an operator: file, place, and what was expected.
    pub fn broken(&self) -> Vec<String> {
        let broken = self.sources.iter().filter_map(|s| Some((s, s.broken.as_ref()?)));
        broken.map(|(source, error)| format!("{}: {error}", source.path.display())).collect()
    }
}

/// Standard input, which ends when a signal asks for the end: a read of a pipe would wait on.
struct WatchedStdin;

impl Read for WatchedStdin {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let stdin = std::io::stdin();
        loop {
            if signals::is_stopped() {
                return Ok(0);
            }
            // A signal ends it early, and one that came just before is seen when the time is over.
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                // Past the buffer of the standard library, which `poll` does not know of.
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
    /// The next frame is done with.
    fn advance(&mut self) {
        self.spare.extend(self.ahead.pop_front().map(|ahead| ahead.data));
        self.place_next();
    }

    /// Reads ahead, and finds the next frame's time. That of the packets behind it is known by
    /// then, as far as it matters.
    fn place_next(&mut self) {
        let is_enough = |ahead: &VecDeque<Ahead>| {
            ahead.iter().skip(1).filter(|ahead| ahead.stamp_ns.is_some()).count() >= STAMPS_AHEAD
        };
        while !is_enough(&self.ahead) && self.ahead.len() < AHEAD_MAX && self.read_ahead() {}
        let stamps = self.ahead.iter().skip(1).filter_map(|ahead| ahead.stamp_ns);
        let mut following = [0; STAMPS_AHEAD];
        let count = following.iter_mut().zip(stamps).map(|(to, stamp)| *to = stamp).count();
        let timeline = &mut self.timeline;
        self.next_ns = self.ahead.front().map(|next| timeline.at(next.stamp_ns, &following[..count]));
    }

    /// Reads a frame ahead, if there is one; an error ends the source, and what was read before it
    /// counts.
    fn read_ahead(&mut self) -> bool {
        match self.reader.next() {
            Ok(Some(record)) => {
                let mut data = self.spare.pop().unwrap_or_default();
                data.clear();
                data.extend_from_slice(record.data);
                let (interface, link, wire_len) = (record.interface, record.link_type, record.wire_len);
                let timestamp_ns = record.timestamp_ns;
                let stamp_ns = self.reader.has_time().then_some(timestamp_ns);
                if self.reader.direction() == Some(CaptureDirection::Out) {
                    self.passed_over += 1;
                    self.spare.push(data);
                    return true;
                }
                self.ahead.push_back(Ahead { stamp_ns, interface, link, wire_len, data });
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

/// Whether one of these files is standard input or output, so that nothing else goes there.
pub fn name_standard_stream(files: &[PortFile]) -> bool {
    files.iter().any(|file| file.path == Path::new("-"))
}

/// The number of the port with this name.
pub fn port_named(ports: &Ports, name: &str) -> anyhow::Result<u16> {
    match ports.named(name) {
        Some(port) => Ok(port.number),
        None => {
            let known: Vec<_> = ports.all().iter().map(|port| port.name.as_str()).collect();
            bail!("the policy's chain has no port `{name}`; there are: {}", known.join(", "))
        }
    }
}
