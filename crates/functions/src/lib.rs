//! The built-in network functions.
