//! Stores for tests: a file, and an etcd of its own.
#![allow(dead_code)] // Each test uses a part.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use store::{ClusterStore, EtcdStore, FileStore};
use tempfile::TempDir;

/// A store that can be restarted.
pub trait Bench {
    /// Opens the store once more.
    fn open(&self) -> Box<dyn ClusterStore>;
    /// Restarts the store, after `stopped` was done without it.
    fn restart(&mut self, stopped: &mut dyn FnMut());
}

pub struct FileBench(TempDir);

impl FileBench {
    pub fn new() -> FileBench {
        FileBench(TempDir::new().unwrap())
    }
}

impl Bench for FileBench {
    fn open(&self) -> Box<dyn ClusterStore> {
        Box::new(FileStore::open(&self.0.path().join("cluster.redb")).unwrap())
    }

    /// The file needs no process.
    fn restart(&mut self, stopped: &mut dyn FnMut()) {
        stopped();
    }
}

/// etcd as a process, which ends with the test.
pub struct EtcdBench {
    folder: TempDir,
    ports: [u16; 2],
    process: Option<Child>,
}

impl EtcdBench {
    /// Starts etcd; none if it is not installed, which CI forbids.
    pub fn start() -> Option<EtcdBench> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            assert!(std::env::var_os("CI").is_none(), "etcd is not installed");
            println!("SKIPPED: etcd is not installed");
            return None;
        }
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = free.map(|listener| listener.local_addr().unwrap().port());
        let mut etcd = EtcdBench { folder: TempDir::new().unwrap(), ports, process: None };
        etcd.run();
        Some(etcd)
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    pub fn run(&mut self) {
        let (client, peer) = (self.endpoint(), format!("http://127.0.0.1:{}", self.ports[1]));
        let process = Command::new("etcd")
            .args(["--data-dir", &self.folder.path().join("data").display().to_string()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
        let store = self.store();
        wait_until("etcd answers", || {
            TcpStream::connect(("127.0.0.1", self.ports[0])).is_ok() && store.list("none/").is_ok()
        });
    }

    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub fn store(&self) -> EtcdStore {
        EtcdStore::new(&[self.endpoint()]).unwrap()
    }
}

impl Bench for EtcdBench {
    fn open(&self) -> Box<dyn ClusterStore> {
        Box::new(self.store())
    }

    fn restart(&mut self, stopped: &mut dyn FnMut()) {
        self.stop();
        stopped();
        self.run();
    }
}

impl Drop for EtcdBench {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}
