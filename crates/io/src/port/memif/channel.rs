//! The control channel: a socket at a path, with messages and files sent along.

use std::fs;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, unlinkat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};

use super::message::{LEN, Message};

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 8;

/// Opens a nonblocking socket.
fn socket() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Returns the address of a path, or of an abstract name after an `@`.
fn address(path: &str) -> Result<SocketAddrUnix> {
    Ok(match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(path)?,
    })
}

/// A server's listening socket. Its file is removed with it.
pub struct Listener {
    socket: OwnedFd,
    file: Option<SocketFile>,
}

/// A socket's file and its identity: somebody may have replaced it.
struct SocketFile {
    path: PathBuf,
    device: u64,
    number: u64,
}

impl Listener {
    /// Listens at a path. The file of a server that no longer exists is replaced.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] if another program listens there, [`ErrorKind::AlreadyExists`] if
    /// something else is there, and those of the system.
    pub fn open(path: &str) -> Result<Listener> {
        let (listener, to) = (socket()?, address(path)?);
        if let Err(error) = bind(&listener, &to) {
            if error != Errno::ADDRINUSE {
                return Err(error.into());
            }
            if path.starts_with('@') || is_alive(&to)? {
                return Err(Error::new(ErrorKind::AddrInUse, "another program, or port, listens there"));
            }
            if !fs::symlink_metadata(path)?.file_type().is_socket() {
                let why = "the path is not a socket";
                return Err(Error::new(ErrorKind::AlreadyExists, why));
            }
            unlinkat(CWD, path, AtFlags::empty())?;
            bind(&listener, &to)?;
        }
        let file = match path.starts_with('@') {
            true => None,
            false => {
                let found = fs::symlink_metadata(path)?;
                Some(SocketFile { path: path.into(), device: found.dev(), number: found.ino() })
            }
        };
        let listener = Listener { socket: listener, file };
        listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }

    /// Returns the next client, if one waits.
    pub fn accept(&self) -> Option<Channel> {
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()?;
        Some(Channel { socket })
    }
}

/// Returns whether somebody listens at an address that is taken.
fn is_alive(to: &SocketAddrUnix) -> Result<bool> {
    match connect(&socket()?, to) {
        Err(Errno::CONNREFUSED) => Ok(false),
        // Another kind of socket, or one with too many clients to answer, too.
        Ok(()) | Err(Errno::PROTOTYPE | Errno::AGAIN) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(file) = &self.file else { return };
        let is_it = |found: fs::Metadata| (found.dev(), found.ino()) == (file.device, file.number);
        if fs::symlink_metadata(&file.path).is_ok_and(is_it) {
            // If it cannot be removed, the next server replaces it.
            let _ = unlinkat(CWD, &file.path, AtFlags::empty());
        }
    }
}

/// One end of a connection.
pub struct Channel {
    socket: OwnedFd,
}

/// Result of receiving.
pub enum Received {
    /// Nothing has arrived yet.
    Nothing,
    /// A message, and the first file sent along.
    Message([u8; LEN], Option<OwnedFd>),
    /// Something of another length.
    Other,
    /// The peer is gone.
    End,
}

impl Channel {
    /// Calls the server at a path.
    ///
    /// # Errors
    /// Those of the system: [`ErrorKind::NotFound`] and [`ErrorKind::ConnectionRefused`] if there
    /// is none, [`ErrorKind::WouldBlock`] if it has too many clients to answer.
    pub fn open(path: &str) -> Result<Channel> {
        let socket = socket()?;
        connect(&socket, &address(path)?)?;
        Ok(Channel { socket })
    }

    /// Receives the next message.
    pub fn receive(&self) -> Received {
        // One byte more, to detect a longer message.
        let mut bytes = [0; LEN + 1];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut room);
        let received = recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut beside,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        );
        // All received files but the first are closed.
        let mut file = None;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                for next in files {
                    file.get_or_insert(next);
                }
            }
        }
        match received {
            Ok(received) if received.bytes == LEN => {
                let mut message = [0; LEN];
                message.copy_from_slice(&bytes[..LEN]);
                Received::Message(message, file)
            }
            Ok(received) if received.bytes > 0 => Received::Other,
            Err(Errno::AGAIN | Errno::INTR) => Received::Nothing,
            Ok(_) | Err(_) => Received::End,
        }
    }

    /// Sends a message with a file.
    ///
    /// # Errors
    /// If the peer is gone, or takes none.
    pub fn send(&self, message: &Message, file: Option<BorrowedFd<'_>>) -> Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        let files = [file.unwrap_or(self.socket.as_fd())];
        if file.is_some() {
            beside.push(SendAncillaryMessage::ScmRights(&files));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.socket, &[IoSlice::new(&message.bytes())], &mut beside, flags)?;
        Ok(())
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(dir: &tempfile::TempDir) -> String {
        dir.path().join("a.sock").display().to_string()
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_removed_with_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(&dir);
        let first = Listener::open(&path).unwrap();
        let error = |path: &str| Listener::open(path).err().unwrap().kind();
        assert_eq!(error(&path), ErrorKind::AddrInUse);
        // As if it had been killed.
        let Listener { socket, file } = &first;
        assert!(file.is_some());
        let flags = rustix::net::Shutdown::Both;
        rustix::net::shutdown(socket, flags).unwrap();
        let second = Listener::open(&path).unwrap();
        drop(first);
        assert!(fs::exists(&path).unwrap(), "it is the second one's");
        drop(second);
        assert!(!fs::exists(&path).unwrap());
        fs::write(&path, "").unwrap();
        assert_eq!(error(&path), ErrorKind::AlreadyExists);
        assert_eq!(error(&format!("{path}/a")), ErrorKind::NotADirectory);
    }

    #[test]
    fn messages_arrive_with_their_files_and_other_lengths_are_detected() {
        let name = format!("@rivulet-test-{}", std::process::id());
        let listener = Listener::open(&name).unwrap();
        assert_eq!(Listener::open(&name).err().unwrap().kind(), ErrorKind::AddrInUse);
        assert!(listener.accept().is_none());
        let client = Channel::open(&name).unwrap();
        let server = listener.accept().unwrap();
        assert!(matches!(server.receive(), Received::Nothing));
        client.send(&Message::Ack, Some(listener.as_fd())).unwrap();
        client.send(&Message::Connect { name: "a".to_owned() }, None).unwrap();
        let Received::Message(bytes, Some(_)) = server.receive() else { panic!("a message with a file") };
        assert_eq!(Message::read(&bytes), Some(Message::Ack));
        assert!(matches!(server.receive(), Received::Message(_, None)));
        for len in [1, LEN - 1, LEN + 1, 4_000] {
            rustix::net::send(&client.socket, &vec![0; len], SendFlags::empty()).unwrap();
            assert!(matches!(server.receive(), Received::Other), "{len}");
        }
        drop(client);
        assert!(matches!(server.receive(), Received::End));
        assert!(server.send(&Message::Ack, None).is_err());
    }
}
