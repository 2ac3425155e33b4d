//! What a process may do that has opened its interfaces and files: as little as it needs from there on.

use std::io::Result;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// What is needed to open an interface anew that was gone.
const KEPT: CapabilitySet = CapabilitySet::NET_RAW;

/// Gives up every capability but the one to open interfaces, for good: no program that is run gets one back. Of the
/// calling thread, and of those that it begins from here on.
pub fn give_up() -> Result<()> {
    set_no_new_privs(true)?;
    let had = capabilities(None)?;
    for capability in CapabilitySet::all().iter().filter(|capability| !KEPT.contains(*capability)) {
        match remove_capability_from_bounding_set(capability) {
            // One that this kernel does not know, or a process that may not, and so has nothing to lose there.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let kept = CapabilitySets {
        effective: had.effective & KEPT,
        permitted: had.permitted & KEPT,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept)?)
}
