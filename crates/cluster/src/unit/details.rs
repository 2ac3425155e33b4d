//! Figures of a unit's functions for its dispatcher: a number is sent after it has changed.

use runtime::report::Figures;

use crate::wire::{FIGURE_CHANGES_MAX, FigureChanges};

/// Least period between two sets of figures, in nanoseconds.
const PERIOD_NS: u64 = 500_000_000;
/// Limit on the frames of a period; further numbers follow in the next one, or at the end.
const FRAMES_MAX: usize = 4;

/// The figures that the dispatcher has.
#[derive(Default)]
pub(super) struct Details {
    sent: Vec<u64>,
    sent_ns: Option<u64>,
    /// The position at which the next set begins.
    next: usize,
}

impl Details {
    /// Returns true if figures may be sent.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.sent_ns.is_none_or(|sent_ns| now_ns.saturating_sub(sent_ns) >= PERIOD_NS)
    }

    /// Returns the changes to send: all of them if it `is_last`.
    pub fn changes(&mut self, figures: &mut Figures, now_ns: u64, is_last: bool) -> Vec<FigureChanges> {
        self.sent_ns = Some(now_ns);
        let (form, numbers) = (figures.form(), figures.numbers());
        self.changes_of(form, &numbers, if is_last { usize::MAX } else { FRAMES_MAX })
    }

    fn changes_of(&mut self, form: u64, numbers: &[u64], frames_max: usize) -> Vec<FigureChanges> {
        self.sent.resize(numbers.len(), 0);
        let mut frames: Vec<FigureChanges> = Vec::new();
        let start = self.next.min(numbers.len());
        for place in (start..numbers.len()).chain(0..start) {
            if self.sent[place] == numbers[place] {
                continue;
            }
            let continues = frames.last().is_some_and(|frame| {
                let is_after = frame.changes.last().is_some_and(|&(last, _)| (last as usize) < place);
                is_after && frame.changes.len() < FIGURE_CHANGES_MAX
            });
            if !continues {
                if frames.len() == frames_max {
                    self.next = place;
                    return frames;
                }
                frames.push(FigureChanges { form, changes: Vec::new() });
            }
            self.sent[place] = numbers[place];
            if let Some(frame) = frames.last_mut() {
                frame.changes.push((place as u32, numbers[place]));
            }
        }
        self.next = 0;
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(known: &mut [u64], frames: &[FigureChanges]) {
        for (place, number) in frames.iter().flat_map(|frame| &frame.changes) {
            known[*place as usize] = *number;
        }
    }

    #[test]
    fn numbers_are_sent_once_they_change() {
        let mut details = Details::default();
        let mut known = vec![0; 4];
        take(&mut known, &details.changes_of(1, &[1, 0, 3, 4], 4));
        assert_eq!(known, [1, 0, 3, 4]);
        let next = details.changes_of(1, &[1, 2, 3, 4], 4);
        assert_eq!(next, [FigureChanges { form: 1, changes: vec![(1, 2)] }]);
        assert_eq!(details.changes_of(1, &[1, 2, 3, 4], 4), []);
    }

    /// All numbers change all the time; each gets its turn.
    #[test]
    fn a_period_has_few_frames_and_the_end_has_all() {
        let count = 20 * FIGURE_CHANGES_MAX;
        let (mut details, mut known) = (Details::default(), vec![0; count]);
        for turn in 1..=6 {
            let frames = details.changes_of(1, &vec![turn; count], FRAMES_MAX);
            assert!(frames.len() <= FRAMES_MAX);
            assert!(frames.iter().all(|frame| frame.changes.len() <= FIGURE_CHANGES_MAX));
            take(&mut known, &frames);
        }
        assert!(known.iter().all(|number| *number > 0), "a number was never sent");
        take(&mut known, &details.changes_of(1, &vec![9; count], usize::MAX));
        assert!(known.iter().all(|number| *number == 9));
    }
}
