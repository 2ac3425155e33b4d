//! A Redis for the time of a run, and the states of flows in it.

use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::stored::Store;
use protocol::message::FlowId;
use redis::{Cmd, Connection, RedisError, Value};
use tempfile::TempDir;

/// The server's program, which is looked for on the path.
pub const PROGRAM: &str = "redis-server";

/// Its name in its folder.
const SOCKET: &str = "socket";

/// Longest time to start.
const START: Duration = Duration::from_secs(10);

/// And so long for an answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Runs the server until the shell's input ends, and clears its folder away: so it ends with who
/// started it, however that ends.
const UNTIL_INPUT_ENDS: &str = r#"
    trap "" HUP INT TERM
    "$@" >/dev/null 2>&1 &
    read -r _
    kill -KILL $!
    wait
    rm -f "$PWD"/socket
    rmdir "$PWD"
"#;

/// Answers that may be under way. Then one is waited for.
const UNANSWERED_MAX: usize = 64;

/// There is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The program is not installed.
    #[error("there is no `{PROGRAM}` on the path")]
    NotInstalled,
    /// It, or its folder, fails.
    #[error("cannot run `{PROGRAM}`: {0}")]
    Io(#[from] std::io::Error),
    /// It runs and does not answer.
    #[error("`{PROGRAM}` does not answer: {0}")]
    Silent(#[source] RedisError),
}

/// A server that keeps what it has in memory only, and listens on a socket in a folder of its own.
pub struct Server {
    shell: Child,
    folder: TempDir,
}

impl Server {
    /// Starts one, and waits until it answers.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn start() -> Result<Server, ServerError> {
        match Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).status() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(ServerError::NotInstalled),
            found => found?,
        };
        let folder = tempfile::tempdir()?;
        let options = ["--port", "0", "--unixsocket", SOCKET, "--save", "", "--appendonly", "no", "--dir"];
        let shell = Command::new("sh")
            .args(["-c", UNTIL_INPUT_ENDS, "sh", PROGRAM])
            .args(options)
            .arg(folder.path())
            .stdin(Stdio::piped())
            .current_dir(folder.path())
            .spawn()?;
        let server = Server { shell, folder };
        let began = Instant::now();
        loop {
            match server.connect() {
                Ok(_) => return Ok(server),
                Err(error) if began.elapsed() > START => return Err(ServerError::Silent(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Returns its states; there are none at first.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn states(&self) -> Result<States, RedisError> {
        let mut connection = self.connect()?;
        redis::cmd("FLUSHALL").exec(&mut connection)?;
        Ok(States { connection, unanswered: 0 })
    }

    fn connect(&self) -> Result<Connection, RedisError> {
        let socket = self.folder.path().join(SOCKET);
        let client = redis::Client::open(format!("unix://{}", socket.display()))?;
        let connection = client.get_connection_with_timeout(ANSWER)?;
        connection.set_read_timeout(Some(ANSWER))?;
        connection.set_write_timeout(Some(ANSWER))?;
        Ok(connection)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait(); // There is no one to report an error to.
    }
}

/// The states of a unit's flows in a server, by one connection.
pub struct States {
    connection: Connection,
    /// Number of writes with unread answers. The server answers in order.
    unanswered: usize,
}

impl States {
    fn send(&mut self, command: &Cmd) -> Result<(), RedisError> {
        self.connection.send_packed_command(&command.get_packed_command())
    }

    /// The answer to what was sent last.
    fn answer(&mut self) -> Result<Value, RedisError> {
        self.take_answers(0)?;
        self.connection.recv_response()?.extract_error()
    }

    /// Takes unawaited answers until at most `until` are in flight.
    fn take_answers(&mut self, until: usize) -> Result<(), RedisError> {
        while self.unanswered > until {
            self.connection.recv_response()?.extract_error()?;
            self.unanswered -= 1;
        }
        Ok(())
    }

    /// Sends a command without waiting for its answer.
    fn send_on(&mut self, command: &Cmd) -> Result<(), RedisError> {
        self.send(command)?;
        self.unanswered += 1;
        self.take_answers(UNANSWERED_MAX)
    }
}

/// Creates a command about a flow.
fn about(command: &str, flow: FlowId) -> Cmd {
    let FlowId { index: slot, generation } = flow;
    let key = u64::from(slot) << 32 | u64::from(generation);
    let mut command = redis::cmd(command);
    command.arg(&key.to_be_bytes());
    command
}

impl Store for States {
    type Error = RedisError;

    fn read(&mut self, flow: FlowId, state: &mut Vec<u8>) -> Result<bool, RedisError> {
        self.send(&about("GET", flow))?;
        let read: Option<Vec<u8>> = redis::from_redis_value(self.answer()?)?;
        state.extend(read.into_iter().flatten());
        Ok(false)
    }

    fn write(&mut self, flow: FlowId, state: &[u8]) -> Result<(), RedisError> {
        self.send(about("SET", flow).arg(state))?;
        self.answer()?;
        Ok(())
    }

    fn push(&mut self, flow: FlowId, state: &[u8]) -> Result<(), RedisError> {
        self.send_on(about("SET", flow).arg(state))
    }

    fn forget(&mut self, flow: FlowId) -> Result<(), RedisError> {
        self.send_on(&about("DEL", flow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server; none if it is not installed, which is fine where not everything is checked.
    fn server() -> Option<Server> {
        match Server::start() {
            Err(ServerError::NotInstalled) => {
                assert!(
                    std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                    "{}",
                    ServerError::NotInstalled
                );
                println!("SKIPPED: {}", ServerError::NotInstalled);
                None
            }
            server => Some(server.unwrap()),
        }
    }

    fn read(states: &mut States, flow: FlowId) -> Vec<u8> {
        let mut state = Vec::new();
        assert!(!states.read(flow, &mut state).unwrap(), "it comes from elsewhere");
        state
    }

    #[test]
    fn what_is_read_is_what_was_written_last() {
        let Some(server) = server() else { return };
        let mut states = server.states().unwrap();
        let [flow, other] = [(7, 0), (7, 1)].map(|(slot, generation)| FlowId { index: slot, generation });
        assert!(read(&mut states, flow).is_empty());
        states.write(flow, b"one\r\n\0").unwrap();
        assert_eq!((read(&mut states, flow), read(&mut states, other)), (b"one\r\n\0".to_vec(), Vec::new()));
        // More than may be under way.
        for number in 0..3 * UNANSWERED_MAX as u32 {
            states.push(flow, &number.to_be_bytes()).unwrap();
        }
        states.push(other, b"other").unwrap();
        assert_eq!(read(&mut states, flow), 191u32.to_be_bytes());
        states.forget(flow).unwrap();
        assert_eq!((read(&mut states, flow), read(&mut states, other)), (Vec::new(), b"other".to_vec()));
        let mut states = server.states().unwrap();
        assert!(read(&mut states, other).is_empty());
    }

    #[test]
    fn a_server_ends_with_who_started_it() {
        let Some(mut server) = server() else { return };
        let folder = server.folder.path().to_owned();
        // As after the death of the process: nothing writes to the pipe any more.
        drop(server.shell.stdin.take());
        server.shell.wait().unwrap();
        assert!(server.connect().is_err());
        assert!(!folder.exists());
    }
}
