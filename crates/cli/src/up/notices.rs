//! Notices to the operator of a policy that begins on interfaces.

use runtime::Assembly;
use telemetry::event;

use crate::messages;

/// Facts about a policy.
pub struct Notices {
    /// Functions that do not let TCP connections from before the start pass, each with what may be
    /// changed.
    forgetful: Option<String>,
    /// The ports of a policy with more than two, if none has an address. As ends of wires they
    /// answer no ARP, and a frame that is not IP goes to one of the others.
    unrouted: Option<String>,
}

impl Notices {
    /// Finds the notices of a policy.
    pub fn of(assembly: &Assembly) -> Notices {
        let stages = assembly.graph.stages().iter().zip(&assembly.names);
        let forgetful: Vec<_> = stages
            .filter_map(|(stage, name)| Some(format!("`{name}` ({})", stage.shared().forgets_connections?)))
            .collect();
        let ports: Vec<_> = assembly.ports.all().iter().filter(|port| !port.is_of_node).collect();
        let is_unrouted = ports.len() > 2 && ports.iter().all(|port| port.networks.is_empty());
        let ports: Vec<_> = ports.iter().map(|port| format!("`{}`", port.name)).collect();
        Notices {
            forgetful: (!forgetful.is_empty()).then(|| forgetful.join(", ")),
            unrouted: is_unrouted.then(|| ports.join(", ")),
        }
    }

    /// Reports them. `has_nodes`: flows are at other nodes, which may know the connections.
    pub fn report(&self, has_nodes: bool) {
        if let Some(functions) = self.forgetful.as_ref().filter(|_| !has_nodes) {
            messages::report(
                || event::connections_forgotten(functions),
                || format!("rivulet: TCP connections from before the start do not pass {functions}"),
            );
        }
        if let Some(ports) = &self.unrouted {
            messages::report(
                || event::networks_unrouted(ports),
                || {
                    format!(
                        "rivulet: the ports {ports} have no `address`: hosts of their networks do not find \
                         one another, unless there are other routers (docs/l3.md)"
                    )
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(policy: &str) -> (Option<String>, Option<String>) {
        let policy = policy::Policy::read("p.rvl", policy, &mut |_| Err(String::new())).unwrap();
        let assembly = runtime::assemble(&policy, &functions::registry(), 0, None).unwrap();
        let Notices { forgetful, unrouted } = Notices::of(&assembly);
        (forgetful, unrouted)
    }

    #[test]
    fn functions_that_end_connections_are_named() {
        let policy = |nat: &str, firewall: &str| {
            notices(&format!(
                "Port<0> a; Port<1> b; NAT n {{ external: [203.0.113.1]{nat} }}; Firewall f {{ {firewall} }};\n\
                 pipelet {{ a <-> n <-> f <-> b; }}"
            ))
        };
        let (Some(said), None) = policy("", "pickup: drop") else { panic!() };
        assert!(said.starts_with("`n` (`tcp_opens_with: any`") && said.contains(", `f` (`pickup: reject`"));
        let (Some(said), None) = policy(", not_opening: reject", "") else { panic!() };
        assert_eq!(said, "`n` (it resets them)");
        assert_eq!(policy(", tcp_opens_with: any", ""), (None, None));
    }

    #[test]
    fn ports_of_several_networks_need_addresses() {
        let graph = "pipelet { a [dst port 80] <-> b; a <-> c; }";
        let said = notices(&format!("Port<0> a; Port<1> b; Port<2> c; {graph}"));
        assert_eq!(said, (None, Some("`a`, `b`, `c`".to_owned())));
        let routed = format!("Port<0> a {{ address: 10.0.0.1/24 }}; Port<1> b; Port<2> c; {graph}");
        assert_eq!(notices(&routed), (None, None));
        assert_eq!(notices("Port<0> a; Port<1> b; pipelet { a <-> b; }"), (None, None));
    }
}
