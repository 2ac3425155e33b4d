//! The handshake: the client calls, and announces regions and rings, one message after the other;
//! the server accepts each.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::config::MemifConfig;
use super::doorbell;
use super::message::{AddRing, Hello, Init, LEN, MODE_ETHERNET, Message, VERSION};
use super::queue::{Buffers, Receiver, Sender};
use super::region::Region;
use super::ring::{LOG2_MAX, Ring};

/// Regions of a client.
pub const REGIONS_MAX: u16 = 16;

/// Bytes of a region: the range of an offset.
pub const REGION_BYTES_MAX: u64 = 1 << 32;

/// This end's name.
const NAME: &str = concat!("Rivulet ", env!("CARGO_PKG_VERSION"));

/// Result of a message.
pub enum Progress {
    /// Send this message, with a file.
    Send(Message, Option<OwnedFd>),
    /// Send this message, if any; the connection is up.
    Connected(Option<Message>, Box<Queues>),
}

/// Both directions of a connection.
pub struct Queues {
    pub receiver: Receiver,
    pub sender: Sender,
    /// The peer's name.
    pub peer: String,
}

/// Reason of the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The peer ended it, for this reason.
    ByPeer(String),
    /// This end ends it, for this reason, which is sent to the peer.
    Here(String),
}

fn refused<T>(why: impl ToString) -> Result<T, SessionEnd> {
    Err(SessionEnd::Here(why.to_string()))
}

/// Parses a message; a disconnect or an unknown message ends the connection.
fn read(bytes: &[u8; LEN]) -> Result<Message, SessionEnd> {
    match Message::read(bytes) {
        Some(Message::Disconnect { reason, .. }) => Err(SessionEnd::ByPeer(reason)),
        Some(message) => Ok(message),
        None => refused("unknown message"),
    }
}

/// One end of the handshake.
pub enum Session {
    Server(Box<Server>),
    Client(Box<Client>),
}

impl Session {
    /// Handles a message and its file.
    ///
    /// # Errors
    /// The reason of the end of the connection.
    pub fn handle_message(
        &mut self,
        bytes: &[u8; LEN],
        file: Option<OwnedFd>,
    ) -> Result<Progress, SessionEnd> {
        let message = read(bytes)?;
        match self {
            Session::Server(server) => server.handle_message(message, file),
            Session::Client(client) => client.handle_message(message),
        }
    }
}

/// Handles a message after the handshake: each one ends the connection.
pub fn handle_later_message(bytes: &[u8; LEN]) -> SessionEnd {
    match read(bytes) {
        Ok(_) => SessionEnd::Here("unexpected message".to_owned()),
        Err(ended) => ended,
    }
}

/// A server, with the regions and rings that it has received.
pub struct Server {
    config: Arc<MemifConfig>,
    peer: Option<String>,
    regions: Vec<Arc<Region>>,
    /// From the client, and to the client.
    rings: [Option<(AddRing, OwnedFd)>; 2],
}

impl Server {
    /// Makes a server, with its first message.
    pub fn new(config: Arc<MemifConfig>) -> (Server, Message) {
        let hello = Hello {
            name: NAME.to_owned(),
            min_version: VERSION,
            max_version: VERSION,
            max_region: REGIONS_MAX - 1,
            max_to_client: 0,
            max_to_server: 0,
            max_ring_log2: LOG2_MAX,
        };
        (Server { config, peer: None, regions: Vec::new(), rings: [None, None] }, Message::Hello(hello))
    }

    fn handle_message(&mut self, message: Message, file: Option<OwnedFd>) -> Result<Progress, SessionEnd> {
        let Some(peer) = &self.peer else {
            let Message::Init(init) = message else { return refused("unexpected message") };
            self.peer = Some(self.admit(init)?);
            return Ok(Progress::Send(Message::Ack, None));
        };
        match message {
            Message::AddRegion { index, size } => {
                let Some(file) = file else { return refused("a region without its file") };
                if usize::from(index) != self.regions.len() || index >= REGIONS_MAX {
                    return refused("unexpected number of a region");
                }
                let region = Region::open(file, size, REGION_BYTES_MAX);
                self.regions.push(Arc::new(region.or_else(|why| refused(format!("region {index}: {why}")))?));
            }
            Message::AddRing(ring) => {
                let Some(file) = file else { return refused("a ring without its interrupt") };
                let place = &mut self.rings[usize::from(!ring.to_server)];
                if ring.index != 0 || place.is_some() {
                    return refused("more rings than one in each direction");
                }
                if ring.private_len != 0 {
                    return refused("private headers are not known");
                }
                let file = doorbell::take_over(file).or_else(refused)?;
                *place = Some((ring, file));
            }
            Message::Connect { .. } => {
                let peer = peer.clone();
                let queues = self.queues(peer)?;
                let connected = Message::Connected { name: self.config.name() };
                return Ok(Progress::Connected(Some(connected), Box::new(queues)));
            }
            _ => return refused("unexpected message"),
        }
        Ok(Progress::Send(Message::Ack, None))
    }

    /// Checks whether the client may continue; returns its name.
    fn admit(&self, init: Init) -> Result<String, SessionEnd> {
        if init.version != VERSION {
            return refused("unknown version");
        }
        if init.id != self.config.id {
            return refused(format!("there is no interface {} here", init.id));
        }
        if init.mode != MODE_ETHERNET {
            return refused("only frames of Ethernet are exchanged here");
        }
        // Constant time: it must not reveal how far the secrets agree.
        let differ = init.secret.iter().zip(&self.config.secret).fold(0, |differ, (a, b)| differ | (a ^ b));
        if differ != 0 {
            return refused("the secret is not right");
        }
        Ok(init.name)
    }

    fn queues(&mut self, peer: String) -> Result<Queues, SessionEnd> {
        let regions: Arc<[_]> = std::mem::take(&mut self.regions).into();
        let [from_client, to_client] = &mut self.rings;
        let (Some(from_client), Some(to_client)) = (from_client.take(), to_client.take()) else {
            return refused("a ring is missing");
        };
        let ring = |announced: AddRing| {
            let region = regions.get(usize::from(announced.region));
            let ring = region
                .and_then(|region| Ring::new(Arc::clone(region), announced.offset as usize, announced.log2));
            ring.filter(Ring::has_cookie).map_or_else(|| refused("a ring is not where it should be"), Ok)
        };
        let buffers = || Buffers::Peer(Arc::clone(&regions));
        Ok(Queues {
            receiver: Receiver::new(ring(from_client.0)?, buffers(), from_client.1),
            sender: Sender::new(ring(to_client.0)?, buffers(), to_client.1),
            peer,
        })
    }
}

/// A client, and its state.
pub struct Client {
    config: Arc<MemifConfig>,
    /// Made once the server's limits are known.
    memory: Option<Memory>,
    state: ClientState,
    peer: String,
}

/// Last message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    Nothing,
    Init,
    Region,
    RingToServer,
    Rings,
    Connect,
}

/// A client's memory: both rings, followed by the buffers of each.
struct Memory {
    region: Arc<Region>,
    file: OwnedFd,
    ring_log2: u8,
    /// To the server, and from the server.
    doorbells: [OwnedFd; 2],
}

impl Memory {
    fn make(ring_log2: u8, buffer: u16) -> std::io::Result<Memory> {
        let len = Memory::buffers_at(ring_log2) + ((2 * usize::from(buffer)) << ring_log2);
        let (region, file) = Region::make(len)?;
        Ok(Memory {
            region: Arc::new(region),
            file,
            ring_log2,
            doorbells: [doorbell::make(0)?, doorbell::make(0)?],
        })
    }

    /// Returns the offset of the buffers: on a page of their own.
    fn buffers_at(ring_log2: u8) -> usize {
        const PAGE: usize = 4_096;
        (2 * Ring::size(ring_log2)).next_multiple_of(PAGE)
    }

    /// Returns the offset of the ring of this direction.
    fn ring_at(&self, number: usize) -> usize {
        number * Ring::size(self.ring_log2)
    }

    fn ring(&self, number: usize) -> Option<Ring> {
        Ring::new(Arc::clone(&self.region), self.ring_at(number), self.ring_log2)
    }

    /// Returns the message about the ring of this direction, with its doorbell.
    fn ring_message(&self, number: usize) -> Result<Progress, SessionEnd> {
        let ring = AddRing {
            to_server: number == 0,
            index: 0,
            region: 0,
            offset: u32::try_from(self.ring_at(number)).or_else(refused)?,
            log2: self.ring_log2,
            private_len: 0,
        };
        let doorbell = self.doorbells[number].try_clone().or_else(refused)?;
        Ok(Progress::Send(Message::AddRing(ring), Some(doorbell)))
    }
}

impl Client {
    /// Makes a client, which waits for the server's first message.
    pub fn new(config: Arc<MemifConfig>) -> Client {
        Client { config, memory: None, state: ClientState::Nothing, peer: String::new() }
    }

    fn handle_message(&mut self, message: Message) -> Result<Progress, SessionEnd> {
        match (message, self.state, &self.memory) {
            (Message::Hello(hello), ClientState::Nothing, _) => {
                if !(hello.min_version..=hello.max_version).contains(&VERSION) {
                    return refused("unknown version");
                }
                let ring_log2 = self.config.ring_log2.min(hello.max_ring_log2);
                let memory = Memory::make(ring_log2, self.config.buffer).or_else(refused)?;
                [0, 1].iter().filter_map(|&number| memory.ring(number)).for_each(|ring| ring.begin());
                self.memory = Some(memory);
                self.peer = hello.name;
                self.state = ClientState::Init;
                let init = Init {
                    version: VERSION,
                    id: self.config.id,
                    mode: MODE_ETHERNET,
                    secret: self.config.secret,
                    name: NAME.to_owned(),
                };
                Ok(Progress::Send(Message::Init(init), None))
            }
            (Message::Ack, ClientState::Init, Some(memory)) => {
                self.state = ClientState::Region;
                let region = Message::AddRegion { index: 0, size: memory.region.len() as u64 };
                Ok(Progress::Send(region, Some(memory.file.try_clone().or_else(refused)?)))
            }
            (Message::Ack, ClientState::Region, Some(memory)) => {
                self.state = ClientState::RingToServer;
                memory.ring_message(0)
            }
            (Message::Ack, ClientState::RingToServer, Some(memory)) => {
                self.state = ClientState::Rings;
                memory.ring_message(1)
            }
            (Message::Ack, ClientState::Rings, _) => {
                self.state = ClientState::Connect;
                Ok(Progress::Send(Message::Connect { name: self.config.name() }, None))
            }
            (Message::Connected { .. }, ClientState::Connect, Some(_)) => {
                Ok(Progress::Connected(None, Box::new(self.queues()?)))
            }
            _ => refused("unexpected message"),
        }
    }

    fn queues(&mut self) -> Result<Queues, SessionEnd> {
        let rings = self.memory.take().and_then(|memory| Some((memory.ring(0)?, memory.ring(1)?, memory)));
        let Some((to_server, from_server, memory)) = rings else { return refused("there is no ring") };
        let first = Memory::buffers_at(memory.ring_log2);
        let len = u32::from(self.config.buffer);
        let buffers = |first| Buffers::Own { region: Arc::clone(&memory.region), first, len };
        let second = first + ((len as usize) << memory.ring_log2);
        let [to_bell, from_bell] = memory.doorbells;
        Ok(Queues {
            receiver: Receiver::new(from_server, buffers(second), from_bell),
            sender: Sender::new(to_server, buffers(first), to_bell),
            peer: std::mem::take(&mut self.peer),
        })
    }
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::port::memif::config::Role;

    /// Completes the handshake of both ends.
    pub fn connected(server: &MemifConfig, client: &MemifConfig) -> Result<(Queues, Queues), SessionEnd> {
        let (server, hello) = Server::new(Arc::new(server.clone()));
        let mut server = Session::Server(Box::new(server));
        let mut client = Session::Client(Box::new(Client::new(Arc::new(client.clone()))));
        let (mut message, mut file) = (hello, None);
        loop {
            let Progress::Send(answer, beside) = client.handle_message(&message.bytes(), file)? else {
                panic!("too early")
            };
            match server.handle_message(&answer.bytes(), beside)? {
                Progress::Send(next, beside) => (message, file) = (next, beside),
                Progress::Connected(last, servers) => {
                    let Progress::Connected(None, clients) =
                        client.handle_message(&last.unwrap().bytes(), None)?
                    else {
                        panic!("it has sent everything");
                    };
                    return Ok((*servers, *clients));
                }
            }
        }
    }

    fn server() -> MemifConfig {
        MemifConfig::new("a")
    }

    fn client() -> MemifConfig {
        MemifConfig { role: Role::Client, ..MemifConfig::new("a") }
    }

    #[test]
    fn ends_exchange_their_names() {
        let (server, client) = connected(&server(), &client()).unwrap();
        assert_eq!((server.peer.as_str(), client.peer.as_str()), (NAME, NAME));
    }

    #[test]
    fn interface_numbers_and_secrets_must_match() {
        let why = |server: &MemifConfig, client: &MemifConfig| connected(server, client).err().unwrap();
        let here = |why: &str| SessionEnd::Here(why.to_owned());
        assert_eq!(why(&server(), &MemifConfig { id: 3, ..client() }), here("there is no interface 3 here"));
        let secret = |config: MemifConfig, text: &str| {
            let given: MemifConfig = format!("a,secret={text}").parse().unwrap();
            MemifConfig { secret: given.secret, ..config }
        };
        for (a, b) in [("a", "b"), ("a", "aa"), ("aa", "a")] {
            let refused = why(&secret(server(), a), &secret(client(), b));
            assert_eq!(refused, here("the secret is not right"));
        }
        assert_eq!(why(&secret(server(), "a"), &client()), here("the secret is not right"));
        assert_eq!(why(&server(), &secret(client(), "a")), here("the secret is not right"));
        assert!(connected(&secret(server(), "a"), &secret(client(), "a")).is_ok());
    }

    /// Makes a server that has received these messages.
    fn server_after(messages: &[(Message, Option<OwnedFd>)]) -> (Session, Result<Progress, SessionEnd>) {
        let (server, _) = Server::new(Arc::new(server()));
        let mut server = Session::Server(Box::new(server));
        let mut result = Ok(Progress::Send(Message::Ack, None));
        for (message, file) in messages {
            assert!(result.is_ok());
            result =
                server.handle_message(&message.bytes(), file.as_ref().map(|file| file.try_clone().unwrap()));
        }
        (server, result)
    }

    #[test]
    fn a_server_refuses_impossible_messages() {
        let init = Init {
            version: VERSION,
            id: 0,
            mode: MODE_ETHERNET,
            secret: server().secret,
            name: "test".to_owned(),
        };
        let memory = || Memory::make(3, 128).unwrap();
        let ring = AddRing { to_server: true, index: 0, region: 0, offset: 0, log2: 3, private_len: 0 };
        let hello = || (Message::Init(init.clone()), None);
        let region = |file: OwnedFd, size| (Message::AddRegion { index: 0, size }, Some(file));
        let good = || {
            let memory = memory();
            (0..2).for_each(|number| memory.ring(number).unwrap().begin());
            region(memory.file, memory.region.len() as u64)
        };
        let rung = |ring| (Message::AddRing(ring), Some(doorbell::make(0).unwrap()));
        let back = AddRing { to_server: false, offset: Ring::size(3) as u32, ..ring };
        let connect = || (Message::Connect { name: "test".to_owned() }, None);
        let refused = |messages: &[(Message, Option<OwnedFd>)], why: &str| match server_after(messages)
            .1
            .err()
            .unwrap()
        {
            SessionEnd::Here(reason) => assert!(reason.contains(why), "{reason}, not {why}"),
            SessionEnd::ByPeer(reason) => panic!("{reason}, not {why}"),
        };
        let is_good = server_after(&[hello(), good(), rung(ring), rung(back), connect()]).1;
        assert!(matches!(is_good, Ok(Progress::Connected(..))));

        refused(&[good()], "unexpected message");
        refused(&[(Message::Init(Init { version: 1, ..init.clone() }), None)], "unknown version");
        refused(&[(Message::Init(Init { mode: 1, ..init.clone() }), None)], "only frames of Ethernet");
        refused(&[hello(), hello()], "unexpected message");
        refused(&[hello(), (Message::AddRegion { index: 0, size: 1 }, None)], "without its file");
        refused(&[hello(), good(), good()], "unexpected number");
        refused(&[hello(), region(memory().file, 1 << 40)], "region 0: memory of no or too many bytes");
        refused(&[hello(), region(memory().file, 1 << 30)], "shorter than announced");
        let open = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&open, 4096).unwrap();
        refused(&[hello(), region(open, 4096)], "not sealed");
        refused(&[hello(), (Message::AddRing(ring), None)], "without its interrupt");
        refused(&[hello(), (Message::AddRing(ring), Some(memory().file))], "its interrupt is no eventfd");
        refused(&[hello(), rung(ring), rung(ring)], "more rings than one");
        refused(&[hello(), rung(AddRing { index: 1, ..ring })], "more rings than one");
        refused(&[hello(), rung(AddRing { private_len: 8, ..ring })], "private headers");
        refused(&[hello(), good(), rung(ring), connect()], "a ring is missing");
        let len = memory().region.len() as u32;
        for wrong in [
            AddRing { region: 1, ..ring },
            AddRing { offset: len - 128, ..ring },
            AddRing { offset: u32::MAX, ..ring },
            AddRing { offset: 8, ..ring },
            AddRing { log2: 15, ..ring },
            AddRing { log2: 255, ..ring },
            // There is no cookie.
            AddRing { offset: 4_096, ..ring },
        ] {
            refused(&[hello(), good(), rung(wrong), rung(back), connect()], "not where it should be");
        }
        let ended = server_after(&[(Message::Disconnect { code: 0, reason: "no more".to_owned() }, None)]).1;
        assert_eq!(ended.err(), Some(SessionEnd::ByPeer("no more".to_owned())));
    }

    proptest! {
        /// In any order, with any files: it continues or ends.
        #[test]
        fn whatever_is_said_is_heard(
            is_server: bool,
            messages in prop::collection::vec((0u16..10, prop::collection::vec(0u8..4, LEN), 0u8..4), 0..20),
        ) {
            let mut session = match is_server {
                true => Session::Server(Box::new(Server::new(Arc::new(server())).0)),
                false => Session::Client(Box::new(Client::new(Arc::new(client())))),
            };
            for (kind, bytes, file) in messages {
                let mut bytes: [u8; LEN] = bytes.try_into().unwrap();
                bytes[..2].copy_from_slice(&kind.to_ne_bytes());
                let file = match file {
                    0 => None,
                    1 => Some(doorbell::make(0).unwrap()),
                    2 => Some(Region::make(65_536).unwrap().1),
                    _ => Some(tempfile::tempfile().unwrap().into()),
                };
                if session.handle_message(&bytes, file).is_err() {
                    break;
                }
            }
        }
    }
}
