//! A buffer as the matches of a rule see it.

use crate::{ContentPosition, DataAt};

use crate::inspect::scratch::Values;

/// The bytes of a buffer, or those of a stream from some offset on.
///
/// Places count from the first available byte. Earlier places, such as the cursor at the beginning
/// of a stream without its first bytes, are negative.
#[derive(Clone, Copy)]
pub(crate) struct BufferView<'a> {
    pub bytes: &'a [u8],
    /// The origin of absolute positions; 0 or less.
    pub beginning: i64,
}

/// The inclusive range of places of a match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub first: usize,
    pub last: usize,
}

impl<'a> BufferView<'a> {
    pub fn new(bytes: &'a [u8], start: u64) -> Self {
        // Far enough from the ends of i64 to add offsets and jumps; no stream is as long.
        let start = i64::try_from(start).unwrap_or(i64::MAX).min(i64::MAX / 4);
        Self { bytes, beginning: -start }
    }

    /// Returns the place of the end.
    pub fn end(&self) -> i64 {
        // Slices are not longer than isize::MAX.
        self.bytes.len() as i64
    }

    /// Returns the origin of `relative` matches and of others.
    pub fn base(&self, relative: bool, cursor: i64) -> i64 {
        if relative { cursor } else { self.beginning }
    }

    /// Returns the same, within the available bytes, for matches that ignore earlier bytes.
    pub fn visible_base(&self, relative: bool, cursor: i64) -> usize {
        // At most the end of a slice.
        self.base(relative, cursor).clamp(0, self.end()) as usize
    }

    /// Returns the total size, including bytes that are gone.
    pub fn size(&self) -> u64 {
        self.end().abs_diff(self.beginning)
    }

    /// Returns `count` bytes from a place on, if all are available.
    pub fn get(&self, place: i64, count: usize) -> Option<&'a [u8]> {
        self.bytes.get(usize::try_from(place).ok()?..)?.get(..count)
    }

    /// Returns the bytes from a place on; `None` if the place is out of range.
    pub fn from(&self, place: i64) -> Option<&'a [u8]> {
        self.bytes.get(usize::try_from(place).ok()?..)
    }

    /// Returns the range of places of a content of `length` bytes; an error if a variable does not
    /// fit.
    pub fn places(
        &self,
        position: &ContentPosition,
        ends: bool,
        length: usize,
        cursor: i64,
        values: &Values,
    ) -> Result<Option<Places>, Unfit> {
        let (from, bytes) = match *position {
            ContentPosition::Absolute { offset, depth } => {
                let offset = values.resolve(offset).ok_or(Unfit)?;
                let depth = depth.map(|depth| values.resolve(depth).ok_or(Unfit)).transpose()?;
                (self.beginning + i64::from(offset), depth.map(i64::from))
            }
            ContentPosition::Relative { distance, within } => {
                let distance = values.resolve(distance).ok_or(Unfit)?;
                let within = within.map(|within| values.resolve(within).ok_or(Unfit)).transpose()?;
                (cursor + i64::from(distance), within.map(i64::from))
            }
        };
        let to = bytes.map_or(self.end(), |bytes| from.saturating_add(bytes).min(self.end()));
        let last = to - length as i64;
        let first = match ends {
            true if to < self.end() => return Ok(None),
            true => from.max(last),
            false => from,
        };
        let places = usize::try_from(last).ok().map(|last| Places { first: first.max(0) as usize, last });
        Ok(places.filter(|places| places.first <= places.last))
    }

    /// Returns whether there is data; `None` if a variable does not fit.
    pub fn has_data(&self, test: &DataAt, cursor: i64, values: &Values) -> Option<bool> {
        let place = self.base(test.relative, cursor) + i64::from(values.resolve(test.offset)?);
        let has = if test.relative { place <= self.end() } else { place < self.end() };
        Some(has != test.negated)
    }
}

/// The value of a variable does not fit where it is used.
#[derive(Debug)]
pub(crate) struct Unfit;
