//! The server's side: the socket is opened before privileges are dropped, and served after.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cluster::remote::RemoteHandle;
use control::{ControlOptions, ControlServer, socket};
use runtime::Runner;

/// The value of `--api` that turns the API off.
const OFF: &str = "none";

/// A socket for the control API.
pub struct ApiSocket {
    listener: UnixListener,
    path: PathBuf,
    name: String,
}

/// The outcome of opening a socket.
#[derive(Default)]
pub struct OpenedApi {
    /// The socket, if the API is served.
    pub socket: Option<ApiSocket>,
    /// The reason for which the usual socket cannot be opened.
    pub complaint: Option<String>,
}

impl ApiSocket {
    /// Opens the socket at `path`, or at that of this name if the API `is_usual`.
    ///
    /// # Errors
    /// If the socket at `path` cannot be opened. Without the usual one the command goes on; the
    /// complaint says why.
    pub fn open(path: Option<&Path>, name: &str, is_usual: bool) -> anyhow::Result<OpenedApi> {
        let created = |listener, path| ApiSocket { listener, path, name: name.to_owned() };
        match path {
            Some(path) if path == Path::new(OFF) => Ok(OpenedApi::default()),
            Some(path) => {
                let listener = socket::bind(path)
                    .with_context(|| format!("cannot serve the control API at {}", path.display()))?;
                Ok(OpenedApi { socket: Some(created(listener, path.to_owned())), complaint: None })
            }
            None if is_usual => {
                let path = socket::path_of(name);
                Ok(match socket::bind(&path) {
                    Ok(listener) => OpenedApi { socket: Some(created(listener, path)), complaint: None },
                    Err(error) => {
                        let path = path.display();
                        let complaint = format!(
                            "rivulet: no control API at {path}: {error}; choose another socket with --api"
                        );
                        OpenedApi { socket: None, complaint: Some(complaint) }
                    }
                })
            }
            None => Ok(OpenedApi::default()),
        }
    }

    /// Serves the API of this runner, until the server is dropped.
    pub fn serve(self, runner: &mut Runner, nodes: Option<RemoteHandle>) -> anyhow::Result<ControlServer> {
        let options = ControlOptions {
            name: self.name,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            operator: runner.open_to_operators(),
            nodes,
            socket: Some(self.path),
        };
        ControlServer::start(self.listener, options).context("cannot start the control API")
    }
}
