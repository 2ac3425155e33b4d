//! Address masks of functions that meter by address: addresses with the same prefix share a meter.

use packet::Addr;
use values::ConfigError;

/// Significant bits of addresses.
pub(crate) struct AddressMasks {
    v4: u128,
    v6: u128,
}

impl AddressMasks {
    /// Builds masks with this number of leading bits, as configured by `prefix4` and `prefix6`.
    pub fn new(prefix4: u8, prefix6: u8) -> Result<AddressMasks, ConfigError> {
        for (key, bits, most) in [("prefix4", prefix4, 32), ("prefix6", prefix6, 128)] {
            if bits > most {
                return Err(ConfigError::new(format!("`{key}` is too large: the maximum is {most}")));
            }
        }
        let mask = |bits: u32| u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        Ok(AddressMasks { v4: mask(96 + u32::from(prefix4)), v6: mask(prefix6.into()) })
    }

    /// Returns the significant bits of this address.
    pub fn apply(&self, addr: Addr) -> u128 {
        addr.to_u128() & if addr.is_v4() { self.v4 } else { self.v6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_the_same_prefix_are_equal_when_masked() {
        let addr = |text: &str| Addr::from(text.parse::<std::net::IpAddr>().unwrap());
        let same = |bits: (u8, u8), a: &str, b: &str| {
            let masks = AddressMasks::new(bits.0, bits.1).unwrap();
            masks.apply(addr(a)) == masks.apply(addr(b))
        };
        assert!(!same((32, 64), "10.0.0.1", "10.0.0.0") && same((31, 64), "10.0.0.1", "10.0.0.0"));
        assert!(
            same((32, 64), "2001:db8::1", "2001:db8::2:3:4:5")
                && !same((0, 64), "2001:db8:0:1::", "2001:db8::")
        );
        assert!(same((0, 0), "10.0.0.1", "192.0.2.1") && same((0, 0), "2001:db8::1", "fe80::1"));
        assert!(!same((0, 1), "10.0.0.1", "fe80::1") && !same((32, 128), "2001:db8::1", "2001:db8::"));
    }
}
