//! Restriction of a function to ports.

use nf::Context;
use values::ConfigError;

/// Maximum number of ports.
pub const PORTS_MAX: usize = 1_024;

/// Ports to process, sorted; empty: all.
pub struct PortFilter(Vec<u16>);

impl PortFilter {
    /// Builds the filter from the `ports` key.
    ///
    /// # Errors
    /// There are more than [`PORTS_MAX`] ports.
    pub fn new(mut ports: Vec<u16>) -> Result<PortFilter, ConfigError> {
        if ports.len() > PORTS_MAX {
            return Err(ConfigError::new(format!("too many `ports`: the maximum is {PORTS_MAX}")));
        }
        ports.sort_unstable();
        ports.dedup();
        Ok(PortFilter(ports))
    }

    /// Returns whether either end of the flow has one of the ports.
    #[inline]
    pub fn has_flow(&self, context: &Context<'_>) -> bool {
        self.0.is_empty() || {
            let (source, destination) = of_flow(context);
            self.names(source) || self.names(destination)
        }
    }

    /// Returns whether the key lists the port.
    pub fn names(&self, port: u16) -> bool {
        self.0.binary_search(&port).is_ok()
    }
}

/// Returns source and destination port of the flow's first packet.
pub fn of_flow(context: &Context<'_>) -> (u16, u16) {
    let flow = context.flow();
    let (source, destination) = flow.key.ends(flow.reversed);
    (source.port, destination.port)
}
