//! The unit: rules of the protocol one by one, every order of small schedules, random schedules,
//! and both real ends over a lossy link.

mod both_ends;
mod common;
mod groups;
mod model;
mod rules;
mod schedules;
mod simulations;
mod timelines;
