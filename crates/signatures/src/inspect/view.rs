//! A buffer as the matches of a rule see it.

use crate::{DataAt, Position};

use crate::inspect::scratch::Values;

/// The bytes of a buffer, or those of a stream from some place on.
///
/// Places are counted from the first byte that is there; so those before it, and the cursor at the
/// beginning of a stream of which that is gone, are negative.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub bytes: &'a [u8],
    /// Where absolute positions count from; 0 or less.
    pub beginning: i64,
}

/// From where to where the places of a match may be, both included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub first: usize,
    pub last: usize,
}

impl<'a> View<'a> {
    pub fn new(bytes: &'a [u8], start: u64) -> Self {
        // Far enough from the ends of i64 that offsets and jumps may be added; no stream is as
        // long.
        let start = i64::try_from(start).unwrap_or(i64::MAX).min(i64::MAX / 4);
        Self { bytes, beginning: -start }
    }

    /// The end, in places.
    pub fn end(&self) -> i64 {
        // Slices are not longer than isize::MAX.
        self.bytes.len() as i64
    }

    /// From where `relative` matches and others count.
    pub fn base(&self, relative: bool, cursor: i64) -> i64 {
        if relative { cursor } else { self.beginning }
    }

    /// The same, in the bytes that are there, for what sees nothing before it.
    pub fn visible_base(&self, relative: bool, cursor: i64) -> usize {
        // At most the end of a slice.
        self.base(relative, cursor).clamp(0, self.end()) as usize
    }

    /// The size of all, with what is not there any more.
    pub fn size(&self) -> u64 {
        self.end().abs_diff(self.beginning)
    }

    /// The `count` bytes from a place on, if they are all there.
    pub fn get(&self, place: i64, count: usize) -> Option<&'a [u8]> {
        self.bytes.get(usize::try_from(place).ok()?..)?.get(..count)
    }

    /// What is there from a place on; none if the place is before or behind it.
    pub fn from(&self, place: i64) -> Option<&'a [u8]> {
        self.bytes.get(usize::try_from(place).ok()?..)
    }

    /// Where a content of `length` bytes may be; an error if a variable has no value that fits.
    pub fn places(
        &self,
        position: &Position,
        ends: bool,
        length: usize,
        cursor: i64,
        values: &Values,
    ) -> Result<Option<Places>, Unfit> {
        let (from, bytes) = match *position {
            Position::Absolute { offset, depth } => {
                let offset = values.resolve(offset).ok_or(Unfit)?;
                let depth = depth.map(|depth| values.resolve(depth).ok_or(Unfit)).transpose()?;
                (self.beginning + i64::from(offset), depth.map(i64::from))
            }
            Position::Relative { distance, within } => {
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

    /// Whether there is data; `None` if a variable's value does not fit.
    pub fn has_data(&self, test: &DataAt, cursor: i64, values: &Values) -> Option<bool> {
        let place = self.base(test.relative, cursor) + i64::from(values.resolve(test.offset)?);
        let has = if test.relative { place <= self.end() } else { place < self.end() };
        Some(has != test.negated)
    }
}

/// A variable's value does not fit where it is used.
#[derive(Debug)]
pub(crate) struct Unfit;
