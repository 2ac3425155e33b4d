//! A pair of virtual Ethernet interfaces in a network namespace of its own.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The names of both ends.
pub const ENDS: [&str; 2] = ["lab0", "lab1"];

/// A namespace with the pair; it goes when this does.
pub struct VethPair {
    name: String,
}

impl VethPair {
    /// Both ends are up, and have no addresses.
    ///
    /// # Errors
    /// If `ip` is missing, or may not do that.
    pub fn new() -> Result<VethPair, String> {
        let name = format!("rivulet-lab-{}", std::process::id());
        ip(&["netns", "add", &name])?;
        let pair = VethPair { name };
        let [here, there] = ENDS;
        pair.ip(&["link", "add", here, "mtu", "1500", "type", "veth", "peer", "name", there, "mtu", "1500"])?;
        for end in ENDS {
            pair.ip(&["link", "set", end, "addrgenmode", "none", "arp", "off", "up"])?;
        }
        Ok(pair)
    }

    /// Runs a task on a thread in the namespace.
    ///
    /// # Errors
    /// Those of the task, and if the thread may not enter.
    pub fn run<T: Send>(&self, task: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
        let inside = || {
            let space = File::open(format!("/run/netns/{}", self.name)).map_err(|error| error.to_string())?;
            let entered = move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network));
            entered.map_err(|error| format!("cannot enter a network namespace: {error}"))?;
            task()
        };
        std::thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        ip(&[&["-n", &self.name], arguments].concat())
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]); // Nothing else can be done about it.
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {}: {}", arguments.join(" "), said.trim())) }
}
