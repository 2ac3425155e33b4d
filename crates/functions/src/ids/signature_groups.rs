//! Signature groups for packets and streams: one per combination of direction, port and application
//! that rules distinguish, each with a prefilter.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use applayer::detect::{AppProtocol, Detection};
use mpm::{Cursor, Literal, LiteralSet, LiteralSetError};
use signatures::{PortSet, RuleProtocol};

use super::facts::is_application;
use super::prefilter::{NEAR_BYTES, PatternHit, Prefilter, PrefilterEntry};

/// The rules for one kind of packets, grouped by direction, server port and application. The
/// prefilter of a group is built when its first bytes arrive; most groups never see any.
pub struct SignatureGroups {
    items: Vec<GroupedRule>,
    /// To the server, and to the client.
    ways: [PortRanges; 2],
    /// The prefilters built so far, by the indices of their rules. Most groups share one with
    /// another group.
    made: Mutex<HashMap<Vec<u32>, Arc<GroupPrefilter>>>,
}

/// The groups of one direction.
struct PortRanges {
    /// The start of each range of ports that no rule distinguishes.
    starts: Vec<u16>,
    /// The prefilters of each range, one per application.
    searches: Vec<OnceLock<Arc<GroupPrefilter>>>,
}

/// A rule in its groups.
pub struct GroupedRule {
    /// The use of its pattern.
    pub pattern_use: PatternUse,
    /// The pattern to search for; none if the rule is always inspected.
    pub literal: Option<Literal>,
    /// Server ports, by direction.
    pub ports: [Option<Arc<PortSet>>; 2],
    /// The rule's protocol.
    pub protocol: RuleProtocol,
}

impl GroupedRule {
    /// Returns whether the rule may match in this direction at this server port.
    fn may_match(&self, to_client: usize, port: u16) -> bool {
        self.ports[to_client].as_ref().is_some_and(|ports| ports.contains(port))
    }

    /// Returns whether the rule may match in flows of this application.
    fn may_be_of(&self, application: Detection) -> bool {
        match self.protocol {
            RuleProtocol::Transport(_) => true,
            RuleProtocol::Application(wanted) => {
                application == Detection::Unknown || is_application(application, wanted)
            }
        }
    }
}

/// The use of a rule's pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternUse {
    /// The rule inspects packets: the pattern must be within one and end within this many bytes of
    /// its beginning.
    Packet(u32, usize),
    /// The rule inspects streams: the pattern is its anchor.
    Stream(u32),
    /// The rule inspects message bodies; most stand in the stream unencoded.
    Body(u32),
}

impl PatternHit<PatternUse> {
    /// Returns the rule that may match the searched packet.
    pub fn in_packet(self) -> Option<u32> {
        match self.rule {
            PatternUse::Packet(rule, reach) if self.len <= self.end && self.end <= reach => Some(rule),
            _ => None,
        }
    }
}

/// The prefilter of a group, for packets and streams.
pub struct GroupPrefilter {
    /// Short patterns that must be near the beginning of a packet, by distance.
    near: Vec<(usize, Prefilter)>,
    /// All other patterns.
    far: Prefilter<PatternUse>,
    /// True if some of these are for packets.
    finds_in_packets: bool,
    /// Rules that are inspected on every packet.
    always_in_packets: Vec<u32>,
    /// Rules that are inspected on every piece of a stream.
    always_in_streams: Vec<u32>,
}

/// Patterns of at least this length are always searched for in the whole input: for them, the
/// length of the input does not matter.
pub const LONG_BYTES: usize = 5;
/// The distances, in bytes from the beginning of a packet, within which shorter patterns are
/// searched for together. Most are among the first bytes, where a search costs the least.
const REACHES: [usize; 2] = [32, NEAR_BYTES];

impl GroupPrefilter {
    fn new(items: &[&GroupedRule]) -> Result<GroupPrefilter, LiteralSetError> {
        let mut near: [Vec<PrefilterEntry>; REACHES.len()] = Default::default();
        let mut far: Vec<PrefilterEntry<PatternUse>> = Vec::new();
        let (mut always_in_packets, mut always_in_streams) = (Vec::new(), Vec::new());
        for GroupedRule { pattern_use, literal, .. } in items {
            match (pattern_use, literal) {
                (PatternUse::Packet(rule, _), None) => always_in_packets.push(*rule),
                (PatternUse::Stream(rule), None) => always_in_streams.push(*rule),
                (PatternUse::Body(_), None) => {}
                (PatternUse::Packet(rule, reach), Some(short)) if short.bytes.len() < LONG_BYTES => {
                    let tier = REACHES.iter().position(|most| reach <= most);
                    match tier {
                        Some(tier) => near[tier].push((short.clone(), *rule)),
                        None => far.push((short.clone(), *pattern_use)),
                    }
                }
                (_, Some(literal)) => far.push((literal.clone(), *pattern_use)),
            }
        }
        let near = REACHES.into_iter().zip(near).filter(|(_, entries)| !entries.is_empty());
        Ok(GroupPrefilter {
            near: near
                .map(|(reach, entries)| Ok((reach, Prefilter::new(entries)?)))
                .collect::<Result<_, _>>()?,
            finds_in_packets: far
                .iter()
                .any(|(_, pattern_use)| matches!(pattern_use, PatternUse::Packet(..))),
            far: Prefilter::new(far)?,
            always_in_packets,
            always_in_streams,
        })
    }

    /// Adds the rules that may match a packet, and returns the number of bytes searched. `hits` are
    /// those found in the payload as a piece of its stream.
    pub fn packet(
        &self,
        payload: &[u8],
        hits: Option<&[PatternHit<PatternUse>]>,
        may_match: &mut Vec<u32>,
    ) -> usize {
        may_match.extend_from_slice(&self.always_in_packets);
        if payload.is_empty() {
            return 0;
        }
        let mut searched = 0;
        for (reach, search) in &self.near {
            let beginning = &payload[..payload.len().min(*reach)];
            search.find(beginning, |hit| may_match.push(hit.rule));
            searched += beginning.len();
        }
        match hits {
            Some(hits) => may_match.extend(hits.iter().filter_map(|hit| hit.in_packet())),
            None if self.finds_in_packets => {
                self.far.find(payload, |hit| may_match.extend(hit.in_packet()));
                searched += payload.len();
            }
            None => {}
        }
        searched
    }

    /// Searches the next piece of a stream.
    pub fn piece(&self, cursor: &mut Cursor, piece: &[u8], hits: &mut Vec<PatternHit<PatternUse>>) {
        hits.clear();
        self.far.scan(cursor, piece, |hit| hits.push(hit));
    }

    /// Returns the memory used, in bytes.
    fn memory_bytes(&self) -> u64 {
        self.far.memory_bytes() + self.near.iter().map(|(_, search)| search.memory_bytes()).sum::<u64>()
    }

    /// Returns the rules that are inspected on every piece of a stream.
    pub fn always_in_streams(&self) -> &[u32] {
        &self.always_in_streams
    }
}

/// Number of application classes: unknown, unsupported, and the supported ones.
const APPLICATIONS: usize = 2 + AppProtocol::ALL.len();

fn number_of(application: Detection) -> usize {
    match application {
        Detection::Unknown => 0,
        Detection::Failed => 1,
        Detection::Known(found) => 2 + found as usize,
    }
}

impl SignatureGroups {
    /// Groups the rules.
    pub fn new(items: Vec<GroupedRule>) -> Result<SignatureGroups, LiteralSetError> {
        // Any subset of patterns that pass this check can be searched for.
        LiteralSet::check(items.iter().filter_map(|item| item.literal.as_ref()))?;
        let ways = [0, 1].map(|to_client| {
            let of = |item: &GroupedRule| item.ports[to_client].clone();
            let mut starts = vec![0];
            for ports in items.iter().filter_map(of) {
                for &(low, high) in ports.ranges() {
                    starts.push(low);
                    starts.extend(high.checked_add(1));
                }
            }
            starts.sort_unstable();
            starts.dedup();
            let searches = std::iter::repeat_with(OnceLock::new).take(starts.len() * APPLICATIONS).collect();
            PortRanges { starts, searches }
        });
        Ok(SignatureGroups { items, ways, made: Mutex::default() })
    }

    /// Returns the prefilter for this direction, port and application; `None` if no rule may match.
    /// If it is built now, its memory is added to `made_bytes`.
    pub fn search(
        &self,
        to_server: bool,
        port: u16,
        application: Detection,
        made_bytes: &AtomicU64,
    ) -> Option<&GroupPrefilter> {
        if self.items.is_empty() {
            return None;
        }
        let to_client = usize::from(!to_server);
        let parts = &self.ways[to_client];
        let range = parts.starts.partition_point(|&start| start <= port).checked_sub(1)?;
        let search = parts.searches.get(range * APPLICATIONS + number_of(application))?;
        Some(search.get_or_init(|| {
            let of_part = |item: &GroupedRule| item.may_match(to_client, port) && item.may_be_of(application);
            let numbers = (0..).zip(&self.items).filter(|(_, item)| of_part(item)).map(|(number, _)| number);
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            let search = |numbers: &Vec<u32>| Arc::new(self.make(numbers, made_bytes));
            Arc::clone(made.entry(numbers.collect()).or_insert_with_key(search))
        }))
    }

    /// Builds the prefilter for the rules of these indices.
    fn make(&self, numbers: &[u32], made_bytes: &AtomicU64) -> GroupPrefilter {
        let items: Vec<&GroupedRule> = numbers.iter().map(|&number| &self.items[number as usize]).collect();
        // `SignatureGroups::new` has checked all patterns: none is empty or too long, and they are
        // not too many for a set.
        let made = GroupPrefilter::new(&items)
            .unwrap_or_else(|error| unreachable!("a set of literals that were checked: {error}"));
        made_bytes.fetch_add(made.memory_bytes(), Ordering::Relaxed);
        made
    }
}
