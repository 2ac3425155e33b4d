//! What an author of network functions uses.
