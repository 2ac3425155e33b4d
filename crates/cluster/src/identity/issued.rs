//! The list of certificates issued by an authority. A line has serial number, end in seconds since
//! 1970, and name.

use std::fs::{self, OpenOptions};
use std::io::{Result, Write};
use std::path::Path;

use super::credential::CertificateContent;

/// Appends a certificate to a list.
pub(super) fn note(list: &Path, name: &str, certificate: &CertificateContent) -> Result<()> {
    let serial: String = certificate.serial.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut list = OpenOptions::new().create(true).append(true).open(list)?;
    writeln!(list, "{serial} {} {name}", certificate.valid.1)
}

/// Returns the serial numbers of the listed certificates for a name that are still valid.
pub(super) fn serials(list: &Path, name: &str, now_s: i64) -> Result<Vec<Vec<u8>>> {
    if !list.exists() {
        return Ok(Vec::new()); // An earlier version, which kept no list, has issued them.
    }
    let serial_of = |line: &str| {
        let mut words = line.split(' ');
        let (serial, end, of) = (words.next()?, words.next()?.parse::<i64>().ok()?, words.next()?);
        let byte = |at| u8::from_str_radix(serial.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..serial.len()).step_by(2).map(byte).collect();
        bytes.filter(|_| of == name && end >= now_s)
    };
    Ok(fs::read_to_string(list)?.lines().filter_map(serial_of).collect())
}
