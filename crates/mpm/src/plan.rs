//! Grouping of literals into layers.

use crate::layer::{Draft, Form, Layer};
use crate::literal::Needle;
use crate::model::{Frequencies, Model};

/// Lengths of the shortest literal that allow a faster search.
const CLASSES: [usize; 6] = [1, 2, 3, 4, 5, 7];

/// Bytes of text in the comparison of costs.
const TEXT_BYTES: u64 = 1 << 16;

/// Groups the needles into the layers with the least total cost on text of the model. A layer is as
/// slow as its shortest needle requires, but each layer costs a pass over the text.
pub(crate) fn layers(needles: &[Needle], model: &Model) -> Vec<Layer> {
    let mut classes = CLASSES.map(|_| Vec::new());
    for (number, needle) in needles.iter().enumerate() {
        let class = CLASSES.partition_point(|&shortest| shortest <= needle.length()) - 1;
        classes[class].push(number as u32);
    }
    let classes: Vec<_> = classes.into_iter().filter(|class| !class.is_empty()).collect();

    // For no class, the first, the first two and so on.
    let mut best = vec![LayerPlan { cost: 0, before: 0, last: None }];
    let mut frequencies = Frequencies::new(model);
    for end in 1..=classes.len() {
        let mut least: Option<LayerPlan> = None;
        // Of equal costs, the last one here wins.
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
                    least = Some(LayerPlan { cost, before, last: Some(draft) });
                }
            }
        }
        best.extend(least);
    }
    let mut layers = Vec::new();
    while let Some(LayerPlan { before, last: Some(draft), .. }) = best.pop() {
        layers.push(draft.finish(model));
        best.truncate(before + 1);
    }
    layers.reverse();
    layers
}

/// The best layers for some classes.
struct LayerPlan {
    /// Total cost.
    cost: u64,
    /// Classes outside the last layer; the other layers are the best for those.
    before: usize,
    /// The last layer; `None` without classes.
    last: Option<Draft>,
}
