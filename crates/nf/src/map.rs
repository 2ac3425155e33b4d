//! The per-flow get/put map (S21): bounded dynamic keys in the flow's record, in addition to the
//! fixed-layout state.

use crate::MapSpec;

/// A flow's map, borrowed from its record.
pub struct StateMap<'a> {
    /// The map's entries, followed by the numbers of the flow's growing buffers.
    bytes: &'a mut [u8],
    spec: &'static MapSpec,
}

/// The map is full, or the value is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// All entries are in use.
    #[error("the flow's map is full ({0} entries)")]
    Full(usize),
    /// The value exceeds the descriptor's limit.
    #[error("the value has {len} bytes, the map takes at most {max}")]
    TooLong {
        /// Length of the value in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
}

/// Bytes in front of each value: the in-use flag and the key.
const HEAD: usize = 9;

impl MapSpec {
    /// Returns the bytes that such a map takes in the record.
    pub const fn len_bytes(&self) -> usize {
        self.entries * (HEAD + self.value_len)
    }
}

impl<'a> StateMap<'a> {
    /// Returns the map at the start of `bytes`; all zeros is the empty map.
    pub(crate) fn new(bytes: &'a mut [u8], spec: &'static MapSpec) -> StateMap<'a> {
        StateMap { bytes, spec }
    }

    /// Returns the bytes after the map.
    pub(crate) fn behind(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.spec.len_bytes()..).unwrap_or_default()
    }

    /// Returns the value under `key`, padded with zeros to the descriptor's length.
    pub fn get(&self, key: u64) -> Option<&[u8]> {
        let at = self.find(key)?;
        self.bytes.get(at + HEAD..at + HEAD + self.spec.value_len)
    }

    /// Sets the value under `key`.
    ///
    /// # Errors
    /// The map is full, or the value is too long.
    pub fn put(&mut self, key: u64, value: &[u8]) -> Result<(), PutError> {
        if value.len() > self.spec.value_len {
            return Err(PutError::TooLong { len: value.len(), max: self.spec.value_len });
        }
        let at = self.find(key).or_else(|| self.free()).ok_or(PutError::Full(self.spec.entries))?;
        let entry = &mut self.bytes[at..at + HEAD + self.spec.value_len];
        entry[0] = 1;
        entry[1..HEAD].copy_from_slice(&key.to_le_bytes());
        entry[HEAD..HEAD + value.len()].copy_from_slice(value);
        entry[HEAD + value.len()..].fill(0);
        Ok(())
    }

    /// Removes the entry. Returns false if it was absent.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(at) = self.find(key) else { return false };
        self.bytes[at..at + HEAD + self.spec.value_len].fill(0);
        true
    }

    /// Returns the number of entries in use.
    pub fn len(&self) -> usize {
        self.entries().filter(|&at| self.bytes[at] != 0).count()
    }

    /// Checks if no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn entries(&self) -> impl Iterator<Item = usize> + use<> {
        let stride = HEAD + self.spec.value_len;
        (0..self.spec.entries).map(move |i| i * stride)
    }

    fn find(&self, key: u64) -> Option<usize> {
        self.entries().find(|&at| self.bytes[at] != 0 && self.bytes[at + 1..at + HEAD] == key.to_le_bytes())
    }

    fn free(&self) -> Option<usize> {
        self.entries().find(|&at| self.bytes[at] == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_put_got_removed_and_bounded() {
        let spec = &MapSpec { entries: 2, value_len: 4 };
        let mut bytes = vec![0; spec.len_bytes()];
        let mut map = StateMap::new(&mut bytes, spec);
        assert!(map.is_empty());
        map.put(0, b"ab").unwrap();
        map.put(9, b"wxyz").unwrap();
        assert_eq!(map.put(5, b""), Err(PutError::Full(2)));
        assert_eq!(map.put(9, b"12345"), Err(PutError::TooLong { len: 5, max: 4 }));
        map.put(0, b"c").unwrap();
        assert_eq!(map.get(0), Some(&b"c\0\0\0"[..]));
        assert_eq!(map.get(9), Some(&b"wxyz"[..]));
        assert!(map.remove(0) && !map.remove(0));
        assert_eq!(map.get(0), None);
        assert_eq!(map.len(), 1);
    }
}
