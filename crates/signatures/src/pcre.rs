//! Regular expressions.

/// The most bytes of an expression.
pub const PCRE_BYTES_MAX: usize = 8192;

/// `pcre`: an expression to look for. The buffer that the flags of the older spelling name
/// (`/.../U`) is the one that this stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcre {
    /// What stands between the slashes, as written.
    pub pattern: String,
    /// The match holds where the expression is not found. It does not move the cursor.
    pub negated: bool,
    /// `R`: look from the cursor on, as if the buffer began there.
    pub relative: bool,
    /// How the expression is meant.
    pub flags: PcreFlags,
    /// Names for what groups match, in the order of the groups, as written: `flow:name`,
    /// `pkt:name`, `alert:name`.
    pub captures: Vec<String>,
}

/// How an expression is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PcreFlags {
    /// `i`: letters match in either case.
    pub caseless: bool,
    /// `m`: `^` and `$` match at line ends too.
    pub multiline: bool,
    /// `s`: the dot matches line ends too.
    pub dot_all: bool,
    /// `x`: white space and comments in the expression do not count.
    pub extended: bool,
    /// `A`: only at the start of where it is looked for.
    pub anchored: bool,
    /// `E`: `$` does not match before a line end at the end.
    pub dollar_end_only: bool,
    /// `G`: repetitions are as short as they can be unless marked with `?`.
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
