//! Speed of the generator: nanoseconds per frame, the best of five rounds for each preset.

use std::hint::black_box;
use std::time::Instant;

use io::traffic::{Generator, ProfileError, TrafficProfile};

const ROUNDS: u32 = 5;
const FRAMES: u64 = 500_000;

fn main() -> Result<(), ProfileError> {
    println!("{:>10}  {:>8}  {:>9}", "preset", "ns/frame", "Mframes/s");
    for name in TrafficProfile::PRESETS {
        let Some(profile) = TrafficProfile::preset(name) else { continue };
        let mut generator = Generator::new(&profile)?;
        let best = (0..ROUNDS).map(|_| round_ns(&mut generator)).fold(f64::INFINITY, f64::min);
        println!("{name:>10}  {best:>8.1}  {:>9.2}", 1e3 / best);
    }
    Ok(())
}

fn round_ns(generator: &mut Generator) -> f64 {
    let begin = Instant::now();
    for _ in 0..FRAMES {
        black_box(generator.next());
    }
    begin.elapsed().as_nanos() as f64 / FRAMES as f64
}
