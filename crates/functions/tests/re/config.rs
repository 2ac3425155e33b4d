//! Invalid configurations and their errors.

use functions::re::Re;
use nf::Setup;
use nf::stage::load;
use serde_json::{Value, json};

use crate::pair::config;

fn refused(settings: Value) -> String {
    let config = serde_json::from_value(config(1, &settings)).map_err(|error| error.to_string());
    match config.and_then(|config| load::<Re>(config, Setup::new(1, 16)).map_err(|error| error.to_string())) {
        Ok(_) => panic!("{settings} is accepted"),
        Err(message) => message,
    }
}

#[test]
fn invalid_configurations_are_refused() {
    for (settings, message) in [
        (json!({ "cache": "1KB" }), "`cache` must be from 65536 to 4294967296, not 1000"),
        (json!({ "window": 15 }), "`window` must be from 16 to 64, not 15"),
        (json!({ "window": 65 }), "`window` must be from 16 to 64, not 65"),
        (json!({ "sample": 2 }), "`sample` must be from 4 to 1024, not 2"),
        (json!({ "sample": 33 }), "`sample` must be a power of two, not 33"),
        (json!({ "protocol": 6 }), "`protocol` must be from 148 to 254, not 6"),
        (json!({ "protocol": 255 }), "`protocol` must be from 148 to 254, not 255"),
        (json!({ "local_networks": [] }), "`local_networks` has 0 networks, expected 1 to 256"),
        (json!({ "remote_networks": ["10.0.0.1/8"] }), "`10.0.0.1/8` has bits set after its length"),
        (json!({ "cachet": 1 }), "unknown field `cachet`"),
    ] {
        let said = refused(settings);
        assert!(said.contains(message), "{said}");
    }
}
