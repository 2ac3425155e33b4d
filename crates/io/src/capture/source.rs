//! A plain or gzipped byte stream, with a window that grows with the data that arrive.

use std::fmt;
use std::io::{self, Cursor, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

/// Initial size of the window, in bytes.
const WINDOW_BYTES: usize = 256 << 10;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A window on an input. Offsets count bytes after decompression.
pub(super) struct Source {
    input: Box<dyn Read + Send>,
    window: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl Source {
    /// Wraps `input`, and decompresses it if it begins like a gzip file.
    pub fn new(mut input: impl Read + Send + 'static) -> io::Result<Source> {
        let mut magic = [0; GZIP_MAGIC.len()];
        let read = read_up_to(&mut input, &mut magic)?;
        let whole = Cursor::new(magic).take(read as u64).chain(input);
        Ok(match magic == GZIP_MAGIC {
            true => Source::over(Box::new(MultiGzDecoder::new(whole))),
            false => Source::over(Box::new(whole)),
        })
    }

    fn over(input: Box<dyn Read + Send>) -> Source {
        Source { input, window: vec![0; WINDOW_BYTES], start: 0, end: 0, offset: 0 }
    }

    /// Returns the offset of the first byte that is not consumed.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the bytes that have arrived and are not consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.window[self.start..self.end]
    }

    /// Reads until `count` bytes are present; returns false if the input ends before. Allocates
    /// only as bytes arrive.
    pub fn fill(&mut self, count: usize) -> io::Result<bool> {
        while self.end - self.start < count {
            self.make_room(count);
            match read_some(&mut self.input, &mut self.window[self.end..])? {
                0 => return Ok(false),
                read => self.end += read,
            }
        }
        Ok(true)
    }

    /// Drops `count` bytes, which must have arrived.
    pub fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Skips `count` bytes without keeping them; returns false if the input ends before.
    pub fn skip(&mut self, mut count: usize) -> io::Result<bool> {
        while count > 0 {
            if !self.fill(1)? {
                return Ok(false);
            }
            let step = count.min(self.end - self.start);
            self.consume(step);
            count -= step;
        }
        Ok(true)
    }

    /// Ensures at least one free byte at the window's end: moves the bytes to its front, or grows
    /// it.
    fn make_room(&mut self, count: usize) {
        if self.start + count <= self.window.len() {
            return;
        }
        self.window.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.window.len() {
            self.window.resize(2 * self.window.len(), 0);
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ahead = self.end - self.start;
        formatter
            .debug_struct("Source")
            .field("offset", &self.offset)
            .field("ahead", &ahead)
            .finish_non_exhaustive()
    }
}

/// Reads until `buffer` is full or the input ends; returns the number of bytes read.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read_some(input, &mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Reads once. An interruption is retried; a compressed stream that breaks off counts as the end.
fn read_some(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
            result => return result,
        }
    }
}
