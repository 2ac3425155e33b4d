//! SSH servers, and sessions on a terminal.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::net::{Host, Network, Server, wait_until};
use crate::repeated::Repeated;

/// Returns options of `ssh`, `scp` and `sftp`: keys of their own, and nothing of the user who runs
/// the test.
pub fn ssh_options(network: &Network, port_option: &str, port: u16) -> String {
    format!(
        "-F /dev/null -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=accept-new \
         -o UserKnownHostsFile={} -o RekeyLimit=2M {port_option} {port}",
        network.path("client_key").display(),
        network.path("known_hosts").display(),
    )
}

/// Starts an SSH server on this port of a host that accepts root with a new key.
pub fn sshd(network: &Network, host: &Host, port: u16) -> Server {
    for key in ["client_key", "host_key"] {
        let _ = fs::remove_file(network.path(key));
        let mut make = network.middle.command("ssh-keygen");
        make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(network.path(key));
        assert!(make.status().unwrap().success());
    }
    let config = format!(
        "Port {port}\nHostKey {0}/host_key\nAuthorizedKeysFile {0}/client_key.pub\nStrictModes no\nUsePAM no\n\
         PidFile none\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPrintLastLog no\n\
         Subsystem sftp internal-sftp\n",
        network.dir.path().display()
    );
    fs::write(network.path("sshd_config"), config).unwrap();
    // It requires an empty folder there, whether or not this machine has a server of its own, and
    // the absolute path of its program.
    let serve =
        "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec \"$(command -v sshd)\" -D -e -f \"$1\"";
    let mut command = host.command("unshare");
    command.args(["-m", "sh", "-c", serve, "sh"]).arg(network.path("sshd_config"));
    let log = File::create(network.path("sshd.log")).unwrap();
    let server = Server::of(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    wait_until("sshd listens", || host.run("ss -Hltn").contains(&format!(":{port} ")));
    server
}

/// A session of the inside host on a terminal.
pub struct Session {
    child: Child,
    terminal: PathBuf,
}

impl Session {
    /// Opens a session with a server; what its terminal shows is kept under this name.
    pub fn open(network: &Network, (target, port): (&str, u16), name: &str) -> Session {
        let terminal = network.path(name);
        let mut command = network.inside.command("ssh");
        command.args(ssh_options(network, "-p", port).split_whitespace());
        command.args(["-tt", &format!("root@{target}"), "sh"]);
        command.stdin(Stdio::piped()).stdout(File::create(&terminal).unwrap()).stderr(Stdio::null());
        Session { child: command.spawn().unwrap(), terminal }
    }

    /// Types a line, and waits for the answer.
    pub fn say(&mut self, line: &str, answer: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        wait_until(answer, || fs::read_to_string(&self.terminal).unwrap().contains(answer));
    }

    /// Ends it; its server must say so.
    pub fn end(mut self) {
        writeln!(self.child.stdin.as_mut().unwrap(), "exit 7").unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(7));
    }
}

/// A session that types lines until it is stopped.
pub struct Typing(Repeated<(Session, u32)>);

impl Typing {
    /// Opens a session.
    pub fn start(network: &Network, server: (&str, u16), name: &str) -> Typing {
        let session = Session::open(network, server, name);
        Typing(Repeated::start((session, 0), Duration::ZERO, |(session, typed)| {
            *typed += 1;
            session.say(&format!("echo \"<$(({typed} + 1))>\""), &format!("<{}>", *typed + 1));
        }))
    }

    /// Ends the session: more than `count` lines must have been answered.
    pub fn end(self, count: u32) {
        let (session, typed) = self.0.end();
        assert!(typed > count, "{typed} lines were typed");
        session.end();
    }
}
