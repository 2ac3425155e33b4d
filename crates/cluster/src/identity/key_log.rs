//! A file with the secrets of links for Wireshark's decryption, as a debugging aid.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use link::connection_id;

use super::handshake::LinkSecrets;

/// The environment variable that names the file.
pub const KEY_LOG_VARIABLE: &str = "RIVULET_KEYLOG";

/// A file with the secrets of links. Its readers can decrypt and forge the nodes' datagrams.
///
/// Each end of a link appends a line per direction when the link begins:
///
/// ```text
/// RIVULET_LINK_SECRET CONNECTION SECRET SENDER RECEIVER
/// ```
///
/// with the connection id (16 hexadecimal digits) and the first secret (64) of the direction, and
/// the names of its ends.
#[derive(Debug)]
pub struct KeyLog {
    file: File,
    path: PathBuf,
}

impl KeyLog {
    /// Opens a file for appending. A new file is readable by its owner only.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> std::io::Result<KeyLog> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(KeyLog { file, path: path.to_owned() })
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends the secrets of a link, both lines at once. A failure is logged and otherwise
    /// ignored.
    pub(super) fn write(&self, own: &str, peer: &str, secrets: &LinkSecrets) {
        let text = line(&secrets.send, own, peer) + &line(&secrets.receive, peer, own);
        if let Err(error) = (&self.file).write_all(text.as_bytes()) {
            telemetry::event::key_log_failed(&error);
        }
    }
}

fn line(secret: &[u8; 32], sender: &str, receiver: &str) -> String {
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("RIVULET_LINK_SECRET {:016x} {digits} {sender} {receiver}\n", connection_id(secret))
}
