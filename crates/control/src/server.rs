//! The server: a thread with an event loop of its own.

use std::io::{Error, Result};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use cluster::remote::RemoteHandle;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use runtime::operator::OperatorHandle;
use tokio::sync::{Semaphore, oneshot};

use crate::dispatcher::DispatcherClient;
use crate::migrations::Migrations;
use crate::routes::{self, Api};

/// Limit on the clients that are served at once; others wait in the kernel's queue.
pub const CLIENTS_MAX: usize = 32;
/// Limit on the time for the head of a request, and on the silence between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a client could not be accepted, such as without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The parts that a server works with.
pub struct ControlOptions {
    /// The name of this process in its cluster, or that of the policy.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The way to the dispatcher.
    pub operator: OperatorHandle,
    /// The nodes, if units run on other ones.
    pub nodes: Option<RemoteHandle>,
    /// The socket's file, to be removed at the end, if it was created.
    pub socket: Option<PathBuf>,
}

/// A server of the API. It ends when it is dropped.
pub struct ControlServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    socket: Option<PathBuf>,
}

impl ControlServer {
    /// Serves the API on this socket, on a new thread.
    ///
    /// # Errors
    /// If the thread or its event loop cannot be created.
    pub fn start(listener: UnixListener, options: ControlOptions) -> Result<ControlServer> {
        listener.set_nonblocking(true)?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = options.socket.clone();
        let serve = move || {
            let listener = {
                let _runtime = runtime.enter();
                tokio::net::UnixListener::from_std(listener)
            };
            let Ok(listener) = listener else { return };
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, router(options)) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(serve)?;
        Ok(ControlServer { stop: Some(stop), thread: Some(thread), socket })
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
        if let Some(socket) = &self.socket {
            // A sandbox may refuse that; the next server at this path replaces the file.
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn router(options: ControlOptions) -> Router {
    let ControlOptions { name, version, operator, nodes, .. } = options;
    let dispatcher = DispatcherClient::new(operator, nodes);
    let migrations = Migrations::new(dispatcher.clone());
    routes::router(Arc::new(Api::new((name, version), Instant::now(), dispatcher, migrations)))
}

/// Accepts clients until the caller drops it.
async fn serve(listener: tokio::net::UnixListener, router: Router) {
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        // Nobody closes it.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match accept(&listener).await {
            Ok(stream) => stream,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            // A client that goes away or is too slow gets no answer.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

async fn accept(listener: &tokio::net::UnixListener) -> std::result::Result<tokio::net::UnixStream, Error> {
    listener.accept().await.map(|(stream, _)| stream)
}
