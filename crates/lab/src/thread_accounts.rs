//! The kernel's accounts of threads: time within it, and waits.

use std::fs;
use std::io;

/// A tick of the kernel's accounts: `USER_HZ` is 100 on all machines that we run on.
const TICK_NS: f64 = 1e7;

/// Totals of a thread, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadAccount {
    /// CPU time within the kernel, in ns, in ticks of 10 ms: exact only over many of them.
    pub kernel_ns: f64,
    /// Times that a thread has given up its processor, to wait.
    pub waits: f64,
}

impl ThreadAccount {
    /// Returns the account of the calling thread.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read.
    pub fn of_this_thread() -> io::Result<ThreadAccount> {
        ThreadAccount::of("/proc/thread-self")
    }

    /// Returns the sum over all threads of this process.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read.
    pub fn of_all_threads() -> io::Result<ThreadAccount> {
        let mut sum = ThreadAccount::default();
        for thread in fs::read_dir("/proc/self/task")? {
            // A thread that has just ended has none.
            let account = ThreadAccount::of(&thread?.path().to_string_lossy()).unwrap_or_default();
            sum = sum.and(account);
        }
        Ok(sum)
    }

    /// Returns the sum of two.
    pub fn and(self, other: ThreadAccount) -> ThreadAccount {
        ThreadAccount { kernel_ns: self.kernel_ns + other.kernel_ns, waits: self.waits + other.waits }
    }

    /// Returns the difference from an earlier one.
    pub fn since(self, earlier: ThreadAccount) -> ThreadAccount {
        ThreadAccount { kernel_ns: self.kernel_ns - earlier.kernel_ns, waits: self.waits - earlier.waits }
    }

    fn of(folder: &str) -> io::Result<ThreadAccount> {
        let (stat, status) =
            (fs::read_to_string(format!("{folder}/stat"))?, fs::read_to_string(format!("{folder}/status"))?);
        // The name, in brackets, may have spaces; `stime` is the 13th field after it (proc(5)).
        let ticks = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(12));
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<f64>().ok());
        match (number(ticks), number(waits)) {
            (Some(ticks), Some(waits)) => Ok(ThreadAccount { kernel_ns: ticks * TICK_NS, waits }),
            _ => Err(io::Error::other(format!("{folder} has no account"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_for_the_thread_that_waits() {
        let waits = || {
            let before = ThreadAccount::of_this_thread().unwrap();
            (0..5).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
            ThreadAccount::of_this_thread().unwrap().since(before)
        };
        let first = waits();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let other = waits();
                // Other threads of the process may end at any time, and their accounts with them.
                let sum = ThreadAccount::of_all_threads().unwrap();
                assert!(first.waits >= 5.0 && other.waits >= 5.0);
                assert!(sum.waits >= first.waits + other.waits);
            });
        });
    }
}
