//! Which literals are searched for together.

use crate::layer::Layer;
use crate::literal::Needle;
use crate::model::Model;

/// The lengths from which on literals can be searched for in another, faster way than shorter ones.
const CLASSES: [usize; 6] = [1, 2, 3, 4, 5, 7];

/// The bytes of text that costs are compared for.
const TEXT_BYTES: u64 = 1 << 16;

/// The needles in layers, so that together they take the least time on text as the model has it. A layer is as slow as its
/// shortest needle makes it, but each costs a pass over the text.
pub(crate) fn layers(needles: &[Needle], model: &Model) -> Vec<Layer> {
    let mut classes = CLASSES.map(|_| Vec::new());
    for (number, needle) in needles.iter().enumerate() {
        let class = CLASSES.partition_point(|&shortest| shortest <= needle.length()) - 1;
        classes[class].push(number as u32);
    }
    let classes: Vec<_> = classes.into_iter().filter(|class| !class.is_empty()).collect();

    // The best layers, and what they cost, for no class, the first, the first two and so on.
    let mut best = vec![(0, Vec::new())];
    for end in 1..=classes.len() {
        let last_layers = (0..end).flat_map(|start| {
            let numbers = classes[start..end].concat();
            let layers = [
                Some(Layer::new(needles, &numbers, model)),
                Layer::led(needles, &numbers, model),
                Layer::packed(needles, &numbers, model),
            ];
            let cost = best[start].0;
            layers.into_iter().flatten().map(move |layer| (cost + layer.cost(TEXT_BYTES), start, layer))
        });
        let Some((cost, start, layer)) = last_layers.min_by_key(|&(cost, ..)| cost) else { continue };
        let mut layers = best[start].1.clone();
        layers.push(layer);
        best.push((cost, layers));
    }
    best.pop().map(|(_, layers)| layers).unwrap_or_default()
}
