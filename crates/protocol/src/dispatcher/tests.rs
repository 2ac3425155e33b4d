//! The dispatcher as a whole: rule by rule, and against a reference.

mod bench;
mod evacuation;
mod flowlets;
mod guesses;
mod membership;
mod operating;
mod reference;
mod relief;
mod scaling;
