//! Values of configurations: amounts with a unit, shares, addresses of nodes, texts with their
//! source position, secrets.
//!
//! A configuration struct derives `Deserialize` and uses these types for its fields. They read
//! plain JSON (`"10s"`, `"64KiB"`, integers in the base unit) and the literals of the policy
//! language, with one grammar for both:
//!
//! ```text
//! amount   = 1*( number unit )                 ; several parts only in a duration: 2h4m
//! number   = digit *( digit / "_" ) [ "." 1*digit ]
//! duration = "ns" / "us" / "ms" / "s" / "m" / "h" / "d"
//! size     = "B" / "KB" / "MB" / "GB" / "TB" / "KiB" / "MiB" / "GiB" / "TiB"
//! bit rate = "bps" / "kbps" / "Mbps" / "Gbps" / "Tbps"
//! packets  = "pps" / "kpps" / "Mpps" / "Gpps"
//! count    = "" / "k" / "M" / "G" / "T"        ; powers of 1000
//! ```
//!
//! `kB`, `K`, `Kbps`, `Kpps` and `µs` are accepted as well. An amount must be a whole number of the
//! base unit (nanoseconds, bytes, bits per second, packets per second) that fits in 64 bits:
//! `1.5ns` is an error. [`Picos`] counts picoseconds and also reads `ps`.

mod host_port;
mod located;
mod quantity;
mod ratio;
mod secret;

pub use host_port::HostPort;
pub use located::{ConfigError, Located, Origin, Position};
pub use quantity::{
    BitRate, ByteCount, Nanos, PacketRate, Picos, PositiveBitRate, Quantity, QuantityError, QuantityKind,
};
pub use ratio::{Factor, Share};
pub use secret::Secret;

#[cfg(test)]
mod tests;
