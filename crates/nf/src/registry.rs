//! Which functions there are, by the names that policies use.

use serde::Deserializer;

use crate::stage::{LoadError, Stage, load};
use crate::{Descriptor, NetworkFunction, Setup};

/// A configuration, whatever its format: anything that a serde deserializer reads.
pub type AnyConfig<'a> = dyn erased_serde::Deserializer<'a> + 'a;

/// A function type that a policy can name.
pub struct Entry {
    /// What the function says of itself.
    pub descriptor: &'static Descriptor,
    /// Its documentation: what an operator reads.
    pub readme: &'static str,
    make: Make,
}

type Make = fn(&mut AnyConfig<'_>, Setup) -> Result<Box<dyn Stage>, MakeError>;

/// Making a function from a policy failed.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The configuration has not the form that the function wants.
    #[error(transparent)]
    Form(#[from] erased_serde::Error),
    /// It has, but cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// The functions that a program knows.
#[derive(Default)]
pub struct Registry {
    entries: Vec<Entry>,
}

impl Registry {
    /// A registry without functions.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds a function type with its documentation.
    pub fn add<N: NetworkFunction>(&mut self, readme: &'static str) {
        self.entries.push(Entry { descriptor: N::DESCRIPTOR, readme, make: make::<N> });
    }

    /// All function types, in the order in which they were added.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The function type with this name or alias; case does not matter.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| {
            let d = entry.descriptor;
            d.name.eq_ignore_ascii_case(name)
                || d.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
        })
    }
}

impl Entry {
    /// Makes an instance with this configuration.
    pub fn make<'de, D: Deserializer<'de> + 'de>(
        &self,
        config: D,
        setup: Setup,
    ) -> Result<Box<dyn Stage>, MakeError> {
        (self.make)(&mut <dyn erased_serde::Deserializer<'_>>::erase(config), setup)
    }
}

fn make<N: NetworkFunction>(config: &mut AnyConfig<'_>, setup: Setup) -> Result<Box<dyn Stage>, MakeError> {
    let config: N::Config = erased_serde::deserialize(config)?;
    Ok(load::<N>(config, setup)?)
}
