//! The `rivulet` command.

fn main() {}
