//! The control API: its server in `rivulet up` and `rivulet run`, and its client in the commands
//! that operate them.

mod address;
mod client;
mod remote;
mod serve;

use std::path::PathBuf;

use anyhow::{Context, bail};
use control::socket;
use values::HostPort;

pub use address::ApiAddress;
pub use client::{Client, encode};
use remote::{Credentials, RemoteServer};
pub use serve::{ApiFiles, OpenedApi, ServeOptions};

/// Options of the commands that operate a running dispatcher.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Control API")]
pub struct ApiOptions {
    /// The dispatcher's control API: a Unix socket, or https://HOST:PORT [default: the only socket
    /// in /run/rivulet or, for users, in $XDG_RUNTIME_DIR/rivulet]
    #[arg(long, value_name = "PATH|URL", env = "RIVULET_API", hide_env_values = true)]
    pub api: Vec<ApiAddress>,
    /// Authority of the server's certificate, in PEM; needed with a URL
    #[arg(long, value_name = "FILE", env = "RIVULET_API_CA", hide_env_values = true)]
    pub ca: Option<PathBuf>,
    /// Token to show to the server: a file of one line
    #[arg(long, value_name = "FILE", env = "RIVULET_API_TOKEN_FILE", hide_env_values = true)]
    pub api_token: Option<PathBuf>,
    /// Certificate to show to the server, in PEM
    #[arg(long, value_name = "FILE", requires = "key", env = "RIVULET_API_CERT", hide_env_values = true)]
    pub cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert", env = "RIVULET_API_KEY", hide_env_values = true)]
    pub key: Option<PathBuf>,
    /// Name in the server's certificate, if it is not that of the URL
    #[arg(long, value_name = "NAME", env = "RIVULET_API_SERVER_NAME", hide_env_values = true)]
    pub server_name: Option<String>,
}

impl ApiOptions {
    /// Returns a client of the dispatcher.
    pub fn client(&self) -> anyhow::Result<Client> {
        match self.api.as_slice() {
            [] => only_socket(),
            [address] => self.client_of(address),
            _ => bail!("--api: expected one dispatcher"),
        }
    }

    /// Returns clients of dispatchers; of several, each with its address.
    pub fn clients(&self) -> anyhow::Result<Vec<(Option<String>, Client)>> {
        if self.api.len() < 2 {
            return Ok(vec![(None, self.client()?)]);
        }
        self.api.iter().map(|address| Ok((Some(address.to_string()), self.client_of(address)?))).collect()
    }

    fn client_of(&self, address: &ApiAddress) -> anyhow::Result<Client> {
        match address {
            ApiAddress::Path(path) => Ok(Client::new(path.clone())),
            ApiAddress::Tcp(address) => self.remote_client(address),
        }
    }

    fn remote_client(&self, address: &HostPort) -> anyhow::Result<Client> {
        let authority = self.ca.as_deref();
        let authority =
            authority.context("expected --ca FILE, the authority of the server's certificate, with a URL")?;
        let credentials = Credentials {
            authority,
            own: self.cert.as_deref().zip(self.key.as_deref()),
            token: self.api_token.as_deref(),
            server_name: self.server_name.as_deref(),
        };
        RemoteServer::new(address, credentials).map(Client::remote)
    }
}

/// Returns a client of the only dispatcher of this machine.
fn only_socket() -> anyhow::Result<Client> {
    let mut found = socket::all();
    match (found.pop(), found.is_empty()) {
        (Some(path), true) => Ok(Client::new(path)),
        (Some(last), false) => {
            let names: Vec<_> = found.iter().chain([&last]).map(|path| path.display().to_string()).collect();
            bail!("several dispatchers run; choose one: --api {}", names.join(", --api "))
        }
        (None, _) => {
            bail!(
                "no dispatcher has a socket in {}; start one with --cluster or --api, or name its socket with --api",
                socket::folder().display()
            )
        }
    }
}
