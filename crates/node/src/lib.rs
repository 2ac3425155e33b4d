//! Runs a policy on this machine.
