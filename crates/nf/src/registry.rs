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
    ///
    /// # Errors
    /// The configuration has another form.
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
    make: Box<Make<C>>,
}

type Make<C> =
    dyn Fn(&C, Setup) -> Result<Box<dyn Stage>, MakeError<<C as ConfigSource>::Error>> + Send + Sync;

/// Builds the stages of an NF, see [`loader!`](crate::loader).
pub struct Loader<N: NetworkFunction> {
    load: Load<N>,
}

type Load<N> = fn(<N as NetworkFunction>::Config, Setup) -> Result<Box<dyn Stage>, LoadError>;

impl<N: NetworkFunction> Loader<N> {
    /// Returns the loader of the NF.
    #[expect(clippy::new_without_default, reason = "only `loader!` makes one")]
    pub const fn new() -> Loader<N> {
        Loader { load: load::<N> }
    }
}

/// Returns the loader of an NF type, for [`Registry::add`].
///
/// The stage, with the NF's code in it, is compiled in the crate that names the type here, as that
/// crate is optimised, and once. Without a static, each crate that builds a registry would compile
/// it again, as itself is optimised.
#[macro_export]
macro_rules! loader {
    ($function:ty) => {{
        static LOADER: $crate::Loader<$function> = $crate::Loader::new();
        &LOADER
    }};
}

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

    /// Adds an NF type, by its [`loader!`](crate::loader), with its manual.
    pub fn add<N: NetworkFunction>(&mut self, loader: &'static Loader<N>, readme: &'static str) {
        let make = |config: &C, setup: Setup| {
            let config: N::Config = config.read().map_err(MakeError::Form)?;
            Ok((loader.load)(config, setup)?)
        };
        self.entries.push(RegistryEntry {
            descriptor: N::DESCRIPTOR,
            readme,
            state_bytes: size_of::<N::State>(),
            make: Box::new(make),
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
    ///
    /// # Errors
    /// The configuration is invalid, or memory lacks.
    pub fn make(&self, config: &C, setup: Setup) -> Result<Box<dyn Stage>, MakeError<C::Error>> {
        (self.make)(config, setup)
    }
}
