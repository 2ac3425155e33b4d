//! Messages of the control channel: 128 bytes each, packed, in the machine's byte order; some come
//! with a file descriptor.

/// Bytes of a message.
pub const LEN: usize = 128;

/// The protocol's version, 2.0.
pub const VERSION: u16 = 0x0200;

/// Bytes of a secret; a shorter one is padded with zeros.
pub const SECRET_LEN: usize = 24;

/// Mode of an interface: Ethernet frames.
pub const MODE_ETHERNET: u8 = 0;

/// Bytes of a name, with the final zero.
const NAME_LEN: usize = 32;

/// Bytes of a reason, with the final zero.
const REASON_LEN: usize = 96;

/// A message. Unprintable characters of names and reasons are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Accepts the last message.
    Ack,
    /// The server's first message: its limits.
    Hello(Hello),
    /// The client's first message: the interface that it requests.
    Init(Init),
    /// A region of the client's memory, with its file.
    AddRegion { index: u16, size: u64 },
    /// A ring of the client, with its doorbell.
    AddRing(AddRing),
    /// The client has sent everything.
    Connect { name: String },
    /// The server has taken over the memory: the connection is up.
    Connected { name: String },
    /// Ends the connection.
    Disconnect { code: u32, reason: String },
}

/// Limits of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub name: String,
    pub min_version: u16,
    pub max_version: u16,
    /// The highest index of a region.
    pub max_region: u16,
    /// The highest index of a ring from server to client.
    pub max_to_client: u16,
    /// The highest index of a ring from client to server.
    pub max_to_server: u16,
    /// Logarithm of the longest ring.
    pub max_ring_log2: u8,
}

/// The interface that a client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    pub version: u16,
    /// The interface's number.
    pub id: u32,
    pub mode: u8,
    pub secret: [u8; SECRET_LEN],
    pub name: String,
}

/// Position of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// Frames go from client to server.
    pub to_server: bool,
    pub index: u16,
    pub region: u16,
    pub offset: u32,
    pub log2: u8,
    /// Bytes of private data before each frame.
    pub private_len: u16,
}

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// Flag of a ring: frames go from client to server.
const TO_SERVER: u16 = 1;

impl Message {
    /// Parses a message; returns none if the bytes are no message.
    pub fn read(bytes: &[u8; LEN]) -> Option<Message> {
        let mut fields = Fields { bytes, at: 0 };
        let message = match fields.u16() {
            ACK => Message::Ack,
            HELLO => Message::Hello(Hello {
                name: fields.text(NAME_LEN),
                min_version: fields.u16(),
                max_version: fields.u16(),
                max_region: fields.u16(),
                max_to_client: fields.u16(),
                max_to_server: fields.u16(),
                max_ring_log2: fields.u8(),
            }),
            INIT => Message::Init(Init {
                version: fields.u16(),
                id: fields.u32(),
                mode: fields.u8(),
                secret: fields.array(),
                name: fields.text(NAME_LEN),
            }),
            ADD_REGION => Message::AddRegion { index: fields.u16(), size: fields.u64() },
            ADD_RING => Message::AddRing(AddRing {
                to_server: fields.u16() & TO_SERVER != 0,
                index: fields.u16(),
                region: fields.u16(),
                offset: fields.u32(),
                log2: fields.u8(),
                private_len: fields.u16(),
            }),
            CONNECT => Message::Connect { name: fields.text(NAME_LEN) },
            CONNECTED => Message::Connected { name: fields.text(NAME_LEN) },
            DISCONNECT => Message::Disconnect { code: fields.u32(), reason: fields.text(REASON_LEN) },
            _ => return None,
        };
        Some(message)
    }

    /// Returns the encoded message.
    pub fn bytes(&self) -> [u8; LEN] {
        let mut to = Writer { bytes: [0; LEN], at: 0 };
        match self {
            Message::Ack => to.put(&ACK.to_ne_bytes()),
            Message::Hello(hello) => {
                to.put(&HELLO.to_ne_bytes());
                to.text(&hello.name, NAME_LEN);
                let numbers = [
                    hello.min_version,
                    hello.max_version,
                    hello.max_region,
                    hello.max_to_client,
                    hello.max_to_server,
                ];
                numbers.iter().for_each(|number| to.put(&number.to_ne_bytes()));
                to.put(&[hello.max_ring_log2]);
            }
            Message::Init(init) => {
                to.put(&INIT.to_ne_bytes());
                to.put(&init.version.to_ne_bytes());
                to.put(&init.id.to_ne_bytes());
                to.put(&[init.mode]);
                to.put(&init.secret);
                to.text(&init.name, NAME_LEN);
            }
            Message::AddRegion { index, size } => {
                to.put(&ADD_REGION.to_ne_bytes());
                to.put(&index.to_ne_bytes());
                to.put(&size.to_ne_bytes());
            }
            Message::AddRing(ring) => {
                to.put(&ADD_RING.to_ne_bytes());
                to.put(&(if ring.to_server { TO_SERVER } else { 0 }).to_ne_bytes());
                to.put(&ring.index.to_ne_bytes());
                to.put(&ring.region.to_ne_bytes());
                to.put(&ring.offset.to_ne_bytes());
                to.put(&[ring.log2]);
                to.put(&ring.private_len.to_ne_bytes());
            }
            Message::Connect { name } => {
                to.put(&CONNECT.to_ne_bytes());
                to.text(name, NAME_LEN);
            }
            Message::Connected { name } => {
                to.put(&CONNECTED.to_ne_bytes());
                to.text(name, NAME_LEN);
            }
            Message::Disconnect { code, reason } => {
                to.put(&DISCONNECT.to_ne_bytes());
                to.put(&code.to_ne_bytes());
                to.text(reason, REASON_LEN);
            }
        }
        to.bytes
    }
}

/// Fields in sequence. All fields of a message are within it; zeros follow.
struct Fields<'a> {
    bytes: &'a [u8; LEN],
    at: usize,
}

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let at = self.at;
        self.at += N;
        std::array::from_fn(|i| self.bytes.get(at + i).copied().unwrap_or(0))
    }

    fn u8(&mut self) -> u8 {
        u8::from_ne_bytes(self.array())
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.array())
    }

    /// Returns the text before the first zero, which is the last byte at the latest. Control
    /// characters are replaced by dots, for terminals.
    fn text(&mut self, len: usize) -> String {
        let bytes = self.bytes.iter().skip(self.at).take(len - 1);
        self.at += len;
        let printable = |&byte: &u8| if matches!(byte, b' '..=b'~') { byte as char } else { '.' };
        bytes.take_while(|&&byte| byte != 0).map(printable).collect()
    }
}

struct Writer {
    bytes: [u8; LEN],
    at: usize,
}

impl Writer {
    fn put(&mut self, field: &[u8]) {
        self.bytes.iter_mut().skip(self.at).zip(field).for_each(|(to, from)| *to = *from);
        self.at += field.len();
    }

    /// Appends a text with a final zero, padded or cut to the length.
    fn text(&mut self, text: &str, len: usize) {
        let field = text.as_bytes();
        self.put(&field[..field.len().min(len - 1)]);
        self.at += len - field.len().min(len - 1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(len: usize) -> impl Strategy<Value = String> {
        "[ -~]{0,95}".prop_map(move |text| text.chars().take(len - 1).collect())
    }

    fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            Just(Message::Ack),
            (text(32), any::<[u16; 5]>(), any::<u8>()).prop_map(|(name, numbers, max_ring_log2)| {
                let [min_version, max_version, max_region, max_to_client, max_to_server] = numbers;
                Message::Hello(Hello {
                    name,
                    min_version,
                    max_version,
                    max_region,
                    max_to_client,
                    max_to_server,
                    max_ring_log2,
                })
            }),
            (any::<u16>(), any::<u32>(), any::<u8>(), any::<[u8; SECRET_LEN]>(), text(32)).prop_map(
                |(version, id, mode, secret, name)| Message::Init(Init { version, id, mode, secret, name })
            ),
            (any::<u16>(), any::<u64>()).prop_map(|(index, size)| Message::AddRegion { index, size }),
            (any::<bool>(), any::<u16>(), any::<u16>(), any::<u32>(), any::<u8>(), any::<u16>()).prop_map(
                |(to_server, index, region, offset, log2, private_len)| {
                    Message::AddRing(AddRing { to_server, index, region, offset, log2, private_len })
                }
            ),
            text(32).prop_map(|name| Message::Connect { name }),
            text(32).prop_map(|name| Message::Connected { name }),
            (any::<u32>(), text(96)).prop_map(|(code, reason)| Message::Disconnect { code, reason }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_is_heard(message in message()) {
            prop_assert_eq!(Message::read(&message.bytes()), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(kind in 0u16..12, bytes in prop::collection::vec(any::<u8>(), LEN)) {
            let mut bytes: [u8; LEN] = bytes.try_into().unwrap();
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            let message = Message::read(&bytes);
            prop_assert_eq!(message.is_some(), (ACK..=DISCONNECT).contains(&kind));
            if let Some(message) = message {
                prop_assert_eq!(Message::read(&message.bytes()), Some(message));
            }
        }
    }

    /// Offsets of the fields in the messages of DPDK 22.11 and VPP; their structures are packed.
    #[test]
    fn fields_have_the_offsets_of_dpdk_and_vpp() {
        let init = Message::Init(Init {
            version: VERSION,
            id: 0x0403_0201,
            mode: MODE_ETHERNET,
            secret: [b's'; SECRET_LEN],
            name: "n".to_owned(),
        });
        let bytes = init.bytes();
        assert_eq!(bytes[..9], [3, 0, 0, 2, 1, 2, 3, 4, 0]);
        assert_eq!((bytes[9], bytes[32], bytes[33], bytes[34]), (b's', b's', b'n', 0));
        let ring = AddRing { to_server: true, index: 1, region: 2, offset: 3, log2: 10, private_len: 5 };
        assert_eq!(Message::AddRing(ring).bytes()[..15], [5, 0, 1, 0, 1, 0, 2, 0, 3, 0, 0, 0, 10, 5, 0]);
        assert_eq!(
            Message::AddRegion { index: 1, size: 2 }.bytes()[..12],
            [4, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0]
        );
        let bytes = Message::Disconnect { code: 1, reason: "x".repeat(200) }.bytes();
        assert_eq!((bytes[5], bytes[6], bytes[100], bytes[101]), (0, b'x', b'x', 0));
    }

    #[test]
    fn control_characters_are_replaced() {
        let mut bytes = Message::Disconnect { code: 0, reason: "a c".to_owned() }.bytes();
        bytes[7] = 0x1b;
        assert_eq!(Message::read(&bytes), Some(Message::Disconnect { code: 0, reason: "a.c".to_owned() }));
    }
}
