//! Sends arbitrary packets, from any side and at any time, through mirrors: nothing panics, and
//! every packet and copy is accounted for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../traffic.rs"]
mod traffic;

fuzz_target!(|data: &[u8]| {
    let configs = [
        json!({ "source": "192.0.2.1", "collector": "192.0.2.2", "vni": 7, "snap": 64 }),
        json!({ "source": "2001:db8::1", "collector": "2001:db8::2", "vni": 0, "side": "inside" }),
        json!({ "source": "192.0.2.1", "collector": "192.0.2.2", "protocol": "erspan2", "session": 1, "mtu": 576, "first": 3 }),
        json!({ "source": "2001:db8::1", "collector": "2001:db8::2", "protocol": "erspan3", "session": 1023, "sample": 2,
                "direction": "from_inside" }),
    ];
    traffic::through("mirror", &configs, data);
});
