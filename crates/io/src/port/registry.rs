//! The list of drivers, and static dispatch to them.

use std::io;

use rustix::thread::CapabilitySet;

use super::driver::{DriverInfo, Readiness, ThreadTask};

/// A driver in the registry.
pub struct DriverEntry {
    /// Facts about the driver.
    pub info: &'static DriverInfo,
    pub(super) parse: fn(&str) -> Result<super::DriverSpec, String>,
    pub(super) check: fn(CapabilitySet) -> Readiness,
    pub(super) on_own_threads: fn(ThreadTask) -> io::Result<()>,
}

impl DriverEntry {
    /// Checks whether a process with these capabilities can use the driver on this machine.
    pub fn check(&self, held: CapabilitySet) -> Readiness {
        (self.check)(held)
    }

    /// Runs a task on each thread that the driver started, and waits for it.
    ///
    /// # Errors
    /// Those of the task, and those of a thread that does not answer.
    pub fn on_own_threads(&self, task: ThreadTask) -> io::Result<()> {
        (self.on_own_threads)(task)
    }
}

/// Registers drivers, `module::Type` each. Of those for existing interfaces, `auto` prefers the
/// first, and uses the last where no other one suits.
macro_rules! registry {
    ($($module:ident::$driver:ident),+ $(,)?) => {
        /// All drivers. Of those for existing interfaces, `auto` prefers the first.
        pub static DRIVERS: &[DriverEntry] = &[$(DriverEntry {
            info: &<$module::$driver as Driver>::INFO,
            parse: |text| <$module::$driver as Driver>::parse(text).map(DriverSpec::$driver),
            check: <$module::$driver as Driver>::check,
            on_own_threads: <$module::$driver as Driver>::on_own_threads,
        }),+];

        /// A parsed port specification of one driver.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(clippy::enum_variant_names, reason = "drivers are named so")]
        enum DriverSpec {
            $($driver(<$module::$driver as Driver>::Spec)),+
        }

        impl DriverSpec {
            fn info(&self) -> &'static DriverInfo {
                match self {
                    $(DriverSpec::$driver(_) => &<$module::$driver as Driver>::INFO),+
                }
            }

            fn name(&self) -> String {
                match self {
                    $(DriverSpec::$driver(spec) => <$module::$driver as Driver>::name(spec)),+
                }
            }

            fn announce(&self, parts: usize) {
                match self {
                    $(DriverSpec::$driver(spec) => <$module::$driver as Driver>::announce(spec, parts)),+
                }
            }

            fn mtu(&self) -> Option<u32> {
                match self {
                    $(DriverSpec::$driver(spec) => <$module::$driver as Driver>::mtu(spec)),+
                }
            }

            fn suits(&self) -> Result<()> {
                match self {
                    $(DriverSpec::$driver(spec) => <$module::$driver as Driver>::suits(spec)),+
                }
            }

            fn open(&self, part: PortPart, shared: &mut PortShared) -> Result<OpenPort> {
                Ok(match self {
                    $(DriverSpec::$driver(spec) => {
                        let opened = <$module::$driver as Driver>::open(spec, part, &mut shared.$module)?;
                        OpenPort::$driver(Box::new(opened))
                    })+
                })
            }
        }

        /// State that all parts of a port share, of each driver that may open it.
        #[derive(Default)]
        struct PortShared {
            $($module: <$module::$driver as Driver>::Shared),+
        }

        /// An open part of a port.
        #[allow(clippy::enum_variant_names, reason = "drivers are named so")]
        enum OpenPort {
            $($driver(Box<$module::$driver>)),+
        }

        impl OpenPort {
            fn info(&self) -> &'static DriverInfo {
                match self {
                    $(OpenPort::$driver(_) => &<$module::$driver as Driver>::INFO),+
                }
            }

            fn mode(&self) -> &'static str {
                match self { $(OpenPort::$driver(port) => port.mode()),+ }
            }

            fn link(&self) -> Result<LinkState> {
                match self { $(OpenPort::$driver(port) => Driver::link(&**port)),+ }
            }

            fn refresh(&mut self) -> Result<Refreshed> {
                match self { $(OpenPort::$driver(port) => port.refresh()),+ }
            }

            fn count_lost(&mut self, counters: &mut Counters) {
                match self { $(OpenPort::$driver(port) => port.count_lost(counters)),+ }
            }

            fn receive(&mut self, counters: &mut Counters, each: impl FnMut(&[u8])) -> Result<()> {
                match self { $(OpenPort::$driver(port) => Driver::receive(&mut **port, counters, each)),+ }
            }

            fn send(&mut self, burst: &TransmitBurst, counters: &mut Counters) {
                match self { $(OpenPort::$driver(port) => Driver::send(&mut **port, burst, counters)),+ }
            }

            fn sockets(&self) -> Vec<BorrowedFd<'_>> {
                match self { $(OpenPort::$driver(port) => Driver::sockets(&**port)),+ }
            }

            fn is_polled(&self) -> bool {
                match self { $(OpenPort::$driver(port) => port.is_polled()),+ }
            }

            fn take_link_change(&mut self) -> bool {
                match self { $(OpenPort::$driver(port) => Driver::take_link_change(&mut **port)),+ }
            }

            fn take_reason(&mut self) -> Option<String> {
                match self { $(OpenPort::$driver(port) => Driver::take_reason(&mut **port)),+ }
            }
        }
    };
}
pub(super) use registry;
