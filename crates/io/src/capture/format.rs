//! How a capture is written, and which file name asks for what.

use std::path::Path;

/// The kind of a capture file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FormatKind {
    /// pcap in nanoseconds: one link type, no interfaces.
    #[default]
    Pcap,
    /// pcap in microseconds, for programs that know no other.
    PcapMicroseconds,
    /// pcapng in nanoseconds: any number of interfaces, each with its link type and name.
    Pcapng,
}

/// How a capture is to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// The kind of file.
    pub kind: FormatKind,
    /// Whether to gzip it.
    pub gzip: bool,
}

impl Format {
    /// The format that a file's name asks for: `.pcapng` and `.ntar` are pcapng, everything else
    /// pcap in nanoseconds; `.gz` behind it gzips. `-`, standard output, is plain pcap.
    pub fn of_path(path: impl AsRef<Path>) -> Format {
        let path = path.as_ref();
        let gzip = has_extension(path, "gz");
        let inner = if gzip { path.with_extension("") } else { path.to_owned() };
        let kind = match has_extension(&inner, "pcapng") || has_extension(&inner, "ntar") {
            true => FormatKind::Pcapng,
            false => FormatKind::Pcap,
        };
        Format { kind, gzip }
    }
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
}
