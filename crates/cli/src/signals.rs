//! Signals that stop a command after its report, or reopen its files.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};

/// Signals that stop a command. A second one ends the process at once.
const STOP: [i32; 3] = [SIGINT, SIGTERM, SIGQUIT];

/// Signals that kill a process by default, though they are not meant to end it. They also stop a
/// command, as do real-time signals.
const STRAY: [i32; 7] = [SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGIO, libc::SIGPWR, libc::SIGSTKFLT];

/// The signal to stop.
static STOPPED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Returns whether a signal to stop has arrived.
pub fn is_stopped() -> bool {
    STOPPED.get().is_some_and(|stop| stop.load(Ordering::Relaxed) != 0)
}

/// Requests by signals.
pub struct Signals {
    stop: Arc<AtomicUsize>,
    reopen: Arc<AtomicBool>,
    report: Arc<AtomicBool>,
}

impl Signals {
    /// Installs handlers for the signals that stop a command. The others keep their meaning.
    pub fn of_batch() -> std::io::Result<Signals> {
        Signals::take(&[SIGHUP])
    }

    /// Installs all handlers: SIGUSR1 and SIGHUP reopen files, SIGUSR2 requests current rates.
    pub fn of_service() -> std::io::Result<Signals> {
        let signals = Signals::take(&[])?;
        for signal in [SIGUSR1, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&signals.reopen))?;
        }
        signal_hook::flag::register(SIGUSR2, Arc::clone(&signals.report))?;
        Ok(signals)
    }

    fn take(more: &[i32]) -> std::io::Result<Signals> {
        let stop = Arc::clone(STOPPED.get_or_init(Arc::default));
        let is_second = Arc::new(AtomicBool::new(false));
        let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
        for signal in STOP.into_iter().chain(more.iter().copied()) {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_second))?;
        }
        let stops = |signal| {
            signal_hook::flag::register(signal, Arc::clone(&is_second))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&stop), signal as usize)
        };
        for signal in STOP.into_iter().chain(more.iter().copied()).chain(STRAY) {
            stops(signal)?;
        }
        for signal in real_time {
            match stops(signal) {
                // A debugger keeps the last one to itself.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                installed => drop(installed?),
            }
        }
        // A write beyond the file size limit then fails like one to a full disk.
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        Ok(Signals { stop, reopen: Arc::default(), report: Arc::default() })
    }

    /// Returns the signal to stop, if one has arrived.
    pub fn stop(&self) -> Option<i32> {
        match self.stop.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// Returns whether files must be reopened, once for each request.
    pub fn take_reopen(&self) -> bool {
        self.reopen.load(Ordering::Relaxed) && self.reopen.swap(false, Ordering::Relaxed)
    }

    /// Returns whether rates were requested, once for each request.
    pub fn take_report(&self) -> bool {
        self.report.load(Ordering::Relaxed) && self.report.swap(false, Ordering::Relaxed)
    }
}

/// Returns the exit code of a command that a signal stopped, by the convention of shells.
pub fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from(128u8.saturating_add(signal.clamp(0, 127) as u8))
}
