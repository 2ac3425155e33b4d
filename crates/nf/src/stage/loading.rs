//! Loading an NF: a stage from its configuration.

use packet::memory::OutOfMemory;
use values::ConfigError;

use super::Stage;
use super::loaded::Loaded;
use crate::buffers::Buffers;
use crate::counters::{CounterLabel, CounterValues, LabelledDeclaration};
use crate::meters::Meters;
use crate::payload_cache::PayloadCache;
use crate::pool::SharedPool;
use crate::set::SharedSet;
use crate::shared_state::SharedState;
use crate::{Descriptor, NetworkFunction, Setup, Shared};

/// An error of [`load`].
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A pool was declared in the descriptor and not sized in `new`, or the reverse: a bug in the
    /// NF.
    #[error("`{function}` declares {declared} pools but sizes {sized}")]
    Pools {
        /// Name of the NF.
        function: &'static str,
        /// Pools in its descriptor.
        declared: usize,
        /// Pools that it sized.
        sized: usize,
    },
    /// A label of counters was declared and got no values, or got them twice: a bug in the NF.
    #[error("`{function}` declares counters by `{label}` but sets its values {times} times")]
    CounterLabel {
        /// Name of the NF.
        function: &'static str,
        /// Name of the label.
        label: &'static str,
        /// Calls of [`Setup::label_counters`].
        times: usize,
    },
    /// A table of meters was declared and not sized, or the reverse: a bug in the NF.
    #[error("`{function}` declares {declared} tables of meters but sizes {sized}")]
    Meters {
        /// Name of the NF.
        function: &'static str,
        /// Tables in its descriptor.
        declared: usize,
        /// Tables that it sized.
        sized: usize,
    },
    /// A payload cache was declared and not sized, or the reverse: a bug in the NF.
    #[error("`{function}` declares {declared} payload caches but sizes {sized}")]
    PayloadCaches {
        /// Name of the NF.
        function: &'static str,
        /// Caches in its descriptor.
        declared: usize,
        /// Caches that it sized.
        sized: usize,
    },
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// Builds a stage from an NF's configuration.
///
/// # Errors
/// The configuration or the descriptor is invalid, or memory lacks.
pub fn load<N: NetworkFunction>(config: N::Config, mut setup: Setup) -> Result<Box<dyn Stage>, LoadError> {
    let function = N::new(config, &mut setup)?;
    let descriptor = N::DESCRIPTOR;
    let mut shared = SharedState { counters: counters(descriptor, setup.labels)?, ..SharedState::default() };
    let mut sizes = setup.pools.iter();
    let mut capacities = setup.meters.iter();
    let mut contents = setup.contents.iter();
    for kind in descriptor.shared {
        match *kind {
            Shared::Set { name, capacity } => {
                let said = setup.sets.iter().find(|&&(set, _)| set == shared.sets.len());
                let capacity = said.map_or(capacity, |&(_, members)| members as usize);
                shared.sets.push(SharedSet::new(name, capacity, setup.seed)?);
            }
            Shared::Pool(name) => {
                let (items, hold) = sizes.next().copied().unwrap_or_default();
                let users = setup.flows_max as usize;
                shared.pools.push(SharedPool::new(name, items, users, hold, setup.seed)?);
            }
            Shared::Meters(name) => {
                let capacity = capacities.next().copied().unwrap_or(0);
                shared.meters.push(Meters::new(name, capacity as usize, setup.seed)?);
            }
            Shared::PayloadCache(name) => {
                let (bytes, fingerprints) = contents.next().copied().unwrap_or_default();
                shared.contents.push(PayloadCache::new(name, bytes, fingerprints)?);
            }
        }
    }
    if let Some(spec) = &descriptor.buffers {
        let memory = setup.buffer_memory.unwrap_or(spec.memory);
        shared.buffers = Some(Buffers::new(spec, memory, setup.buffer_share_percent, setup.seed)?);
    }
    shared.warnings = setup.warnings;
    shared.owned = setup.owned;
    shared.sources = setup.sources;
    shared.rules = setup.rules;
    shared.prevents = setup.prevents;
    shared.forgets_connections = setup.forgets_connections;
    shared.affinity_key = setup.affinity_key;
    shared.one_machine = setup.one_machine;
    if shared.pools.len() != setup.pools.len() {
        let (declared, sized) = (shared.pools.len(), setup.pools.len());
        return Err(LoadError::Pools { function: descriptor.name, declared, sized });
    }
    if shared.meters.len() != setup.meters.len() {
        let (declared, sized) = (shared.meters.len(), setup.meters.len());
        return Err(LoadError::Meters { function: descriptor.name, declared, sized });
    }
    if shared.contents.len() != setup.contents.len() {
        let (declared, sized) = (shared.contents.len(), setup.contents.len());
        return Err(LoadError::PayloadCaches { function: descriptor.name, declared, sized });
    }
    Ok(Box::new(Loaded::new(function, shared, setup.seed, setup.config_digest)))
}

/// Returns the declared counters with the values of their labels.
fn counters(
    descriptor: &Descriptor,
    mut labels: Vec<(CounterLabel, Vec<String>)>,
) -> Result<CounterValues, LoadError> {
    let declared = descriptor.counters;
    for (number, LabelledDeclaration { label, .. }) in declared.labelled.iter().enumerate() {
        let times = labels.iter().filter(|(label, _)| label.0 == number).count();
        if times != 1 {
            return Err(LoadError::CounterLabel { function: descriptor.name, label, times });
        }
    }
    labels.sort_by_key(|(label, _)| label.0);
    Ok(CounterValues::new(declared, labels.into_iter().map(|(_, values)| values).collect()))
}
