//! `--ipfix`: options of flow records and NAT events.

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;

use observe::export::{Destination, FlowOutput};
use packet::split_mix;

/// Options of flow records.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    /// Send flow records as IPFIX to a file or a collector, `udp:HOST:PORT`; requires a Monitor in
    /// the policy, or a NAT with `events`
    #[arg(long, value_name = "DEST")]
    pub ipfix: Option<Destination>,
    /// Observation domain of these records, from 1 on: collectors distinguish processes of one
    /// address by it [default: derived from ports, node or seed]
    #[arg(long, value_name = "NUMBER", requires = "ipfix")]
    pub ipfix_domain: Option<NonZeroU32>,
}

impl ExportArgs {
    /// Returns the file that is written, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.ipfix.as_ref().and_then(Destination::file)
    }

    /// Returns the output of the process that `identity` distinguishes from others of its address.
    pub fn output(&self, identity: impl fmt::Display) -> Option<FlowOutput<'_>> {
        let domain = self.ipfix_domain.map_or_else(|| domain_of(&identity.to_string()), NonZeroU32::get);
        self.ipfix.as_ref().map(|destination| FlowOutput { destination, domain })
    }
}

/// Derives an observation domain; 0 would mean none.
fn domain_of(identity: &str) -> u32 {
    let mixed = identity.bytes().fold(0, |mixed: u64, byte| split_mix(&mut (mixed ^ u64::from(byte))));
    ((mixed >> 32) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_given_or_derived() {
        let args = |ipfix_domain| ExportArgs { ipfix: Some(Destination::File("f".into())), ipfix_domain };
        let domain = |args: ExportArgs, identity: &str| args.output(identity).map(|output| output.domain);
        assert_eq!(domain(args(NonZeroU32::new(7)), "a"), Some(7));
        assert_eq!(domain(args(None), "a"), domain(args(None), "a"));
        assert_ne!(domain(args(None), "a"), domain(args(None), "b"));
        assert!(domain(ExportArgs { ipfix: None, ipfix_domain: None }, "a").is_none());
    }
}
