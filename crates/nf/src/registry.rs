//! Which functions there are, by the names that policies use.

use serde::de::DeserializeOwned;

use crate::stage::{LoadError, Stage, load};
use crate::{Descriptor, NetworkFunction, Setup};

/// A configuration as it was written, in whatever format: what a function's
/// [`NetworkFunction::Config`] is read from.
pub trait ConfigSource {
    /// What is wrong with it, and where.
    type Error: std::error::Error;

    /// Reads it as a `T`.
    fn read<T: DeserializeOwned>(&self) -> Result<T, Self::Error>;
}

impl ConfigSource for serde_json::Value {
    type Error = serde_json::Error;

    fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(self)
    }
}

/// A function type that a policy can name.
pub struct RegistryEntry<C: ConfigSource> {
    /// What the function says of itself.
    pub descriptor: &'static Descriptor,
    /// Its documentation: what an operator reads.
    pub readme: &'static str,
    /// Bytes of its per-flow state, without its get/put map.
    pub state_bytes: usize,
    make: Make<C>,
}

type Make<C> = fn(&C, Setup) -> Result<Box<dyn Stage>, MakeError<<C as ConfigSource>::Error>>;

/// Making a function from a policy failed.
#[derive(Debug, thiserror::Error)]
pub enum MakeError<E: std::error::Error> {
    /// The configuration has not the form that the function wants.
    #[error(transparent)]
    Form(E),
    /// It has, but cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// The functions that a program knows, made from configurations of type `C`.
pub struct Registry<C: ConfigSource> {
    entries: Vec<RegistryEntry<C>>,
}

impl<C: ConfigSource> Default for Registry<C> {
    fn default() -> Registry<C> {
        Registry { entries: Vec::new() }
    }
}

impl<C: ConfigSource> Registry<C> {
    /// A registry without functions.
    pub fn new() -> Registry<C> {
        Registry::default()
    }

    /// Adds a function type with its documentation.
    pub fn add<N: NetworkFunction>(&mut self, readme: &'static str) {
        let state_bytes = size_of::<N::State>();
        self.entries.push(RegistryEntry {
            descriptor: N::DESCRIPTOR,
            readme,
            state_bytes,
            make: make::<N, C>,
        });
    }

    /// All function types, in the order in which they were added.
    pub fn entries(&self) -> &[RegistryEntry<C>] {
        &self.entries
    }

    /// The function type with this name or alias; case does not matter.
    pub fn find(&self, name: &str) -> Option<&RegistryEntry<C>> {
        self.entries.iter().find(|entry| {
            let d = entry.descriptor;
            d.name.eq_ignore_ascii_case(name)
                || d.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
        })
    }
}

impl<C: ConfigSource> RegistryEntry<C> {
    /// Makes an instance with this configuration.
    pub fn make(&self, config: &C, setup: Setup) -> Result<Box<dyn Stage>, MakeError<C::Error>> {
        (self.make)(config, setup)
    }
}

fn make<N: NetworkFunction, C: ConfigSource>(
    config: &C,
    setup: Setup,
) -> Result<Box<dyn Stage>, MakeError<C::Error>> {
    let config: N::Config = config.read().map_err(MakeError::Form)?;
    Ok(load::<N>(config, setup)?)
}
