//! Policies of the tests on a simulated network.
#![allow(dead_code)] // Each test uses a part.

/// Functions without state that flows of several units would share. A flow that has lost its state
/// shows it: the firewall knows no connection.
pub const FIREWALL: &str = "
    settings { flows: 2k }
    Port<0> inside; Port<1> outside;
    Firewall f { rules: \"allow out from any\", default: deny, tcp: strict };
    Monitor m { report: [] };
    HTTP h;
    pipelet { inside <-> f <-> m <-> h <-> outside; }";

/// A NAT alone: every reply passes. Its ports are divided among affinity groups. The flows of a
/// group move together and have a home.
pub const NAT_ALONE: &str = "
    settings { flows: 2k, affinity_groups: 16 }
    Port<0> inside; Port<1> outside;
    NAT n { external: [203.0.113.0/30] };
    pipelet { inside <-> n <-> outside; }";

/// A load balancer: only aliases lead its servers' replies to their flows.
pub const BALANCER: &str = "
    settings { flows: 2k }
    Port<0> inside; Port<1> outside;
    LoadBalancer l { services: [{ name: web, vip: 203.0.113.9, port: 80, servers: [
        { name: one, address: 198.18.0.1, port: 8000 }, { name: two, address: 198.18.0.2, port: 8000 },
    ] }] };
    pipelet { inside <-> l <-> outside; }";
