//! Groups of counters: declared in the descriptor, sized and named from the configuration.

use nf::stage::{LoadError, load};
use nf::{
    Access, Affinity, Context, Descriptor, Maturity, NetworkFunction, PacketView, Scaling, Setup, Shared,
    Verdict,
};
use values::ConfigError;

static DESCRIPTOR: Descriptor = Descriptor {
    name: "grouped",
    summary: "Counts in groups",
    maturity: Maturity::Experimental,
    state_version: 1,
    payload: Access::Ignore,
    affinity: Affinity::None,
    scaling: Scaling::Servers,
    shared: &[Shared::Counters("first"), Shared::Counter("single"), Shared::Counters("second")],
    cycles_per_packet: 1,
    ..Descriptor::DEFAULT
};

struct Grouped;

impl NetworkFunction for Grouped {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    /// The names of each group's counters.
    type Config = Vec<Vec<String>>;
    type State = [u8; 0];

    fn new(groups: Vec<Vec<String>>, setup: &mut Setup) -> Result<Grouped, ConfigError> {
        groups.into_iter().for_each(|names| setup.counters(names));
        Ok(Grouped)
    }

    fn process(&self, _: &mut PacketView<'_>, _: &mut [u8; 0], _: &mut Context<'_>) -> Verdict {
        Verdict::Forward
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn groups_are_named_by_the_configuration() {
    let stage = load::<Grouped>(vec![names(&["a", "b"]), names(&[])], Setup::new(0, 1)).unwrap();
    let shared = stage.shared();
    assert_eq!(shared.counters, [0]);
    let groups: Vec<_> = shared.groups.iter().map(|g| (g.name, g.names.clone(), g.values.clone())).collect();
    assert_eq!(groups, [("first", names(&["a", "b"]), vec![0, 0]), ("second", vec![], vec![])]);
}

#[test]
fn unnamed_group_is_a_load_error() {
    let error = load::<Grouped>(vec![names(&["a"])], Setup::new(0, 1)).err().unwrap();
    assert!(matches!(error, LoadError::Counters { declared: 2, named: 1, .. }), "{error}");
}
