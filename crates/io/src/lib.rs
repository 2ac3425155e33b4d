//! Capture files and generated traffic.
