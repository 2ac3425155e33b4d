//! The server: a thread with an event loop of its own.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use runtime::operator::OperatorHandle;
use tokio::sync::oneshot;

use crate::access::ApiAccess;
use crate::clients::ClientCounters;
use crate::cluster_control::ClusterControl;
use crate::connections::Serving;
use crate::dispatcher::DispatcherClient;
use crate::migrations::Migrations;
use crate::routes::{self, Api};

/// The parts that a server works with.
pub struct ControlOptions {
    /// The name of this process in its cluster, or that of the policy.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The way to the dispatcher.
    pub operator: OperatorHandle,
    /// The cluster, if units run on other nodes.
    pub cluster: Option<ClusterControl>,
}

/// A socket on which the API is served.
pub enum ApiListener {
    /// A Unix socket; its user may do everything. Its file is removed at the end.
    Unix(UnixListener, PathBuf),
    /// A TCP socket with TLS, and the clients that may use it.
    Tls(TcpListener, ApiAccess),
}

/// A server of the API. It ends when it is dropped.
pub struct ControlServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    sockets: Vec<PathBuf>,
}

impl ControlServer {
    /// Serves the API on these sockets, on a new thread.
    ///
    /// # Errors
    /// If the thread or its event loop cannot be created.
    pub fn start(listeners: Vec<ApiListener>, options: ControlOptions) -> io::Result<ControlServer> {
        let mut sockets = Vec::new();
        for listener in &listeners {
            match listener {
                ApiListener::Unix(listener, path) => {
                    listener.set_nonblocking(true)?;
                    sockets.push(path.clone());
                }
                ApiListener::Tls(listener, _) => listener.set_nonblocking(true)?,
            }
        }
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            runtime.block_on(async move {
                let serving = serving(options);
                listeners.into_iter().for_each(|listener| begin(listener, serving.clone()));
                // Dropping the other end stops it, too.
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(serve)?;
        Ok(ControlServer { stop: Some(stop), thread: Some(thread), sockets })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for socket in &self.sockets {
            // A sandbox may refuse that; the next server at this path replaces the file.
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn serving(options: ControlOptions) -> Serving {
    let ControlOptions { name, version, operator, cluster } = options;
    let dispatcher = DispatcherClient::new(operator, cluster);
    let migrations = Migrations::new(dispatcher.clone());
    let counters = Arc::new(ClientCounters::default());
    let api = Api::new((name, version), Instant::now(), dispatcher, migrations, Arc::clone(&counters));
    Serving { open: routes::router(Arc::new(api)), counters }
}

/// Serves the clients of a socket, on a task of its own.
fn begin(listener: ApiListener, serving: Serving) {
    match listener {
        ApiListener::Unix(listener, _) => {
            if let Ok(listener) = tokio::net::UnixListener::from_std(listener) {
                tokio::spawn(serving.unix(listener));
            }
        }
        ApiListener::Tls(listener, access) => {
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                tokio::spawn(serving.tls(listener, access));
            }
        }
    }
}
