//! nfdump's collector, for tests that send to it.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An nfcapd process that writes into a folder.
pub struct Collector {
    child: Child,
    address: SocketAddr,
    _alone: MutexGuard<'static, ()>,
}

/// One at a time: another test's socket could get a port that was free a moment ago.
static ALONE: Mutex<()> = Mutex::new(());

impl Collector {
    /// Starts it on a free port.
    pub fn start(folder: &Path) -> Collector {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // Free now; nfcapd cannot choose one itself.
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("nfcapd")
            .args([
                "-b",
                "127.0.0.1",
                "-p",
                &address.port().to_string(),
                "-t",
                "3600",
                "-B",
                "4000000",
                "-C",
                "none",
                "-w",
            ])
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let collector = Collector { child, address, _alone: alone };
        wait_until("nfcapd listens", || collector.waiting_bytes().is_some());
        collector
    }

    /// Returns the bytes that wait in its socket; none if it has no socket.
    fn waiting_bytes(&self) -> Option<u64> {
        let sockets = std::fs::read_to_string("/proc/net/udp").unwrap();
        let port = format!(":{:04X}", self.address.port());
        // sl, local address, remote address, state, transmit queue:receive queue
        let socket = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let queues = socket.filter(|fields| fields[1].ends_with(&port)).map(|fields| fields[4]).next()?;
        Some(u64::from_str_radix(queues.split_once(':').unwrap().1, 16).unwrap())
    }

    /// Returns the address of the collector.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has received everything, has written its file and ended.
    pub fn stop(mut self) {
        wait_until("nfcapd has received", || self.waiting_bytes() == Some(0));
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        wait_until("nfcapd ends", || self.child.try_wait().unwrap().is_some());
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // It still runs only if the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(90), "waiting for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
