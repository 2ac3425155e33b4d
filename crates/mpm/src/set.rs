//! Sets of literals, and the search for them.

use crate::cursor::{Cursor, RECENT};
use crate::layer::Layer;
use crate::literal::{LITERAL_MAX, Literal, Needle};
use crate::model::Model;
use crate::plan;

/// Limit on the literals of a set.
pub const LITERALS_MAX: usize = 1 << 16;

/// Bytes of a short piece and those before it that are searched as one text.
const JOINT: usize = 96;
const _: () = assert!(2 * RECENT <= JOINT);

/// Literals that are searched for together. A literal's number is its position in the input;
/// duplicates are allowed.
///
/// Speed depends on the lengths: seven bytes or more are best, then four or more. Even a few
/// shorter ones make the search slow.
#[derive(Clone, Debug)]
pub struct LiteralSet {
    needles: Vec<Needle>,
    layers: Vec<Layer>,
    /// Number of bytes before a piece that can be part of a literal: one less than the longest has.
    reach: usize,
}

/// The reason why literals cannot form a [`LiteralSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiteralSetError {
    /// A literal is empty, and would match everywhere.
    #[error("literal {literal} is empty")]
    Empty {
        /// Its number.
        literal: u32,
    },
    /// A literal has more than [`LITERAL_MAX`] bytes.
    #[error("literal {literal} has {bytes} bytes; at most {LITERAL_MAX} are allowed")]
    TooLong {
        /// Its number.
        literal: u32,
        /// Its length.
        bytes: usize,
    },
    /// There are more than [`LITERALS_MAX`].
    #[error("there are more than {LITERALS_MAX} literals")]
    TooMany,
}

impl LiteralSet {
    /// Builds the set of these literals, possibly none. Deterministic.
    ///
    /// # Errors
    ///
    /// A literal is empty or too long, or there are too many.
    pub fn new(literals: impl IntoIterator<Item = Literal>) -> Result<Self, LiteralSetError> {
        let mut needles = Vec::new();
        for (number, literal) in (0..).zip(literals) {
            needles.push(needle(number, &literal)?);
        }
        let layers = plan::layers(&needles, Model::get());
        let reach = needles.iter().map(Needle::length).max().unwrap_or(1) - 1;
        Ok(Self { needles, layers, reach })
    }

    /// Checks if these literals, or any part of them, can form a set, without building it.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn check<'a>(literals: impl IntoIterator<Item = &'a Literal>) -> Result<(), LiteralSetError> {
        (0..).zip(literals).try_for_each(|(number, literal)| needle(number, literal).map(drop))
    }

    /// Searches the next piece of a stream. Calls `found` with the number and the end, in bytes
    /// from the start of the piece, for each occurrence of each literal that ends in this piece.
    ///
    /// Occurrences may begin in an earlier piece, overlap, or coincide with those of other
    /// literals. However a stream is cut, the same occurrences are found, each once. The order is
    /// deterministic for the same set, cursor and piece, but not sorted.
    #[inline]
    pub fn scan(&self, cursor: &mut Cursor, piece: &[u8], mut found: impl FnMut(u32, usize)) {
        let recent = cursor.recent();
        let recent = &recent[recent.len() - recent.len().min(self.reach)..];
        match recent.len() + piece.len() {
            _ if recent.is_empty() => self.find(piece, found),
            // One search costs less than two.
            ..=JOINT => self.span(recent, piece, |_, seam, end| end > seam, &mut found),
            _ => {
                let ahead = &piece[..piece.len().min(self.reach)];
                self.span(recent, ahead, |start, seam, end| start < seam && end > seam, &mut found);
                self.find(piece, found);
            }
        }
        cursor.advance(piece);
    }

    /// Searches text outside any stream, as [`scan`](Self::scan) does.
    #[inline]
    pub fn find(&self, text: &[u8], mut found: impl FnMut(u32, usize)) {
        for layer in &self.layers {
            layer.find(&self.needles, text, &mut |literal, _, end| found(literal, end));
        }
    }

    /// Returns the number of literals.
    pub fn len(&self) -> usize {
        self.needles.len()
    }

    /// Checks if there are no literals.
    pub fn is_empty(&self) -> bool {
        self.needles.is_empty()
    }

    /// Returns the memory in use, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(Layer::bytes).sum();
        size_of::<Self>() + size_of_val(&self.needles[..]) + size_of_val(&self.layers[..]) + layers
    }

    /// Reports literals in `recent` and `piece`, with at most [`JOINT`] bytes together, that
    /// `is_new` says are: it gets where a literal starts, where the piece begins, and where the
    /// literal ends.
    #[inline]
    fn span(
        &self,
        recent: &[u8],
        piece: &[u8],
        is_new: impl Fn(usize, usize, usize) -> bool,
        found: &mut impl FnMut(u32, usize),
    ) {
        let mut joint = [0; JOINT];
        let (seam, end) = (recent.len(), recent.len() + piece.len());
        joint[..seam].copy_from_slice(recent);
        joint[seam..end].copy_from_slice(piece);
        for layer in &self.layers {
            layer.find(&self.needles, &joint[..end], &mut |literal, start, end| {
                if is_new(start, seam, end) {
                    found(literal, end - seam);
                }
            });
        }
    }
}

/// Returns the literal in the form for comparisons.
fn needle(number: u32, literal: &Literal) -> Result<Needle, LiteralSetError> {
    if number as usize == LITERALS_MAX {
        return Err(LiteralSetError::TooMany);
    }
    Needle::new(literal).ok_or(match literal.bytes.len() {
        0 => LiteralSetError::Empty { literal: number },
        bytes => LiteralSetError::TooLong { literal: number, bytes },
    })
}
