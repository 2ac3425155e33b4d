//! Reduces the privileges of the process to the minimum, once its interfaces and files are open.

use std::collections::BTreeMap;
use std::io::{Error, Result};

use io::port::DriverEntry;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// System calls after that point: frames and files, memory and threads, time, output to terminals
/// and clients of metrics, and the calls that reopen an interface. Files may be opened to be read,
/// see [`opens_to_read`], and where the run writes files, to be appended to, see
/// [`opens_to_append`]. No program can be run, no file be emptied, no other process be looked into.
const CALLS: [libc::c_long; 61] = [
    // Frames, files and clients.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_fsync,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_ppoll,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    // Threads and signals.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_prctl,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Time and chance.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_uname,
];

/// The same, of calls that only older kinds of processors have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: [libc::c_long; 3] = [libc::SYS_poll, libc::SYS_stat, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: [libc::c_long; 0] = [];

/// The parts of a run that need further system calls.
#[derive(Clone, Copy, Debug)]
pub struct Uses {
    /// Files are created and appended to, as after a rotation.
    pub appends: bool,
    /// The control API is served.
    pub serves: bool,
    /// A cluster's store may be a file, which is open.
    pub stores: bool,
}

/// Has the kernel refuse every system call that is not needed with these drivers and uses, as if
/// the privilege for it were missing: of all existing threads and their later ones.
pub fn refuse_other_calls(drivers: &[&DriverEntry], Uses { appends, serves, stores }: Uses) -> Result<()> {
    let calls = CALLS.iter().chain(&OLD_CALLS);
    // A call without rules is allowed with any arguments.
    let mut allowed: BTreeMap<_, _> = calls.map(|&call| (call, Vec::new())).collect();
    let mut opens = vec![opens_to_read().map_err(Error::other)?];
    if appends {
        opens.push(opens_to_append().map_err(Error::other)?);
    }
    if appends {
        // To remove the beginning of a record without room on the disk.
        allowed.insert(libc::SYS_ftruncate, Vec::new());
    }
    if serves {
        allowed.extend(EVENT_CALLS.iter().chain(&OLD_EVENT_CALLS).map(|&call| (call, Vec::new())));
    }
    if stores {
        allowed.extend(STORE_CALLS.iter().map(|&call| (call, Vec::new())));
    }
    allowed.insert(libc::SYS_openat, opens);
    for call in drivers.iter().flat_map(|driver| driver.info.system_calls) {
        let is_allowed_always = allowed.get(&call.number).is_some_and(Vec::is_empty);
        let rules = allowed.entry(call.number).or_default();
        match call.argument {
            Some((index, value)) if !is_allowed_always => {
                rules.push(has_argument(index, value).map_err(Error::other)?);
            }
            Some(_) => {}
            None => rules.clear(),
        }
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(Error::other)?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(allowed, refused, SeccompAction::Allow, arch).map_err(Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(Error::other)?;
    seccompiler::apply_filter_all_threads(&program).map_err(Error::other)
}

/// System calls on a store's file, which is open.
const STORE_CALLS: [libc::c_long; 5] =
    [libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_fdatasync, libc::SYS_ftruncate, libc::SYS_flock];

/// System calls of the control API's event loop.
const EVENT_CALLS: [libc::c_long; 4] =
    [libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_eventfd2];

/// The same, of a call that only older kinds of processors have.
#[cfg(target_arch = "x86_64")]
const OLD_EVENT_CALLS: [libc::c_long; 1] = [libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const OLD_EVENT_CALLS: [libc::c_long; 0] = [];

/// Allows opening existing files, but not for writing.
fn opens_to_read() -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    const FLAGS: u8 = 2;
    let writes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
    let reads = SeccompCmpOp::MaskedEq(writes);
    SeccompRule::new(vec![SeccompCondition::new(FLAGS, SeccompCmpArgLen::Dword, reads, 0)?])
}

/// Allows appending to a file, which is created if it is missing. Its contents stay. Links are not
/// followed.
fn opens_to_append() -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    const FLAGS: u8 = 2;
    let flags = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_NOFOLLOW) as u64;
    let appends = SeccompCmpOp::MaskedEq(flags);
    let wanted = (libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_NOFOLLOW) as u64;
    SeccompRule::new(vec![SeccompCondition::new(FLAGS, SeccompCmpArgLen::Dword, appends, wanted)?])
}

/// Allows a call with this value of an argument.
fn has_argument(index: u8, value: u32) -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    let equals = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value.into())?;
    SeccompRule::new(vec![equals])
}

/// Gives up every capability that these drivers do not keep, for good: no program that is run gets
/// one back. Applies to the calling thread, to threads that a driver started, and to their later
/// ones. A thread that a device of DPDK started by itself keeps its capabilities.
pub fn give_up(drivers: &[&DriverEntry]) -> Result<()> {
    let kept = drivers.iter().map(|driver| driver.info.capabilities_kept);
    let kept = kept.fold(CapabilitySet::empty(), CapabilitySet::union);
    for driver in drivers {
        driver.on_own_threads(Box::new(move || give_up_others(kept)))?;
    }
    give_up_others(kept)
}

/// Gives up every capability but these, of the calling thread.
fn give_up_others(kept: CapabilitySet) -> Result<()> {
    set_no_new_privs(true)?;
    let had = capabilities(None)?;
    for capability in CapabilitySet::all().iter().filter(|capability| !kept.contains(*capability)) {
        match remove_capability_from_bounding_set(capability) {
            // A capability unknown to this kernel, or a process without the privilege, which has
            // nothing to lose there.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let sets = CapabilitySets {
        effective: had.effective & kept,
        permitted: had.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}
