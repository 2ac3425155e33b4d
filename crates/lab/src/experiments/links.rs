//! Links between two ends on this machine: how long a frame takes, and how many pass.

use std::hint::{black_box, spin_loop};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use io::port::{Interface, TransmitBurst};

/// Frames of a burst.
pub const BURST: usize = 32;

/// The type of frames: a local experiment's (IEEE 802). Others that a kernel sends are ignored.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// Longest wait for frames that were sent, and for a link.
const WAIT: Duration = Duration::from_secs(10);

/// A link with ends that take turns.
pub trait Link {
    /// Sends a frame there, and the same one back.
    ///
    /// # Errors
    /// If it is lost, or the link broken.
    fn there_and_back(&mut self, frame: &[u8]) -> Result<(), String>;

    /// Sends a burst of this frame there.
    ///
    /// # Errors
    /// As [`Link::there_and_back`].
    fn burst(&mut self, frame: &[u8]) -> Result<(), String>;
}

/// A frame of this length, without the checksum.
pub fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&ETHER_TYPE);
    frame
}

/// Nanoseconds of a frame there and back, in the mean of n.
///
/// # Errors
/// Those of the link.
pub fn turn_ns(link: &mut dyn Link, frame: &[u8], turns: u32) -> Result<f64, String> {
    let start = Instant::now();
    for _ in 0..turns {
        link.there_and_back(frame)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(turns))
}

/// Nanoseconds of a frame there, in the mean of n bursts.
///
/// # Errors
/// Those of the link.
pub fn frame_ns(link: &mut dyn Link, frame: &[u8], bursts: u32) -> Result<f64, String> {
    let start = Instant::now();
    for _ in 0..bursts {
        link.burst(frame)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(bursts) / BURST as f64)
}

/// A call of a function that copies the frame.
#[derive(Default)]
pub struct DirectCall {
    there: Vec<u8>,
    back: Vec<u8>,
}

impl DirectCall {
    #[inline(never)]
    fn copy(from: &[u8], to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(black_box(from));
        black_box(&to);
    }
}

impl Link for DirectCall {
    fn there_and_back(&mut self, frame: &[u8]) -> Result<(), String> {
        DirectCall::copy(frame, &mut self.there);
        DirectCall::copy(&self.there, &mut self.back);
        Ok(())
    }

    fn burst(&mut self, frame: &[u8]) -> Result<(), String> {
        (0..BURST).for_each(|_| DirectCall::copy(frame, &mut self.there));
        Ok(())
    }
}

/// A pair of datagram sockets.
pub struct SocketPair {
    ends: [UnixDatagram; 2],
    buffer: Vec<u8>,
}

impl SocketPair {
    /// A new pair.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> Result<SocketPair, String> {
        let (here, there) = UnixDatagram::pair().map_err(|error| error.to_string())?;
        Ok(SocketPair { ends: [here, there], buffer: vec![0; 2_048] })
    }
}

impl Link for SocketPair {
    fn there_and_back(&mut self, frame: &[u8]) -> Result<(), String> {
        let [here, there] = &self.ends;
        let turn = |buffer: &mut [u8]| {
            here.send(frame)?;
            let len = there.recv(buffer)?;
            there.send(buffer.get(..len).unwrap_or_default())?;
            here.recv(buffer)
        };
        turn(&mut self.buffer).map(drop).map_err(|error| error.to_string())
    }

    fn burst(&mut self, frame: &[u8]) -> Result<(), String> {
        let [here, there] = &self.ends;
        // A socket holds few datagrams by default.
        for _ in 0..BURST {
            here.send(frame).map_err(|error| error.to_string())?;
            there.recv(&mut self.buffer).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Two ports that are connected with each other, in one thread.
pub struct PortPair {
    here: Interface,
    there: Interface,
    outbox: TransmitBurst,
    answers: TransmitBurst,
}

impl PortPair {
    /// Two ports of these specifications.
    ///
    /// # Errors
    /// Those of the drivers; and if the link does not come up.
    pub fn open(here: &str, there: &str) -> Result<PortPair, String> {
        let open = |spec: &str| {
            let spec = spec.parse().map_err(|error: io::port::PortSpecError| error.to_string())?;
            Interface::open(&spec).map_err(|error| error.to_string())
        };
        let (mut here, mut there) = (open(here)?, open(there)?);
        let start = Instant::now();
        let is_up = |end: &Interface| end.link().is_ok_and(|link| link.is_up);
        while !is_up(&here) || !is_up(&there) {
            if start.elapsed() > WAIT {
                return Err("the link does not come up".to_owned());
            }
            for end in [&mut here, &mut there] {
                // Until the other end is there, these fail.
                let _ = end.reopen();
                let _ = end.receive(|_| {});
            }
        }
        Ok(PortPair { here, there, outbox: TransmitBurst::default(), answers: TransmitBurst::default() })
    }

    /// Two ports of shared memory.
    ///
    /// # Errors
    /// As for [`PortPair::open`].
    pub fn memif() -> Result<PortPair, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = format!("memif:@rivulet-lab-{}-{number}", std::process::id());
        PortPair::open(&format!("{socket},role=server"), &format!("{socket},role=client"))
    }

    /// The same with the second end on a thread of its own, which sends back what it gets.
    pub fn on_two_threads(self) -> EchoedPort {
        let PortPair { here, mut there, outbox, mut answers } = self;
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let echo = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let mut count = 0;
                let _ = there.receive(|frame| {
                    answers.push(frame);
                    count += 1;
                });
                if count > 0 {
                    there.send(&mut answers);
                } else {
                    spin_loop();
                }
            }
        });
        EchoedPort { here, outbox, ends, echo: Some(echo) }
    }
}

/// Waits until n frames of ours have come.
fn await_frames(port: &mut Interface, count: usize, mut each: impl FnMut(&[u8])) -> Result<(), String> {
    let (mut arrived, mut looks, mut start) = (0, 0_u32, None);
    loop {
        let received = port.receive(|frame| {
            if frame.get(12..14) == Some(&ETHER_TYPE) {
                arrived += 1;
                each(frame);
            }
        });
        received.map_err(|error| error.to_string())?;
        if arrived >= count {
            return Ok(());
        }
        looks += 1;
        if looks % 1_024 == 0 && start.get_or_insert_with(Instant::now).elapsed() > WAIT {
            return Err(format!("{} of {count} frames were lost", count - arrived));
        }
    }
}

impl Link for PortPair {
    fn there_and_back(&mut self, frame: &[u8]) -> Result<(), String> {
        let PortPair { here, there, outbox, answers } = self;
        outbox.push(frame);
        here.send(outbox);
        await_frames(there, 1, |frame| {
            answers.push(frame);
        })?;
        there.send(answers);
        await_frames(here, 1, |_| {})
    }

    fn burst(&mut self, frame: &[u8]) -> Result<(), String> {
        for _ in 0..BURST {
            self.outbox.push(frame);
        }
        self.here.send(&mut self.outbox);
        await_frames(&mut self.there, BURST, |frame| {
            black_box(frame);
        })
    }
}

/// A port with an echo at its other end, on another thread.
pub struct EchoedPort {
    here: Interface,
    outbox: TransmitBurst,
    ends: Arc<AtomicBool>,
    echo: Option<JoinHandle<()>>,
}

impl Link for EchoedPort {
    fn there_and_back(&mut self, frame: &[u8]) -> Result<(), String> {
        self.outbox.push(frame);
        self.here.send(&mut self.outbox);
        await_frames(&mut self.here, 1, |_| {})
    }

    fn burst(&mut self, frame: &[u8]) -> Result<(), String> {
        for _ in 0..BURST {
            self.outbox.push(frame);
        }
        self.here.send(&mut self.outbox);
        await_frames(&mut self.here, BURST, |_| {})
    }
}

impl Drop for EchoedPort {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(echo) = self.echo.take() {
            let _ = echo.join();
        }
    }
}
