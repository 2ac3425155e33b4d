//! Matching of regular expressions.

use crate::{Pcre, PcreFlags};
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{Input, Span};
use regex_syntax::hir::{Hir, Look, LookSet};

use crate::inspect::backtrack::{Backtracker, Backtracks, INSTRUCTION_BYTES};
use crate::inspect::budget::Budget;
use crate::inspect::unsupported::{EXPRESSION_BYTES_MAX, UnsupportedReason};

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    matcher: Matcher,
    /// True if matches after an offset do not depend on the bytes before it.
    pub looks_forward_only: bool,
}

#[derive(Clone, Debug)]
enum Matcher {
    Automaton(Regex),
    Backtracking(Box<Backtracker>),
}

impl Expression {
    /// Compiles to an automaton if there is one, else for the backtracking matcher.
    pub fn new(pcre: &Pcre) -> Result<Self, UnsupportedReason> {
        if !pcre.captures.is_empty() {
            return Err(UnsupportedReason::Captures);
        }
        let hir = match parse(pcre) {
            Err(UnsupportedReason::Expression(feature)) if feature.backtracks() => {
                let backtracker = Backtracker::new(pcre)?;
                let looks_forward_only = backtracker.looks_forward_only();
                return Ok(Self {
                    matcher: Matcher::Backtracking(Box::new(backtracker)),
                    looks_forward_only,
                });
            }
            parsed => parsed?,
        };
        let forward = [Look::End, Look::EndLF].into_iter().fold(LookSet::empty(), LookSet::insert);
        let looks_forward_only = hir.properties().look_set().subtract(forward).is_empty();
        let matcher = Matcher::Automaton(build(&hir, WhichCaptures::Implicit)?);
        Ok(Self { matcher, looks_forward_only })
    }

    /// Returns how many bytes of a budget it takes to read one byte.
    pub fn bytes_per_byte(&self) -> usize {
        match self.matcher {
            Matcher::Automaton(_) => 1,
            Matcher::Backtracking(_) => INSTRUCTION_BYTES,
        }
    }

    /// Returns the leftmost match at or after `first`, in the input that begins at `base`.
    pub fn find(
        &self,
        bytes: &[u8],
        base: usize,
        first: usize,
        backtracks: &mut Backtracks,
        budget: &mut Budget,
    ) -> Option<Span> {
        if first > bytes.len() {
            return None;
        }
        let regex = match &self.matcher {
            Matcher::Automaton(regex) => regex,
            Matcher::Backtracking(matcher) => return matcher.find(bytes, base, first, backtracks, budget),
        };
        let input = Input::new(&bytes[base..]).range(first - base..);
        let found = regex.search(&input).map(|found| found.span());
        let found = found.map(|span| Span { start: span.start + base, end: span.end + base });
        budget.charge(found.map_or(bytes.len(), |span| span.end) - first);
        found
    }
}

/// A compiled expression with its first group as the result.
#[derive(Clone, Debug)]
pub(crate) struct Extraction(Regex);

impl Extraction {
    pub fn new(pattern: &str) -> Result<Self, UnsupportedReason> {
        let pcre = Pcre {
            pattern: pattern.to_owned(),
            negated: false,
            relative: false,
            flags: PcreFlags::default(),
            captures: Vec::new(),
        };
        let hir = parse(&pcre)?;
        match hir.properties().explicit_captures_len() {
            0 => Err(UnsupportedReason::NoGroup),
            _ => build(&hir, WhichCaptures::All).map(Self),
        }
    }

    /// Returns the match of the first group.
    pub fn find(&self, bytes: &[u8]) -> Option<Span> {
        // Two slots for the whole match, two for the first group.
        let mut slots = [None; 4];
        self.0.search_slots(&Input::new(bytes), &mut slots)?;
        Some(Span { start: slots[2]?.get(), end: slots[3]?.get() })
    }
}

fn parse(pcre: &Pcre) -> Result<Hir, UnsupportedReason> {
    let pattern = pcre.regex().map_err(UnsupportedReason::Expression)?;
    let mut parser = regex_syntax::ParserBuilder::new().utf8(false).build();
    parser.parse(&pattern).map_err(|_| UnsupportedReason::TooLarge)
}

fn build(hir: &Hir, captures: WhichCaptures) -> Result<Regex, UnsupportedReason> {
    let config = Regex::config()
        .utf8_empty(false)
        .which_captures(captures)
        .nfa_size_limit(Some(EXPRESSION_BYTES_MAX))
        .hybrid_cache_capacity(EXPRESSION_BYTES_MAX);
    Regex::builder().configure(config).build_from_hir(hir).map_err(|_| UnsupportedReason::TooLarge)
}
