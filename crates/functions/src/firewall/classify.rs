//! Search for the first matching rule among thousands: aggregated bit vectors (Lakshman and
//! Stiliadis, SIGCOMM 1998; Baboescu and Varghese, SIGCOMM 2001).
//!
//! Each header field is an axis, cut wherever a rule's range begins or ends. Each interval has the
//! set of rules that cover it, with one bit per rule in order. A packet selects one set per axis;
//! the first bit common to all of them is the first matching rule. Sets are stored as blocks of 64
//! rules with a summary of the non-empty blocks, so a search reads only blocks that all summaries
//! have in common.
//!
//! The result is exact for all rules: ranges, prefixes and lists need no expansion, and one rule is
//! one bit. Cost with N rules: a binary search per address and port, then N / 4096 words of summary
//! and usually one or two blocks. Worst case (each field of a rule matches, but never all
//! together): N / 64 blocks. Memory is at worst the number of intervals times N / 8 bytes, bounded
//! by [`TABLES_BYTES_MAX`].

use super::rule::{ConnectionState, FilterHeaders, Ranges, RuleDirection, RulePattern};

mod sets;

use sets::{RuleSets, SetsBuilder};

/// Maximum number of rules.
pub const RULES_MAX: usize = 16_384;

/// Maximum size of a classifier's tables in bytes.
pub const TABLES_BYTES_MAX: usize = 256 << 20;

/// The tables would exceed [`TABLES_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tables of the rules would exceed {} MiB; reduce the number of overlapping ranges", TABLES_BYTES_MAX >> 20)]
pub struct ClassifierTooLarge;

/// Rules compiled for search.
#[derive(Debug)]
pub struct RuleClassifier {
    sets: RuleSets,
    /// Bitmap of the enabled rules.
    enabled: Vec<u64>,
    v4: Pair<u32>,
    v6: Pair<u128>,
    source_ports: Axis<u16>,
    destination_ports: Axis<u16>,
    /// Indexed by protocol, direction and state: see [`class_of`].
    classes: Vec<u32>,
    /// Indexed by TCP flags.
    flags: Vec<u32>,
}

/// Source and destination of one IP version.
#[derive(Debug)]
struct Pair<T> {
    sources: Axis<T>,
    destinations: Axis<T>,
}

impl RuleClassifier {
    /// Builds the tables for at most [`RULES_MAX`] rules.
    ///
    /// # Errors
    /// [`ClassifierTooLarge`] if the tables would be too large.
    pub fn new<'r>(
        rules: impl IntoIterator<Item = &'r RulePattern>,
    ) -> Result<RuleClassifier, ClassifierTooLarge> {
        let rules = &rules.into_iter().collect::<Vec<_>>()[..];
        let mut builder = SetsBuilder::new(rules.len());
        let sets = &mut builder;
        let v4 = Pair {
            sources: Axis::new(rules, sets, |rule| &rule.sources.v4, u32::checked_add)?,
            destinations: Axis::new(rules, sets, |rule| &rule.destinations.v4, u32::checked_add)?,
        };
        let v6 = Pair {
            sources: Axis::new(rules, sets, |rule| &rule.sources.v6, u128::checked_add)?,
            destinations: Axis::new(rules, sets, |rule| &rule.destinations.v6, u128::checked_add)?,
        };
        let source_ports = Axis::new(rules, sets, |rule| &rule.source_ports, u16::checked_add)?;
        let destination_ports = Axis::new(rules, sets, |rule| &rule.destination_ports, u16::checked_add)?;
        let classes = classes(rules, sets)?;
        let flags = flags(rules, sets)?;
        let enabled = vec![u64::MAX; rules.len().div_ceil(64)];
        Ok(RuleClassifier {
            sets: builder.finish(),
            enabled,
            v4,
            v6,
            source_ports,
            destination_ports,
            classes,
            flags,
        })
    }

    /// Returns the index of the first enabled rule that matches.
    pub fn first_match(&self, headers: &FilterHeaders) -> Option<usize> {
        self.search(headers, &mut || ())
    }

    /// Does the work of [`RuleClassifier::first_match`], calling `read` for each table word read.
    #[inline]
    fn search(&self, headers: &FilterHeaders, read: &mut impl FnMut()) -> Option<usize> {
        let (source, destination) = if headers.version == 4 {
            let [source, destination] =
                [headers.source, headers.destination].map(|addr| u32::from_be_bytes(addr.v4_bytes()));
            (self.v4.sources.at(source, read), self.v4.destinations.at(destination, read))
        } else {
            let (source, destination) = (headers.source.to_u128(), headers.destination.to_u128());
            (self.v6.sources.at(source, read), self.v6.destinations.at(destination, read))
        };
        let chosen = [
            source,
            destination,
            self.destination_ports.at(headers.destination_port, read),
            self.source_ports.at(headers.source_port, read),
            self.classes[class_of(headers.protocol, headers.way, headers.state)],
            self.flags[usize::from(headers.tcp_flags)],
        ];
        self.sets.first_common(chosen, &self.enabled, read)
    }

    /// Enables or disables a rule.
    pub fn enable(&mut self, rule: usize, enabled: bool) {
        if let Some(word) = self.enabled.get_mut(rule / 64) {
            *word = *word & !(1 << (rule % 64)) | u64::from(enabled) << (rule % 64);
        }
    }

    /// Returns the size of the tables in bytes.
    pub fn len_bytes(&self) -> usize {
        self.sets.len_bytes()
            + self.v4.sources.len_bytes()
            + self.v4.destinations.len_bytes()
            + self.v6.sources.len_bytes()
            + self.v6.destinations.len_bytes()
            + self.source_ports.len_bytes()
            + self.destination_ports.len_bytes()
            + (self.classes.len() + self.flags.len()) * size_of::<u32>()
    }
}

/// A header field cut into intervals, each with the set of rules that cover it.
#[derive(Debug)]
struct Axis<T> {
    /// Start of each interval except the first, which starts at 0.
    starts: Vec<T>,
    sets: Vec<u32>,
}

impl<T: Copy + Ord + Default + From<u8>> Axis<T> {
    fn new<'r>(
        rules: &[&'r RulePattern],
        sets: &mut SetsBuilder,
        ranges: impl Fn(&'r RulePattern) -> &'r Ranges<T>,
        add: impl Fn(T, T) -> Option<T>,
    ) -> Result<Axis<T>, ClassifierTooLarge>
    where
        T: 'r,
    {
        // A rule's ranges are disjoint, so each bound toggles its bit.
        let mut turns: Vec<(T, u32)> = Vec::new();
        for (number, rule) in (0..).zip(rules) {
            for range in ranges(rule) {
                turns.push((*range.start(), number));
                turns.extend(add(*range.end(), T::from(1)).map(|behind| (behind, number)));
            }
        }
        turns.sort_unstable();
        let mut axis = Axis { starts: Vec::new(), sets: Vec::new() };
        let mut turns = turns.into_iter().peekable();
        let mut start = T::default();
        loop {
            while let Some((_, rule)) = turns.next_if(|&(at, _)| at == start) {
                sets.turn(rule as usize);
            }
            axis.sets.push(sets.intern()?);
            match turns.peek() {
                Some(&(at, _)) => start = at,
                None => break,
            }
            axis.starts.push(start);
        }
        sets.clear();
        Ok(axis)
    }

    /// Returns the set of rules that cover `value`.
    #[inline]
    fn at(&self, value: T, read: &mut impl FnMut()) -> u32 {
        let behind = |&start: &T| {
            read();
            start <= value
        };
        self.sets[self.starts.partition_point(behind)]
    }

    fn len_bytes(&self) -> usize {
        self.starts.len() * size_of::<T>() + self.sets.len() * size_of::<u32>()
    }
}

const WAYS: [RuleDirection; 2] = [RuleDirection::In, RuleDirection::Out];

/// Combines protocol, direction and state into one number.
#[inline]
fn class_of(protocol: u8, way: RuleDirection, state: ConnectionState) -> usize {
    usize::from(protocol) | (way as usize) << 8 | (state as usize) << 9
}

/// Returns the set of matching rules for each class.
fn classes(rules: &[&RulePattern], sets: &mut SetsBuilder) -> Result<Vec<u32>, ClassifierTooLarge> {
    let protocols = Axis::new(rules, sets, |rule| &rule.protocols, u8::checked_add)?;
    let mut classes = vec![0; 256 * WAYS.len() * ConnectionState::ALL.len()];
    // Protocols that no rule distinguishes share a set: compute one per interval.
    for state in ConnectionState::ALL {
        for way in WAYS {
            let mut first = 0u8;
            for next in protocols.starts.iter().map(|&start| Some(start)).chain([None]) {
                let matches = |rule: &&RulePattern| {
                    rule.states.has(state)
                        && rule.ways.has(way)
                        && rule.protocols.iter().any(|range| range.contains(&first))
                };
                let set = sets.of(rules.iter().map(matches))?;
                let last = next.map_or(255, |next: u8| next - 1);
                classes[class_of(first, way, state)..=class_of(last, way, state)].fill(set);
                first = next.unwrap_or(0);
            }
        }
    }
    Ok(classes)
}

/// Returns the set of matching rules for each value of the TCP flags.
fn flags(rules: &[&RulePattern], sets: &mut SetsBuilder) -> Result<Vec<u32>, ClassifierTooLarge> {
    if rules.iter().all(|rule| rule.flags.mask == 0) {
        return Ok(vec![sets.of(rules.iter().map(|_| true))?; 256]);
    }
    (0..=255u8).map(|value| sets.of(rules.iter().map(|rule| rule.flags.matches(value)))).collect()
}

#[cfg(test)]
mod tests;
