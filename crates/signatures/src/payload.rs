//! Tests of a buffer.

use crate::buffer::Buffer;
use crate::number::Comparison;
use crate::pcre::Pcre;
use crate::transform::BufferTransform;

/// Maximum bytes of a content.
pub const CONTENT_BYTES_MAX: usize = 4096;
/// Maximum magnitude of offsets, depths and distances, in bytes.
pub const REACH_BYTES_MAX: i32 = 1 << 20;
/// Maximum variables of a rule.
pub const VARIABLES_MAX: usize = 32;
/// Maximum matches of a rule.
pub const MATCHES_MAX: usize = 256;

/// The tests of one buffer. All must match for one assignment of places to the contents: if a
/// relative match fails after an earlier content, other places of that content are tried.
///
/// A rule has one for each of its buffers, in the order of their first naming, and collects the
/// tests of several namings in order. If several such buffers can exist ([`Buffer::is_many`]) or
/// the transforms differ, each naming is separate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferMatches {
    /// The buffer.
    pub buffer: Buffer,
    /// The transforms to apply first, in order. Positions count in their output.
    pub transforms: Vec<BufferTransform>,
    /// The matches, in the order of the rule; never empty.
    pub matches: Vec<PayloadMatch>,
}

/// One test of a buffer.
///
/// Relative tests start at the *cursor*: the end of the previous match in the same buffer (a
/// content, an expression or a jump), or the start of the buffer. Negated matches and tests do not
/// move it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadMatch {
    /// `content`.
    Content(Content),
    /// `pcre`.
    Pcre(Pcre),
    /// `isdataat`.
    DataAt(DataAt),
    /// `bsize`, `urilen`: the buffer's length in bytes.
    Size(Comparison<u64>),
    /// `byte_test`.
    ByteTest(ByteTest),
    /// `byte_jump`: moves the cursor. Fails without a number, or if the cursor would leave the
    /// buffer.
    ByteJump(ByteJump),
    /// `byte_extract`: sets a variable, without moving the cursor.
    ByteExtract(ByteExtract),
    /// `byte_math`: sets a variable, without moving the cursor.
    ByteMath(ByteMath),
    /// `base64_decode`: decodes into [`Buffer::Base64Data`]. Fails if nothing is decoded.
    Base64Decode(Base64Decode),
    /// `absent`: the buffer does not exist.
    Absent {
        /// `absent:or_else`: or it exists and the other matches succeed.
        or_else: bool,
    },
}

/// A constant, or the result of an earlier [`PayloadMatch::ByteExtract`] or
/// [`PayloadMatch::ByteMath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand<N> {
    /// The constant.
    Value(N),
    /// The variable. If its value does not fit, the match fails.
    Variable(ByteVariable),
}

/// A variable: an index into [`crate::Rule::variables`]. It is always set before its use, in the
/// order of [`crate::Rule::buffers`] and their matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteVariable(pub u8);

/// Bytes to search for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The bytes as in the rule; 1 to [`CONTENT_BYTES_MAX`].
    pub pattern: Vec<u8>,
    /// True if the bytes must *not* occur in the range of `position`. The cursor does not move.
    pub negated: bool,
    /// True if ASCII case is ignored.
    pub nocase: bool,
    /// The range to search.
    pub position: ContentPosition,
    /// `endswith`: the match must end at the end of the buffer.
    pub ends: bool,
    /// The `fast_pattern` option; at most one content of a rule has it.
    pub fast_pattern: Option<FastPattern>,
}

impl Content {
    /// Returns the variety of the bytes: 3 for a new letter, 4 for a new other printable character
    /// or 0x00, 0x01, 0xFF, 6 for any other new byte, and 1 for a repeated byte.
    pub(crate) fn variety(&self) -> usize {
        let mut seen = [false; 256];
        self.pattern
            .iter()
            .map(|byte| match std::mem::replace(&mut seen[usize::from(*byte)], true) {
                true => 1,
                false if byte.is_ascii_alphabetic() => 3,
                false if (b' '..=b'~').contains(byte) || matches!(byte, 0 | 1 | 0xff) => 4,
                false => 6,
            })
            .sum()
    }
}

/// The range of a content. The whole match must be within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentPosition {
    /// `offset`, `depth`: the `depth` bytes from byte `offset` of the buffer on; without depth, all
    /// of them. `startswith` is offset 0 with the pattern's length as depth.
    Absolute {
        /// Start; 0 by default.
        offset: Operand<u16>,
        /// Length from the *offset* on; if constant, at least the pattern's length.
        depth: Option<Operand<u16>>,
    },
    /// `distance`, `within`: from the cursor plus `distance` on, within `within` bytes.
    Relative {
        /// Distance from the cursor, possibly negative; 0 by default.
        distance: Operand<i32>,
        /// Length from the *distance* on; if constant, at least the pattern's length.
        within: Option<Operand<i32>>,
    },
}

impl ContentPosition {
    /// The whole buffer.
    pub const ANYWHERE: Self = Self::Absolute { offset: Operand::Value(0), depth: None };
}

/// The pattern of the prefilter. It does not change what the rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FastPattern {
    /// The whole pattern.
    Whole,
    /// The whole pattern. Its presence suffices, because it may be anywhere (`fast_pattern:only`).
    Only,
    /// A part of the pattern.
    Part {
        /// First byte.
        offset: u16,
        /// Number of bytes.
        length: u16,
    },
}

/// `isdataat`: whether the buffer has data at a place.
///
/// With `n` as the place and `len` as the buffer's length: not relative, it matches if n < len;
/// relative, if cursor + n <= len, so that `isdataat:!1,relative` means that nothing follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAt {
    /// The place.
    pub offset: Operand<u16>,
    /// True if it counts from the cursor instead of the start.
    pub relative: bool,
    /// True if there must be no data.
    pub negated: bool,
}

/// A number in a buffer. The match fails if it would leave the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberField {
    /// Bytes: 1 to 8, or 1 to 23 as text. 0 is [`ByteJump`]'s "no number: 0".
    pub bytes: Operand<u8>,
    /// First byte.
    pub offset: Operand<i32>,
    /// True if it counts from the cursor instead of the start.
    pub relative: bool,
    /// The format.
    pub format: NumberFormat,
    /// The mask to apply; the result is shifted right by the mask's lower zero bits. Never 0.
    pub bitmask: Option<u32>,
}

/// The format of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberFormat {
    /// Big-endian; `big`, and by default.
    Big,
    /// Little-endian; `little`.
    Little,
    /// As in the DCERPC header; `dce`.
    Dce,
    /// Digits of base 16; `string,hex`.
    Hexadecimal,
    /// Digits of base 10; `string,dec`.
    Decimal,
    /// Digits of base 8; `string,oct`.
    Octal,
    /// Base 16 after `0x`, 8 after `0`, otherwise 10; `string` alone.
    Any,
}

/// `byte_test`: compares a number in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteTest {
    /// The number.
    pub number: NumberField,
    /// True if the comparison must fail.
    pub negated: bool,
    /// The operator between number and value.
    pub operator: TestOperator,
    /// The value.
    pub value: Operand<u64>,
}

/// The operator of a [`ByteTest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TestOperator {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `=`
    Equal,
    /// `&`: they have a set bit in common.
    And,
    /// `^`: a bit is set in exactly one of them.
    Xor,
}

/// `byte_jump`: moves the cursor by a number in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteJump {
    /// The number.
    pub number: NumberField,
    /// The factor; 1 by default.
    pub multiplier: u16,
    /// True if the result is rounded up to a multiple of 4.
    pub align: bool,
    /// The origin.
    pub origin: JumpOrigin,
    /// The distance added at the end.
    pub post_offset: Operand<i32>,
}

/// The origin of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JumpOrigin {
    /// The end of the number.
    Number,
    /// The start of the buffer.
    Beginning,
    /// The end of the buffer.
    End,
}

/// `byte_extract`: sets a variable to a number in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteExtract {
    /// The number.
    pub number: NumberField,
    /// The variable.
    pub result: ByteVariable,
    /// The factor; 1 by default.
    pub multiplier: u16,
    /// The alignment, 2 or 4, of the result, which is rounded up.
    pub align: Option<u8>,
}

/// `byte_math`: sets a variable to the result of number, operator, value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMath {
    /// The number.
    pub number: NumberField,
    /// The operator.
    pub operator: MathOperator,
    /// The right-hand value.
    pub value: Operand<u32>,
    /// The variable.
    pub result: ByteVariable,
}

/// The operator of a [`ByteMath`], in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MathOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; fails for 0.
    Divide,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
}

/// `base64_decode`: decodes into [`Buffer::Base64Data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base64Decode {
    /// Bytes to decode; all by default.
    pub bytes: Option<u32>,
    /// First byte.
    pub offset: u32,
    /// True if it counts from the cursor instead of the start.
    pub relative: bool,
}
