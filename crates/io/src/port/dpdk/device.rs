//! A device at work: its frames, or those of a part of its queues.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::sys::{self, BURST, Lost, Port, Queue};
use super::{DPDK_BUFFERS, DPDK_RING, Device, begin};
use crate::port::link::Link;
use crate::port::offload::{self, FRAME_LEN_MAX, FRONT_ROOM, OffloadHeader, Raw};
use crate::port::{Counters, Outbox, is_too_long, open_checksum, packet_socket};

/// How often a device is asked again that has no room for a frame, and how long it is given each
/// time.
const MOMENTS: u32 = 20;
const MOMENT: Duration = Duration::from_micros(50);

/// A device's frames by DPDK, or a part of them.
pub struct Dpdk {
    name: String,
    port: Arc<Port>,
    /// Parts beyond the number of queues send by those of others.
    queue: Arc<Mutex<Queue>>,
    receives: bool,
    /// Has the interface that the device is on, if it is on one, in promiscuous mode.
    _promiscuous: Option<Arc<OwnedFd>>,
    /// What the link was like when it was last looked at.
    link: Link,
    /// What the device had lost when it was last asked; the first part asks.
    lost: Option<Lost>,
    /// Room for a frame, behind what a VLAN tag takes.
    room: Box<[u8]>,
    /// A segment that is cut off a frame: there are none.
    segment: Vec<u8>,
}

impl Dpdk {
    /// Opens the device in so many parts, of which each has a pair of queues as far as the device
    /// has as many.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such card, or no driver for it; what DPDK says.
    pub fn open_parts(device: &Device, count: usize) -> Result<Vec<Dpdk>> {
        begin(std::slice::from_ref(device), count)?;
        let plugged = match device.is_card {
            true => None,
            false => Some(sys::plug(&device.name, &device.arguments).map_err(|error| not_made(&error))?),
        };
        let number = sys::find(&device.name).map_err(|_| {
            let why = "DPDK has no such device: a card takes a driver that gives it to programs (`dpdk-devbind.py --bind=vfio-pci`)";
            Error::new(ErrorKind::NotFound, why)
        })?;
        let wanted = u16::try_from(count).unwrap_or(u16::MAX);
        let (port, queues) = Port::open(number, wanted, (DPDK_RING, DPDK_BUFFERS), plugged)?;
        // The kernel's interface is left as it was however the process ends; a card is DPDK's
        // alone.
        let promiscuous = match port.shape().interface {
            interface if interface > 0 && !device.is_card => {
                Some(Arc::new(packet_socket::promiscuous(interface)?))
            }
            _ => {
                let done = port.be_promiscuous();
                // One that has no such mode takes all that comes.
                done.or_else(|error| match error.raw_os_error() {
                    Some(libc::ENOTSUP) => Ok(()),
                    _ => Err(error),
                })?;
                None
            }
        };
        let lost = port.lost().ok();
        let queues: Vec<_> = queues.into_iter().map(|queue| Arc::new(Mutex::new(queue))).collect();
        let part = |part: usize| {
            let receives = part < queues.len();
            let mut opened = Dpdk {
                name: device.name.clone(),
                port: Arc::clone(&port),
                queue: Arc::clone(&queues[part % queues.len()]),
                receives,
                _promiscuous: promiscuous.clone(),
                link: Link { is_up: false, mtu: port.shape().mtu, address: Some(port.shape().address) },
                lost: lost.filter(|_| part == 0),
                room: vec![0; if receives { FRONT_ROOM + FRAME_LEN_MAX } else { 0 }].into_boxed_slice(),
                segment: Vec::new(),
            };
            opened.look()?;
            Ok(opened)
        };
        (0..count).map(part).collect()
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its link is like now.
    ///
    /// # Errors
    /// If it is gone.
    pub fn link(&self) -> Result<Link> {
        Ok(Link { is_up: self.port.is_up()?, ..self.link })
    }

    /// Looks what its link is like, for what is to be sent.
    ///
    /// # Errors
    /// If it is gone.
    pub fn look(&mut self) -> Result<()> {
        let link = self.link();
        self.link.is_up = link.as_ref().is_ok_and(|link| link.is_up);
        link.map(drop)
    }

    /// How many frames the device has dropped for want of room since it was last asked; those that
    /// were damaged are counted.
    pub fn take_missed(&mut self, counters: &mut Counters) -> u64 {
        let (Some(before), Ok(now)) = (self.lost, self.port.lost()) else { return 0 };
        self.lost = Some(now);
        counters.unreadable += now.errors.saturating_sub(before.errors);
        now.missed.saturating_sub(before.missed)
    }

    /// Whether frames come by this part.
    pub fn receives(&self) -> bool {
        self.receives
    }

    /// See [`crate::port::Interface::receive`].
    pub fn receive(&mut self, counters: &mut Counters, mut each: impl FnMut(&[u8])) -> Result<()> {
        if !self.receives {
            return Ok(());
        }
        let mut burst = self.queue().receive();
        while let Some((len, tag)) = burst.take(&mut self.room[FRONT_ROOM..]) {
            let room = &mut self.room[..FRONT_ROOM + len.min(FRAME_LEN_MAX)];
            let is_cut_off = len > FRAME_LEN_MAX;
            if !is_cut_off {
                counters.completed += u64::from(open_checksum::complete(&mut room[FRONT_ROOM..]));
            }
            let raw = Raw { room, offload: OffloadHeader::default(), tag, is_cut_off };
            offload::tell(raw, &mut self.segment, counters, &mut each);
        }
        Ok(())
    }

    /// See [`crate::port::Interface::send`].
    pub fn send(&mut self, outbox: &Outbox, counters: &mut Counters) {
        let (mut bytes, mut lens) = (&outbox.bytes[..], &outbox.lens[..]);
        if !self.link.is_up {
            counters.down += lens.len() as u64;
            return;
        }
        let (mtu, mut moments) = (self.link.mtu as usize, 0);
        while !lens.is_empty() {
            let fitting = fitting(bytes, lens, mtu);
            let sent = if fitting == 0 { Ok(0) } else { self.queue().send(bytes, &lens[..fitting]) };
            let gone = match sent {
                _ if fitting == 0 => {
                    counters.too_long += 1;
                    1
                }
                Ok(sent) if sent > 0 => {
                    counters.sent += sent as u64;
                    counters.sent_bytes += lens[..sent].iter().sum::<usize>() as u64;
                    sent
                }
                _ if moments < MOMENTS => {
                    moments += 1;
                    thread::sleep(MOMENT);
                    0
                }
                _ => {
                    counters.no_room += fitting as u64;
                    fitting
                }
            };
            bytes = &bytes[lens[..gone].iter().sum::<usize>()..];
            lens = &lens[gone..];
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many frames, of the first ones that are sent at once, are not too long; up to the first one
/// that is.
fn fitting(bytes: &[u8], lens: &[usize], mtu: usize) -> usize {
    let mut rest = bytes;
    let fits = |&&len: &&usize| {
        let frame = rest.split_off(..len).unwrap_or_default();
        !is_too_long(frame, mtu)
    };
    lens.iter().take(BURST).take_while(fits).count()
}

fn not_made(error: &Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::EEXIST) => "DPDK has it already".to_owned(),
        Some(libc::ENODEV | libc::EINVAL | libc::ENOENT | libc::EFAULT) => {
            format!("DPDK has no driver that takes it so: {error}")
        }
        _ => format!("DPDK cannot make it: {error}"),
    };
    Error::new(error.kind(), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_up_to_one_that_is_too_long() {
        let lens = [60, 114, 115, 60];
        let bytes = vec![0; lens.iter().sum()];
        assert_eq!(fitting(&bytes, &lens, 100), 2);
        assert_eq!(fitting(&bytes[174..], &lens[2..], 100), 0);
        assert_eq!(fitting(&bytes, &lens, 1_500), 4);
        assert_eq!(fitting(&vec![0; 100 * 60], &[60; 100], 1_500), BURST);
    }
}
