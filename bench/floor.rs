//! A floor for the cost of a network function on this machine: a packet is copied in, parsed with
//! all checks, found in a table of flows, and leaves with another source and right checksums.
//!
//! It shares nothing with the product: not its parser, nor its keys, nor its table. So when both
//! take longer, the machine has changed; when only one does, the product has.
//!
//!   floor FLOWS ROUNDS                prints nanoseconds per packet, the median of the rounds
//!   floor capture FLOWS PACKETS FILE  writes the same traffic as a pcap file, in nanoseconds

use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::time::Instant;

const FRAME_BYTES: usize = 60;
/// A frame of the tape, padded to whole cache lines.
const CELL_BYTES: usize = 64;
/// A packet buffer, with room before the frame, as drivers have it.
const BUFFER_BYTES: usize = 2_048 + 128;
const HEADROOM_BYTES: usize = 128;
const BATCH: usize = 32;
const BATCHES_OF_BUFFERS: usize = 4;
const PACKETS_PER_ROUND: usize = 1 << 20;
const TAPE_MIN: usize = 1 << 16;
const SLOTS: usize = 8;

const EXTERNAL: [u8; 4] = [203, 0, 113, 1];
const SERVER: [u8; 4] = [192, 0, 2, 80];

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok()).filter(|&n| n > 0);
    match (arguments.first().map(String::as_str), number(0), number(1), number(2), arguments.get(3)) {
        (Some("capture"), _, Some(flows), Some(packets), Some(file)) => capture(flows, packets, file),
        (_, Some(flows), Some(rounds), None, None) => {
            println!("{:.2}", floor(flows, rounds));
            Ok(())
        }
        _ => {
            eprintln!("usage: floor FLOWS ROUNDS | floor capture FLOWS PACKETS FILE");
            std::process::exit(2);
        }
    }
}

/// Flows in a shuffled order, each once before any comes again.
struct Deck {
    flows: Vec<u32>,
    left: usize,
    random: u64,
}

impl Deck {
    fn new(flows: usize) -> Deck {
        Deck { flows: (0..flows as u32).collect(), left: 0, random: 0x9e37_79b9_7f4a_7c15 }
    }

    fn draw(&mut self) -> u32 {
        if self.left == 0 {
            self.left = self.flows.len();
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let drawn = (self.random % self.left as u64) as usize;
        self.left -= 1;
        self.flows.swap(drawn, self.left);
        self.flows[self.left]
    }
}

/// A UDP datagram of a flow: 64 flows a host.
fn frame(flow: u32) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[0] = 2;
    frame[6] = 2;
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
    frame[26..30].copy_from_slice(&(0x0a00_0001 + flow / 64).to_be_bytes());
    frame[30..34].copy_from_slice(&SERVER);
    frame[34..36].copy_from_slice(&(1_024 + (flow % 64 * 997) as u16).to_be_bytes());
    frame[36..40].copy_from_slice(&[0, 80, 0, 26]);
    let sum = !folded(frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum());
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn capture(flows: usize, packets: usize, path: &str) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        file.write_all(&word.to_le_bytes())?;
    }
    let mut deck = Deck::new(flows);
    for at in 0..packets as u64 {
        let time_ns = 1_000_000_000_000_000_000 + at * 1_000;
        let (seconds, nanoseconds) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        for word in [seconds as u32, nanoseconds as u32, FRAME_BYTES as u32, FRAME_BYTES as u32] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(&frame(deck.draw()))?;
    }
    file.flush()
}

/// Addresses; ports and protocol.
type Key = [u64; 2];

/// A flow, with the source that its packets get. One cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Flow {
    key: Key,
    source: [u8; 4],
    port: u16,
}

/// The flows of one hash: a few bits of each to choose by, and where they are. One cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket {
    tags: [u16; SLOTS],
    flows: [u32; SLOTS],
}

struct Table {
    buckets: Vec<Bucket>,
    flows: Vec<Flow>,
}

impl Table {
    fn new(flows: usize) -> Table {
        let buckets = (flows / 4).next_power_of_two().max(8);
        Table {
            buckets: vec![Bucket { tags: [0; SLOTS], flows: [0; SLOTS] }; buckets],
            flows: Vec::with_capacity(flows),
        }
    }

    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn insert(&mut self, key: Key) {
        let hash = hashed(key);
        let mut at = self.bucket(hash);
        let slot = loop {
            match self.buckets[at].tags.iter().position(|&tag| tag == 0) {
                Some(slot) => break slot,
                None => at = self.bucket(at as u64 + 1),
            }
        };
        let flow = self.flows.len();
        self.buckets[at].tags[slot] = tag(hash);
        self.buckets[at].flows[slot] = flow as u32;
        self.flows.push(Flow { key, source: EXTERNAL, port: 1_024 + flow as u16 % 60_000 });
    }

    /// Finds a flow by its tag alone, which is nearly always right.
    fn guess(&self, hash: u64) -> Option<u32> {
        let bucket = &self.buckets[self.bucket(hash)];
        let equal = bucket.tags.map(|of| of == tag(hash));
        equal.iter().position(|&is_equal| is_equal).map(|slot| bucket.flows[slot])
    }

    fn find(&self, key: Key, hash: u64) -> Option<u32> {
        let mut at = self.bucket(hash);
        loop {
            let bucket = &self.buckets[at];
            let slots = bucket.tags.iter().zip(&bucket.flows);
            let mut same =
                slots.filter(|&(&of, &flow)| of == tag(hash) && self.flows[flow as usize].key == key);
            if let Some((_, &flow)) = same.next() {
                return Some(flow);
            }
            if bucket.tags.contains(&0) {
                return None;
            }
            at = self.bucket(at as u64 + 1);
        }
    }
}

fn hashed(key: Key) -> u64 {
    let wide = u128::from(key[0] ^ 0x243f_6a88_85a3_08d3) * u128::from(key[1] ^ 0xa409_3822_299f_31d1);
    (wide as u64 ^ (wide >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}

/// Never 0, which is a free slot.
fn tag(hash: u64) -> u16 {
    (hash >> 48) as u16 | 1
}

/// A packet's key and where its transport header begins; `None` if any field is not as it must be.
fn parse(frame: &[u8]) -> Option<(Key, usize)> {
    let ip = frame.get(14..)?;
    let header: &[u8; 20] = ip.first_chunk()?;
    if frame[12..14] != [8, 0] || header[0] >> 4 != 4 {
        return None;
    }
    let header_bytes = usize::from(header[0] & 15) * 4;
    let total_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_fragment = header[6] & 0x3f != 0 || header[7] != 0;
    let is_whole = header_bytes >= 20 && total_bytes >= header_bytes + 8 && total_bytes <= ip.len();
    if !is_whole || is_fragment || !matches!(header[9], 6 | 17) {
        return None;
    }
    let addresses = u64::from_le_bytes(*header[12..].first_chunk()?);
    let ports = u32::from_le_bytes(*ip[header_bytes..].first_chunk()?);
    Some(([addresses, u64::from(ports) | u64::from(header[9]) << 32], 14 + header_bytes))
}

fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Exchanges the bytes, and returns the difference that a checksum over them has (RFC 1624).
fn exchange<const N: usize>(at: &mut [u8; N], new: [u8; N]) -> u32 {
    let words = |bytes: &[u8; N]| -> [u32; 2] {
        [0, 2].map(|i| if i < N { u32::from(u16::from_ne_bytes([bytes[i], bytes[i + 1]])) } else { 0 })
    };
    let (old, fresh) = (words(at), words(&new));
    *at = new;
    (0..N / 2).map(|i| (!old[i] & 0xffff) + fresh[i]).sum()
}

fn adjust(frame: &mut [u8], at: usize, difference: u32) {
    let sum = u16::from_ne_bytes([frame[at], frame[at + 1]]);
    let sum = !folded(u32::from(!sum) + u32::from(folded(difference)));
    frame[at..at + 2].copy_from_slice(&sum.to_ne_bytes());
}

fn rewrite(frame: &mut [u8], transport: usize, flow: &Flow) {
    let mut difference = 0;
    if let Some(source) = frame[26..].first_chunk_mut() {
        difference = exchange(source, flow.source);
    }
    adjust(frame, 24, difference);
    if let Some(port) = frame[transport..].first_chunk_mut() {
        difference += exchange(port, flow.port.to_be_bytes());
    }
    let at = transport + if frame[23] == 17 { 6 } else { 16 };
    if frame[23] == 6 || frame[at..at + 2] != [0, 0] {
        adjust(frame, at, difference);
    }
}

fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing; any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

fn floor(flows: usize, rounds: usize) -> f64 {
    let mut deck = Deck::new(flows);
    let mut tape = vec![0; flows.max(TAPE_MIN) * CELL_BYTES];
    let mut table = Table::new(flows);
    for cell in tape.chunks_exact_mut(CELL_BYTES) {
        cell[..FRAME_BYTES].copy_from_slice(&frame(deck.draw()));
        // `frame` writes what `parse` asks for.
        let (key, _) = parse(&cell[..FRAME_BYTES]).expect("a frame of ours");
        if table.find(key, hashed(key)).is_none() {
            table.insert(key);
        }
    }
    let mut buffers = vec![0; BATCHES_OF_BUFFERS * BATCH * BUFFER_BYTES];
    let mut cells = tape.chunks_exact(CELL_BYTES).cycle();
    let mut times = Vec::new();
    for _ in 0..=rounds {
        let began = Instant::now();
        for batch in 0..PACKETS_PER_ROUND / BATCH {
            let first = batch % BATCHES_OF_BUFFERS * BATCH * BUFFER_BYTES;
            play(&mut buffers[first..first + BATCH * BUFFER_BYTES], &mut cells, &table);
        }
        times.push(began.elapsed().as_nanos() as f64 / PACKETS_PER_ROUND as f64);
    }
    // The first round warms up.
    times.remove(0);
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn play<'a>(buffers: &mut [u8], cells: &mut impl Iterator<Item = &'a [u8]>, table: &Table) {
    let mut parsed = [(Key::default(), 0, 0, None); BATCH];
    for (buffer, cell) in buffers.chunks_exact_mut(BUFFER_BYTES).zip(cells) {
        buffer[HEADROOM_BYTES..HEADROOM_BYTES + CELL_BYTES].copy_from_slice(cell);
    }
    for (buffer, parsed) in buffers.chunks_exact(BUFFER_BYTES).zip(&mut parsed) {
        // The tape has frames of `frame` alone, and a copy of one is as good.
        let (key, transport) =
            parse(&buffer[HEADROOM_BYTES..HEADROOM_BYTES + FRAME_BYTES]).expect("a frame of ours");
        let hash = hashed(key);
        prefetch(&table.buckets[table.bucket(hash)]);
        *parsed = (key, transport, hash, None);
    }
    for (_, _, hash, flow) in &mut parsed {
        *flow = table.guess(*hash);
        if let Some(flow) = *flow {
            prefetch(&table.flows[flow as usize]);
        }
    }
    for (buffer, &(key, transport, hash, guessed)) in buffers.chunks_exact_mut(BUFFER_BYTES).zip(&parsed) {
        let guessed = guessed.filter(|&flow| table.flows[flow as usize].key == key);
        if let Some(flow) = guessed.or_else(|| table.find(key, hash)) {
            let frame = &mut buffer[HEADROOM_BYTES..HEADROOM_BYTES + FRAME_BYTES];
            rewrite(frame, transport, &table.flows[flow as usize]);
        }
    }
    black_box(buffers);
}
