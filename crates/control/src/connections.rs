//! Connections of clients, over the Unix socket and over TCP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::access::ApiAccess;
use crate::clients::{ClientCounters, count};
use crate::door::{Door, Place};
use crate::routes::{self, Guard};

/// Limit on the clients that the Unix socket serves at once; others wait in the kernel's queue.
pub const CLIENTS_MAX: usize = 32;
/// Limit on the time of a TLS handshake.
pub const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Limit on the time for the head of a request, and on the silence between two requests.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit on the length of a request's head, in bytes.
pub const HEAD_LEN_MAX: usize = 16 * 1024;
/// Limit on the headers of a request.
pub const HEADERS_MAX: usize = 64;
/// Time after which a client over TCP that acknowledges nothing is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Pause after a client could not be accepted, such as without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The routes that connections are served with.
#[derive(Clone)]
pub(crate) struct Serving {
    /// For clients that need not show anything.
    pub open: Router,
    pub counters: Arc<ClientCounters>,
}

impl Serving {
    /// Serves clients of a Unix socket until the caller drops it.
    pub async fn unix(self, listener: UnixListener) {
        let places = Arc::new(Semaphore::new(CLIENTS_MAX));
        loop {
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let serving = self.clone();
            tokio::spawn(async move {
                let router = serving.open.clone();
                serving.serve(stream, router).await;
                drop(place);
            });
        }
    }

    /// Serves clients over TCP and TLS until the caller drops it.
    pub async fn tls(self, listener: TcpListener, access: ApiAccess) {
        let door = Door::default();
        loop {
            let Ok((stream, from)) = accept(&listener).await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (place, displaced) = door.enter(from.ip());
            if let Some(displaced) = displaced {
                displaced.abort();
                count(&self.counters.displaced);
            }
            let (serving, access, number) = (self.clone(), access.clone(), place.number());
            let task = tokio::spawn(async move { serving.greet(stream, access, place).await });
            door.note_task(number, task.abort_handle());
        }
    }

    /// Makes the handshake, and serves a client: a guard checks each request.
    async fn greet(&self, stream: TcpStream, access: ApiAccess, place: Place) {
        let acceptor = TlsAcceptor::from(Arc::clone(&access.now().tls));
        let stream = match timeout(TLS_HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(_)) => return count(&self.counters.handshakes_failed),
            Err(_) => return count(&self.counters.handshakes_late),
        };
        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let counters = Arc::clone(&self.counters);
        let guard = Guard { access, shown: shown.into(), counters, place: place.into() };
        self.serve(stream, routes::guard(&self.open, guard)).await;
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
        count(&self.counters.accepted);
        let _open = Open::new(&self.counters);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_LEN_MAX)
            .max_headers(HEADERS_MAX);
        let service = TowerToHyperService::new(router);
        if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
            // A client that goes away gets no answer, and is no fault.
            if error.is_timeout() {
                count(&self.counters.heads_late);
            } else if error.is_parse() {
                count(&self.counters.heads_refused);
            }
        }
    }
}

/// Accepts a connection that ends if its client is gone.
async fn accept(listener: &TcpListener) -> std::io::Result<(TcpStream, SocketAddr)> {
    let (stream, from) = listener.accept().await?;
    stream.set_nodelay(true)?;
    sockopt::set_tcp_user_timeout(&stream, SILENCE_MAX.as_millis() as u32)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, SILENCE_MAX)?;
    Ok((stream, from))
}

/// A connection that is open.
struct Open<'a>(&'a ClientCounters);

impl<'a> Open<'a> {
    fn new(counters: &'a ClientCounters) -> Open<'a> {
        count(&counters.open);
        Open(counters)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}
