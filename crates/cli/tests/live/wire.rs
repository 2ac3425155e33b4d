//! A wire with a delay: frames take their time, and overtake each other.

use std::cell::RefCell;

use crate::net::{Host, Network, Server, ip, wait_until};

const PROGRAM: &str = include_str!("enduring.py");

/// A host that passes frames between the middle and others, late. The kernel's own emulator is not
/// everywhere.
pub struct Wire {
    host: Host,
    /// The delay of a frame and its variation.
    delay_ms: [u32; 2],
    /// A program for each other host.
    programs: RefCell<Vec<Server>>,
}

impl Wire {
    pub fn new(host: Host, delay_ms: [u32; 2]) -> Wire {
        Wire { host, delay_ms, programs: RefCell::default() }
    }

    /// Joins the middle's interface `name` with a host's `eth0`.
    pub fn join(&self, network: &Network, end: &Host, name: &str) {
        let program = network.path("enduring.py");
        std::fs::write(&program, PROGRAM).unwrap();
        let sides = [(&network.middle, name, "m"), (end, "eth0", "e")];
        let inner = sides.map(|(host, interface, side)| {
            let inner = format!("{name}-{side}");
            let (host_name, wire) = (host.name(), self.host.name());
            ip(&format!("link add {interface} netns {host_name} type veth peer name {inner} netns {wire}"));
            // Frames pass as they would on a wire: none larger than the MTU, with their checksums.
            host.run(&format!("ethtool -K {interface} tx off gro off"));
            self.host.ip(&format!("link set {inner} up"));
            inner
        });
        let [ms, jitter] = self.delay_ms.map(|ms| ms.to_string());
        let mut command = self.host.command("python3");
        command.arg(program).args(["delay", &ms, &jitter]).args(&inner);
        self.programs.borrow_mut().push(Server::of(command.spawn().unwrap()));
        wait_until("the wire passes frames", || {
            let sockets = self.host.run("ss -H -0 -l");
            inner.iter().all(|interface| sockets.contains(&format!("*:{interface}")))
        });
    }
}
