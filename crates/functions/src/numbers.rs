//! Numbers of configurations that have to be in a range, or of a kind.

use std::ops::RangeInclusive;

use values::ConfigError;

/// Refuses the value of a key that is outside of its range.
pub fn within(key: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(ConfigError::new(format!("`{key}` is from {least} to {most}, not {value}")))
}

/// Refuses the value of a key that is no power of two.
pub fn power_of_two(key: &str, value: u64) -> Result<(), ConfigError> {
    if value.is_power_of_two() {
        return Ok(());
    }
    Err(ConfigError::new(format!("`{key}` is a power of two, not {value}")))
}
