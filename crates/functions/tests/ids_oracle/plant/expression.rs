//! Texts that match an expression.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};
use signatures::Pcre;

use super::random::Random;

/// Maximum repetitions beyond the minimum.
const MORE: usize = 3;

/// Returns a text that the expression is likely to match if its assertions hold.
pub fn text(pcre: &Pcre, random: &mut Random) -> Option<Vec<u8>> {
    let regex = pcre.regex().ok()?;
    let hir = ParserBuilder::new().utf8(false).unicode(false).nest_limit(400).build().parse(&regex).ok()?;
    let mut out = Vec::new();
    generate(&hir, random, &mut out);
    Some(out)
}

fn generate(hir: &Hir, random: &mut Random, out: &mut Vec<u8>) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.extend(&literal.0),
        HirKind::Class(class) => out.extend(one_of(class, random)),
        HirKind::Capture(capture) => generate(&capture.sub, random, out),
        HirKind::Concat(all) => all.iter().for_each(|one| generate(one, random, out)),
        HirKind::Alternation(all) => generate(&all[random.below(all.len())], random, out),
        HirKind::Repetition(repetition) => {
            let least = repetition.min as usize;
            let most = repetition.max.map_or(least + MORE, |max| (max as usize).min(least + MORE));
            for _ in 0..least + random.below(most - least + 1) {
                generate(&repetition.sub, random, out);
            }
        }
    }
}

/// Returns a member of a class, preferably a letter or digit.
fn one_of(class: &Class, random: &mut Random) -> Option<u8> {
    let holds = |byte: u8| match class {
        Class::Bytes(bytes) => {
            bytes.ranges().iter().any(|range| (range.start()..=range.end()).contains(&byte))
        }
        Class::Unicode(all) => {
            let here = char::from(byte);
            byte < 0x80 && all.ranges().iter().any(|range| (range.start()..=range.end()).contains(&here))
        }
    };
    let all: Vec<u8> = (0..=255).filter(|byte| holds(*byte)).collect();
    let nice: Vec<u8> = all.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
    let choice = if nice.is_empty() { &all } else { &nice };
    (!choice.is_empty()).then(|| choice[random.below(choice.len())])
}
