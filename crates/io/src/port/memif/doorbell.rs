//! Interrupts between the ends: counters in the kernel (`eventfd(2)`). One end rings, the other
//! clears.

use std::io::{Error, ErrorKind, IoSliceMut, Result};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, write};

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Makes a doorbell with this initial count.
pub fn make(rung: u32) -> Result<OwnedFd> {
    Ok(eventfd(rung, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Takes over the file that a peer has sent, if it is an eventfd: a write to another file could
/// block for any time.
///
/// # Errors
/// With the reason.
pub fn take_over(file: OwnedFd) -> Result<OwnedFd> {
    let kind = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    if !kind.contains("eventfd-count:") {
        return Err(Error::new(ErrorKind::InvalidData, "its interrupt is no eventfd"));
    }
    rustix::io::ioctl_fionbio(&file, true)?;
    Ok(file)
}

/// Wakes the thread that waits for it. Does not block: if it would, the peer is awake, or does not
/// want to be.
pub fn ring(doorbell: &OwnedFd) {
    // The peer may have changed the file's flags and its count.
    let mut waits = [PollFd::new(doorbell, PollFlags::OUT)];
    if poll(&mut waits, Some(&AT_ONCE)).is_ok_and(|ready| ready == 1) {
        let _ = write(doorbell, &1u64.to_ne_bytes());
    }
}

/// Clears it; does not block if it was not rung.
pub fn clear(doorbell: &OwnedFd) {
    let mut number = [0; 8];
    // -1 means the current position, for files that have none.
    let cleared = preadv2(doorbell, &mut [IoSliceMut::new(&mut number)], u64::MAX, ReadWriteFlags::NOWAIT);
    if cleared == Err(Errno::OPNOTSUPP) {
        // Linux before 5.8.
        let _ = read(doorbell, &mut number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_rung(doorbell: &OwnedFd) -> bool {
        let mut waits = [PollFd::new(doorbell, PollFlags::IN)];
        poll(&mut waits, Some(&AT_ONCE)) == Ok(1)
    }

    #[test]
    fn a_doorbell_rings_until_cleared_and_never_blocks() {
        let doorbell = make(0).unwrap();
        let other = take_over(doorbell.try_clone().unwrap()).unwrap();
        // As a peer could leave it.
        rustix::io::ioctl_fionbio(&other, false).unwrap();
        clear(&doorbell);
        ring(&other);
        ring(&other);
        assert!(is_rung(&doorbell));
        clear(&doorbell);
        assert!(!is_rung(&doorbell));
        write(&other, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        ring(&doorbell);
        clear(&doorbell);
        assert!(!is_rung(&doorbell));
    }

    #[test]
    fn other_files_are_no_doorbells() {
        let (reader, _writer) = std::io::pipe().unwrap();
        for file in [OwnedFd::from(reader), tempfile::tempfile().unwrap().into()] {
            assert_eq!(take_over(file).err().unwrap().to_string(), "its interrupt is no eventfd");
        }
    }
}
