//! A name server, and a client that queries it again and again.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::net::{Network, Server};

/// Answers every query over UDP at these addresses with 192.0.2.53.
const SERVER: &str = "
import select, socket, sys
sockets = []
for address in sys.argv[1:]:
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, 53))
    sockets.append(s)
while True:
    for s in select.select(sockets, [], [])[0]:
        q, who = s.recvfrom(2000)
        end = q.index(0, 12) + 5
        s.sendto(q[:2] + bytes.fromhex('81800001000100000000') + q[12:end]
                 + bytes.fromhex('c00c00010001000000050004c0000235'), who)
";

/// Queries servers in turn by `dig`, once each, until the file STOP is there. Prints the numbers of
/// queries and of unanswered ones.
const ASKING: &str = "
asked=0 lost=0
while ! [ -e \"$STOP\" ]; do
  for server; do
    asked=$((asked + 1))
    [ \"$(dig +short +tries=1 +timeout=5 @\"$server\" www.example.org)\" = 192.0.2.53 ] || lost=$((lost + 1))
  done
  sleep 0.02
done
echo \"$asked $lost\"
";

/// Starts a name server at these addresses of the outside host.
pub fn serve_names(network: &Network, addresses: &[&str]) -> Server {
    let mut command = network.outside.command("python3");
    Server::of(command.args(["-c", SERVER]).args(addresses).spawn().unwrap())
}

/// A client that sends queries until it is stopped.
pub struct Resolving(Child, PathBuf);

impl Resolving {
    /// Starts it at the inside host.
    pub fn start(network: &Network, servers: &[&str]) -> Resolving {
        let stop = network.path("stop-resolving");
        let mut command = network.inside.command("sh");
        command.args(["-c", ASKING, "sh"]).args(servers).env("STOP", &stop);
        Resolving(command.stdout(Stdio::piped()).spawn().unwrap(), stop)
    }

    /// Stops it: more than `count` questions must have been answered, and none not.
    pub fn end(self, count: u32) {
        let Resolving(child, stop) = self;
        std::fs::write(stop, "").unwrap();
        let printed = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let (asked, lost) = printed.trim().split_once(' ').unwrap();
        assert!(asked.parse::<u32>().unwrap() > count && lost == "0", "{printed}");
    }
}
