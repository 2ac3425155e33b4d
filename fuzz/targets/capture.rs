//! Any bytes as a capture file: reading terminates and holds no more than promised, and the records
//! can be written and read again.

#![no_main]

use std::io::Cursor;

use io::capture::{CaptureReader, RECORD_BYTES_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = CaptureReader::new(Cursor::new(data.to_vec())) else { return };
    let mut records = 0usize;
    while let Ok(Some(record)) = reader.next() {
        assert!(record.data.len() <= RECORD_BYTES_MAX as usize);
        records += 1;
    }
    assert!(matches!(reader.next(), Ok(None)), "an error ends the capture");
    // Compressed input may hold many more records than bytes.
    assert!(data.starts_with(&[0x1f, 0x8b]) || records <= data.len());
});
