//! Execution of programs.

use regex_syntax::hir::Look;

use super::program::{Instruction, NO_PLACE, Program};
use crate::inspect::budget::Budget;

/// Bytes of an evaluation's budget that an instruction costs: an expression that executes one for
/// each byte, on average, reads the buffer once.
pub(crate) const INSTRUCTION_BYTES: usize = 16;

/// Maximum entries of an expression's backtracking stack. Beyond it, its evaluation is given up.
const BACKTRACKS_MAX: usize = 1 << 17;

/// The memory of programs: places to return to, and registers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backtracks {
    stack: Vec<Backtrack>,
    registers: Vec<usize>,
}

/// An entry of the backtracking stack. When an alternative fails, entries are executed, the last
/// one first.
#[derive(Clone, Copy, Debug)]
enum Backtrack {
    /// Tries another alternative: an instruction, and its place in the input.
    Try(u32, usize),
    /// Restores a register.
    Restore(u32, usize),
}

impl Backtracks {
    /// Returns the end of the match that begins at `start`, if there is one within the budget.
    pub(super) fn run(
        &mut self,
        program: &Program,
        input: &[u8],
        start: usize,
        budget: &mut Budget,
    ) -> Option<usize> {
        self.stack.clear();
        self.registers.clear();
        self.registers.resize(program.registers, NO_PLACE);
        budget.spend(program.registers);
        let (mut at, mut place) = (0, start);
        while !budget.is_spent() {
            budget.spend(INSTRUCTION_BYTES);
            let mut next = at + 1;
            let holds = match program.code[at as usize] {
                Instruction::Byte(byte) => input.get(place) == Some(&byte) && go(&mut place, 1),
                Instruction::Class(class) => {
                    let class = &program.classes[class as usize];
                    input.get(place).is_some_and(|byte| class.has(*byte)) && go(&mut place, 1)
                }
                Instruction::Look(look) => is_at(look, input, place),
                Instruction::Split(here, there) => {
                    self.stack.push(Backtrack::Try(there, place));
                    next = here;
                    true
                }
                Instruction::Jump(there) => {
                    next = there;
                    true
                }
                Instruction::Save(register) => self.set(register, place),
                Instruction::EndIfEmpty(register, there) => {
                    if self.registers[register as usize] == place {
                        next = there;
                    }
                    true
                }
                Instruction::Capture(group) => {
                    let opened = self.registers[group as usize];
                    self.set(group + 1, opened) && self.set(group + 2, place)
                }
                Instruction::Reference { group, caseless } => self
                    .refers(group, caseless, input, place, budget)
                    .is_some_and(|length| go(&mut place, length)),
                Instruction::Atomic(register) => {
                    self.registers[register as usize] = self.stack.len();
                    true
                }
                Instruction::AtomicEnd(register) => self.forget(register, budget),
                Instruction::LookAround { register, negated, end } => {
                    // Nothing returns into a look-around or an atomic group that has ended, so
                    // these need not be restored.
                    self.registers[register as usize] = self.stack.len();
                    self.registers[register as usize + 1] = place;
                    if negated {
                        self.stack.push(Backtrack::Try(end, place));
                    }
                    true
                }
                Instruction::LookAroundEnd { register, negated: false } => {
                    place = self.registers[register as usize + 1];
                    self.forget(register, budget)
                }
                Instruction::LookAroundEnd { register, negated: true } => {
                    let first = self.registers[register as usize];
                    while self.stack.len() > first {
                        self.pop();
                    }
                    false
                }
                Instruction::Back(length) => match place.checked_sub(length as usize) {
                    Some(before) => {
                        place = before;
                        true
                    }
                    None => false,
                },
                Instruction::Match => return Some(place),
            };
            if holds {
                at = next;
                if self.stack.len() > BACKTRACKS_MAX {
                    budget.use_up();
                }
                continue;
            }
            loop {
                if self.stack.is_empty() {
                    return None;
                }
                if let Some(other) = self.pop() {
                    (at, place) = other;
                    break;
                }
            }
        }
        None
    }

    /// Removes the last backtrack. Returns it if it is an alternative, else carries it out.
    fn pop(&mut self) -> Option<(u32, usize)> {
        match self.stack.pop()? {
            Backtrack::Try(at, place) => Some((at, place)),
            Backtrack::Restore(register, value) => {
                self.registers[register as usize] = value;
                None
            }
        }
    }

    /// Sets a register until an alternative before it is tried.
    fn set(&mut self, register: u32, value: usize) -> bool {
        let before = std::mem::replace(&mut self.registers[register as usize], value);
        self.stack.push(Backtrack::Restore(register, before));
        true
    }

    /// Forgets the alternatives since the group with this register began.
    fn forget(&mut self, register: u32, budget: &mut Budget) -> bool {
        let first = self.registers[register as usize];
        budget.spend(self.stack.len() - first);
        let mut kept = first;
        for index in first..self.stack.len() {
            if let one @ Backtrack::Restore(..) = self.stack[index] {
                self.stack[kept] = one;
                kept += 1;
            }
        }
        self.stack.truncate(kept);
        true
    }

    /// Returns the length of a group's match if it is repeated at this place.
    fn refers(
        &self,
        group: u32,
        caseless: bool,
        input: &[u8],
        place: usize,
        budget: &mut Budget,
    ) -> Option<usize> {
        let [first, last] = [1, 2].map(|one| self.registers[group as usize + one]);
        let matched = input.get(first..last)?;
        let here = input.get(place..)?.get(..matched.len())?;
        budget.spend(matched.len());
        let is_same = if caseless { here.eq_ignore_ascii_case(matched) } else { here == matched };
        is_same.then_some(matched.len())
    }
}

/// Takes bytes.
fn go(place: &mut usize, bytes: usize) -> bool {
    *place += bytes;
    true
}

fn is_at(look: Look, input: &[u8], place: usize) -> bool {
    let before = place.checked_sub(1).map(|before| input[before]);
    let after = input.get(place).copied();
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match look {
        Look::Start => before.is_none(),
        Look::End => after.is_none(),
        Look::StartLF => before.is_none_or(|byte| byte == b'\n'),
        Look::EndLF => after.is_none_or(|byte| byte == b'\n'),
        Look::WordAscii => is_word(before) != is_word(after),
        Look::WordAsciiNegate => is_word(before) == is_word(after),
        // The compiler refuses others.
        _ => false,
    }
}
