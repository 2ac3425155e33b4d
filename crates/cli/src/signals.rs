//! Signals: what ends a command with its report, and what opens its files again. None ends it
//! without.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};

/// Those that end a command; a second one ends the process at once.
const STOP: [i32; 3] = [SIGINT, SIGTERM, SIGQUIT];

/// Those that nobody means, and that would kill the process, end a command as well. So do real-time
/// signals.
const STRAY: [i32; 7] = [SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGIO, libc::SIGPWR, libc::SIGSTKFLT];

/// The signal that asked for the end, of the whole process.
static STOPPED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Whether a signal has asked for the end.
pub fn is_stopped() -> bool {
    STOPPED.get().is_some_and(|stop| stop.load(Ordering::Relaxed) != 0)
}

/// What signals have asked for.
pub struct Signals {
    stop: Arc<AtomicUsize>,
    reopen: Arc<AtomicBool>,
    report: Arc<AtomicBool>,
}

impl Signals {
    /// Takes those that end a command. The others stay as they are: of a command that ends by
    /// itself, nobody asks more.
    pub fn of_batch() -> std::io::Result<Signals> {
        Signals::take(&[SIGHUP])
    }

    /// Takes all: SIGUSR1 and SIGHUP open files again, SIGUSR2 asks what goes through now.
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
        for signal in STOP.into_iter().chain(more.iter().copied()).chain(STRAY).chain(real_time) {
            signal_hook::flag::register(signal, Arc::clone(&is_second))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&stop), signal as usize)?;
        }
        // A file that may grow no more is then one that cannot be written, as on a full disk.
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        Ok(Signals { stop, reopen: Arc::default(), report: Arc::default() })
    }

    /// The signal that asked for the end, if one has.
    pub fn stop(&self) -> Option<i32> {
        match self.stop.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// Whether files are to be opened again; asked once.
    pub fn take_reopen(&self) -> bool {
        self.reopen.load(Ordering::Relaxed) && self.reopen.swap(false, Ordering::Relaxed)
    }

    /// Whether somebody asks what goes through now; asked once.
    pub fn take_report(&self) -> bool {
        self.report.load(Ordering::Relaxed) && self.report.swap(false, Ordering::Relaxed)
    }
}

/// The exit code of a command that a signal ended, as shells have it.
pub fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from(128u8.saturating_add(signal.clamp(0, 127) as u8))
}
