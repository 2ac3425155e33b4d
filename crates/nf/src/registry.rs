//! The NF types known to a program, by the names that policies use.

use serde::de::DeserializeOwned;

use crate::stage::{LoadError, Stage, load};
use crate::{Descriptor, NetworkFunction, Setup};

/// A configuration as written, in any format, from which [`NetworkFunction::Config`] is
/// deserialized.
pub trait ConfigSource {
    /// An error with its position.
    type Error: std::error::Error;

    /// Deserializes a `T`.
    fn read<T: DeserializeOwned>(&self) -> Result<T, Self::Error>;
}

impl ConfigSource for serde_json::Value {
    type Error = serde_json::Error;

    fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(self)
    }
}

/// An NF type that policies can name.
pub struct RegistryEntry<C: ConfigSource> {
    /// The NF's descriptor.
    pub descriptor: &'static Descriptor,
    /// The operator's manual.
    pub readme: &'static str,
    /// Bytes of its per-flow state, without the map.
    pub state_bytes: usize,
    make: Make<C>,
}

type Make<C> = fn(&C, Setup) -> Result<Box<dyn Stage>, MakeError<<C as ConfigSource>::Error>>;

/// An error of [`RegistryEntry::make`].
#[derive(Debug, thiserror::Error)]
pub enum MakeError<E: std::error::Error> {
    /// The configuration does not have the form that the NF expects.
    #[error(transparent)]
    Form(E),
    /// The configuration has the right form but is invalid.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// The NF types known to a program, built from configurations of type `C`.
pub struct Registry<C: ConfigSource> {
    entries: Vec<RegistryEntry<C>>,
}

impl<C: ConfigSource> Default for Registry<C> {
    fn default() -> Registry<C> {
        Registry { entries: Vec::new() }
    }
}

impl<C: ConfigSource> Registry<C> {
    /// Returns an empty registry.
    pub fn new() -> Registry<C> {
        Registry::default()
    }

    /// Adds an NF type with its manual.
    pub fn add<N: NetworkFunction>(&mut self, readme: &'static str) {
        let state_bytes = size_of::<N::State>();
        self.entries.push(RegistryEntry {
            descriptor: N::DESCRIPTOR,
            readme,
            state_bytes,
            make: make::<N, C>,
        });
    }

    /// Returns all NF types in the order of addition.
    pub fn entries(&self) -> &[RegistryEntry<C>] {
        &self.entries
    }

    /// Finds an NF type by name or alias, ignoring case.
    pub fn find(&self, name: &str) -> Option<&RegistryEntry<C>> {
        self.entries.iter().find(|entry| {
            let d = entry.descriptor;
            d.name.eq_ignore_ascii_case(name)
                || d.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
        })
    }
}

impl<C: ConfigSource> RegistryEntry<C> {
    /// Builds an instance from this configuration.
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
