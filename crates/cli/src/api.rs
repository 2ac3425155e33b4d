//! The control API: its server in `rivulet up` and `rivulet run`, and its client in the commands
//! that operate them.

mod client;
mod serve;

use std::path::PathBuf;

use anyhow::bail;
use control::socket;

pub use client::{Client, encode};
pub use serve::{ApiSocket, OpenedApi};

/// Option of the commands that operate a running dispatcher.
#[derive(Debug, clap::Args)]
pub struct ApiOptions {
    /// Socket of the dispatcher's control API [default: the only one in /run/rivulet or, for users,
    /// in $XDG_RUNTIME_DIR/rivulet]
    #[arg(long, value_name = "PATH")]
    pub api: Option<PathBuf>,
}

impl ApiOptions {
    /// Returns a client of the dispatcher.
    pub fn client(&self) -> anyhow::Result<Client> {
        if let Some(path) = &self.api {
            return Ok(Client::new(path.clone()));
        }
        let mut found = socket::all();
        match (found.pop(), found.is_empty()) {
            (Some(path), true) => Ok(Client::new(path)),
            (Some(last), false) => {
                let names: Vec<_> =
                    found.iter().chain([&last]).map(|path| path.display().to_string()).collect();
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
}
