//! The bytes of messages and their fields on links: each type says how it is written and read, and
//! describes its form for tools.
//!
//! Numbers are big-endian. Nothing here has a link or a socket: values are appended to a buffer,
//! and read from a slice.

mod reader;

pub use reader::{FrameError, Reader};

/// A value that links carry.
pub trait Wire: Sized {
    /// The form of its bytes.
    const FORM: WireForm;

    /// Appends its bytes.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads a value.
    ///
    /// # Errors
    ///
    /// If there are too few bytes, or they have a value that the type has not.
    fn read(from: &mut Reader<'_>) -> Result<Self, FrameError>;

    /// Returns the value if it is a number.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Returns the number of bytes of flow state in the value; `None` if it has room for none.
    fn state_bytes(&self) -> Option<usize> {
        None
    }
}

/// The form of a value's bytes, for dissectors and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireForm {
    /// A number of this many bytes.
    Number(usize),
    /// One byte: 0 or 1.
    Flag,
    /// One byte: the place of one of these words.
    Choice(&'static [&'static str]),
    /// Bytes, with their number in four bytes before them.
    Sized,
    /// Values one after the other. Their names hold for themselves, not within the whole.
    Parts(&'static [WirePart]),
    /// One byte: the place of one of these cases. The case's values follow.
    Cases(&'static [WireCase]),
    /// A number in two bytes, and as many values.
    List(&'static WireForm),
    /// A flag; the value follows if it is set. The names of its parts begin with that of the whole.
    Optional(&'static WireForm),
}

/// A part of a value, with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WirePart {
    /// The name.
    pub name: &'static str,
    /// The form.
    pub form: WireForm,
}

/// A case of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireCase {
    /// The name.
    pub name: &'static str,
    /// The values of this case.
    pub parts: &'static [WirePart],
}

/// Returns a part of a value.
pub(crate) const fn part(name: &'static str, form: WireForm) -> WirePart {
    WirePart { name, form }
}

/// Appends bytes with their length before them.
pub fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    // Frames are shorter than 4 GiB: links take up to 16 MiB.
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

macro_rules! numbers {
    ($($number:ident),+) => {$(
        impl Wire for $number {
            const FORM: WireForm = WireForm::Number(size_of::<$number>());

            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            #[inline]
            fn read(from: &mut Reader<'_>) -> Result<$number, FrameError> {
                from.$number()
            }

            fn number(&self) -> Option<u64> {
                Some(u64::from(*self))
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64);

impl Wire for bool {
    const FORM: WireForm = WireForm::Flag;

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<bool, FrameError> {
        match from.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::Invalid("flag")),
        }
    }
}

/// At most 65,535 values: further ones are left out.
impl<T: Wire> Wire for Vec<T> {
    const FORM: WireForm = WireForm::List(&T::FORM);

    fn write(&self, out: &mut Vec<u8>) {
        let count = u16::try_from(self.len()).unwrap_or(u16::MAX);
        count.write(out);
        self.iter().take(count.into()).for_each(|value| value.write(out));
    }

    fn read(from: &mut Reader<'_>) -> Result<Vec<T>, FrameError> {
        (0..from.u16()?).map(|_| T::read(from)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    const FORM: WireForm = WireForm::Optional(&T::FORM);

    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Option<T>, FrameError> {
        Ok(if bool::read(from)? { Some(T::read(from)?) } else { None })
    }

    fn state_bytes(&self) -> Option<usize> {
        self.as_ref().and_then(T::state_bytes)
    }
}
