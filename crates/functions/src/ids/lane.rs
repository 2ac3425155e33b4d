//! The searches in packets and streams: one for each part of the rules that no direction, port or
//! application tells apart.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use applayer::detect::{Application as Found, Verdict};
use mpm::{Cursor, Literal, Set, SetError};
use signatures::{Ports, Protocol};

use super::facts::is_application;
use super::prefilter::{Entry, Hit, NEAR_BYTES, Prefilter};

/// Rules that look at the same kind of bytes, parted by direction, server's port and application. A
/// part's search is made when the first bytes of that part come: of most parts, none ever do.
pub struct Lane {
    items: Vec<Item>,
    /// To the server, and to the client.
    ways: [Parts; 2],
    /// The searches that were made, by their items' numbers: most parts have the same ones as
    /// another part.
    made: Mutex<HashMap<Vec<u32>, Arc<Search>>>,
}

/// The parts of a direction.
struct Parts {
    /// Where ranges of ports begin that no rule tells apart.
    starts: Vec<u16>,
    /// The searches of each range, one for each application.
    searches: Vec<OnceLock<Arc<Search>>>,
}

/// A rule in a lane.
pub struct Item {
    /// For what there is to be searched.
    pub sought: Sought,
    /// What to search for; none if the rule has always to be looked at.
    pub literal: Option<Literal>,
    /// Of the server, by direction.
    pub ports: [Option<Arc<Ports>>; 2],
    /// What it is about.
    pub protocol: Protocol,
}

impl Item {
    /// Whether the rule may hold in this direction at this server's port.
    fn may_hold(&self, to_client: usize, port: u16) -> bool {
        self.ports[to_client].as_ref().is_some_and(|ports| ports.contains(port))
    }

    /// Whether it may hold in flows of this application.
    fn may_be_of(&self, application: Verdict) -> bool {
        match self.protocol {
            Protocol::Transport(_) => true,
            Protocol::Application(wanted) => {
                application == Verdict::Unknown || is_application(application, wanted)
            }
        }
    }
}

/// What a rule's literal is looked for for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The rule looks at packets: the literal has to lie in one, and to end within so many bytes of
    /// its beginning.
    Packet(u32, usize),
    /// The rule looks into streams: it is its anchor.
    Stream(u32),
    /// The rule looks into bodies of messages, most of which stand in the stream as they are.
    Body(u32),
}

impl Hit<Sought> {
    /// The rule that may hold on the packet that was searched.
    pub fn in_packet(self) -> Option<u32> {
        match self.rule {
            Sought::Packet(rule, reach) if self.len <= self.end && self.end <= reach => Some(rule),
            _ => None,
        }
    }
}

/// The search on packets and streams of a kind.
pub struct Search {
    /// For short literals that must be near the beginning of a packet, by how near.
    near: Vec<(usize, Prefilter)>,
    /// For all others.
    far: Prefilter<Sought>,
    /// Whether some of these are looked for in packets.
    finds_in_packets: bool,
    /// Rules that are looked at on every packet, ...
    always_in_packets: Vec<u32>,
    /// ... and on every piece of a stream.
    always_in_streams: Vec<u32>,
}

/// From so many bytes on, a literal is searched for wherever it may be: it is no matter how much
/// there is to search.
pub const LONG_BYTES: usize = 5;
/// How near the beginning of a packet, in bytes, shorter ones are looked for together.
const REACHES: [usize; 2] = [64, NEAR_BYTES];

impl Search {
    fn new(items: &[&Item]) -> Result<Search, SetError> {
        let mut near: [Vec<Entry>; REACHES.len()] = Default::default();
        let mut far: Vec<Entry<Sought>> = Vec::new();
        let (mut always_in_packets, mut always_in_streams) = (Vec::new(), Vec::new());
        for Item { sought, literal, .. } in items {
            match (sought, literal) {
                (Sought::Packet(rule, _), None) => always_in_packets.push(*rule),
                (Sought::Stream(rule), None) => always_in_streams.push(*rule),
                (Sought::Body(_), None) => {}
                (Sought::Packet(rule, reach), Some(short)) if short.bytes.len() < LONG_BYTES => {
                    let tier = REACHES.iter().position(|most| reach <= most);
                    match tier {
                        Some(tier) => near[tier].push((short.clone(), *rule)),
                        None => far.push((short.clone(), *sought)),
                    }
                }
                (_, Some(literal)) => far.push((literal.clone(), *sought)),
            }
        }
        let near = REACHES.into_iter().zip(near).filter(|(_, entries)| !entries.is_empty());
        Ok(Search {
            near: near
                .map(|(reach, entries)| Ok((reach, Prefilter::new(entries)?)))
                .collect::<Result<_, _>>()?,
            finds_in_packets: far.iter().any(|(_, sought)| matches!(sought, Sought::Packet(..))),
            far: Prefilter::new(far)?,
            always_in_packets,
            always_in_streams,
        })
    }

    /// Adds the rules that may hold on a packet, and says how many bytes were searched. `hits`:
    /// what was found in its payload as that of a stream's piece.
    pub fn packet(&self, payload: &[u8], hits: Option<&[Hit<Sought>]>, may_hold: &mut Vec<u32>) -> usize {
        may_hold.extend_from_slice(&self.always_in_packets);
        let mut searched = 0;
        for (reach, search) in &self.near {
            let beginning = &payload[..payload.len().min(*reach)];
            search.find(beginning, |hit| may_hold.push(hit.rule));
            searched += beginning.len();
        }
        match hits {
            Some(hits) => may_hold.extend(hits.iter().filter_map(|hit| hit.in_packet())),
            None if self.finds_in_packets => {
                self.far.find(payload, |hit| may_hold.extend(hit.in_packet()));
                searched += payload.len();
            }
            None => {}
        }
        searched
    }

    /// Goes on with a stream.
    pub fn piece(&self, cursor: &mut Cursor, piece: &[u8], hits: &mut Vec<Hit<Sought>>) {
        hits.clear();
        self.far.scan(cursor, piece, |hit| hits.push(hit));
    }

    /// What it takes, in bytes.
    fn memory_bytes(&self) -> u64 {
        self.far.memory_bytes() + self.near.iter().map(|(_, search)| search.memory_bytes()).sum::<u64>()
    }

    /// Rules that are looked at on every piece of a stream.
    pub fn always_in_streams(&self) -> &[u32] {
        &self.always_in_streams
    }
}

/// Applications that are told apart: unknown, none of ours, and ours.
const APPLICATIONS: usize = 2 + Found::ALL.len();

fn number_of(application: Verdict) -> usize {
    match application {
        Verdict::Unknown => 0,
        Verdict::Failed => 1,
        Verdict::Known(found) => 2 + found as usize,
    }
}

impl Lane {
    /// For these rules.
    pub fn new(items: Vec<Item>) -> Result<Lane, SetError> {
        // Of what is checked here, any part can be searched for.
        Set::check(items.iter().filter_map(|item| item.literal.as_ref()))?;
        let ways = [0, 1].map(|to_client| {
            let of = |item: &Item| item.ports[to_client].clone();
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
            Parts { starts, searches }
        });
        Ok(Lane { items, ways, made: Mutex::default() })
    }

    /// The search for what goes this way; none if no rule may hold. If it is made now, what it
    /// takes is added to `made_bytes`.
    pub fn search(
        &self,
        to_server: bool,
        port: u16,
        application: Verdict,
        made_bytes: &AtomicU64,
    ) -> Option<&Search> {
        if self.items.is_empty() {
            return None;
        }
        let to_client = usize::from(!to_server);
        let parts = &self.ways[to_client];
        let range = parts.starts.partition_point(|&start| start <= port).checked_sub(1)?;
        let search = parts.searches.get(range * APPLICATIONS + number_of(application))?;
        Some(search.get_or_init(|| {
            let of_part = |item: &Item| item.may_hold(to_client, port) && item.may_be_of(application);
            let numbers = (0..).zip(&self.items).filter(|(_, item)| of_part(item)).map(|(number, _)| number);
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            let search = |numbers: &Vec<u32>| Arc::new(self.make(numbers, made_bytes));
            Arc::clone(made.entry(numbers.collect()).or_insert_with_key(search))
        }))
    }

    /// The search for the items of these numbers.
    fn make(&self, numbers: &[u32], made_bytes: &AtomicU64) -> Search {
        let items: Vec<&Item> = numbers.iter().map(|&number| &self.items[number as usize]).collect();
        // `Lane::new` has checked all literals: none is empty or too long, and there are no more
        // than a set takes.
        let made = Search::new(&items)
            .unwrap_or_else(|error| unreachable!("a set of literals that were checked: {error}"));
        made_bytes.fetch_add(made.memory_bytes(), Ordering::Relaxed);
        made
    }
}
