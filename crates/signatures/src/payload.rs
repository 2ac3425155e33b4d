//! What rules ask of a buffer.

use crate::buffer::Buffer;
use crate::number::Comparison;
use crate::pcre::Pcre;
use crate::transform::Transform;

/// The most bytes of a content.
pub const CONTENT_BYTES_MAX: usize = 4096;
/// The furthest that offsets, depths and distances reach, in bytes.
pub const REACH_BYTES_MAX: i32 = 1 << 20;
/// The most variables of a rule.
pub const VARIABLES_MAX: usize = 32;
/// The most matches of a rule.
pub const MATCHES_MAX: usize = 256;

/// What is asked of one buffer. All of it has to hold for one and the same assignment of places to
/// the contents: where a relative match fails after an earlier content, other places of that
/// content are tried.
///
/// A rule has one for each of its buffers, in the order in which the rule names them first; what
/// the rule says of a buffer in several places is together here, in order. Where there may be
/// several such buffers ([`Buffer::is_many`]), or where transforms differ, each naming is one of
/// its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferMatches {
    /// Which buffer.
    pub buffer: Buffer,
    /// What is done to it first, in order. Positions count in what that gives.
    pub transforms: Vec<Transform>,
    /// What has to hold, in the order of the rule. Never empty.
    pub matches: Vec<Match>,
}

/// One test of a buffer.
///
/// Relative ones are about the *cursor*: the end of the last match before this one in the same
/// buffer, be it a content, an expression or a jump; the start of the buffer if there is none. A
/// negated match does not move it, nor does a test.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Match {
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
    /// `byte_jump`: moves the cursor. Fails where there is no number or the cursor would leave the
    /// buffer.
    ByteJump(ByteJump),
    /// `byte_extract`: gives a variable its value. Does not move the cursor.
    ByteExtract(ByteExtract),
    /// `byte_math`: gives a variable its value. Does not move the cursor.
    ByteMath(ByteMath),
    /// `base64_decode`: decodes into [`Buffer::Base64Data`]. Fails where nothing is decoded.
    Base64Decode(Base64Decode),
    /// `absent`: there is no such buffer.
    Absent {
        /// `absent:or_else`: or there is, and the other matches hold.
        or_else: bool,
    },
}

/// A number in the rule, or one that an earlier [`Match::ByteExtract`] or [`Match::ByteMath`]
/// found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand<N> {
    /// The number.
    Value(N),
    /// The variable's value. If it does not fit where it is used, the match fails.
    Variable(Variable),
}

/// A variable: an index into [`crate::Rule::variables`]. It has a value where it is used, for it is
/// set earlier in the order of [`crate::Rule::buffers`] and their matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variable(pub u8);

/// Bytes to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The bytes, as the rule has them; never none, at most [`CONTENT_BYTES_MAX`].
    pub pattern: Vec<u8>,
    /// The match holds where the bytes are *not* found in the part that `position` names. It does
    /// not move the cursor.
    pub negated: bool,
    /// ASCII letters match in either case.
    pub nocase: bool,
    /// Where to look.
    pub position: Position,
    /// `endswith`: the match has to end at the end of the buffer.
    pub ends: bool,
    /// The mark `fast_pattern`; at most one content of a rule has it.
    pub fast_pattern: Option<FastPattern>,
}

impl Content {
    /// How varied the bytes are: a new letter counts 3, a new other printable character or 0x00,
    /// 0x01, 0xFF 4, another new byte 6, and what was there before 1.
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

/// Where a content may be. The whole match has to lie in the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// `offset`, `depth`: the `depth` bytes that begin at byte `offset` of the buffer; without
    /// depth, all from there. `startswith` is offset 0 and the pattern's length as depth.
    Absolute {
        /// From where on; 0 if the rule does not say.
        offset: Operand<u16>,
        /// In how many bytes from the *offset* on; at least the pattern's length if it is a number.
        depth: Option<Operand<u16>>,
    },
    /// `distance`, `within`: from the cursor plus `distance` on; and in the `within` bytes from
    /// there on.
    Relative {
        /// From how far after the cursor on; before it if negative. 0 if the rule does not say.
        distance: Operand<i32>,
        /// In how many bytes from the *distance* on; at least the pattern's length if it is a
        /// number.
        within: Option<Operand<i32>>,
    },
}

impl Position {
    /// Anywhere in the buffer.
    pub const ANYWHERE: Self = Self::Absolute { offset: Operand::Value(0), depth: None };
}

/// What a search for many patterns looks for. It does not change what the rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FastPattern {
    /// The whole pattern.
    Whole,
    /// The whole pattern; finding it is enough, as it may be anywhere (`fast_pattern:only`).
    Only,
    /// A part of the pattern.
    Part {
        /// From which byte on.
        offset: u16,
        /// How many bytes.
        length: u16,
    },
}

/// `isdataat`: whether the buffer has data at a place.
///
/// With `n` as the place and `len` as the buffer's length: not relative, it holds where n < len;
/// relative, where cursor + n <= len, so that `isdataat:!1,relative` says that nothing follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAt {
    /// The place.
    pub offset: Operand<u16>,
    /// Counted from the cursor instead of from the start.
    pub relative: bool,
    /// Holds where there is no data.
    pub negated: bool,
}

/// How a number is read out of a buffer. The match fails where it would leave the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// How many bytes: 1 to 8, or as text 1 to 23. 0 is what [`ByteJump`] has for "no number: 0".
    pub bytes: Operand<u8>,
    /// From which byte on.
    pub offset: Operand<i32>,
    /// Counted from the cursor instead of from the start.
    pub relative: bool,
    /// How the bytes make a number.
    pub format: NumberFormat,
    /// What is left of it: combined by AND, then moved right by the mask's lower zero bits. Never
    /// 0.
    pub bitmask: Option<u32>,
}

/// How bytes make a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberFormat {
    /// The first byte is the highest; `big`, and if the rule does not say.
    Big,
    /// The first byte is the lowest; `little`.
    Little,
    /// As DCERPC's header says; `dce`.
    Dce,
    /// Digits of base 16; `string,hex`.
    Hexadecimal,
    /// Digits of base 10; `string,dec`.
    Decimal,
    /// Digits of base 8; `string,oct`.
    Octal,
    /// Digits of base 16 after `0x`, 8 after `0`, else 10; `string` alone.
    Any,
}

/// `byte_test`: compares a number in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteTest {
    /// The number.
    pub number: Number,
    /// The other way round.
    pub negated: bool,
    /// How it is compared: the number, operator, value.
    pub operator: TestOperator,
    /// With what.
    pub value: Operand<u64>,
}

/// How [`ByteTest`] compares.
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
    /// `&`: the two have a set bit in common.
    And,
    /// `^`: a bit is set in one of the two only.
    Xor,
}

/// `byte_jump`: moves the cursor by a number in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteJump {
    /// The number.
    pub number: Number,
    /// What it is multiplied with; 1 if the rule does not say.
    pub multiplier: u16,
    /// Whether it is then rounded up to a multiple of 4.
    pub align: bool,
    /// From where the jump goes.
    pub origin: JumpOrigin,
    /// How far the jump goes beyond that.
    pub post_offset: Operand<i32>,
}

/// From where a jump goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JumpOrigin {
    /// From the end of the number.
    Number,
    /// From the start of the buffer.
    Beginning,
    /// From the end of the buffer.
    End,
}

/// `byte_extract`: gives a variable the value of a number in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteExtract {
    /// The number.
    pub number: Number,
    /// The variable.
    pub result: Variable,
    /// What the number is multiplied with; 1 if the rule does not say.
    pub multiplier: u16,
    /// The number of bytes, 2 or 4, to a multiple of which it is then rounded up.
    pub align: Option<u8>,
}

/// `byte_math`: gives a variable the result of a calculation: number, operator, value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMath {
    /// The number.
    pub number: Number,
    /// What to calculate.
    pub operator: MathOperator,
    /// The value on the right.
    pub value: Operand<u32>,
    /// The variable.
    pub result: Variable,
}

/// What [`ByteMath`] calculates, in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MathOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; by 0 the match fails.
    Divide,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
}

/// `base64_decode`: decodes into [`Buffer::Base64Data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base64Decode {
    /// How many bytes of the buffer to decode; all if the rule does not say.
    pub bytes: Option<u32>,
    /// From which byte on.
    pub offset: u32,
    /// Counted from the cursor instead of from the start.
    pub relative: bool,
}
