//! The unit: rules of the protocol one by one, every order of small schedules, and a model.

mod common;
mod model;
mod rules;
mod schedules;
