//! Ports that a function is confined to.

use nf::Context;
use values::ConfigError;

/// Ports at most.
pub const PORTS_MAX: usize = 1_024;

/// The ports, ascending; none: all.
pub struct PortFilter(Vec<u16>);

impl PortFilter {
    /// Those that `ports` of a configuration names.
    ///
    /// # Errors
    /// There are more than [`PORTS_MAX`].
    pub fn new(mut ports: Vec<u16>) -> Result<PortFilter, ConfigError> {
        if ports.len() > PORTS_MAX {
            return Err(ConfigError::new(format!("too many `ports`: the most is {PORTS_MAX}")));
        }
        ports.sort_unstable();
        ports.dedup();
        Ok(PortFilter(ports))
    }

    /// Whether one of them is an end's of the flow.
    #[inline]
    pub fn has_flow(&self, context: &Context<'_>) -> bool {
        let has = |port: u16| self.0.binary_search(&port).is_ok();
        self.0.is_empty() || {
            let (source, destination) = of_flow(context);
            has(source) || has(destination)
        }
    }
}

/// Source and destination port of the flow's first packet.
pub fn of_flow(context: &Context<'_>) -> (u16, u16) {
    let flow = context.flow();
    let (source, destination) = flow.key.ends(flow.reversed);
    (source.port, destination.port)
}
