//! An open device: its frames, or those of some of its queues.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::thread::CapabilitySet;

use super::sys::{self, BURST, DeviceLosses, Port, Queue};
use super::{BUFFERS, DpdkDevice, RING, announce, begin, has_huge_pages, on_thread, version};
use crate::port::driver::{Driver, DriverInfo, PortPart, Readiness, Refreshed, ThreadTask};
use crate::port::link::LinkState;
use crate::port::offload::{self, FRAME_LEN_MAX, FRONT_ROOM, OffloadHeader, RawFrame};
use crate::port::packet::promiscuous;
use crate::port::{Counters, TransmitBurst, is_too_long, open_checksum};

/// Number and length of the waits for a device without room for a frame.
const WAITS: u32 = 20;
const WAIT: Duration = Duration::from_micros(50);

/// One part of a DPDK device.
pub struct DpdkPort {
    port: Arc<Port>,
    /// Parts beyond the number of queues send by those of others.
    queue: Arc<Mutex<Queue>>,
    receives: bool,
    /// Keeps the device's kernel interface, if it has one, in promiscuous mode.
    _promiscuous: Option<Arc<OwnedFd>>,
    /// The last known state of the link.
    link: LinkState,
    /// The device's losses at the last call, in the first part.
    lost: Option<DeviceLosses>,
    /// Room for a frame, after the room for a VLAN tag.
    room: Box<[u8]>,
    /// Scratch space for segmentation; DPDK's frames need none.
    segment: Vec<u8>,
}

impl Driver for DpdkPort {
    const INFO: DriverInfo = super::INFO;

    type Spec = DpdkDevice;
    /// Parts that are open and not handed out yet, the last one first.
    type Shared = Vec<DpdkPort>;

    fn parse(text: &str) -> std::result::Result<DpdkDevice, String> {
        DpdkDevice::parse(text)
    }

    fn name(device: &DpdkDevice) -> String {
        device.name.clone()
    }

    fn check(_: CapabilitySet) -> Readiness {
        let version = version();
        match has_huge_pages() {
            true => Readiness::ready(format!("{version}, with free huge pages")),
            false => Readiness::missing(
                format!("{version}, without free huge pages"),
                "most cards need them: `sysctl -w vm.nr_hugepages=256`; virtual devices do without",
            ),
        }
    }

    fn announce(device: &DpdkDevice, parts: usize) {
        announce(device, parts);
    }

    fn on_own_threads(task: ThreadTask) -> Result<()> {
        on_thread(task)?
    }

    /// Opens a card with a driver for user space, or creates a virtual device. Each part has a pair
    /// of queues; the device distributes received frames among them. Parts beyond the number of
    /// queues only send, by the queues of others.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such card, or no driver for it; those of DPDK.
    fn open(device: &DpdkDevice, part: PortPart, shared: &mut Vec<DpdkPort>) -> Result<DpdkPort> {
        if part.index == 0 {
            *shared = DpdkPort::open_all(device, part.count)?;
            shared.reverse();
        }
        shared.pop().ok_or_else(|| Error::new(ErrorKind::InvalidInput, "part 0 is opened first"))
    }

    fn link(&self) -> Result<LinkState> {
        Ok(LinkState { is_up: self.port.is_up()?, ..self.link })
    }

    fn refresh(&mut self) -> Result<Refreshed> {
        self.look().map(|()| Refreshed::Unchanged)
    }

    fn count_lost(&mut self, counters: &mut Counters) {
        let (Some(before), Ok(now)) = (self.lost, self.port.lost()) else { return };
        self.lost = Some(now);
        counters.unreadable += now.errors.saturating_sub(before.errors);
        counters.missed += now.missed.saturating_sub(before.missed);
    }

    fn receive(&mut self, counters: &mut Counters, mut each: impl FnMut(&[u8])) -> Result<()> {
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
            let raw = RawFrame { room, offload: OffloadHeader::default(), tag, is_cut_off };
            offload::deliver(raw, &mut self.segment, counters, &mut each);
        }
        Ok(())
    }

    fn send(&mut self, burst: &TransmitBurst, counters: &mut Counters) {
        let (mut bytes, mut lens) = (&burst.bytes[..], &burst.lens[..]);
        if !self.link.is_up {
            counters.down += lens.len() as u64;
            return;
        }
        let (mtu, mut waits) = (self.link.mtu as usize, 0);
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
                _ if waits < WAITS => {
                    waits += 1;
                    thread::sleep(WAIT);
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

    /// Returns none: a device must be polled.
    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn is_polled(&self) -> bool {
        self.receives
    }
}

impl DpdkPort {
    fn open_all(device: &DpdkDevice, count: usize) -> Result<Vec<DpdkPort>> {
        begin::begin(device, count)?;
        let plugged = match device.is_card {
            true => None,
            false => Some(sys::plug(&device.name, &device.arguments).map_err(|error| not_made(&error))?),
        };
        let number = sys::find(&device.name).map_err(|_| {
            let why = "DPDK has no such device; bind a card to a user-space driver (`dpdk-devbind.py --bind=vfio-pci`)";
            Error::new(ErrorKind::NotFound, why)
        })?;
        let wanted = u16::try_from(count).unwrap_or(u16::MAX);
        let (port, queues) = Port::open(number, wanted, (RING, BUFFERS), plugged)?;
        // The kernel's interface is restored however the process ends; a card is DPDK's alone.
        let promiscuous = match port.shape().interface {
            interface if interface > 0 && !device.is_card => Some(Arc::new(promiscuous(interface)?)),
            _ => {
                let done = port.be_promiscuous();
                // A device without this mode receives everything.
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
            let mut opened = DpdkPort {
                port: Arc::clone(&port),
                queue: Arc::clone(&queues[part % queues.len()]),
                receives,
                _promiscuous: promiscuous.clone(),
                link: LinkState { is_up: false, mtu: port.shape().mtu, address: Some(port.shape().address) },
                lost: lost.filter(|_| part == 0),
                room: vec![0; if receives { FRONT_ROOM + FRAME_LEN_MAX } else { 0 }].into_boxed_slice(),
                segment: Vec::new(),
            };
            opened.look()?;
            Ok(opened)
        };
        (0..count).map(part).collect()
    }

    /// Updates the link's state, which sending depends on.
    fn look(&mut self) -> Result<()> {
        let link = self.link();
        self.link.is_up = link.as_ref().is_ok_and(|link| link.is_up);
        link.map(drop)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of frames of the next burst, up to the first frame that is too long.
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
        Some(libc::EEXIST) => "DPDK has such a device already".to_owned(),
        Some(libc::ENODEV | libc::EINVAL | libc::ENOENT | libc::EFAULT) => {
            format!("DPDK has no driver for it, or not with these arguments: {error}")
        }
        _ => format!("DPDK cannot make it: {error}"),
    };
    Error::new(error.kind(), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_ends_before_a_frame_that_is_too_long() {
        let lens = [60, 114, 115, 60];
        let bytes = vec![0; lens.iter().sum()];
        assert_eq!(fitting(&bytes, &lens, 100), 2);
        assert_eq!(fitting(&bytes[174..], &lens[2..], 100), 0);
        assert_eq!(fitting(&bytes, &lens, 1_500), 4);
        assert_eq!(fitting(&vec![0; 100 * 60], &[60; 100], 1_500), BURST);
    }
}
