//! Regular expressions in rules.

/// Maximum bytes of an expression.
pub const PCRE_BYTES_MAX: usize = 8192;

/// `pcre`: an expression to search for. A buffer named by a flag of the older spelling (`/.../U`)
/// becomes the buffer that contains this match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcre {
    /// The part between the slashes, as written.
    pub pattern: String,
    /// True if the expression must not match. The cursor does not move.
    pub negated: bool,
    /// `R`: searches from the cursor on, as if the buffer began there.
    pub relative: bool,
    /// The flags.
    pub flags: PcreFlags,
    /// Names of captured groups, in the order of the groups, as written: `flow:name`, `pkt:name`,
    /// `alert:name`.
    pub captures: Vec<String>,
}

/// The flags of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PcreFlags {
    /// `i`: case is ignored.
    pub caseless: bool,
    /// `m`: `^` and `$` also match at line endings.
    pub multiline: bool,
    /// `s`: the dot also matches line endings.
    pub dot_all: bool,
    /// `x`: white space and comments are ignored.
    pub extended: bool,
    /// `A`: matches only at the start of the searched range.
    pub anchored: bool,
    /// `E`: `$` does not match before a final line ending.
    pub dollar_end_only: bool,
    /// `G`: repetitions are lazy unless marked with `?`.
    pub ungreedy: bool,
}

impl PcreFlags {
    pub(crate) const LETTERS: [char; 7] = ['i', 'm', 's', 'x', 'A', 'E', 'G'];

    pub(crate) fn get(&self, letter: char) -> bool {
        let mut copy = *self;
        copy.get_mut(letter).is_some_and(|flag| *flag)
    }

    pub(crate) fn get_mut(&mut self, letter: char) -> Option<&mut bool> {
        Some(match letter {
            'i' => &mut self.caseless,
            'm' => &mut self.multiline,
            's' => &mut self.dot_all,
            'x' => &mut self.extended,
            'A' => &mut self.anchored,
            'E' => &mut self.dollar_end_only,
            'G' => &mut self.ungreedy,
            _ => return None,
        })
    }
}
