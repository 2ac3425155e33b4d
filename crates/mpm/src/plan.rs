//! Which literals are searched for together.

use crate::layer::{Draft, Form, Layer};
use crate::literal::Needle;
use crate::model::{Frequencies, Model};

/// The lengths from which on literals can be searched for in another, faster way than shorter ones.
const CLASSES: [usize; 6] = [1, 2, 3, 4, 5, 7];

/// The bytes of text that costs are compared for.
const TEXT_BYTES: u64 = 1 << 16;

/// The needles in layers, so that together they take the least time on text as the model has it. A
/// layer is as slow as its shortest needle makes it, but each costs a pass over the text.
pub(crate) fn layers(needles: &[Needle], model: &Model) -> Vec<Layer> {
    let mut classes = CLASSES.map(|_| Vec::new());
    for (number, needle) in needles.iter().enumerate() {
        let class = CLASSES.partition_point(|&shortest| shortest <= needle.length()) - 1;
        classes[class].push(number as u32);
    }
    let classes: Vec<_> = classes.into_iter().filter(|class| !class.is_empty()).collect();

    // For no class, the first, the first two and so on.
    let mut best = vec![Plan { cost: 0, before: 0, last: None }];
    let mut frequencies = Frequencies::new(model);
    for end in 1..=classes.len() {
        let mut least: Option<Plan> = None;
        // Of what costs the same, what comes last here is taken.
        for before in (0..end).rev() {
            let numbers = classes[before..end].concat();
            for form in Form::all(needles, &numbers).rev() {
                let (others, most) = (best[before].cost, least.as_ref().map_or(u64::MAX, |least| least.cost));
                if others + form.least_cost(numbers.len(), TEXT_BYTES) > most {
                    continue;
                }
                let draft = Draft::new(needles, &numbers, form, &mut frequencies);
                let cost = others + draft.cost(TEXT_BYTES);
                if cost <= most {
                    least = Some(Plan { cost, before, last: Some(draft) });
                }
            }
        }
        best.extend(least);
    }
    let mut layers = Vec::new();
    while let Some(Plan { before, last: Some(draft), .. }) = best.pop() {
        layers.push(draft.finish(model));
        best.truncate(before + 1);
    }
    layers.reverse();
    layers
}

/// The best layers for some classes.
struct Plan {
    /// What they take.
    cost: u64,
    /// Classes that are not in the last one; what is best for them are the other layers.
    before: usize,
    /// The last one; none if there are no classes.
    last: Option<Draft>,
}
