//! Checks of numbers in configurations.

use std::ops::RangeInclusive;

use values::ConfigError;

/// Refuses a value outside of its key's range.
pub fn within(key: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(ConfigError::new(format!("`{key}` must be from {least} to {most}, not {value}")))
}

/// Refuses a value that is not a power of two.
pub fn power_of_two(key: &str, value: u64) -> Result<(), ConfigError> {
    if value.is_power_of_two() {
        return Ok(());
    }
    Err(ConfigError::new(format!("`{key}` must be a power of two, not {value}")))
}
