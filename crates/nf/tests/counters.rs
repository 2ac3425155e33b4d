//! Counters: declared once, and labelled by the configuration.

use nf::stage::{LoadError, Stage, load};
use nf::{
    Access, Affinity, Context, Descriptor, Maturity, NetworkFunction, PacketView, Scaling, Setup, Verdict,
};
use values::ConfigError;

nf::counters! {
    /// Packets.
    /// All of them.
    all: packets,
    /// Odd packets.
    odd: packets,
    by server {
        /// Packets to the server.
        packets: packets,
        /// Bytes to the server.
        bytes: bytes,
    }
    by method {
        /// Requests by method.
        requests: requests,
    }
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "labelled",
    summary: "Counts by labels",
    maturity: Maturity::Experimental,
    payload: Access::Ignore,
    affinity: Affinity::None,
    scaling: Scaling::Servers,
    counters: Counters::DECLARED,
    ..Descriptor::DEFAULT
};

struct Labelled;

impl NetworkFunction for Labelled {
    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;
    /// The servers, the methods, and the calls for them.
    type Config = (Vec<String>, Vec<String>, usize);
    type State = [u8; 0];

    fn new((servers, methods, times): Self::Config, setup: &mut Setup) -> Result<Labelled, ConfigError> {
        for _ in 0..times {
            setup.label_counters(COUNTERS.method, methods.clone());
        }
        setup.label_counters(COUNTERS.server, servers);
        Ok(Labelled)
    }

    fn process(&self, _: &mut PacketView<'_>, _: &mut [u8; 0], context: &mut Context<'_>) -> Verdict {
        context.count(COUNTERS.all, 1);
        context.count(COUNTERS.odd, 1);
        context.count_at(COUNTERS.packets, 0, 1);
        context.count_at(COUNTERS.bytes, 0, 1);
        context.count_at(COUNTERS.requests, 0, 1);
        Verdict::Forward
    }
}

fn stage(times: usize) -> Result<Box<dyn Stage>, LoadError> {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    load::<Labelled>((names(&["a", "b"]), names(&["get"]), times), Setup::new(0, 1))
}

#[test]
fn keys_units_and_helps_are_those_of_the_declaration() {
    let stage = stage(1).unwrap();
    let found: Vec<_> = stage.shared().counters.iter().map(|c| (c.key(), c.declared.unit, c.count)).collect();
    let expected = [
        ("all", "packets"),
        ("odd", "packets"),
        ("a.packets", "packets"),
        ("a.bytes", "bytes"),
        ("b.packets", "packets"),
        ("b.bytes", "bytes"),
        ("method_get", "requests"),
    ];
    assert_eq!(found, expected.map(|(key, unit)| (key.to_owned(), unit, 0)));
    assert_eq!(DESCRIPTOR.counters.plain[0].help, "Packets. All of them.");
    assert_eq!(stage.shared().counters.get("b.bytes"), Some(0));
    assert_eq!(stage.shared().counters.get("c.bytes"), None);
}

#[test]
fn label_without_values_or_with_two_is_a_load_error() {
    for calls in [0, 2] {
        let error = stage(calls).err().unwrap();
        assert!(
            matches!(error, LoadError::CounterLabel { label: "method", times, .. } if times == calls),
            "{error}"
        );
    }
}
