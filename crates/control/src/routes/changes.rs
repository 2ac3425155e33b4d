//! Watches: changes of nodes, units and migrations as server-sent events.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior, interval};
use utoipa::IntoParams;

use super::guard::Allowance;
use super::{Api, nodes, units};
use crate::problem::Problem;

/// Limit on the watches at once.
pub const WATCHERS_MAX: usize = 16;
/// Least period of looks.
const PERIOD_MIN: Duration = Duration::from_millis(50);
/// Period of looks, unless the request names another one.
const PERIOD_DEFAULT: Duration = Duration::from_millis(500);

/// The part of the resources that a watch is about.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WatchQuery {
    /// Kinds of resources, separated by commas: `node`, `unit`, `migration` [default: all].
    pub kinds: Option<String>,
    /// Period of looks at the resources, in milliseconds, 50 at least [default: 500].
    #[param(minimum = 50, default = 500)]
    pub period_ms: Option<u64>,
}

/// A kind of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WatchedKind {
    Node,
    Unit,
    Migration,
}

const KINDS: [WatchedKind; 3] = [WatchedKind::Node, WatchedKind::Unit, WatchedKind::Migration];

impl WatchedKind {
    fn name(self) -> &'static str {
        match self {
            WatchedKind::Node => "node",
            WatchedKind::Unit => "unit",
            WatchedKind::Migration => "migration",
        }
    }
}

/// A watch: the resources as their client knows them.
struct Watch {
    api: Arc<Api>,
    /// None over the Unix socket.
    allowance: Option<Allowance>,
    kinds: Vec<WatchedKind>,
    period: Interval,
    /// Names and texts.
    known: BTreeMap<(WatchedKind, String), String>,
    /// Events that must be sent, the last one first.
    pending: Vec<Event>,
    _place: OwnedSemaphorePermit,
}

/// Begins a watch: an event for each resource, and then one for each that changes or goes.
pub(crate) fn watch(
    api: Arc<Api>,
    query: &WatchQuery,
    allowance: Option<Allowance>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>> + use<>>, Problem> {
    let kinds = kinds_of(query.kinds.as_deref())?;
    let period = match query.period_ms.map(Duration::from_millis) {
        None => PERIOD_DEFAULT,
        Some(period) if period >= PERIOD_MIN => period,
        Some(period) => {
            let detail = format!("{} ms; expected {} or more", period.as_millis(), PERIOD_MIN.as_millis());
            return Err(Problem::invalid(("period_ms", detail)));
        }
    };
    let busy = || Problem::busy("watches", format!("{WATCHERS_MAX} watches are open already"));
    let place = Arc::clone(&api.watches).try_acquire_owned().map_err(|_| busy())?;
    let mut period = interval(period);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (known, pending) = (BTreeMap::new(), Vec::new());
    let watch = Watch { api, allowance, kinds, period, known, pending, _place: place };
    let events = stream::unfold(watch, |mut watch| async {
        let event = watch.next().await?;
        Some((Ok(event), watch))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn kinds_of(names: Option<&str>) -> Result<Vec<WatchedKind>, Problem> {
    let Some(names) = names else { return Ok(KINDS.to_vec()) };
    let kind = |name: &str| KINDS.into_iter().find(|kind| kind.name() == name);
    let unknown = |name| format!("`{name}` is no kind; expected node, unit or migration");
    names
        .split(',')
        .map(|name| kind(name).ok_or_else(|| Problem::invalid(("kinds", unknown(name)))))
        .collect()
}

impl Watch {
    /// Returns the next event; `None` once the dispatcher has ended, or the client may not watch
    /// any more.
    async fn next(&mut self) -> Option<Event> {
        while self.pending.is_empty() {
            self.period.tick().await;
            if self.allowance.as_ref().is_some_and(|allowance| !allowance.holds()) {
                return None;
            }
            self.look().await.ok()?;
        }
        self.pending.pop()
    }

    /// Compares the resources with the client's latest ones.
    async fn look(&mut self) -> Result<(), Problem> {
        let mut now = BTreeMap::new();
        for &kind in &self.kinds {
            let mut add = |name: String, text: String| drop(now.insert((kind, name), text));
            match kind {
                WatchedKind::Node => {
                    nodes::all(&self.api).iter().for_each(|node| add(node.name.clone(), text_of(node)));
                }
                WatchedKind::Unit => {
                    let units = units::all(&self.api).await?;
                    units.iter().for_each(|unit| add(unit.unit.to_string(), text_of(unit)));
                }
                WatchedKind::Migration => {
                    let migrations = self.api.migrations.all();
                    migrations.iter().for_each(|of| add(of.id.to_string(), text_of(of)));
                }
            }
        }
        let changed = now.iter().filter(|(name, text)| self.known.get(*name) != Some(text));
        let changed = changed.map(|((kind, _), text)| Event::default().event(kind.name()).data(text));
        let gone = self.known.keys().filter(|name| !now.contains_key(*name)).map(|(kind, name)| {
            let text = serde_json::json!({ "name": name }).to_string();
            Event::default().event(format!("{}_gone", kind.name())).data(text)
        });
        let mut pending: Vec<Event> = changed.chain(gone).collect();
        pending.reverse();
        (self.pending, self.known) = (pending, now);
        Ok(())
    }
}

/// Returns a resource as JSON.
fn text_of(resource: &impl Serialize) -> String {
    // Resources have no maps with other keys than strings, so this cannot fail.
    serde_json::to_string(resource).unwrap_or_default()
}
