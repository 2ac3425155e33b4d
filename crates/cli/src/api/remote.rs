//! The client's end of the control API over TCP: TLS, and the credentials of the client.

use std::io::{Error, Result};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use cluster::addresses::resolve;
use cluster::identity::{CertifiedRole, RoleMap};
use control::access::{certificates, read_authority};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use values::HostPort;

/// A server over TCP, and how a client shows itself.
pub struct RemoteServer {
    /// Its address.
    pub address: HostPort,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
    /// The token that is sent with each request.
    pub token: Option<String>,
}

/// The client's files.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The authority of the server's certificate.
    pub authority: &'a Path,
    /// The client's certificate and key.
    pub own: Option<(&'a Path, &'a Path)>,
    /// The token.
    pub token: Option<&'a Path>,
    /// The name in the server's certificate, if it differs from the host's.
    pub server_name: Option<&'a str>,
}

impl RemoteServer {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be read or used.
    pub fn new(address: &HostPort, credentials: Credentials<'_>) -> anyhow::Result<RemoteServer> {
        let Credentials { authority, own, token, server_name } = credentials;
        let host = server_name.map_or_else(|| address.host(), str::to_owned);
        let name = ServerName::try_from(host.clone())
            .with_context(|| format!("`{host}` cannot be the name of a server's certificate"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(read_authority(authority)?);
        let mut config = match own {
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_file(key)
                    .with_context(|| format!("{}: expected PEM of a private key", key.display()))?;
                builder
                    .with_client_auth_cert(certificates(chain)?, key)
                    .with_context(|| format!("{}: cannot be used", chain.display()))?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let token = token.map(control::read_token).transpose()?;
        Ok(RemoteServer { address: address.clone(), name, config: Arc::new(config), token })
    }

    /// Connects, and makes the handshake.
    pub fn connect(&self, timeout: Duration) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut failed = Error::other("the host has no address");
        for address in resolve(&self.address)? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(tcp) => return self.greet(tcp, timeout),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn greet(
        &self,
        mut tcp: TcpStream,
        timeout: Duration,
    ) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        tcp.set_read_timeout(Some(timeout))?;
        tcp.set_write_timeout(Some(timeout))?;
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut session = session.map_err(Error::other)?;
        session.complete_io(&mut tcp)?;
        check_server(&session)?;
        Ok(StreamOwned::new(session, tcp))
    }
}

/// Checks that a certificate with a role has a dispatcher's: the key of a unit must not get the
/// token.
fn check_server(session: &ClientConnection) -> Result<()> {
    let shown = session.peer_certificates().and_then(<[_]>::first);
    match shown.map(|shown| RoleMap::default().credential(shown)) {
        Some(Ok(holder)) if holder.role != CertifiedRole::Dispatcher => Err(Error::other(format!(
            "the server's certificate is for the role {}, and not for dispatcher",
            holder.role
        ))),
        // A server need not be a node: its certificate may have no role.
        _ => Ok(()),
    }
}
