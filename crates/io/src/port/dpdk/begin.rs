//! The start of DPDK, once per process: its memory, cards and processor.

use std::io::{Error, ErrorKind, Result};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{DpdkDevice, MEMORY_MIB, has_huge_pages, sys};

/// Longest wait for DPDK's thread.
const THREAD_WAIT: Duration = Duration::from_secs(5);

/// State of DPDK in this process.
static BEGUN: Mutex<EalState> = Mutex::new(EalState::No { announced: Vec::new(), queues: 0 });

enum EalState {
    /// These devices, with this number of pairs of queues in all, will be opened.
    No { announced: Vec<DpdkDevice>, queues: usize },
    /// With these cards.
    With(Vec<String>),
    /// It cannot be tried again.
    Failed(String),
}

/// Announces a device that will be opened, before DPDK begins: DPDK takes no further cards later,
/// and without huge pages no more memory.
pub fn announce(device: &DpdkDevice, parts: usize) {
    if let EalState::No { announced, queues } = &mut *BEGUN.lock().unwrap_or_else(PoisonError::into_inner) {
        announced.push(device.clone());
        *queues = queues.saturating_add(parts);
    }
}

/// Begins DPDK for the announced devices and this one, with this number of parts. Does nothing if
/// DPDK has begun.
///
/// Threads stay on the processors that they may use. Without huge pages, memory is the process's.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if DPDK has begun without the card, and those of DPDK; standard error
/// has more of these.
pub fn begin(device: &DpdkDevice, parts: usize) -> Result<()> {
    let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    let (devices, queues) = match &mut *begun {
        EalState::No { announced, queues } => {
            if !announced.contains(device) {
                announced.push(device.clone());
                *queues = queues.saturating_add(parts);
            }
            (&*announced, *queues)
        }
        EalState::With(cards) => {
            return match device.is_card && !cards.contains(&device.name) {
                false => Ok(()),
                true => {
                    let why = format!("DPDK has begun without the card {}", device.name);
                    Err(Error::new(ErrorKind::Unsupported, why))
                }
            };
        }
        EalState::Failed(why) => return Err(Error::other(why.clone())),
    };
    let processors = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|&processor| processors.is_set(processor)).unwrap_or(0);
    let result = sys::begin(&arguments(devices, queues, first, has_huge_pages()));
    // DPDK has bound the thread to a processor.
    sched_setaffinity(None, &processors)?;
    let cards = devices.iter().filter(|device| device.is_card).map(|card| card.name.clone()).collect();
    *begun = match &result {
        Ok(()) => EalState::With(cards),
        Err(error) => EalState::Failed(format!("DPDK could not begin before: {error}")),
    };
    result.map_err(|error| Error::new(error.kind(), format!("DPDK cannot begin: {error}")))
}

/// Returns DPDK's command line.
fn arguments(devices: &[DpdkDevice], queues: usize, processor: usize, has_huge_pages: bool) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["rivulet", "--no-telemetry", "--log-level=error"].map(str::to_owned).into();
    // DPDK uses this thread only, and starts no others.
    arguments.push(format!("--lcores=0@{processor}"));
    // Nothing is left in files, or shared with other processes.
    if has_huge_pages {
        arguments.push("--in-memory".to_owned());
    } else {
        let mib = queues.max(1) * MEMORY_MIB as usize;
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

/// Returns the library's name and version.
pub fn version() -> String {
    sys::version()
}

/// Runs a call on DPDK's own thread, and waits for it.
///
/// # Errors
/// If DPDK has not begun, or its thread does not answer.
pub fn on_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    if !matches!(*BEGUN.lock().unwrap_or_else(PoisonError::into_inner), EalState::With(_)) {
        return Err(Error::new(ErrorKind::Unsupported, "DPDK has not begun"));
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    sys::call(Box::new(move || {
        // Without a receiver, the result is not needed.
        let _ = sender.send(call());
    }))?;
    let silent = || Error::new(ErrorKind::TimedOut, "DPDK's thread does not answer");
    receiver.recv_timeout(THREAD_WAIT).map_err(|_| silent())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_line(devices: &[&str], queues: usize, has_huge_pages: bool) -> String {
        let devices: Vec<_> = devices.iter().map(|text| DpdkDevice::parse(text).unwrap()).collect();
        arguments(&devices, queues, 3, has_huge_pages).join(" ")
    }

    #[test]
    fn dpdks_command_line_has_cards_and_memory() {
        let always = "rivulet --no-telemetry --log-level=error --lcores=0@3";
        let virtual_only = command_line(&["net_null0", "net_ring0,a=b"], 4, false);
        assert_eq!(virtual_only, format!("{always} --no-shconf --no-huge -m 256 --no-pci"));
        let cards = command_line(&["03:00.0", "net_null0", "0000:03:00.1,a=b"], 3, true);
        assert_eq!(cards, format!("{always} --in-memory -a 0000:03:00.0 -a 0000:03:00.1,a=b"));
    }
}
