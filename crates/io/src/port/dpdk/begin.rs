//! DPDK's beginning, which a process has once: which memory, which cards, and on which processor.

use std::io::{Error, ErrorKind, Result};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{DPDK_MEMORY_MIB, Device, has_huge_pages, sys};

/// How long DPDK's thread may take to do what it is asked for.
const THREAD_WAIT: Duration = Duration::from_secs(5);

/// How it has begun, if it has.
static BEGUN: Mutex<Begun> = Mutex::new(Begun::No);

enum Begun {
    No,
    /// With these cards.
    With(Vec<String>),
    /// It cannot be tried again.
    InVain(String),
}

/// Begins DPDK for these devices, each in so many parts; of cards, it takes no others later. If it
/// has begun, nothing is done.
///
/// Threads stay on the processors that they may use. Where the machine has no huge pages, memory is
/// the process's.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if DPDK has begun without one of the cards, and what DPDK says; more
/// of that is on standard error.
pub fn begin(devices: &[Device], parts: usize) -> Result<()> {
    let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*begun {
        Begun::No => {}
        Begun::With(cards) => {
            let is_new = |device: &&Device| device.is_card && !cards.contains(&device.name);
            return match devices.iter().find(is_new) {
                None => Ok(()),
                Some(device) => {
                    let why = format!("DPDK has begun without the card {}", device.name);
                    Err(Error::new(ErrorKind::Unsupported, why))
                }
            };
        }
        Begun::InVain(why) => return Err(Error::other(why.clone())),
    }
    let processors = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|&processor| processors.is_set(processor)).unwrap_or(0);
    let queues = devices.len().saturating_mul(parts);
    let result = sys::begin(&arguments(devices, queues, first, has_huge_pages()));
    // DPDK has bound the thread to a processor.
    sched_setaffinity(None, &processors)?;
    *begun = match &result {
        Ok(()) => Begun::With(
            devices.iter().filter(|device| device.is_card).map(|card| card.name.clone()).collect(),
        ),
        Err(error) => Begun::InVain(format!("DPDK could not begin before: {error}")),
    };
    result.map_err(|error| Error::new(error.kind(), format!("DPDK cannot begin: {error}")))
}

/// What DPDK is told when it begins.
fn arguments(devices: &[Device], queues: usize, processor: usize, has_huge_pages: bool) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["rivulet", "--no-telemetry", "--log-level=error"].map(str::to_owned).into();
    // One place for this thread; others are not begun.
    arguments.push(format!("--lcores=0@{processor}"));
    // Nothing is left in files, and shared with other processes.
    if has_huge_pages {
        arguments.push("--in-memory".to_owned());
    } else {
        let mib = queues.max(1) * DPDK_MEMORY_MIB as usize;
        arguments.extend(["--no-shconf", "--no-huge", "-m"].map(str::to_owned));
        arguments.push(mib.to_string());
    }
    let mut has_cards = false;
    for card in devices.iter().filter(|device| device.is_card) {
        has_cards = true;
        let comma = if card.arguments.is_empty() { "" } else { "," };
        arguments.extend(["-a".to_owned(), format!("{}{comma}{}", card.name, card.arguments)]);
    }
    if !has_cards {
        arguments.push("--no-pci".to_owned());
    }
    arguments
}

/// Which DPDK it is.
pub fn version() -> Option<String> {
    Some(sys::version())
}

/// Has DPDK's own thread do something, and waits until it has.
///
/// # Errors
/// If DPDK has not begun, or its thread does not do it.
pub fn on_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    if !matches!(*BEGUN.lock().unwrap_or_else(PoisonError::into_inner), Begun::With(_)) {
        return Err(Error::new(ErrorKind::Unsupported, "DPDK has not begun"));
    }
    let (tell, told) = mpsc::sync_channel(1);
    sys::call(Box::new(move || {
        // If nobody waits any more, nobody needs it.
        let _ = tell.send(call());
    }))?;
    let silent = || Error::new(ErrorKind::TimedOut, "DPDK's thread does not answer");
    told.recv_timeout(THREAD_WAIT).map_err(|_| silent())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(devices: &[&str], queues: usize, has_huge_pages: bool) -> String {
        let devices: Vec<_> = devices.iter().map(|text| Device::parse(text).unwrap()).collect();
        arguments(&devices, queues, 3, has_huge_pages).join(" ")
    }

    #[test]
    fn dpdk_is_told_of_cards_and_of_memory() {
        let always = "rivulet --no-telemetry --log-level=error --lcores=0@3";
        let virtual_only = told(&["net_null0", "net_ring0,a=b"], 4, false);
        assert_eq!(virtual_only, format!("{always} --no-shconf --no-huge -m 256 --no-pci"));
        let cards = told(&["03:00.0", "net_null0", "0000:03:00.1,a=b"], 3, true);
        assert_eq!(cards, format!("{always} --in-memory -a 0000:03:00.0 -a 0000:03:00.1,a=b"));
    }
}
