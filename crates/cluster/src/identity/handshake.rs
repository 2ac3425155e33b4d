//! The handshake of two nodes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConnection, ConnectionCommon, ServerConnection, SideData, StreamOwned};
use rustls_pki_types::{CertificateDer, ServerName};

use super::credential::{CredentialError, is_for};
use super::parts::IdentityParts;
use super::{Identity, PeerCertificate};
use crate::addresses::Endpoints;
use crate::policies::KnownPolicies;
use crate::wire::{ArrivedFrame, FrameError, Hello, VERSION, VERSION_MIN, read_frame, write_hello};

/// Limit on the time of each read and write of a handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit on the time until a node accepts a connection. A host that returns is found within it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit on the bytes of a [`Hello`].
pub const HELLO_LEN_MAX: usize = 4096;

/// Label of the exported keys (RFC 5705, 4).
const LABEL: &[u8] = b"EXPORTER-rivulet-link";
/// Two keys, and the link's number.
const EXPORTED_LEN: usize = 32 + 32 + 8;

/// The keys of a link.
#[derive(Clone)]
pub struct LinkSecrets {
    /// Key of sent datagrams.
    pub send: [u8; 32],
    /// Key of received datagrams.
    pub receive: [u8; 32],
    /// Number of the link, the same at both ends.
    pub id: u64,
}

/// The outcome of a handshake.
pub struct Session {
    /// The peer's description of itself; its name is proven.
    pub peer: Hello,
    /// The addresses of the handshake, with the port of the peer's links.
    pub ends: Endpoints,
    /// The keys of the link.
    pub secrets: LinkSecrets,
    /// True at the connecting end.
    pub is_client: bool,
    /// The common dispatcher of two units, as stated by the connecting end.
    pub scope: String,
    /// The peer's certificate; `None` on a simulated network.
    pub certificate: Option<Arc<PeerCertificate>>,
}

/// The reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection failed, or the peer showed no certificate of the authority.
    #[error("{}", describe(.0))]
    Connection(#[from] std::io::Error),
    /// TLS failed.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// The name is not valid for a node.
    #[error("`{0}` is not a valid name of a node")]
    Name(String),
    /// The peer's certificate is for another name.
    #[error("the peer says that it is `{said}`, but its certificate is for another node")]
    OtherName {
        /// The name that it stated.
        said: String,
    },
    /// The peer's certificate is for another role or cluster.
    #[error("the peer `{said}`: {cause}")]
    Credential {
        /// The name that it stated.
        said: String,
        /// The reason.
        cause: CredentialError,
    },
    /// The first frame is not a hello.
    #[error("the peer did not begin with a hello: {0}")]
    Hello(FrameError),
    /// There is no common version of the wire format.
    #[error(
        "the peer speaks versions {oldest} to {newest} of the wire format, this node {VERSION_MIN} to {VERSION}"
    )]
    Versions {
        /// Oldest version of the peer.
        oldest: u16,
        /// Newest version of the peer.
        newest: u16,
    },
    /// The peer runs another policy, and neither policy is an older one.
    #[error("the peer `{peer}` {}", .reason)]
    Policy {
        /// Its name.
        peer: String,
        /// The difference, and the remedy.
        reason: String,
    },
}

/// Connects to a node of this name, which must run a policy that fits.
///
/// # Errors
/// If it cannot be reached, has another name, or does not fit.
pub fn connect(
    identity: &Identity,
    address: SocketAddr,
    name: &str,
    hello: &Hello,
) -> Result<Session, HandshakeError> {
    let server = ServerName::try_from(name.to_owned()).map_err(|_| HandshakeError::Name(name.to_owned()))?;
    let own = identity.now();
    let connection = ClientConnection::new(Arc::clone(&own.client), server)?;
    let tcp = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    limit(&tcp)?;
    let mut stream = StreamOwned::new(connection, tcp);
    send_hello(&mut stream, hello)?;
    // The other end runs the same check, but would not report the reason.
    let holder = own.holder(certificate_of(&stream.conn)?).map_err(refused(name))?;
    let peer = receive_hello(&mut stream)?;
    if peer.name != name {
        return Err(HandshakeError::OtherName { said: peer.name });
    }
    holder.check_node(name, peer.role.into()).map_err(refused(name))?;
    let local = stream.sock.local_addr()?;
    finish((identity, &own), peer, hello, (local, address), (&stream.conn, true))
}

/// Accepts a connection of another node.
///
/// # Errors
/// If it is of another cluster, or does not fit.
pub(super) fn accept(
    identity: &Identity,
    tcp: TcpStream,
    (hello, policies): (&Hello, &KnownPolicies),
) -> Result<Session, HandshakeError> {
    let from = tcp.peer_addr()?;
    limit(&tcp)?;
    let own = identity.now();
    let connection = ServerConnection::new(Arc::clone(&own.server))?;
    let mut stream = StreamOwned::new(connection, tcp);
    let peer = receive_hello(&mut stream)?;
    let certificate = certificate_of(&stream.conn)?;
    if !is_for(certificate, &peer.name) {
        return Err(HandshakeError::OtherName { said: peer.name });
    }
    let holder = own.holder(certificate).map_err(refused(&peer.name))?;
    holder.check_node(&peer.name, peer.role.into()).map_err(refused(&peer.name))?;
    let hello = &hello.with_policy(policies.own());
    send_hello(&mut stream, hello)?;
    let local = stream.sock.local_addr()?;
    finish((identity, &own), peer, hello, (local, from), (&stream.conn, false))
}

fn certificate_of<S: SideData>(
    connection: &ConnectionCommon<S>,
) -> Result<&CertificateDer<'static>, rustls::Error> {
    let shown = connection.peer_certificates().and_then(<[_]>::first);
    shown.ok_or(rustls::Error::NoCertificatesPresented)
}

fn refused(name: &str) -> impl FnOnce(CredentialError) -> HandshakeError {
    let said = name.to_owned();
    move |cause| HandshakeError::Credential { said, cause }
}

impl HandshakeError {
    /// Returns true if the host says that no process listens at the address.
    pub fn is_no_listener(&self) -> bool {
        matches!(self, HandshakeError::Connection(error) if error.kind() == ErrorKind::ConnectionRefused)
    }
}

/// Returns a connection error as text: the system's text for a timeout is misleading.
fn describe(fault: &std::io::Error) -> String {
    match fault.kind() {
        ErrorKind::WouldBlock => {
            format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs())
        }
        _ => fault.to_string(),
    }
}

fn limit(tcp: &TcpStream) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    tcp.set_write_timeout(Some(HANDSHAKE_TIMEOUT))
}

fn finish<S: SideData>(
    (identity, files): (&Identity, &Arc<IdentityParts>),
    peer: Hello,
    own: &Hello,
    (local, mut remote): (SocketAddr, SocketAddr),
    (connection, is_client): (&ConnectionCommon<S>, bool),
) -> Result<Session, HandshakeError> {
    let exported = export(connection)?;
    let (newest, oldest) = peer.versions;
    peer.common_version().ok_or(HandshakeError::Versions { oldest, newest })?;
    if !own.fits(&peer) {
        let reason = misfit(own, &peer);
        return Err(HandshakeError::Policy { peer: peer.name, reason });
    }
    remote.set_port(peer.port);
    let ends = Endpoints::new(Some(local.ip()), remote);
    let mut parts = exported.chunks_exact(32);
    let mut key = || parts.next().and_then(|part| part.try_into().ok()).unwrap_or([0; 32]);
    let (of_client, of_server) = (key(), key());
    let (send, receive) = if is_client { (of_client, of_server) } else { (of_server, of_client) };
    let id = exported.last_chunk().map_or(0, |number| u64::from_be_bytes(*number));
    let secrets = LinkSecrets { send, receive, id };
    if let Some(key_log) = &identity.key_log {
        key_log.write(&own.name, &peer.name, &secrets);
    }
    let scope = if is_client { &own.scope } else { &peer.scope }.clone();
    let chain = connection.peer_certificates().unwrap_or_default().to_vec();
    let certificate = Arc::new(PeerCertificate::new(chain, (&peer.name, peer.role.into()), is_client));
    identity.remember(&certificate, files);
    Ok(Session { peer, ends, secrets, is_client, scope, certificate: Some(certificate) })
}

/// Describes the difference between the policies of two nodes, and the remedy.
fn misfit(own: &Hello, peer: &Hello) -> String {
    let (own, theirs) = (own.running(), peer.running());
    let number = own.number;
    let remedy = match number {
        0 => {
            "and none was applied to the cluster; start all nodes with the same files, or `rivulet apply` one"
        }
        _ => "under the same number; `rivulet apply` one of them again",
    };
    format!("runs another policy, {theirs}, than this node, {own}, {remedy}")
}

fn export<S: SideData>(connection: &ConnectionCommon<S>) -> Result<[u8; EXPORTED_LEN], rustls::Error> {
    connection.export_keying_material([0; EXPORTED_LEN], LABEL, None)
}

fn send_hello(stream: &mut impl Write, hello: &Hello) -> std::io::Result<()> {
    let mut frame = Vec::new();
    write_hello(&mut frame, hello);
    // A hello is shorter than `HELLO_LEN_MAX`.
    stream.write_all(&(frame.len() as u32).to_be_bytes())?;
    stream.write_all(&frame)?;
    stream.flush()
}

fn receive_hello(stream: &mut impl Read) -> Result<Hello, HandshakeError> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len) as usize;
    if len > HELLO_LEN_MAX {
        return Err(HandshakeError::Hello(FrameError::Invalid("length")));
    }
    let mut frame = vec![0; len];
    stream.read_exact(&mut frame)?;
    match read_frame(&frame, 0, |_| 0) {
        Ok(ArrivedFrame::Hello(hello)) => Ok(hello),
        Ok(_) => Err(HandshakeError::Hello(FrameError::Invalid("kind"))),
        Err(error) => Err(HandshakeError::Hello(error)),
    }
}
