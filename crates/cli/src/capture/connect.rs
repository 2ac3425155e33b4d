//! `rivulet capture --connect`: captures the packets of a running Rivulet.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use io::capture::CaptureFormat;

use super::Args;
use crate::messages::say;
use crate::output;
use crate::signals::{self, Signals};
use crate::up::{ACCEPTED, LOCK_PREFIX, REQUEST};

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Period of the checks for a signal or the deadline.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Maximum length of a refusal, in bytes.
const LINE_MAX: usize = 512;

/// Maximum length of a block (a packet and its comment), in bytes.
const BLOCK_MAX: usize = 1 << 20;

/// Block type of an Enhanced Packet Block.
const ENHANCED_PACKET: u32 = 6;

/// Runs the command.
pub fn run(args: &Args, interface: &str, format: CaptureFormat) -> anyhow::Result<ExitCode> {
    let signals = Signals::of_batch().context("cannot take signals")?;
    let mut stream = listen(interface)?;
    let mut file = open(&args.write, format)?;
    let end = args.duration.map(|duration| Instant::now() + Duration::from_nanos(duration.0));
    let (mut packets, mut bytes, mut has_ended) = (0, Vec::new(), false);
    let count = args.count.unwrap_or(u64::MAX);
    stream.set_read_timeout(Some(LOOK_EVERY))?;
    while signals.stop().is_none() && packets < count && end.is_none_or(|end| Instant::now() < end) {
        let mut part = [0; 1 << 16];
        match stream.read(&mut part) {
            Ok(0) => {
                has_ended = true;
                break;
            }
            Ok(len) => bytes.extend_from_slice(&part[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(error) => return Err(error).context("the connection to the running Rivulet is lost"),
        }
        let whole = whole_blocks(&bytes, count - packets)?;
        packets += whole.packets;
        file.write_all(&bytes[..whole.len]).and_then(|()| file.flush()).with_context(|| wrong(args))?;
        bytes.drain(..whole.len);
    }
    file.finish().with_context(|| wrong(args))?;
    if !args.quiet {
        let packets = output::thousands(packets);
        say!("rivulet: {packets} packets written to {}, on arrival and on departure", args.write.display());
    }
    if has_ended {
        say!("rivulet: the Rivulet that was captured has ended");
    }
    Ok(signals.stop().map_or(ExitCode::SUCCESS, signals::exit_code))
}

fn wrong(args: &Args) -> String {
    format!("cannot write {}", args.write.display())
}

/// Connects to the Rivulet that owns this interface.
fn listen(interface: &str) -> anyhow::Result<UnixStream> {
    let name = format!("{LOCK_PREFIX}{interface}");
    let address = SocketAddr::from_abstract_name(&name).context("not the name of an interface")?;
    let mut stream = UnixStream::connect_addr(&address).map_err(|_| {
        anyhow::anyhow!(
            "no Rivulet runs on the interface {interface} in this network namespace; start `rivulet up --port PORT={interface}`"
        )
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    let mut line = Vec::new();
    while line.len() < LINE_MAX && line.last() != Some(&b'\n') {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => line.push(byte[0]),
            _ => bail!(
                "the process that owns {interface} offers no packets: it is not `rivulet up`, or it has several workers; `tcpdump -i {interface}` shows the interface's packets"
            ),
        }
    }
    match String::from_utf8_lossy(&line).trim_end() {
        ACCEPTED => Ok(stream),
        why => bail!("cannot capture on {interface}: {why}"),
    }
}

/// The output file.
enum File {
    Plain(Box<dyn Write>),
    Gzip(GzEncoder<Box<dyn Write>>),
}

fn open(path: &Path, format: CaptureFormat) -> anyhow::Result<File> {
    let out: Box<dyn Write> = match path == Path::new("-") {
        true => Box::new(std::io::stdout()),
        false => Box::new(crate::files::create(path)?.1),
    };
    Ok(if format.gzip { File::Gzip(GzEncoder::new(out, Compression::fast())) } else { File::Plain(out) })
}

impl File {
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            File::Plain(out) => out.write_all(bytes),
            File::Gzip(out) => out.write_all(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            File::Plain(out) => out.flush(),
            File::Gzip(out) => out.flush(),
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            File::Plain(mut out) => out.flush(),
            File::Gzip(out) => out.finish()?.flush(),
        }
    }
}

/// A prefix of whole blocks.
#[derive(Debug, PartialEq, Eq)]
struct Whole {
    /// Bytes of the blocks.
    len: usize,
    /// Number of packet blocks.
    packets: u64,
}

/// Returns the whole blocks at the start of `bytes`, up to `packets_max` packets.
fn whole_blocks(bytes: &[u8], packets_max: u64) -> anyhow::Result<Whole> {
    let mut whole = Whole { len: 0, packets: 0 };
    while whole.packets < packets_max
        && let Some((kind, rest)) = bytes[whole.len..].split_first_chunk::<4>()
        && let Some((len, _)) = rest.split_first_chunk::<4>()
    {
        // Rivulet writes captures in little-endian byte order.
        let (kind, len) = (u32::from_le_bytes(*kind), u32::from_le_bytes(*len) as usize);
        if !(12..=BLOCK_MAX).contains(&len) {
            bail!("the received data is not a capture");
        }
        if bytes.len() - whole.len < len {
            break;
        }
        whole.len += len;
        whole.packets += u64::from(kind == ENHANCED_PACKET);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, len: u32) -> Vec<u8> {
        let mut block = [kind.to_le_bytes(), len.to_le_bytes()].concat();
        block.resize(len as usize, 0);
        block
    }

    #[test]
    fn only_whole_blocks_are_written() {
        let bytes = [block(1, 20), block(6, 32), block(6, 16), block(6, 40)].concat();
        let whole = |bytes: &[u8], max| whole_blocks(bytes, max).unwrap();
        assert_eq!(whole(&bytes, u64::MAX), Whole { len: 108, packets: 3 });
        assert_eq!(whole(&bytes, 1), Whole { len: 52, packets: 1 });
        assert_eq!(whole(&bytes[..107], u64::MAX), Whole { len: 68, packets: 2 });
        assert_eq!(whole(&bytes[..7], u64::MAX), Whole { len: 0, packets: 0 });
        assert!(whole_blocks(&block(6, 8)[..8], 9).is_err());
    }
}
