//! Interrupts: numbers in the kernel (`eventfd(2)`) that both ends have, one rings and the other
//! clears.

use std::io::{Error, ErrorKind, IoSliceMut, Result};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read, write};

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// One that says so many times that something is there.
pub fn make(rung: u32) -> Result<OwnedFd> {
    Ok(eventfd(rung, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// The file that a peer has given, if it is one: to write to any other could take as long as it
/// likes.
///
/// # Errors
/// With a word why.
pub fn take_over(file: OwnedFd) -> Result<OwnedFd> {
    let kind = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    if !kind.contains("eventfd-count:") {
        return Err(Error::new(ErrorKind::InvalidData, "an interrupt that is none"));
    }
    rustix::io::ioctl_fionbio(&file, true)?;
    Ok(file)
}

/// Wakes whoever waits for it. It is not done where it would wait: then the other end is awake, or
/// does not want to be.
pub fn ring(bell: &OwnedFd) {
    // The peer may have changed how the file is written to, and how much is in it.
    let mut waits = [PollFd::new(bell, PollFlags::OUT)];
    if poll(&mut waits, Some(&AT_ONCE)).is_ok_and(|ready| ready == 1) {
        let _ = write(bell, &1u64.to_ne_bytes());
    }
}

/// Forgets that it was rung, and does not wait if it was not.
pub fn clear(bell: &OwnedFd) {
    let mut number = [0; 8];
    // "At the current position", as for files that have none.
    let cleared = preadv2(bell, &mut [IoSliceMut::new(&mut number)], u64::MAX, ReadWriteFlags::NOWAIT);
    if cleared == Err(Errno::OPNOTSUPP) {
        // Linux before 5.8.
        let _ = read(bell, &mut number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_rung(bell: &OwnedFd) -> bool {
        let mut waits = [PollFd::new(bell, PollFlags::IN)];
        poll(&mut waits, Some(&AT_ONCE)) == Ok(1)
    }

    #[test]
    fn a_bell_rings_until_it_is_cleared_and_never_waits() {
        let bell = make(0).unwrap();
        let other = take_over(bell.try_clone().unwrap()).unwrap();
        // As a peer could have it.
        rustix::io::ioctl_fionbio(&other, false).unwrap();
        clear(&bell);
        ring(&other);
        ring(&other);
        assert!(is_rung(&bell));
        clear(&bell);
        assert!(!is_rung(&bell));
        write(&other, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        ring(&bell);
        clear(&bell);
        assert!(!is_rung(&bell));
    }

    #[test]
    fn other_files_are_no_bells() {
        let (reader, _writer) = std::io::pipe().unwrap();
        for file in [OwnedFd::from(reader), tempfile::tempfile().unwrap().into()] {
            assert_eq!(take_over(file).err().unwrap().to_string(), "an interrupt that is none");
        }
    }
}
