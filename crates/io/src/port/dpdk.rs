//! The driver `dpdk`: a card's queues in this process, past the kernel, or one of DPDK's virtual
//! devices.
//!
//! It needs a build with the feature `dpdk`, which calls the system's `libdpdk` through a shim in
//! C. No offload is used, so frames are as on a wire. Checksums that the sender at a virtual device
//! left open are detected and completed, as with AF_XDP. A device must be polled.
//!
//! DPDK starts once in a process, and keeps a thread of its own for interrupts and alarms.

#[cfg(feature = "dpdk")]
mod begin;
#[cfg_attr(not(feature = "dpdk"), path = "dpdk/absent.rs")]
mod device;
#[cfg(feature = "dpdk")]
mod sys;

use std::fs;

use rustix::thread::CapabilitySet;

#[cfg(feature = "dpdk")]
pub use begin::{announce, on_thread, version};
pub use device::DpdkPort;

use super::driver::{DriverInfo, SystemCall, limits};

/// Frames of a queue that may wait to be received, and as many to be sent; fewer if the device
/// allows fewer.
pub const RING: u16 = 1_024;

/// Buffers of a queue, for frames that wait and those in transit.
pub const BUFFERS: u32 = 4_095;

/// Mebibytes of memory of a pair of queues, if the machine has no huge pages; allocated as they are
/// used.
pub const MEMORY_MIB: u32 = 64;

/// Facts about the driver, whether it was built in or not.
const INFO: DriverInfo = DriverInfo {
    name: "dpdk",
    syntax: "dpdk:DEVICE[,ARGUMENT...]",
    example: "dpdk:0000:03:00.0",
    peer: "a card bound to DPDK",
    is_for_interfaces: false,
    modes: &["dpdk"],
    // For DPDK's packet sockets. A card needs access to `/dev/vfio`, and memory to lock.
    capabilities: CapabilitySet::NET_RAW.union(CapabilitySet::NET_ADMIN),
    capabilities_kept: CapabilitySet::empty(),
    // Of DPDK's thread for interrupts and alarms.
    system_calls: &[
        #[cfg(target_arch = "x86_64")]
        SystemCall::any("epoll_wait", libc::SYS_epoll_wait),
        SystemCall::any("epoll_pwait", libc::SYS_epoll_pwait),
        SystemCall::any("epoll_ctl", libc::SYS_epoll_ctl),
        SystemCall::any("timerfd_settime", libc::SYS_timerfd_settime),
    ],
    limits: limits![RING, BUFFERS, MEMORY_MIB],
};

/// Bytes of the longest name of a device.
const NAME_MAX: usize = 63;

/// A parsed device specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkDevice {
    /// Its name; of a card, the full PCI address.
    pub name: String,
    /// Arguments for DPDK's driver.
    pub arguments: String,
    /// It is a card; otherwise a virtual device, which is made.
    pub is_card: bool,
}

impl DpdkDevice {
    /// Parses a PCI address (`0000:03:00.0`, `03:00.0`) or a virtual device's name (`net_tap0`),
    /// with optional arguments after a comma.
    ///
    /// # Errors
    /// The expected form.
    pub fn parse(text: &str) -> Result<DpdkDevice, String> {
        let (name, arguments) = text.split_once(',').unwrap_or((text, ""));
        let arguments = arguments.to_owned();
        if let Some(name) = pci_address(name) {
            return Ok(DpdkDevice { name, arguments, is_card: true });
        }
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if !is_name || name.len() > NAME_MAX || arguments.contains('\0') {
            let why = "expected a card's PCI address, such as 0000:03:00.0, or a virtual device, such as net_af_packet0,iface=eth0";
            return Err(why.to_owned());
        }
        Ok(DpdkDevice { name: name.to_owned(), arguments, is_card: false })
    }
}

/// Returns whether huge pages are free, which DPDK takes for its memory.
#[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "DPDK is not built in"))]
fn has_huge_pages() -> bool {
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let mut free = sizes.map(|size| fs::read_to_string(size.path().join("free_hugepages")));
    free.any(|free| free.is_ok_and(|free| free.trim().parse().is_ok_and(|free: u64| free > 0)))
}

/// Returns the full PCI address: DPDK's name of a card.
fn pci_address(text: &str) -> Option<String> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let number = |digits: &str, max: u32| {
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = is_number.then(|| u32::from_str_radix(digits, 16).ok()).flatten();
        number.filter(|&number| number <= max)
    };
    let (domain, bus) = (number(domain, u32::MAX)?, number(bus, 0xff)?);
    let (device, function) = (number(device, 0x1f)?, number(function, 7)?);
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_named_by_their_addresses_in_full() {
        for (text, name, arguments) in [
            ("0000:03:00.0", "0000:03:00.0", ""),
            ("03:00.1", "0000:03:00.1", ""),
            ("10000:AF:1f.7", "10000:af:1f.7", ""),
            ("3:0.0,class=rx,a=b", "0000:03:00.0", "class=rx,a=b"),
        ] {
            let arguments = arguments.to_owned();
            let device = DpdkDevice { name: name.to_owned(), arguments, is_card: true };
            assert_eq!(DpdkDevice::parse(text).unwrap(), device, "{text}");
        }
    }

    #[test]
    fn virtual_devices_have_names_and_arguments() {
        for (text, name, arguments) in [
            ("net_af_packet0,iface=eth0", "net_af_packet0", "iface=eth0"),
            ("net_tap0,iface=dtap0,mac=fixed", "net_tap0", "iface=dtap0,mac=fixed"),
            ("net_null0", "net_null0", ""),
            ("eth_ring0,", "eth_ring0", ""),
        ] {
            let arguments = arguments.to_owned();
            let device = DpdkDevice { name: name.to_owned(), arguments, is_card: false };
            assert_eq!(DpdkDevice::parse(text).unwrap(), device, "{text}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        let long = "n".repeat(NAME_MAX + 1);
        let nul = "net_null0,a=\0";
        for text in [
            "",
            ",iface=eth0",
            "0",
            "03:00",
            "03:00.8",
            "03:20.0",
            "100:00.0",
            "0:0:0:0.0",
            "a b",
            &long,
            nul,
        ] {
            assert!(
                DpdkDevice::parse(text).unwrap_err().contains("expected a card's PCI address"),
                "{text:?}"
            );
        }
    }
}
