//! The set of literals, and the search for them.

use crate::cursor::{Cursor, RECENT};
use crate::layer::Layer;
use crate::literal::{LITERAL_MAX, Literal, Needle};
use crate::model::Model;
use crate::plan;

/// The most literals of a set.
pub const LITERALS_MAX: usize = 1 << 16;

/// Literals that are searched for together. A literal's number is its place among those that the
/// set was made of; the same bytes may be given more than once.
///
/// How long the literals are says how fast the search is: ones of seven bytes or more are best,
/// then those of four or more; of shorter ones even a few make it slow.
#[derive(Clone, Debug)]
pub struct Set {
    needles: Vec<Needle>,
    layers: Vec<Layer>,
    /// The bytes before a piece that can be part of a literal: one fewer than the longest has.
    reach: usize,
}

/// Why literals are no [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// A literal has no bytes, and would be everywhere.
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
        /// The number of its bytes.
        bytes: usize,
    },
    /// There are more than [`LITERALS_MAX`].
    #[error("there are more than {LITERALS_MAX} literals")]
    TooMany,
}

impl Set {
    /// The set of these literals; none at all are allowed, too. The same literals give the same
    /// set.
    ///
    /// # Errors
    ///
    /// If one of them is empty or too long, or if there are too many.
    pub fn new(literals: impl IntoIterator<Item = Literal>) -> Result<Self, SetError> {
        let mut needles = Vec::new();
        for (number, literal) in (0..).zip(literals) {
            needles.push(needle(number, &literal)?);
        }
        let layers = plan::layers(&needles, Model::get());
        let reach = needles.iter().map(Needle::length).max().unwrap_or(1) - 1;
        Ok(Self { needles, layers, reach })
    }

    /// Whether these literals, or any part of them, are a set: without the work of making it.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn check<'a>(literals: impl IntoIterator<Item = &'a Literal>) -> Result<(), SetError> {
        (0..).zip(literals).try_for_each(|(number, literal)| needle(number, literal).map(drop))
    }

    /// Searches the next piece of a stream, and calls `found` with a literal's number and with the
    /// end of it, in bytes from the start of the piece, for each occurrence of each literal that
    /// ends in this piece, be it that it began in an earlier one, that it overlaps others, or that
    /// the same is found for another literal. However a stream is cut into pieces, the same
    /// occurrences are found, each once.
    ///
    /// Those that began in earlier pieces come first. Otherwise the order is always the same for
    /// the same set, cursor and piece, but neither the ends nor the numbers are sorted.
    #[inline]
    pub fn scan(&self, cursor: &mut Cursor, piece: &[u8], mut found: impl FnMut(u32, usize)) {
        let recent = cursor.recent();
        let recent = &recent[recent.len() - recent.len().min(self.reach)..];
        if !recent.is_empty() {
            self.span(recent, piece, &mut found);
        }
        self.find(piece, found);
        cursor.advance(piece);
    }

    /// Searches a text that is no part of a stream, as [`scan`](Self::scan) does.
    #[inline]
    pub fn find(&self, text: &[u8], mut found: impl FnMut(u32, usize)) {
        for layer in &self.layers {
            layer.find(&self.needles, text, &mut |literal, _, end| found(literal, end));
        }
    }

    /// The number of literals.
    pub fn len(&self) -> usize {
        self.needles.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.needles.is_empty()
    }

    /// What the set takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let layers: usize = self.layers.iter().map(Layer::bytes).sum();
        size_of::<Self>() + size_of_val(&self.needles[..]) + size_of_val(&self.layers[..]) + layers
    }

    /// Tells of the literals that begin in `recent`, which has at most `reach` bytes, and end in
    /// the piece behind it.
    fn span(&self, recent: &[u8], piece: &[u8], found: &mut impl FnMut(u32, usize)) {
        let mut joint = [0; 2 * RECENT];
        let (seam, end) = (recent.len(), recent.len() + piece.len().min(self.reach));
        joint[..seam].copy_from_slice(recent);
        joint[seam..end].copy_from_slice(&piece[..end - seam]);
        for layer in &self.layers {
            layer.find(&self.needles, &joint[..end], &mut |literal, start, end| {
                if start < seam && end > seam {
                    found(literal, end - seam);
                }
            });
        }
    }
}

/// The literal with this number, as it is compared.
fn needle(number: u32, literal: &Literal) -> Result<Needle, SetError> {
    if number as usize == LITERALS_MAX {
        return Err(SetError::TooMany);
    }
    Needle::new(literal).ok_or(match literal.bytes.len() {
        0 => SetError::Empty { literal: number },
        bytes => SetError::TooLong { literal: number, bytes },
    })
}
