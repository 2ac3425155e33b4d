//! The faults of a policy that cannot be assembled: those of its configurations, in the same pass.

use nf::{Registry, Setup};
use policy::{Diagnostic, Policy, Value};

use crate::external;
use crate::external::streams::StreamNode;
use crate::faults::{make, read};
use crate::ports::PortConfig;
use crate::settings::Settings;

/// Returns the faults of the configurations of a policy with wrong names or a wrong graph: of its
/// settings, ports, external nodes and NFs. Of a policy without such errors,
/// [`assemble`](crate::assemble) reports these faults and those between several configurations.
pub fn config_faults(policy: &Policy, registry: &Registry<Value>) -> Vec<Diagnostic> {
    let mut wrong = Vec::new();
    let settings: Settings = read(policy, &policy.settings, &mut wrong).unwrap_or_default();
    let options = settings.options(0);
    for port in &policy.ports {
        let config: PortConfig = read(policy, &port.config, &mut wrong).unwrap_or_default();
        wrong.extend(config.faults(&port.config));
    }
    policy.externals.iter().for_each(|node| external::config_faults(policy, node, &mut wrong));
    for instance in &policy.nfs {
        let setup = || Setup::new(options.seed, options.flows_max);
        if instance.delivers_streams() {
            let node = StreamNode::assemble(policy, instance, 0, setup());
            wrong.extend(node.err().map(|error| *error));
        } else {
            wrong.extend(make(policy, registry, instance, setup).err().unwrap_or_default());
        }
    }
    wrong
}
