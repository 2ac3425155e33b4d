//! Formats of capture files, and the file names that select them.

use std::path::Path;

/// Kind of a capture file.
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

/// Format of a written capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureFormat {
    /// Kind.
    pub kind: FormatKind,
    /// Compress it with gzip.
    pub gzip: bool,
}

impl CaptureFormat {
    /// Returns the format that a file name selects. `.pcapng` and `.ntar` are pcapng, everything
    /// else is pcap in nanoseconds; a final `.gz` compresses. `-`, standard output, is plain pcap.
    pub fn of_path(path: impl AsRef<Path>) -> CaptureFormat {
        let path = path.as_ref();
        let gzip = has_extension(path, "gz");
        let inner = if gzip { path.with_extension("") } else { path.to_owned() };
        let kind = match has_extension(&inner, "pcapng") || has_extension(&inner, "ntar") {
            true => FormatKind::Pcapng,
            false => FormatKind::Pcap,
        };
        CaptureFormat { kind, gzip }
    }
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
}
