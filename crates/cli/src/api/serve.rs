//! The server's side: the sockets are opened before privileges are dropped, and served after.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cluster::addresses::listen_at;
use control::access::{AccessFiles, ApiAccess};
use control::{ApiListener, ClusterControl, ControlOptions, ControlServer, socket};
use runtime::Runner;
use values::HostPort;

use super::ApiAddress;

/// The value of `--api` that turns the API off.
const OFF: &str = "none";

/// Options of the commands that serve the API.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Control API")]
pub struct ServeOptions {
    /// Serve the control API at this Unix socket or https://ADDRESS:PORT, or `none`; may be given
    /// twice [default with --cluster: /run/rivulet/NAME.sock, or for users in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "PATH|URL")]
    pub api: Vec<ApiAddress>,
    /// Certificate of an API over TCP, in PEM [default with --cluster: the node's]
    #[arg(long, value_name = "FILE", requires = "api_key")]
    pub api_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "api_cert")]
    pub api_key: Option<PathBuf>,
    /// Authority of the certificates that open an API over TCP, in PEM [default with --cluster: the
    /// cluster's]
    #[arg(long, value_name = "FILE")]
    pub api_ca: Option<PathBuf>,
    /// List of that authority's revoked certificates, in PEM [default with --cluster: the cluster's
    /// crl.pem]
    #[arg(long, value_name = "FILE", requires = "api_ca")]
    pub api_crl: Option<PathBuf>,
    /// Roles of certificates that do not say theirs, in TOML [default with --cluster: the cluster's
    /// roles.toml]
    #[arg(long, value_name = "FILE", requires = "api_ca")]
    pub api_roles: Option<PathBuf>,
    /// Token that opens an API over TCP: a file of one line, which only its owner may use
    #[arg(long, value_name = "FILE")]
    pub api_token: Option<PathBuf>,
}

/// Files of an API over TCP that are known without options, and further addresses of it.
#[derive(Debug, Default)]
pub struct ApiFiles {
    /// Certificate and key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The authority of clients.
    pub authority: Option<PathBuf>,
    /// A list of its revoked certificates.
    pub revoked: Option<PathBuf>,
    /// Roles of certificates.
    pub roles: Option<PathBuf>,
    /// The token.
    pub token: Option<PathBuf>,
    /// An address that is served in addition to the options' addresses.
    pub listen: Option<ApiAddress>,
}

/// Sockets for the control API.
pub struct ApiSockets {
    listeners: Vec<ApiListener>,
    name: String,
}

/// The outcome of opening sockets.
#[derive(Default)]
pub struct OpenedApi {
    /// The sockets, if the API is served.
    pub sockets: Option<ApiSockets>,
    /// Lines about addresses, and about the usual socket if it cannot be opened.
    pub said: Vec<String>,
}

impl ServeOptions {
    /// Opens the sockets; without options, the socket of this name if the API `is_usual`.
    ///
    /// # Errors
    /// If a socket cannot be opened, or if no client could use one over TCP. If the usual socket
    /// cannot be opened, the command continues after a warning.
    pub fn open(&self, name: &str, is_usual: bool, files: &ApiFiles) -> anyhow::Result<OpenedApi> {
        if self.api == [ApiAddress::Path(OFF.into())] {
            return Ok(OpenedApi::default());
        }
        let mut opened = OpenedApi::default();
        let mut listeners = Vec::new();
        for address in self.api.iter().chain(&files.listen) {
            let listener = match address {
                ApiAddress::Path(path) if path == Path::new(OFF) => {
                    bail!("--api {OFF} does not go with another --api")
                }
                ApiAddress::Path(path) => socket::bind(path)
                    .map(|listener| ApiListener::Unix(listener, path.clone()))
                    .map_err(anyhow::Error::from),
                ApiAddress::Tcp(to) => self.listen(to, files).map(|(listener, at)| {
                    opened.said.push(format!("rivulet: control API at {at}"));
                    listener
                }),
            };
            let failed = || format!("cannot serve the control API at {address}");
            listeners.push(listener.with_context(failed)?);
        }
        if self.api.is_empty() && is_usual {
            let path = socket::path_of(name);
            match socket::bind(&path) {
                Ok(listener) => listeners.push(ApiListener::Unix(listener, path)),
                Err(error) => opened.said.push(format!(
                    "rivulet: no control API at {}: {error}; choose another socket with --api",
                    path.display()
                )),
            }
        }
        opened.sockets = (!listeners.is_empty()).then(|| ApiSockets { listeners, name: name.to_owned() });
        Ok(opened)
    }

    /// Listens at an address, for clients with credentials.
    fn listen(&self, to: &HostPort, files: &ApiFiles) -> anyhow::Result<(ApiListener, ApiAddress)> {
        let own = self.api_cert.as_deref().zip(self.api_key.as_deref());
        let own = own.or(files.own.as_ref().map(|(certificate, key)| (&**certificate, &**key)));
        let (certificate, key) = own.context("expected --api-cert and --api-key, or --cluster")?;
        if let Some(list) = self.api_crl.as_ref().filter(|list| !list.exists()) {
            bail!("--api-crl {}: there is no such file", list.display());
        }
        // Another authority has revoked other certificates.
        let is_own = self.api_ca.is_none();
        let access = ApiAccess::read(AccessFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            authority: self.api_ca.clone().or_else(|| files.authority.clone()),
            revoked: self.api_crl.clone().or_else(|| files.revoked.clone().filter(|_| is_own)),
            roles: self.api_roles.clone().or_else(|| files.roles.clone().filter(|_| is_own)),
            token: self.api_token.clone().or_else(|| files.token.clone()),
        });
        let access = access.context("expected --api-ca or --api-token with usable files")?;
        let listener = listen_at(to)?;
        let at = ApiAddress::Tcp(to.with_port(listener.local_addr()?.port()));
        Ok((ApiListener::Tls(listener, access), at))
    }
}

impl ApiSockets {
    /// Serves the API of this runner, until the server is dropped.
    pub fn serve(
        self,
        runner: &mut Runner,
        cluster: Option<ClusterControl>,
    ) -> anyhow::Result<ControlServer> {
        let options = ControlOptions {
            name: self.name,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            operator: runner.open_to_operators(),
            cluster,
        };
        ControlServer::start(self.listeners, options).context("cannot start the control API")
    }
}
