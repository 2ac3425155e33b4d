//! A connection of the client, which obeys no rules.

use std::time::{Duration, Instant};

use crate::place::{Place, READS, now_ns};
use crate::wire::{self, ACK, Answer, Checksum, Family, Ip, PSH, RST, SYN, Segment};

/// The data that the host should read, 24 distinct letters, and the decoy in its place, in lower
/// case.
pub const REAL: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWX";
pub const DECOY: &[u8] = b"abcdefghijklmnopqrstuvwx";

/// A frame with its time, and whether the client sent it.
pub struct Recorded {
    pub time_ns: u64,
    pub frame: Vec<u8>,
}

/// A connection.
pub struct Talk<'a> {
    pub place: &'a mut Place,
    pub record: &'a mut Vec<Recorded>,
    pub family: Family,
    /// Ports of client and server.
    pub ports: (u16, u16),
    /// Sequence number of the SYN.
    pub isn: u32,
    /// Next sequence number of the server.
    pub theirs: u32,
    /// Acknowledgement of the server, as an offset from the first byte.
    pub acknowledged: i64,
    /// The latest answer.
    pub last: Option<Answer>,
    /// Timestamps are negotiated.
    pub has_timestamps: bool,
    pub clock: u32,
    pub scale: Option<u8>,
    pub window: u16,
    /// Waits for answers after each packet.
    pub waits: bool,
    pub was_reset: bool,
    /// The handshake is complete.
    pub is_open: bool,
    /// Timeout of an answer.
    pub patience: Duration,
}

impl<'a> Talk<'a> {
    pub fn new(place: &'a mut Place, record: &'a mut Vec<Recorded>, family: Family, port: u16) -> Talk<'a> {
        Talk {
            place,
            record,
            family,
            ports: (port, READS),
            isn: 0x1000_0000u32.wrapping_mul(u32::from(port)) ^ 0x00ab_cdef,
            theirs: 0,
            acknowledged: 0,
            last: None,
            has_timestamps: true,
            clock: 1_000_000,
            scale: Some(7),
            window: 512,
            waits: true,
            was_reset: false,
            is_open: false,
            patience: Duration::from_millis(2),
        }
    }

    /// Returns the timestamp option, `off` from the client's clock.
    pub fn stamp(&self, off: i64) -> Vec<u8> {
        let mut option = vec![1, 1, 8, 10];
        option.extend((self.clock.wrapping_add(off as u32)).to_be_bytes());
        option.extend(self.last.and_then(|last| last.timestamp).unwrap_or(0).to_be_bytes());
        option
    }

    /// Returns a segment with these flags, `offset` from the first byte.
    pub fn segment(&self, flags: u8, offset: i64, payload: &[u8]) -> Segment {
        Segment {
            ports: self.ports,
            sequence: self.isn.wrapping_add(1).wrapping_add(offset as u32),
            acknowledgment: if flags & ACK == 0 { 0 } else { self.theirs },
            flags,
            window: self.window,
            options: if self.has_timestamps { self.stamp(0) } else { Vec::new() },
            urgent: 0,
            payload: payload.to_vec(),
            checksum: Checksum::Right,
            data_offset: None,
            ip: Ip::default(),
        }
    }

    /// Returns a segment with data.
    pub fn data(&self, offset: i64, payload: &[u8]) -> Segment {
        self.segment(ACK | PSH, offset, payload)
    }

    /// Returns the SYN.
    pub fn syn(&self) -> Segment {
        let mut options = vec![2, 4, 5, 0xb4, 4, 2];
        if self.has_timestamps {
            options.extend([8, 10]);
            options.extend(self.clock.to_be_bytes());
            options.extend([0; 4]);
        }
        if let Some(scale) = self.scale {
            options.extend([1, 3, 3, scale]);
        }
        Segment { options, ..self.segment(SYN, -1, b"") }
    }

    /// Sends data in order.
    pub fn say(&mut self, offset: i64, payload: &[u8]) {
        let segment = self.data(offset, payload);
        self.send(&segment);
    }

    /// Sends a segment, and advances the client's clock.
    pub fn send(&mut self, segment: &Segment) {
        let frame = segment.frame(self.family);
        self.send_frame(frame);
    }

    pub fn send_frame(&mut self, frame: Vec<u8>) {
        self.place.send(&frame);
        let time_ns = now_ns();
        self.record.push(Recorded { time_ns, frame });
        self.clock += 1;
        if self.waits {
            self.listen(self.patience);
        }
    }

    /// Receives until nothing has arrived for this long.
    pub fn listen(&mut self, quiet: Duration) {
        let mut until = Instant::now() + quiet;
        while Instant::now() < until {
            let frames = self.place.receive();
            if frames.is_empty() {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            until = Instant::now() + quiet;
            for frame in frames {
                let answer = wire::read(&frame);
                let time_ns = now_ns();
                self.record.push(Recorded { time_ns, frame });
                if let Some(answer) = answer {
                    self.hear(answer);
                }
            }
        }
    }

    fn hear(&mut self, answer: Answer) {
        if answer.ports != (self.ports.1, self.ports.0) || answer.family != self.family {
            return;
        }
        self.was_reset |= answer.flags & RST != 0;
        if answer.flags & SYN != 0 {
            self.theirs = answer.sequence.wrapping_add(1);
        }
        if answer.flags & ACK != 0 && answer.flags & RST == 0 {
            let ahead = answer.acknowledgment.wrapping_sub(self.isn.wrapping_add(1));
            self.acknowledged = i64::from(ahead.cast_signed());
        }
        // Before the handshake is complete, only the timestamp of the server's SYN is echoed.
        if answer.flags & SYN != 0 || self.is_open {
            self.last = Some(answer);
        }
    }

    /// Starts a handshake without its last step.
    pub fn ask(&mut self) {
        let syn = self.syn();
        self.send(&syn);
        self.expect_answer();
    }

    /// Waits for the server's SYN.
    pub fn expect_answer(&mut self) {
        for _ in 0..400 {
            if self.theirs != 0 {
                return;
            }
            self.listen(self.patience);
        }
    }

    /// Opens the connection.
    pub fn open(&mut self) {
        self.ask();
        let last = self.segment(ACK, 0, b"");
        self.is_open = true;
        self.send(&last);
    }

    /// Waits for packets in flight, and has the server forget the connection.
    pub fn finish(mut self) {
        self.listen(Duration::from_millis(50));
        self.waits = true;
        let reset = self.segment(RST | ACK, self.acknowledged, b"");
        self.send(&reset);
    }
}
