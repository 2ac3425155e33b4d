//! Compilation of expressions to programs.

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};
use regex_syntax::hir::{Look, Look::*};

use crate::ExpressionFeature;
use crate::expression::{BacktrackingSyntax, Group};
use crate::inspect::unsupported::{EXPRESSION_BYTES_MAX, UnsupportedReason};

/// A compiled expression.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub code: Vec<Instruction>,
    /// Sets of bytes.
    pub classes: Vec<ByteSet>,
    /// Number of registers.
    pub registers: usize,
    pub starts: Starts,
}

/// An instruction. The next one follows, unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    /// Takes this byte.
    Byte(u8),
    /// Takes a byte of a class, by its index.
    Class(u32),
    /// Tests a place.
    Look(Look),
    /// Continues here and, if that fails, there.
    Split(u32, u32),
    Jump(u32),
    /// Puts the place into a register.
    Save(u32),
    /// Continues there if the place is the one in a register: an empty repetition is the last one.
    EndIfEmpty(u32, u32),
    /// Ends a group, by the first of its registers.
    Capture(u32),
    /// Takes the bytes of a group, by the first of its registers.
    Reference {
        group: u32,
        caseless: bool,
    },
    /// Begins an atomic group. Its register keeps the length of the backtracking stack.
    Atomic(u32),
    /// Ends an atomic group: its other alternatives are forgotten.
    AtomicEnd(u32),
    /// Begins a look-around: its registers keep the length of the backtracking stack, and the
    /// place. If it is negated, its failure continues there. Its end is there, too.
    LookAround {
        register: u32,
        negated: bool,
        end: u32,
    },
    /// Ends a look-around: returns to its place, or fails if it is negated.
    LookAroundEnd {
        register: u32,
        negated: bool,
    },
    /// Goes back by this number of bytes.
    Back(u32),
    /// The expression matches.
    Match,
}

/// Registers of a group: where it was opened last, and where it last matched.
pub(super) const GROUP_REGISTERS: usize = 3;
/// The value of a register without a place.
pub(super) const NO_PLACE: usize = usize::MAX;

const INSTRUCTIONS_MAX: usize = EXPRESSION_BYTES_MAX / size_of::<Instruction>();

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    pub fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 != 0
    }

    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn unite(&mut self, other: &ByteSet) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
    }
}

/// The places at which a match can begin. It can at the beginning of the input.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Starts {
    /// The first bytes of matches elsewhere.
    bytes: ByteSet,
    /// True if a match elsewhere can be empty, or begin with any byte.
    anywhere: bool,
}

impl Starts {
    pub fn may_begin(&self, byte: Option<u8>) -> bool {
        self.anywhere || byte.is_some_and(|byte| self.bytes.has(byte))
    }

    pub fn is_at_base_only(&self) -> bool {
        !self.anywhere && self.bytes == ByteSet::default()
    }
}

impl Program {
    pub fn new(syntax: &BacktrackingSyntax) -> Result<Self, UnsupportedReason> {
        let mut parser = regex_syntax::ParserBuilder::new().utf8(false).nest_limit(NEST_MAX).build();
        let hir = parser.parse(&syntax.regex).map_err(|_| UnsupportedReason::TooLarge)?;
        let mut referred: Vec<_> = syntax.groups.iter().filter_map(Group::refers_to).collect();
        referred.sort_unstable();
        referred.dedup();
        let mut compiler = Compiler {
            groups: &syntax.groups,
            code: Vec::new(),
            classes: Vec::new(),
            registers: referred.len() * GROUP_REGISTERS,
            referred,
        };
        compiler.add(&hir)?;
        compiler.push(Instruction::Match)?;
        let Compiler { code, classes, registers, .. } = compiler;
        let starts = starts(&code, &classes);
        Ok(Self { code, classes, registers, starts })
    }

    /// Returns whether matches after a place do not depend on the bytes before it.
    pub fn looks_forward_only(&self) -> bool {
        !self.code.iter().any(|one| match one {
            Instruction::Look(look) => !matches!(look, End | EndLF),
            Instruction::Back(_) => true,
            _ => false,
        })
    }
}

/// Maximum nesting of an expression's translation.
const NEST_MAX: u32 = 500;

struct Compiler<'a> {
    groups: &'a [Group],
    /// The captured groups that are referred to; the match of others is not kept.
    referred: Vec<usize>,
    code: Vec<Instruction>,
    classes: Vec<ByteSet>,
    registers: usize,
}

type Compiled = Result<(), UnsupportedReason>;

impl Compiler<'_> {
    fn add(&mut self, hir: &Hir) -> Compiled {
        match hir.kind() {
            HirKind::Empty => Ok(()),
            HirKind::Literal(literal) => {
                literal.0.iter().try_for_each(|byte| self.push(Instruction::Byte(*byte)))
            }
            HirKind::Class(class) => {
                let class = self.class(class)?;
                self.push(Instruction::Class(class))
            }
            HirKind::Look(look @ (Start | End | StartLF | EndLF | WordAscii | WordAsciiNegate)) => {
                self.push(Instruction::Look(*look))
            }
            HirKind::Look(_) => Err(UnsupportedReason::Expression(ExpressionFeature::Other)),
            HirKind::Repetition(repetition) => self.repetition(repetition),
            HirKind::Capture(capture) => {
                // Groups are numbered from 1.
                let group = self.groups.get((capture.index as usize).wrapping_sub(1));
                let group = group.ok_or(UnsupportedReason::Expression(ExpressionFeature::Other))?;
                self.group(group, &capture.sub)
            }
            HirKind::Concat(items) => items.iter().try_for_each(|item| self.add(item)),
            HirKind::Alternation(items) => self.alternatives(items, Self::add),
        }
    }

    fn push(&mut self, instruction: Instruction) -> Compiled {
        if self.code.len() >= INSTRUCTIONS_MAX {
            return Err(UnsupportedReason::TooLarge);
        }
        self.code.push(instruction);
        Ok(())
    }

    /// Returns the place of the next instruction.
    fn here(&self) -> u32 {
        // No more than `INSTRUCTIONS_MAX`.
        self.code.len() as u32
    }

    fn register(&mut self, count: usize) -> u32 {
        self.registers += count;
        // No more than there are instructions and captured groups, with few registers each.
        (self.registers - count) as u32
    }

    /// Appends an instruction with its target left open; returns its place.
    fn open(&mut self) -> Result<usize, UnsupportedReason> {
        self.push(Instruction::Match)?;
        Ok(self.code.len() - 1)
    }

    fn class(&mut self, class: &Class) -> Result<u32, UnsupportedReason> {
        let bytes = match class {
            Class::Bytes(bytes) => Some(bytes.clone()),
            Class::Unicode(chars) => chars.to_byte_class(),
        };
        let bytes = bytes.ok_or(UnsupportedReason::Expression(ExpressionFeature::Unicode))?;
        let mut set = ByteSet::default();
        bytes.iter().for_each(|range| (range.start()..=range.end()).for_each(|byte| set.add(byte)));
        let known = self.classes.iter().position(|known| *known == set);
        let index = known.unwrap_or_else(|| {
            self.classes.push(set);
            self.classes.len() - 1
        });
        // No more than there are instructions.
        Ok(index as u32)
    }

    fn alternatives(&mut self, items: &[Hir], add: fn(&mut Self, &Hir) -> Compiled) -> Compiled {
        let Some((last, others)) = items.split_last() else { return Ok(()) };
        let mut ends = Vec::with_capacity(others.len());
        for item in others {
            let split = self.open()?;
            let first = self.here();
            add(self, item)?;
            ends.push(self.open()?);
            self.code[split] = Instruction::Split(first, self.here());
        }
        add(self, last)?;
        let end = Instruction::Jump(self.here());
        ends.into_iter().for_each(|jump| self.code[jump] = end);
        Ok(())
    }

    fn repetition(&mut self, repetition: &Repetition) -> Compiled {
        let Repetition { min, max, greedy, ref sub } = *repetition;
        let once = if max.is_none() { min.saturating_sub(1) } else { min };
        for _ in 0..once {
            self.add(sub)?;
        }
        let split = |inside, outside| match greedy {
            true => Instruction::Split(inside, outside),
            false => Instruction::Split(outside, inside),
        };
        let Some(max) = max else {
            let skip = if min == 0 { Some(self.open()?) } else { None };
            let begin = self.here();
            let empty = self.may_be_empty(sub).then(|| self.register(1));
            if let Some(register) = empty {
                self.push(Instruction::Save(register))?;
            }
            self.add(sub)?;
            let check = if empty.is_some() { Some(self.open()?) } else { None };
            let again = self.open()?;
            let end = self.here();
            self.code[again] = split(begin, end);
            for (place, register) in check.into_iter().zip(empty) {
                self.code[place] = Instruction::EndIfEmpty(register, end);
            }
            if let Some(skip) = skip {
                self.code[skip] = split(begin, end);
            }
            return Ok(());
        };
        let mut splits = Vec::new();
        for _ in min..max {
            splits.push(self.open()?);
            self.add(sub)?;
        }
        let end = self.here();
        splits.into_iter().for_each(|place| self.code[place] = split(place as u32 + 1, end));
        Ok(())
    }

    fn group(&mut self, group: &Group, inside: &Hir) -> Compiled {
        match *group {
            Group::Alternative => Ok(()),
            Group::Capture(number) => {
                let Some(register) = self.captured(number) else { return self.add(inside) };
                self.push(Instruction::Save(register))?;
                self.add(inside)?;
                self.push(Instruction::Capture(register))
            }
            Group::Reference { to, caseless } => match self.captured(to) {
                Some(group) => self.push(Instruction::Reference { group, caseless }),
                None => Err(UnsupportedReason::Expression(ExpressionFeature::Malformed)),
            },
            Group::Name { .. } => Err(UnsupportedReason::Expression(ExpressionFeature::Malformed)),
            Group::Atomic => {
                let register = self.register(1);
                self.push(Instruction::Atomic(register))?;
                self.add(inside)?;
                self.push(Instruction::AtomicEnd(register))
            }
            Group::Look { behind, negated } => {
                let register = self.register(2);
                let begin = self.open()?;
                match (behind, inside.kind()) {
                    (false, _) => self.add(inside)?,
                    (true, HirKind::Alternation(items)) => self.alternatives(items, Self::behind)?,
                    (true, _) => self.behind(inside)?,
                }
                self.push(Instruction::LookAroundEnd { register, negated })?;
                self.code[begin] = Instruction::LookAround { register, negated, end: self.here() };
                Ok(())
            }
        }
    }

    /// Returns the first register of a group that is referred to.
    fn captured(&self, number: usize) -> Option<u32> {
        let index = self.referred.binary_search(&number).ok()?;
        // No more than there are bytes in the expression.
        Some((index * GROUP_REGISTERS) as u32)
    }

    /// Adds an alternative of a lookbehind. Its length must be fixed.
    fn behind(&mut self, hir: &Hir) -> Compiled {
        let variable = UnsupportedReason::Expression(ExpressionFeature::VariableLookbehind);
        let length = self.length(hir).ok_or(variable)?;
        self.push(Instruction::Back(length))?;
        self.add(hir)
    }

    /// Returns the number of bytes that an expression takes, if it is fixed.
    fn length(&self, hir: &Hir) -> Option<u32> {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Some(0),
            HirKind::Literal(literal) => u32::try_from(literal.0.len()).ok(),
            HirKind::Class(_) => Some(1),
            HirKind::Repetition(Repetition { min, max, sub, .. }) => {
                let count = max.filter(|max| max == min)?;
                self.length(sub)?.checked_mul(count)
            }
            HirKind::Capture(capture) => match self.groups.get((capture.index as usize).wrapping_sub(1))? {
                Group::Capture(_) | Group::Atomic => self.length(&capture.sub),
                Group::Look { .. } | Group::Alternative => Some(0),
                Group::Reference { .. } | Group::Name { .. } => None,
            },
            HirKind::Concat(items) => {
                items.iter().try_fold(0u32, |sum, item| sum.checked_add(self.length(item)?))
            }
            HirKind::Alternation(items) => {
                let first = self.length(items.first()?)?;
                items.iter().all(|item| self.length(item) == Some(first)).then_some(first)
            }
        }
    }

    /// Returns whether an expression may match no bytes.
    fn may_be_empty(&self, hir: &Hir) -> bool {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => true,
            HirKind::Literal(_) | HirKind::Class(_) => false,
            HirKind::Repetition(repetition) => repetition.min == 0 || self.may_be_empty(&repetition.sub),
            HirKind::Capture(capture) => match self.groups.get((capture.index as usize).wrapping_sub(1)) {
                Some(Group::Capture(_) | Group::Atomic) => self.may_be_empty(&capture.sub),
                _ => true,
            },
            HirKind::Concat(items) => items.iter().all(|item| self.may_be_empty(item)),
            HirKind::Alternation(items) => items.iter().any(|item| self.may_be_empty(item)),
        }
    }
}

/// Returns the places at which a program can match.
fn starts(code: &[Instruction], classes: &[ByteSet]) -> Starts {
    let mut starts = Starts::default();
    let (mut next, mut seen) = (vec![0u32], BTreeSet::new());
    while let Some(at) = next.pop() {
        if !seen.insert(at) {
            continue;
        }
        match code[at as usize] {
            Instruction::Byte(byte) => starts.bytes.add(byte),
            Instruction::Class(class) => starts.bytes.unite(&classes[class as usize]),
            Instruction::Look(Start) => {}
            Instruction::Reference { .. } | Instruction::Match => starts.anywhere = true,
            Instruction::Split(here, there) => next.extend([here, there]),
            Instruction::Jump(there) => next.push(there),
            Instruction::EndIfEmpty(_, there) => next.extend([at + 1, there]),
            // Taken to hold.
            Instruction::LookAround { end, .. } => next.push(end),
            _ => next.push(at + 1),
        }
    }
    starts
}
