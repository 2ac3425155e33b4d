//! Calls of DPDK through the shim: the declarations of `shim.c`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::port::offload::TakenTag;

/// Frames of one call: `BURST` of the shim.
pub const BURST: usize = 64;

/// Properties of a device: `struct rivulet_dpdk_device`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct DeviceShape {
    pub mtu: u32,
    /// The kernel's number of the device's interface; 0 if it has none.
    pub interface: u32,
    /// Pairs of queues.
    pub queues: u16,
    pub address: [u8; 6],
}

/// Frames that a device has lost since it was opened: `struct rivulet_dpdk_counters`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct DeviceLosses {
    /// For want of room.
    pub missed: u64,
    /// Damaged.
    pub errors: u64,
}

/// `struct rivulet_dpdk_tag`.
#[derive(Default)]
#[repr(C)]
struct Tag {
    protocol: u16,
    control: u16,
}

unsafe extern "C" {
    fn rivulet_dpdk_version() -> *const c_char;
    fn rivulet_dpdk_begin(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn rivulet_dpdk_call(call: extern "C" fn(*mut c_void), argument: *mut c_void) -> c_int;
    fn rivulet_dpdk_plug(name: *const c_char, arguments: *const c_char) -> c_int;
    fn rivulet_dpdk_unplug(name: *const c_char) -> c_int;
    fn rivulet_dpdk_find(name: *const c_char) -> c_int;
    fn rivulet_dpdk_open(
        port: u16,
        frames: u16,
        buffers: u32,
        device: *mut DeviceShape,
        pools: *mut *mut c_void,
    ) -> c_int;
    fn rivulet_dpdk_close(port: u16, pools: *mut *mut c_void, queues: u16);
    fn rivulet_dpdk_be_promiscuous(port: u16) -> c_int;
    fn rivulet_dpdk_is_up(port: u16) -> c_int;
    fn rivulet_dpdk_counters(port: u16, counters: *mut DeviceLosses) -> c_int;
    fn rivulet_dpdk_receive(port: u16, queue: u16, frames: *mut *mut c_void, count: u16) -> u16;
    fn rivulet_dpdk_take(frame: *mut c_void, to: *mut u8, room: u32, tag: *mut Tag, has_tag: *mut u8) -> u32;
    fn rivulet_dpdk_send(
        port: u16,
        queue: u16,
        pool: *mut c_void,
        bytes: *const u8,
        lens: *const usize,
        count: u16,
    ) -> c_int;
}

/// The open ports. A thread that makes, opens or closes a device holds this lock.
static OPEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());

fn alone<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the shim's result, or its error.
fn done(returned: c_int) -> Result<c_int> {
    if returned < 0 { Err(Error::from_raw_os_error(-returned)) } else { Ok(returned) }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(Error::from)
}

/// Returns DPDK's name and version.
pub fn version() -> String {
    // SAFETY: it is a text with a final zero byte, which never changes.
    unsafe { CStr::from_ptr(rivulet_dpdk_version()) }.to_string_lossy().into_owned()
}

/// Begins DPDK, once per process.
pub fn begin(arguments: &[String]) -> Result<()> {
    let arguments = arguments.iter().map(|argument| c_string(argument)).collect::<Result<Vec<_>>>()?;
    // DPDK may keep pointers to the arguments and write to them: they are never freed.
    let mut pointers: Vec<_> = arguments.into_iter().map(CString::into_raw).collect();
    let count = pointers.len() as c_int;
    pointers.push(null_mut());
    // SAFETY: there are `count` texts, each with a final zero byte, followed by a null pointer, as
    // for a program's arguments. DPDK may change their order.
    done(unsafe { rivulet_dpdk_begin(count, pointers.leak().as_mut_ptr()) }).map(drop)
}

type Call = Box<dyn FnOnce() + Send>;

/// Runs a call on DPDK's own thread. DPDK must have begun.
pub fn call(call: Call) -> Result<()> {
    extern "C" fn carry_out(argument: *mut c_void) {
        // SAFETY: it is the box that was given away below, once.
        let call = *unsafe { Box::from_raw(argument.cast::<Call>()) };
        // DPDK cannot unwind; a thread that waits for the result gets none.
        let _ = catch_unwind(AssertUnwindSafe(call));
    }
    let argument = Box::into_raw(Box::new(call));
    // SAFETY: `carry_out` is called once, with that argument, which may go to another thread.
    let returned = unsafe { rivulet_dpdk_call(carry_out, argument.cast()) };
    if returned < 0 {
        // SAFETY: it was not passed on.
        drop(unsafe { Box::from_raw(argument) });
    }
    done(returned).map(drop)
}

/// A virtual device, which is removed when this is dropped.
pub struct PluggedDevice(CString);

/// Makes a virtual device. DPDK must have begun.
///
/// # Errors
/// `EEXIST` if it exists.
pub fn plug(name: &str, arguments: &str) -> Result<PluggedDevice> {
    let (name, arguments) = (c_string(name)?, c_string(arguments)?);
    let _alone = alone(&OPEN);
    // DPDK would report an existing device as made. SAFETY: the text has a final zero byte.
    if unsafe { rivulet_dpdk_find(name.as_ptr()) } >= 0 {
        return Err(Error::from_raw_os_error(libc::EEXIST));
    }
    // SAFETY: the texts have final zero bytes, and DPDK copies them.
    done(unsafe { rivulet_dpdk_plug(name.as_ptr(), arguments.as_ptr()) })?;
    Ok(PluggedDevice(name))
}

impl Drop for PluggedDevice {
    fn drop(&mut self) {
        let _alone = alone(&OPEN);
        // SAFETY: the text has a final zero byte. A device that cannot be removed stays as long as
        // the process.
        unsafe { rivulet_dpdk_unplug(self.0.as_ptr()) };
    }
}

/// Returns the port number of the device with this name. DPDK must have begun.
pub fn find(name: &str) -> Result<u16> {
    let name = c_string(name)?;
    // SAFETY: the text has a final zero byte.
    done(unsafe { rivulet_dpdk_find(name.as_ptr()) }).map(|number| number as u16)
}

/// An open port, which is closed when this is dropped.
pub struct Port {
    number: u16,
    shape: DeviceShape,
    /// One per queue.
    pools: Vec<*mut c_void>,
    /// DPDK permits one thread at a time to ask about a port.
    asking: Mutex<()>,
    /// Removed after the port is closed.
    _device: Option<PluggedDevice>,
}

// SAFETY: the pools are DPDK's, which lets several threads take and return buffers, and are freed
// when the port is dropped. All other calls about a port concern a queue, which has one owner, or
// hold a lock.
unsafe impl Send for Port {}
// SAFETY: the same.
unsafe impl Sync for Port {}

impl Port {
    /// Opens the port with this number, which [`find`] returned, with up to `queues` pairs of
    /// queues, of these numbers of frames and buffers each. The `device` is removed after the port
    /// is closed.
    pub fn open(
        number: u16,
        queues: u16,
        (frames, buffers): (u16, u32),
        device: Option<PluggedDevice>,
    ) -> Result<(Arc<Port>, Vec<Queue>)> {
        let mut shape = DeviceShape { queues, ..DeviceShape::default() };
        let mut pools = vec![null_mut(); queues.into()];
        let mut open = alone(&OPEN);
        if open.contains(&number) {
            return Err(Error::from_raw_os_error(libc::EBUSY));
        }
        // SAFETY: the port is not shared yet; the shim writes to the shape, and one pointer for
        // each queue.
        let opened =
            unsafe { rivulet_dpdk_open(number, frames, buffers, &raw mut shape, pools.as_mut_ptr()) };
        if let Err(error) = done(opened) {
            // The device, if there is one, is removed after the lock is released.
            drop(open);
            return Err(error);
        }
        open.push(number);
        drop(open);
        pools.truncate(shape.queues.into());
        let port = Arc::new(Port { number, shape, pools, asking: Mutex::default(), _device: device });
        let queues = (0..shape.queues).map(|number| Queue { port: Arc::clone(&port), number }).collect();
        Ok((port, queues))
    }

    pub fn shape(&self) -> DeviceShape {
        self.shape
    }

    /// Makes the port receive all frames.
    pub fn be_promiscuous(&self) -> Result<()> {
        let _alone = alone(&self.asking);
        // SAFETY: the port is open.
        done(unsafe { rivulet_dpdk_be_promiscuous(self.number) }).map(drop)
    }

    /// Returns whether the link is up.
    pub fn is_up(&self) -> Result<bool> {
        let _alone = alone(&self.asking);
        // SAFETY: the port is open.
        done(unsafe { rivulet_dpdk_is_up(self.number) }).map(|is_up| is_up > 0)
    }

    /// Returns the losses.
    pub fn lost(&self) -> Result<DeviceLosses> {
        let _alone = alone(&self.asking);
        let mut lost = DeviceLosses::default();
        // SAFETY: the port is open, and the shim writes to the numbers.
        done(unsafe { rivulet_dpdk_counters(self.number, &raw mut lost) })?;
        Ok(lost)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut open = alone(&OPEN);
        open.retain(|&number| number != self.number);
        // SAFETY: the port is open, and none of its queues is in use; the pools are those of its
        // queues.
        unsafe { rivulet_dpdk_close(self.number, self.pools.as_mut_ptr(), self.shape.queues) };
    }
}

/// A pair of queues of a port; there is one value for each pair.
pub struct Queue {
    port: Arc<Port>,
    number: u16,
}

impl Queue {
    /// Receives up to [`BURST`] frames.
    pub fn receive(&mut self) -> Burst {
        let mut frames = [null_mut(); BURST];
        // SAFETY: the queue is an open port's and has no other user, and there is room for that
        // number of pointers.
        let count =
            unsafe { rivulet_dpdk_receive(self.port.number, self.number, frames.as_mut_ptr(), BURST as u16) };
        Burst { _port: Arc::clone(&self.port), frames, taken: 0, count: count.into() }
    }

    /// Sends up to [`BURST`] frames of these lengths, one after the other in `bytes`; returns the
    /// number that the device has taken.
    ///
    /// # Errors
    /// `ENOMEM` if there are no buffers, `EMSGSIZE` if a frame is longer than a buffer: nothing is
    /// sent.
    pub fn send(&mut self, bytes: &[u8], lens: &[usize]) -> Result<usize> {
        let lens = &lens[..lens.len().min(BURST)];
        if lens.iter().sum::<usize>() > bytes.len() {
            return Err(Error::from_raw_os_error(libc::EINVAL));
        }
        let pool = self.port.pools[usize::from(self.number)];
        let count = lens.len() as u16;
        // SAFETY: the queue is an open port's and has no other user, the pool is the queue's, and
        // there are as many bytes as the lengths say, which the shim copies.
        let sent = unsafe {
            rivulet_dpdk_send(self.port.number, self.number, pool, bytes.as_ptr(), lens.as_ptr(), count)
        };
        done(sent).map(|sent| sent as usize)
    }
}

/// Received frames, each in DPDK's buffers until it is taken.
pub struct Burst {
    /// Its pools own the buffers.
    _port: Arc<Port>,
    frames: [*mut c_void; BURST],
    taken: usize,
    count: usize,
}

impl Burst {
    /// Copies the next frame, cut to `room`; returns its length, and the tag that was taken out of
    /// it.
    pub fn take(&mut self, room: &mut [u8]) -> Option<(usize, Option<TakenTag>)> {
        let &frame = self.frames[..self.count].get(self.taken)?;
        self.taken += 1;
        let (mut tag, mut has_tag) = (Tag::default(), 0);
        let len = room.len().min(u32::MAX as usize) as u32;
        // SAFETY: DPDK has given the frame to this process, which returns it here and does not take
        // it again; the shim writes no more than there is room for.
        let len = unsafe { rivulet_dpdk_take(frame, room.as_mut_ptr(), len, &raw mut tag, &raw mut has_tag) };
        let tag = (has_tag != 0).then_some(TakenTag { protocol: tag.protocol, control: tag.control });
        Some((len as usize, tag))
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        while self.take(&mut []).is_some() {}
    }
}
