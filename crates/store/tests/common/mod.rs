//! Stores for tests: a file, and an etcd of its own.
#![allow(dead_code)] // Each test uses a part.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use store::{ClusterStore, EtcdFiles, EtcdStore, FileStore};
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
    has_tls: bool,
    process: Option<Child>,
}

/// Writes certificates of an authority: that of etcd at 127.0.0.1, and a node's.
pub fn issue(folder: &Path) {
    let params = |names: &[&str]| {
        CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap()
    };
    let mut of_authority = params(&[]);
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    std::fs::write(folder.join("ca.pem"), of_authority.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(of_authority, key);
    for (name, host) in [("etcd", "127.0.0.1"), ("node", "node")] {
        let key = KeyPair::generate().unwrap();
        let certificate = params(&[host]).signed_by(&key, &issuer).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

impl EtcdBench {
    /// Starts etcd; none if it is not installed, which CI forbids.
    pub fn start() -> Option<EtcdBench> {
        EtcdBench::start_with(false)
    }

    /// The same with TLS, for clients with a certificate.
    pub fn start_with_tls() -> Option<EtcdBench> {
        EtcdBench::start_with(true)
    }

    fn start_with(has_tls: bool) -> Option<EtcdBench> {
        for tool in ["etcd", "etcdctl"] {
            if Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_err() {
                assert!(std::env::var_os("CI").is_none(), "{tool} is not installed");
                println!("SKIPPED: {tool} is not installed");
                return None;
            }
        }
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = free.map(|listener| listener.local_addr().unwrap().port());
        let mut etcd = EtcdBench { folder: TempDir::new().unwrap(), ports, has_tls, process: None };
        issue(etcd.folder.path());
        etcd.run();
        Some(etcd)
    }

    pub fn endpoint(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn run(&mut self) {
        let (client, peer) = (self.endpoint(), format!("http://127.0.0.1:{}", self.ports[1]));
        let mut command = Command::new("etcd");
        if self.has_tls {
            let options =
                [("cert-file", "etcd.pem"), ("key-file", "etcd.key"), ("trusted-ca-file", "ca.pem")];
            options.iter().for_each(|(option, file)| {
                command.arg(format!("--{option}={}", self.file(file).display()));
            });
            command.arg("--client-cert-auth");
        }
        let process = command
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

    fn snapshot(&self) -> String {
        self.file("snapshot").display().to_string()
    }

    fn control(&self, arguments: &[&str]) {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint()]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Saves a snapshot.
    pub fn save_snapshot(&self) {
        self.control(&["snapshot", "save", &self.snapshot()]);
    }

    /// Begins again with the snapshot.
    pub fn restore_snapshot(&mut self) {
        self.stop();
        let data = self.folder.path().join("data");
        std::fs::remove_dir_all(&data).unwrap();
        let peer = format!("http://127.0.0.1:{}", self.ports[1]);
        let cluster = format!("default={peer}");
        self.control(&[
            "snapshot",
            "restore",
            &self.snapshot(),
            "--data-dir",
            &data.display().to_string(),
            "--initial-cluster",
            &cluster,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
        self.run();
    }

    /// Begins again with nothing.
    pub fn recreate(&mut self) {
        self.stop();
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        self.run();
    }

    /// Writes what the store itself would refuse.
    pub fn put_raw(&self, key: &[u8], value: &[u8]) {
        let [key, value] = [key, value].map(|bytes| STANDARD.encode(bytes));
        self.post("kv/put", &serde_json::json!({ "key": key, "value": value }));
    }

    /// Writes the same value to keys, a hundred at a time.
    pub fn put_all(&self, keys: impl Iterator<Item = String>, value: &[u8]) {
        let keys: Vec<String> = keys.collect();
        for keys in keys.chunks(100) {
            let put = |key: &String| serde_json::json!({ "request_put": { "key": STANDARD.encode(key), "value": STANDARD.encode(value) } });
            let puts: Vec<serde_json::Value> = keys.iter().map(put).collect();
            self.post("kv/txn", &serde_json::json!({ "success": puts }));
        }
    }

    fn post(&self, path: &str, body: &serde_json::Value) {
        let sent = ureq::post(format!("{}/v3/{path}", self.endpoint())).send(body.to_string());
        assert_eq!(sent.unwrap().status(), 200);
    }

    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub fn store(&self) -> EtcdStore {
        self.store_with(&self.file("ca.pem"), "node")
    }

    /// Returns a store that expects certificates of this authority, and shows a node's.
    pub fn store_with(&self, authority: &Path, node: &str) -> EtcdStore {
        let [certificate, key] = ["pem", "key"].map(|end| self.file(&format!("{node}.{end}")));
        let files = EtcdFiles { authority, certificate: &certificate, key: &key };
        EtcdStore::new(&[self.endpoint()], Some(files)).unwrap()
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
