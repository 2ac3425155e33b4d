//! The processor's cycle counter.

/// Returns a function that reads the processor's cycle counter, if there is one: on x86-64 the time
/// stamp counter, which counts at a constant rate near the nominal frequency.
pub fn counter() -> Option<fn() -> u64> {
    #[cfg(target_arch = "x86_64")]
    {
        Some(read)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        None
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn read() -> u64 {
    // SAFETY: reading the time stamp counter has no effect on memory; every x86-64 processor has
    // it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_counter_goes_forward() {
        if let Some(cycles) = super::counter() {
            let before = cycles();
            assert!(cycles() > before);
        }
    }
}
