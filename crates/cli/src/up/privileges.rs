//! What a process may do that has opened its interfaces and files: as little as it needs from there
//! on.

use std::collections::BTreeMap;
use std::io::{Error, Result};

use io::port::Io;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// What is needed to open an interface anew that was gone: a socket, and for AF_XDP memory that is
/// locked; for a TAP device, shared memory, or a device of DPDK's, nothing.
const fn kept(io: Io) -> CapabilitySet {
    match io {
        Io::PacketSocket => CapabilitySet::NET_RAW,
        Io::XdpDriverZeroCopy | Io::XdpDriverCopy | Io::XdpGenericCopy => {
            CapabilitySet::NET_RAW.union(CapabilitySet::IPC_LOCK)
        }
        Io::Tap | Io::Memif | Io::Dpdk => CapabilitySet::empty(),
    }
}

/// System calls that are made from there on: frames and files, memory and threads, time, what a
/// terminal or a client of metrics is told, and what it takes to open an interface anew. Files may
/// be opened to be read, see [`opens_to_read`], and where the run writes files, to be appended to,
/// see [`opens_to_append`]. No program can be run, no file be emptied, no other process be looked
/// into.
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

/// What the thread of DPDK's for interrupts and alarms does beside.
#[cfg(target_arch = "x86_64")]
const DPDK_CALLS: &[libc::c_long] =
    &[libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_ctl, libc::SYS_timerfd_settime];
#[cfg(not(target_arch = "x86_64"))]
const DPDK_CALLS: &[libc::c_long] = &[libc::SYS_epoll_pwait, libc::SYS_epoll_ctl, libc::SYS_timerfd_settime];

/// Lets the kernel refuse every system call that is not among those that are needed with interfaces
/// that are opened in these ways, as if the privilege for it were missing: of all threads that
/// there are, and of those that they begin from here on. With `appends`, files may be made and
/// appended to, as after a rotation.
pub fn refuse_other_calls(ways: &[Io], appends: bool) -> Result<()> {
    let is_shared = ways.contains(&Io::Memif);
    let memif_calls = if is_shared { &io::port::MEMIF_CALLS_LATER[..] } else { &[] };
    let dpdk_calls = if ways.contains(&Io::Dpdk) { DPDK_CALLS } else { &[] };
    let calls = CALLS.iter().chain(&OLD_CALLS).chain(memif_calls).chain(dpdk_calls);
    let mut allowed: BTreeMap<_, _> = calls.map(|&call| (call, Vec::new())).collect();
    if is_shared {
        allowed.insert(libc::SYS_unlinkat, vec![removes_a_file().map_err(Error::other)?]);
    }
    let mut opens = vec![opens_to_read().map_err(Error::other)?];
    if appends {
        opens.push(opens_to_append().map_err(Error::other)?);
    }
    if appends {
        // What is left of a record that a disk had no room for.
        allowed.insert(libc::SYS_ftruncate, Vec::new());
    }
    allowed.insert(libc::SYS_openat, opens);
    allowed.insert(libc::SYS_bpf, bpf_calls().map_err(Error::other)?);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(Error::other)?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(allowed, refused, SeccompAction::Allow, arch).map_err(Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(Error::other)?;
    seccompiler::apply_filter_all_threads(&program).map_err(Error::other)
}

/// A file that is there is opened, and not to be written.
fn opens_to_read() -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    const FLAGS: u8 = 2;
    let writes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
    let reads = SeccompCmpOp::MaskedEq(writes);
    SeccompRule::new(vec![SeccompCondition::new(FLAGS, SeccompCmpArgLen::Dword, reads, 0)?])
}

/// A file is appended to, and made if it is not there: what is in it stays. Links are not followed.
fn opens_to_append() -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    const FLAGS: u8 = 2;
    let flags = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | libc::O_NOFOLLOW) as u64;
    let appends = SeccompCmpOp::MaskedEq(flags);
    let wanted = (libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_NOFOLLOW) as u64;
    SeccompRule::new(vec![SeccompCondition::new(FLAGS, SeccompCmpArgLen::Dword, appends, wanted)?])
}

/// A file is removed, no folder: the socket's that a server of shared memory has made.
fn removes_a_file() -> std::result::Result<SeccompRule, seccompiler::BackendError> {
    const FLAGS: u8 = 2;
    SeccompRule::new(vec![SeccompCondition::new(FLAGS, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0)?])
}

/// What was loaded into the kernel before is put to use anew, where an interface was gone.
fn bpf_calls() -> std::result::Result<Vec<SeccompRule>, seccompiler::BackendError> {
    const COMMAND: u8 = 0;
    let rule = |command: u32| {
        let is_it =
            SeccompCondition::new(COMMAND, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, command.into())?;
        SeccompRule::new(vec![is_it])
    };
    io::port::BPF_CALLS_LATER.into_iter().map(rule).collect()
}

/// Gives up every capability but those to open interfaces anew that are opened in these ways, for
/// good: no program that is run gets one back. Of the calling thread, of DPDK's, and of those that
/// they begin from here on. A thread that a driver of DPDK's has begun by itself keeps what it has.
pub fn give_up(ways: &[Io]) -> Result<()> {
    let kept = ways.iter().copied().map(kept).fold(CapabilitySet::empty(), CapabilitySet::union);
    if ways.contains(&Io::Dpdk) {
        io::port::on_dpdk_thread(move || give_up_others(kept))??;
    }
    give_up_others(kept)
}

/// Gives up every capability but these, of the calling thread.
fn give_up_others(kept: CapabilitySet) -> Result<()> {
    set_no_new_privs(true)?;
    let had = capabilities(None)?;
    for capability in CapabilitySet::all().iter().filter(|capability| !kept.contains(*capability)) {
        match remove_capability_from_bounding_set(capability) {
            // One that this kernel does not know, or a process that may not, and so has nothing to
            // lose there.
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
