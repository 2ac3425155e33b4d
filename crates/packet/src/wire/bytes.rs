//! Common parts of all views: reading and writing of fields, the `view!` table that makes a view,
//! and the type-length-value walk that IPv4 and TCP options have in common.

use super::WireError;
use core::net::{Ipv4Addr, Ipv6Addr};

/// A value with a fixed-size form in network byte order. `bytes` has exactly that size.
pub(super) trait Field {
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
}

macro_rules! integer_fields {
    ($($integer:ty),*) => {$(
        impl Field for $integer {
            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$integer>()];
                raw.copy_from_slice(bytes);
                <$integer>::from_be_bytes(raw)
            }

            #[inline]
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}
integer_fields!(u8, u16, u32, u64, u128);

impl Field for Ipv4Addr {
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Ipv4Addr::from_bits(u32::read(bytes))
    }

    #[inline]
    fn write(self, bytes: &mut [u8]) {
        self.to_bits().write(bytes);
    }
}

impl Field for Ipv6Addr {
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Ipv6Addr::from_bits(u128::read(bytes))
    }

    #[inline]
    fn write(self, bytes: &mut [u8]) {
        self.to_bits().write(bytes);
    }
}

/// Returns a 24-bit field, as tunnel identifiers have it.
#[inline]
pub(super) fn read_u24(bytes: &[u8]) -> u32 {
    u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2])
}

/// Returns the low 24 bits of `value` into a 24-bit field.
#[inline]
pub(super) fn write_u24(value: u32, bytes: &mut [u8]) {
    bytes.copy_from_slice(&value.to_be_bytes()[1..]);
}

/// Returns `byte` with the bits of `mask` taken from `bits`.
#[inline]
pub(super) fn with_bits(byte: u8, mask: u8, bits: u8) -> u8 {
    byte & !mask | bits & mask
}

/// Makes a view from the table of a header's whole-byte fields: the type, its constructors, a
/// getter and a setter per row, and access to the payload. The file adds `check_len`, `header_len`,
/// `payload_range` and the fields that share a byte.
macro_rules! view {
    (
        $(#[$doc:meta])*
        pub struct $name:ident;
        $($(#[$field_doc:meta])* $get:ident, $set:ident: $type:ty = $range:expr;)*
    ) => {
        $(#[$doc])*
        ///
        /// # Panics
        ///
        /// After `new_checked`, or after `check_len` returned `Ok`, no method panics, whatever the
        /// bytes. After `new_unchecked` on a buffer that would fail `check_len`, or after a setter
        /// or `payload_mut` changed a length, a version or a flag that moves the end of the header,
        /// methods may panic until `check_len` returns `Ok` again.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<T> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// Wraps a buffer that is known, or about to be made, to be long enough.
            #[inline]
            pub const fn new_unchecked(buffer: T) -> Self {
                Self { buffer }
            }

            /// Wraps a buffer and checks all of its lengths.
            ///
            /// # Errors
            ///
            /// Those of [`Self::check_len`].
            #[inline]
            pub fn new_checked(buffer: T) -> Result<Self, $crate::wire::WireError> {
                let view = Self::new_unchecked(buffer);
                view.check_len()?;
                Ok(view)
            }

            /// Returns the buffer.
            #[inline]
            pub fn into_inner(self) -> T {
                self.buffer
            }

            /// Returns the payload, up to the end given by the header, if any.
            #[inline]
            pub fn payload(&self) -> &[u8] {
                &self.buffer.as_ref()[self.payload_range()]
            }

            #[inline]
            #[allow(dead_code)]
            fn bytes(&self) -> &[u8] {
                self.buffer.as_ref()
            }

            $(
                $(#[$field_doc])*
                #[inline]
                pub fn $get(&self) -> $type {
                    <$type as $crate::wire::bytes::Field>::read(&self.buffer.as_ref()[$range])
                }
            )*
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $name<T> {
            /// Returns the payload for writing.
            #[inline]
            pub fn payload_mut(&mut self) -> &mut [u8] {
                let range = self.payload_range();
                &mut self.buffer.as_mut()[range]
            }

            #[inline]
            #[allow(dead_code)]
            fn bytes_mut(&mut self) -> &mut [u8] {
                self.buffer.as_mut()
            }

            $(
                #[doc = concat!("Writes [`Self::", stringify!($get), "`].")]
                #[inline]
                pub fn $set(&mut self, value: $type) {
                    <$type as $crate::wire::bytes::Field>::write(value, &mut self.buffer.as_mut()[$range]);
                }
            )*
        }

        impl<T: AsRef<[u8]>> AsRef<[u8]> for $name<T> {
            fn as_ref(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }
    };
}
pub(super) use view;

/// Fails unless `bytes` has at least `needed` bytes.
#[inline]
pub(super) fn need(header: &'static str, bytes: &[u8], needed: usize) -> Result<(), WireError> {
    if bytes.len() >= needed {
        return Ok(());
    }
    Err(WireError::Truncated { header, needed_bytes: needed, available_bytes: bytes.len() })
}

/// Fails unless `holds`.
#[inline]
pub(super) fn require(holds: bool, header: &'static str, field: &'static str) -> Result<(), WireError> {
    if holds { Ok(()) } else { Err(WireError::Malformed { header, field }) }
}

/// Returns the first `len` bytes of `buffer`, zeroed, to emit a header into.
#[inline]
pub(super) fn room<'a>(
    header: &'static str,
    buffer: &'a mut [u8],
    len: usize,
) -> Result<&'a mut [u8], WireError> {
    let available_bytes = buffer.len();
    let Some(room) = buffer.get_mut(..len) else {
        return Err(WireError::NoRoom { header, needed_bytes: len, available_bytes });
    };
    room.fill(0);
    Ok(room)
}

/// Fails unless a value `fits` into its field.
#[inline]
pub(super) fn fits(fits: bool, header: &'static str, field: &'static str) -> Result<(), WireError> {
    if fits { Ok(()) } else { Err(WireError::Unrepresentable { header, field }) }
}

/// A list of options of the shape that IPv4 and TCP share: kind 0 ends the list, kind 1 is a single
/// byte, every other kind is followed by its length, which counts kind and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tlvs<'a> {
    pub(super) header: &'static str,
    pub(super) rest: &'a [u8],
}

impl<'a> Iterator for Tlvs<'a> {
    /// Kind and data. An error is the last item.
    type Item = Result<(u8, &'a [u8]), WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = core::mem::take(&mut self.rest);
        match *rest {
            [] | [0, ..] => None,
            [1, ref after @ ..] => {
                self.rest = after;
                Some(Ok((1, &[])))
            }
            [kind, len, ..] if len >= 2 && usize::from(len) <= rest.len() => {
                let (option, after) = rest.split_at(usize::from(len));
                self.rest = after;
                Some(Ok((kind, &option[2..])))
            }
            _ => Some(Err(WireError::Malformed { header: self.header, field: "option length" })),
        }
    }
}
