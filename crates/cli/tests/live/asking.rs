//! Subscribers of a NAT who ask several servers from one endpoint each: all answers name the same
//! external endpoint (RFC 4787 REQ-1).

use std::ops::Range;
use std::process::{Child, Stdio};

use crate::net::{Network, Server};

/// Further addresses of the inside host, 10.7.0.N: subscribers in several affinity groups.
pub const SUBSCRIBERS: Range<u8> = 11..19;

const PROGRAM: &str = include_str!("asking.py");

/// Subscribers who ask until they are stopped.
pub struct Asking(Child, std::path::PathBuf);

impl Asking {
    /// Starts servers at these addresses of the outside host.
    pub fn serve(network: &Network, addresses: &[&str]) -> Server {
        let program = network.path("asking.py");
        std::fs::write(&program, PROGRAM).unwrap();
        network.outside.serve(&format!("python3 {} serve {}", program.display(), addresses.join(" ")), 9000)
    }

    /// Starts subscribers who ask these.
    pub fn start(network: &Network, addresses: &[&str]) -> Asking {
        let (program, stop) = (network.path("asking.py"), network.path("stop"));
        let mut command = network.inside.command("python3");
        command.arg(program).arg("ask").arg(&stop).args(addresses);
        Asking(command.stdout(Stdio::piped()).spawn().unwrap(), stop)
    }

    /// Stops them: more than `count` questions must have been answered, and none not.
    pub fn end(self, count: u32) {
        let Asking(child, stop) = self;
        std::fs::write(stop, "").unwrap();
        let asked = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let answers: Vec<&str> = asked.split_whitespace().collect();
        assert!(answers[0].parse::<u32>().unwrap() > count && answers[1] == "0", "{asked}");
        assert_eq!(answers.len(), 2 + SUBSCRIBERS.len());
        assert!(answers[2..].iter().all(|all| all.starts_with("10.7.0.10") && !all.contains('+')), "{asked}");
    }
}
