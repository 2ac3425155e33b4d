//! Backtracking search over the places of matches.

use crate::{Base64Decode, Base64Mode};

use crate::inspect::base64;
use crate::inspect::budget::Budget;
use crate::inspect::scratch::{Choice, Failed, InspectionScratch};
use crate::inspect::step::{Content, Step, Test};
use crate::inspect::view::BufferView;

/// Returns whether all steps match for one assignment of places, within
/// [`crate::inspect::STEPS_MAX`].
///
/// Places are tried in ascending order, and the last content or expression with another place is
/// retried first. Variables therefore have the values of the first assignment in this order that
/// matches.
pub(crate) fn holds(steps: &[Step], view: BufferView<'_>, scratch: &mut InspectionScratch) -> bool {
    scratch.choices.clear();
    scratch.failed.clear();
    scratch.failed.resize(steps.len(), Failed::NOTHING);
    let times = steps.iter().map(|step| step.test.bytes_per_byte()).sum();
    let budget = scratch.budget(times, view.bytes.len());
    let mut search = Search { steps, view, budget, scratch };
    let holds = search.all();
    let budget = search.budget;
    scratch.settle(budget);
    holds
}

struct Search<'a, 's> {
    steps: &'a [Step],
    view: BufferView<'a>,
    budget: Budget,
    scratch: &'s mut InspectionScratch,
}

impl Search<'_, '_> {
    /// Returns whether all steps match.
    fn all(&mut self) -> bool {
        let (mut at, mut cursor) = (0, self.view.beginning);
        while at < self.steps.len() {
            let found = self.step(at, cursor).map(|end| (at, end)).or_else(|| self.go_back());
            if self.budget.is_spent() {
                return false;
            }
            let Some((step, end)) = found else { return false };
            (at, cursor) = (step + 1, end);
        }
        true
    }

    /// Tries a step at its first place; returns the cursor after it.
    fn step(&mut self, at: usize, cursor: i64) -> Option<i64> {
        let Step { test, order } = &self.steps[at];
        if order.begins_group {
            self.scratch.choices.clear();
        }
        let (view, values) = (self.view, &mut self.scratch.variables);
        let backtracks = &mut self.scratch.backtracks;
        let holds = match test {
            Test::Content(content) => {
                let Content { literal, position, ends } = content;
                let places = view.places(position, *ends, literal.len(), cursor, values).ok()??;
                let (first, last) = (places.first, places.last);
                return self.choose(Choice { step: at, base: 0, first, next: first, last });
            }
            Test::Pcre { relative, .. } => {
                let base = view.visible_base(*relative, cursor);
                let last = view.bytes.len();
                return self.choose(Choice { step: at, base, first: base, next: base, last });
            }
            Test::Lacks(content) => self.lacks(content, cursor)?,
            Test::LacksPcre { expression, relative } => {
                let base = view.visible_base(*relative, cursor);
                expression.find(view.bytes, base, base, backtracks, &mut self.budget).is_none()
            }
            Test::DataAt(test) => view.has_data(test, cursor, values)?,
            Test::Size(size) => size.holds(view.size()),
            Test::ByteTest(test) => view.byte_test(test, cursor, values),
            Test::ByteJump(jump) => return view.byte_jump(jump, cursor, values),
            Test::ByteExtract(extract) => {
                let (value, end) = view.byte_extract(extract, cursor, values)?;
                return values.set(extract.result, value).then_some(end);
            }
            Test::ByteMath(math) => {
                let (value, end) = view.byte_math(math, cursor, values)?;
                return values.set(math.result, value).then_some(end);
            }
            Test::Decode(decode) => self.decode(decode, cursor),
        };
        holds.then_some(cursor)
    }

    /// Backtracks: tries the last choice at its next place, and so on. Returns the step, and the
    /// cursor after it.
    fn go_back(&mut self) -> Option<(usize, i64)> {
        while !self.budget.is_spent()
            && let Some(choice) = self.scratch.choices.pop()
        {
            if let Some(end) = self.choose(choice) {
                return Some((choice.step, end));
            }
        }
        None
    }

    /// Finds the next place of a content or expression, and records that there may be others;
    /// returns its end.
    fn choose(&mut self, mut choice: Choice) -> Option<i64> {
        let Step { test, order } = &self.steps[choice.step];
        let failed = &mut self.scratch.failed[choice.step];
        if order.remembers {
            choice.next = failed.skip(choice.next);
        }
        let bytes = self.view.bytes;
        let found = match test {
            Test::Content(content) => {
                let place = content.literal.find(bytes, choice.next, choice.last, &mut self.budget);
                place.map(|place| (place, place + content.literal.len()))
            }
            Test::Pcre { expression, .. } => {
                let (base, next) = (choice.base, choice.next);
                let span = expression.find(bytes, base, next, &mut self.scratch.backtracks, &mut self.budget);
                span.map(|span| (span.start, span.end))
            }
            // Other matches have no places.
            _ => None,
        };
        let Some((place, end)) = found else {
            if order.remembers && choice.first <= choice.last {
                failed.add(choice.first..=choice.last);
            }
            return None;
        };
        if order.goes_back {
            self.scratch.choices.push(Choice { next: place + 1, ..choice });
        }
        // An offset in a slice.
        Some(end as i64)
    }

    /// Returns whether a content is absent from its range; `None` if a variable does not fit.
    fn lacks(&mut self, content: &Content, cursor: i64) -> Option<bool> {
        let Content { literal, position, ends } = content;
        let places =
            self.view.places(position, *ends, literal.len(), cursor, &self.scratch.variables).ok()?;
        let Some(places) = places else { return Some(true) };
        Some(literal.find(self.view.bytes, places.first, places.last, &mut self.budget).is_none())
    }

    fn decode(&mut self, decode: &Base64Decode, cursor: i64) -> bool {
        let decoded = &mut self.scratch.decoded;
        decoded.clear();
        let place = self.view.base(decode.relative, cursor) + i64::from(decode.offset);
        let Some(encoded) = self.view.from(place) else { return false };
        let count = decode.bytes.map_or(encoded.len(), |bytes| encoded.len().min(bytes as usize));
        let count = count.min(DECODED_FROM_MAX);
        self.budget.charge(count);
        decoded.extend_from_slice(&encoded[..count]);
        base64::decode(decoded, Base64Mode::Rfc4648);
        !decoded.is_empty()
    }
}

/// Maximum input bytes of `base64_decode`.
const DECODED_FROM_MAX: usize = 1 << 16;
