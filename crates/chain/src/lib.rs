//! Runs network functions in order over flows.
