//! The XDP program that gives an interface's frames to the sockets of its queues, and all other
//! calls of the kernel's BPF.
//!
//! It is assembled here, so that no compiler and no loader are needed. In C it is:
//!
//! ```c
//! int program(struct xdp_md *frame) {
//!     return bpf_redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
//! }
//! ```
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use zerocopy::{Immutable, IntoBytes};

/// Place where an interface runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In its driver, before the kernel processes a frame.
    Driver,
    /// In the kernel, with any driver.
    Generic,
}

/// The program, and the map of sockets by the numbers of their queues.
pub struct Program {
    sockets: OwnedFd,
    program: OwnedFd,
}

/// The program attached to an interface. It is detached with this value, however the process ends.
pub struct ProgramLink {
    _link: OwnedFd,
}

/// `struct bpf_insn`.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// Source in the upper half, destination in the lower.
    registers: u8,
    offset: i16,
    value: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, value }
}

// Commands, kinds and helpers of linux/bpf.h.
const MAP_CREATE: i32 = 0;
pub const MAP_UPDATE: i32 = 2;
const PROGRAM_LOAD: i32 = 5;
pub const LINK_CREATE: i32 = 28;
const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_OF_XDP: u32 = 6;
const ATTACH_TO_XDP: u32 = 37;
const REDIRECT_MAP: i32 = 51;
const PASS: i32 = 2;
const MODE_GENERIC: u32 = 1 << 1;
const MODE_DRIVER: u32 = 1 << 2;
/// `offsetof(struct xdp_md, rx_queue_index)`.
const QUEUE_INDEX: i16 = 16;

impl Program {
    /// Loads the program, for an interface with up to this number of queues.
    ///
    /// # Errors
    /// [`std::io::ErrorKind::PermissionDenied`] without the capabilities `CAP_BPF` and
    /// `CAP_NET_ADMIN`, and others of the system.
    pub fn load(queues: u32) -> Result<Program> {
        #[derive(IntoBytes, Immutable)]
        #[repr(C)]
        struct Map {
            kind: u32,
            key_len: u32,
            value_len: u32,
            entries: u32,
        }
        #[derive(IntoBytes, Immutable)]
        #[repr(C)]
        struct Load {
            kind: u32,
            instruction_count: u32,
            instructions: u64,
            license: u64,
            log: [u64; 2],
            version: u32,
            flags: u32,
            name: [u8; 16],
        }
        let map = Map { kind: MAP_OF_SOCKETS, key_len: 4, value_len: 4, entries: queues };
        let sockets = opened(bpf(MAP_CREATE, &map)?);
        let instructions = instructions(&sockets);
        let license = c"Apache-2.0";
        let load = Load {
            kind: PROGRAM_OF_XDP,
            instruction_count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log: [0; 2],
            version: 0,
            flags: 0,
            name: *b"rivulet\0\0\0\0\0\0\0\0\0",
        };
        let program = opened(bpf(PROGRAM_LOAD, &load)?);
        Ok(Program { sockets, program })
    }

    /// Gives the frames of a queue to this socket.
    pub fn add_socket(&self, queue: u32, socket: &impl AsFd) -> Result<()> {
        #[derive(IntoBytes, Immutable)]
        #[repr(C)]
        struct Update {
            map: u32,
            _pad: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let socket = socket.as_fd().as_raw_fd();
        let update = Update {
            map: self.sockets.as_raw_fd() as u32,
            _pad: 0,
            key: &raw const queue as u64,
            value: &raw const socket as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE, &update).map(drop)
    }

    /// Attaches the program to an interface.
    ///
    /// # Errors
    /// `EBUSY` if it runs another one; those of the driver if it cannot run one.
    pub fn attach(&self, interface: u32, mode: Mode) -> Result<ProgramLink> {
        #[derive(IntoBytes, Immutable)]
        #[repr(C)]
        struct Link {
            program: u32,
            interface: u32,
            kind: u32,
            flags: u32,
        }
        let flags = match mode {
            Mode::Driver => MODE_DRIVER,
            Mode::Generic => MODE_GENERIC,
        };
        let program = self.program.as_raw_fd() as u32;
        let link = Link { program, interface, kind: ATTACH_TO_XDP, flags };
        bpf(LINK_CREATE, &link).map(|fd| ProgramLink { _link: opened(fd) })
    }
}

fn instructions(sockets: &OwnedFd) -> [Instruction; 6] {
    const LOAD_WORD: u8 = 0x61; // BPF_LDX | BPF_MEM | BPF_W
    const LOAD_CONSTANT: u8 = 0x18; // BPF_LD | BPF_IMM | BPF_DW, of two instructions
    const MOVE: u8 = 0xb7; // BPF_ALU64 | BPF_MOV | BPF_K
    const CALL: u8 = 0x85; // BPF_JMP | BPF_CALL
    const EXIT: u8 = 0x95; // BPF_JMP | BPF_EXIT
    const OF_MAP: u8 = 1; // BPF_PSEUDO_MAP_FD
    [
        instruction(LOAD_WORD, 2, 1, QUEUE_INDEX, 0),
        instruction(LOAD_CONSTANT, 1, OF_MAP, 0, sockets.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE, 3, 0, 0, PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// Makes the system call. All pointers of the attributes must be valid as the command requires.
fn bpf<A: IntoBytes + Immutable>(command: i32, attributes: &A) -> Result<i32> {
    // SAFETY: the kernel reads the bytes of the attributes. Those of the commands above point to
    // values of the functions above, which outlive the call, and which it only reads.
    let returned = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of_val(attributes))
    };
    if returned < 0 { Err(Error::last_os_error()) } else { Ok(returned as i32) }
}

fn opened(fd: i32) -> OwnedFd {
    // SAFETY: the command has just created it; it has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
