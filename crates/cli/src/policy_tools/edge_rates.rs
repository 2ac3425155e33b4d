//! The rates of a policy's edges, from a running `rivulet up`.

use anyhow::bail;
use graph::Topology;
use policy::Policy;
use values::Nanos;

use crate::output::{rate, thousands};
use crate::top;

/// Measures the rates of a policy's edges, in the order of [`policy::PolicyGraph::all_edges`].
pub fn measure(policy: &Policy, address: &str, interval: Nanos) -> anyhow::Result<Vec<String>> {
    let topology = Topology::new(policy)?;
    if topology.is_line() {
        bail!("the policy has no branches, so its edges are not counted; see `rivulet top`");
    }
    let rates = top::measure(address, interval)?;
    let named = topology.edges().iter().zip(topology.edge_names());
    let mut notes = Vec::new();
    for (_, name) in named.filter(|(edge, _)| edge.to.is_some()) {
        if rates.now()["edges"].get(&name).is_none() {
            bail!("the policy that runs at {address} has no edge {name}; name the same policy");
        }
        // Names of edges have no signs that JSON pointers escape.
        let per_second = |what: &str| rates.per_second(&format!("/edges/{name}/{what}"));
        let (packets, bits) = (per_second("packets"), 8.0 * per_second("bytes"));
        notes.push(format!("{} packets/s {}", thousands(packets as u64), rate(bits)));
    }
    Ok(notes)
}
