//! The system's end of an output: a file, standard output or a collector, with recovery from
//! errors.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Whole records that are written together.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The records, one after the other.
    pub bytes: Vec<u8>,
    /// End of each record in `bytes`.
    pub ends: Vec<u32>,
}

impl Chunk {
    /// Adds a record.
    pub fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.end_record();
    }

    /// Ends the record that was appended to `bytes`.
    pub fn end_record(&mut self) {
        // Chunks are queued long before 4 GiB.
        self.ends.push(self.bytes.len() as u32);
    }

    /// Returns the number of records that end after `at`.
    fn records_after(&self, at: usize) -> u64 {
        (self.ends.len() - self.ends.partition_point(|&end| end as usize <= at)) as u64
    }

    /// Returns the end of the last record that is complete at `at`.
    fn last_record(&self, at: usize) -> usize {
        let whole = self.ends.partition_point(|&end| end as usize <= at);
        whole.checked_sub(1).map_or(0, |last| self.ends[last] as usize)
    }

    /// Returns the end of the record that contains `at`, or `at` itself between records.
    fn next_record(&self, at: usize) -> usize {
        if at == 0 {
            return 0;
        }
        let next = self.ends.partition_point(|&end| (end as usize) < at);
        self.ends.get(next).map_or(self.bytes.len(), |&end| end as usize)
    }
}

/// Destination of an output.
#[derive(Clone, Debug)]
pub struct Target {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// Append to an existing file instead of truncating it.
    pub keeps: bool,
    /// Compress it.
    pub gzip: bool,
    /// First bytes of a file.
    pub preamble: Vec<u8>,
    /// A file may contain further preambles, each before its records.
    pub repeats: bool,
}

enum Out {
    File(File),
    Gzip(GzEncoder<File>),
    Stdout(io::Stdout),
    Collector(UdpSocket),
}

/// A writer of chunks that starts over after a file was replaced or truncated.
pub struct OutputWriter {
    out: Out,
    target: Option<Target>,
    /// Known length of the file; a shorter one means truncation.
    len: u64,
    counts: RecordCounts,
    last_error: Option<io::Error>,
}

/// Counts of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Records accepted by the system.
    pub written: u64,
    /// Records given up.
    pub lost: u64,
}

impl OutputWriter {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// The file cannot be opened or created.
    pub fn open(target: Target) -> io::Result<OutputWriter> {
        let mut pen = if target.path == Path::new("-") {
            OutputWriter::of(Out::Stdout(io::stdout()), Some(target))
        } else {
            let file = open(&target.path, !target.keeps)?;
            OutputWriter::of(out(file, target.gzip), Some(target))
        };
        pen.len = pen.file_len().unwrap_or(0);
        Ok(pen)
    }

    /// Creates a writer that sends each record as a datagram.
    pub fn to_collector(socket: UdpSocket) -> OutputWriter {
        OutputWriter::of(Out::Collector(socket), None)
    }

    fn of(out: Out, target: Option<Target>) -> OutputWriter {
        OutputWriter { out, target, len: 0, counts: RecordCounts::default(), last_error: None }
    }

    /// Returns the counts of the records so far.
    pub fn counts(&self) -> RecordCounts {
        self.counts
    }

    /// Returns the last error, even if a retry succeeded.
    pub fn last_error(&self) -> Option<&io::Error> {
        self.last_error.as_ref()
    }

    /// Returns whether records are sent as datagrams. Each may fail alone.
    pub fn is_collector(&self) -> bool {
        matches!(self.out, Out::Collector(_))
    }

    /// Writes the preamble to an empty file.
    pub fn begin(&mut self, try_again: &mut dyn FnMut(&io::Error) -> bool) -> bool {
        let is_empty = matches!(self.out, Out::Stdout(_)) || self.file_len() == Some(0);
        let preamble = match &self.target {
            Some(target) if is_empty || target.repeats => target.preamble.clone(),
            _ => return true,
        };
        self.put(&Chunk { bytes: preamble, ends: Vec::new() }, try_again)
    }

    /// Writes a chunk. On an error, `try_again` waits and returns whether to retry; if not, the
    /// rest of the chunk is given up and counted. Returns whether all was written.
    pub fn put(&mut self, chunk: &Chunk, try_again: &mut dyn FnMut(&io::Error) -> bool) -> bool {
        if let Out::Collector(_) = self.out {
            self.send(chunk);
            return true;
        }
        let mut at = 0;
        let mut is_flushed = false;
        while at < chunk.bytes.len() || !is_flushed {
            if at < chunk.bytes.len() && self.was_truncated() {
                self.start_over();
                if !chunk.ends.is_empty() && !self.begin(try_again) {
                    self.give_up(chunk, at);
                    return false;
                }
                let resumed = chunk.next_record(at);
                self.counts.lost += chunk.records_after(at) - chunk.records_after(resumed);
                at = resumed;
                continue;
            }
            let done = match at < chunk.bytes.len() {
                true => self.write(&chunk.bytes[at..]),
                false => self.flush().map(|()| {
                    is_flushed = true;
                    0
                }),
            };
            match done {
                Ok(0) if !is_flushed => self.last_error = Some(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.counts.written += chunk.records_after(at) - chunk.records_after(at + count);
                    at += count;
                    self.len = self.file_len().unwrap_or(0);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => self.last_error = Some(error),
            }
            if !self.last_error.as_ref().is_some_and(&mut *try_again) {
                self.give_up(chunk, at);
                return false;
            }
        }
        true
    }

    /// Completes a compressed file.
    pub fn finish(&mut self, try_again: &mut dyn FnMut(&io::Error) -> bool) -> bool {
        while let Out::Gzip(gzip) = &mut self.out {
            match gzip.try_finish() {
                Ok(()) => break,
                Err(error) if try_again(&error) => {}
                Err(error) => {
                    self.last_error = Some(error);
                    return false;
                }
            }
        }
        true
    }

    /// Reopens the file by name after a rename. Returns whether it is another file now.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn reopen(&mut self) -> io::Result<bool> {
        let Some(target) = &self.target else { return Ok(false) };
        let Some(now) = self.file().and_then(|file| file.metadata().ok()) else { return Ok(false) };
        if std::fs::metadata(&target.path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (now.dev(), now.ino()))
        {
            return Ok(false);
        }
        let file = open(&target.path, false)?;
        let gzip = target.gzip;
        self.finish(&mut |_| false);
        self.out = out(file, gzip);
        self.len = self.file_len().unwrap_or(0);
        Ok(true)
    }

    fn send(&mut self, chunk: &Chunk) {
        let mut start = 0;
        for &end in &chunk.ends {
            let message = &chunk.bytes[start..end as usize];
            start = end as usize;
            let Out::Collector(socket) = &self.out else { return };
            match socket.send(message) {
                Ok(_) => self.counts.written += 1,
                Err(error) => {
                    self.counts.lost += 1;
                    self.last_error = Some(error);
                }
            }
        }
    }

    /// Gives up the rest of a chunk, and removes a partial record from the file.
    fn give_up(&mut self, chunk: &Chunk, at: usize) {
        self.counts.lost += chunk.records_after(at);
        let cut = (at - chunk.last_record(at)) as u64;
        if let Out::File(file) = &self.out
            && cut > 0
            && self.file_len() == Some(self.len)
            && let Some(len) = self.len.checked_sub(cut)
            && file.set_len(len).is_ok()
        {
            self.len = len;
        }
    }

    /// Returns whether the file was truncated, as by `copytruncate` of logrotate.
    fn was_truncated(&self) -> bool {
        self.file_len().is_some_and(|len| len < self.len)
    }

    fn start_over(&mut self) {
        self.len = self.file_len().unwrap_or(0);
        if let Out::Gzip(gzip) = &self.out
            && let Ok(file) = gzip.get_ref().try_clone()
        {
            self.out = out(file, true);
        }
    }

    fn file(&self) -> Option<&File> {
        match &self.out {
            Out::File(file) => Some(file),
            Out::Gzip(gzip) => Some(gzip.get_ref()),
            Out::Stdout(_) | Out::Collector(_) => None,
        }
    }

    /// Returns the length of the file; `None` for a pipe or the like.
    fn file_len(&self) -> Option<u64> {
        self.file()?.metadata().ok().filter(std::fs::Metadata::is_file).map(|data| data.len())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Out::File(file) => file.write(bytes),
            Out::Gzip(gzip) => gzip.write(bytes),
            Out::Stdout(stdout) => stdout.write(bytes),
            Out::Collector(_) => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Gzip(gzip) => gzip.flush(),
            Out::Stdout(stdout) => stdout.flush(),
            Out::File(_) | Out::Collector(_) => Ok(()),
        }
    }
}

/// Opens a file to append to, so that writes after a truncation start at its beginning.
fn open(path: &Path, empties: bool) -> io::Result<File> {
    let file = ::io::files::append(path)?;
    if empties && file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

fn out(file: File, gzip: bool) -> Out {
    if gzip { Out::Gzip(GzEncoder::new(file, Compression::fast())) } else { Out::File(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &Path, preamble: &[u8], repeats: bool) -> Target {
        Target { path: path.to_owned(), keeps: true, gzip: false, preamble: preamble.to_vec(), repeats }
    }

    fn chunk(records: &[&str]) -> Chunk {
        let mut chunk = Chunk::default();
        records.iter().for_each(|record| chunk.push(record.as_bytes()));
        chunk
    }

    #[test]
    fn renamed_and_truncated_files_are_started_over() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("a"), dir.path().join("a.1"));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let mut pen = OutputWriter::open(target(&path, b"head\n", false)).unwrap();
        let never = &mut |_: &io::Error| false;
        assert!(pen.begin(never) && pen.put(&chunk(&["one\n"]), never));
        assert!(!pen.reopen().unwrap(), "it is still the same file");
        std::fs::rename(&path, &old).unwrap();
        assert!(pen.put(&chunk(&["two\n"]), never) && pen.reopen().unwrap() && pen.begin(never));
        assert!(pen.put(&chunk(&["three\n"]), never));
        assert_eq!((read(&old).as_str(), read(&path).as_str()), ("head\none\ntwo\n", "head\nthree\n"));
        std::fs::write(&path, "").unwrap();
        assert!(pen.put(&chunk(&["four\n", "five\n"]), never));
        assert_eq!(read(&path), "head\nfour\nfive\n");
        assert_eq!(pen.counts(), RecordCounts { written: 5, lost: 0 });
        // An existing file is appended to, with a second preamble only if that is allowed.
        let mut pen = OutputWriter::open(target(&path, b"head\n", false)).unwrap();
        assert!(pen.begin(never) && pen.put(&chunk(&["six\n"]), never));
        let mut pen = OutputWriter::open(target(&path, b"section\n", true)).unwrap();
        assert!(pen.begin(never) && pen.put(&chunk(&["seven\n"]), never));
        assert_eq!(read(&path), "head\nfour\nfive\nsix\nsection\nseven\n");
    }

    #[test]
    fn a_symbolic_link_in_place_of_a_rotated_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("other"));
        std::fs::write(&other, "precious").unwrap();
        let mut pen = OutputWriter::open(target(&path, b"", false)).unwrap();
        std::fs::rename(&path, dir.path().join("a.1")).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let error = pen.reopen().unwrap_err().to_string();
        assert!(error.contains("a symbolic link"), "{error}");
        let never = &mut |_: &io::Error| false;
        assert!(pen.put(&chunk(&["one\n"]), never), "the open file is still written to");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((read("a.1").as_str(), read("other").as_str()), ("one\n", "precious"));
    }

    #[test]
    fn records_that_cannot_be_written_are_counted() {
        let mut pen = OutputWriter::open(target(Path::new("/dev/full"), b"", false)).unwrap();
        let mut attempts = 0;
        let done = pen.put(&chunk(&["one\n", "two\n"]), &mut |_| {
            attempts += 1;
            attempts < 3
        });
        assert_eq!((done, attempts, pen.counts()), (false, 3, RecordCounts { written: 0, lost: 2 }));
        assert_eq!(pen.last_error().map(io::Error::kind), Some(ErrorKind::StorageFull));
    }

    #[test]
    fn positions_map_to_records() {
        let chunk = chunk(&["ab", "cde", "f"]);
        assert_eq!([0, 1, 2, 4, 5, 6].map(|at| chunk.records_after(at)), [3, 3, 2, 2, 1, 0]);
        assert_eq!([0, 1, 2, 3, 5, 6].map(|at| chunk.next_record(at)), [0, 2, 2, 5, 5, 6]);
        assert_eq!([0, 1, 2, 3, 5, 6].map(|at| chunk.last_record(at)), [0, 0, 2, 2, 5, 6]);
    }
}
