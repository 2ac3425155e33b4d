//! The complete rule for running state functions of different functions at the same time (B18).
//!
//! Two batches commute if neither writes a payload that the other reads or writes, and if no header
//! field that the later one reads is written between them. They share no memory: each has its own
//! part of a flow's record, and what flows share belongs to one function (B20). They decide
//! nothing, and their reports keep their order.

use nf::{Access, Field, Recording};

use super::Step;

/// The accesses of one function's state functions to a packet (B17).
#[derive(Clone, Copy)]
struct Manners {
    /// The strongest access of any of them to the payload.
    payload: Access,
    /// The header fields that any of them reads.
    reads: Fields,
}

impl Manners {
    fn of(recording: &Recording) -> Manners {
        let none = Manners { payload: Access::Ignore, reads: Fields::default() };
        recording.functions.iter().fold(none, |all, function| Manners {
            payload: all.payload.max(function.access),
            reads: function.reads.iter().fold(all.reads, |reads, &field| reads.with(field)),
        })
    }
}

/// A set of header fields.
#[derive(Clone, Copy, Default)]
struct Fields(u32);

impl Fields {
    fn with(self, field: Field) -> Fields {
        Fields(self.0 | 1 << field as u32)
    }

    fn meets(self, others: Fields) -> bool {
        self.0 & others.0 != 0
    }
}

/// Returns true if two batches' accesses to the payload have the same effect in either order, and
/// in parallel.
fn payloads_commute(one: Access, other: Access) -> bool {
    matches!((one, other), (Access::Ignore, _) | (_, Access::Ignore) | (Access::Read, Access::Read))
}

/// Moves state functions that commute next to the first of their set, and puts [`Step::Together`]
/// before the set. `recordings`: each function's recording.
///
/// They pass only steps that do not affect them: counters of other functions, edges, and writes of
/// fields that they do not read. They pass no step that may drop or resize a packet. A rewrite of
/// endpoints does neither: every parsed packet has endpoints, and no program has state functions
/// that read rewritten ones.
pub(crate) fn put_together(steps: &mut Vec<Step>, recordings: &[Option<Recording>]) {
    let manners = |stage: usize| Some(Manners::of(recordings.get(stage)?.as_ref()?));
    let mut together: Vec<Manners> = Vec::new();
    let mut first = 0;
    while first < steps.len() {
        together.clear();
        if let Step::Functions(stage, _) = steps[first] {
            together.extend(manners(stage));
        }
        let (mut next, mut written) = (first + 1, Fields::default());
        while let (false, Some(&step)) = (together.is_empty(), steps.get(next)) {
            match step {
                Step::Pass(_) | Step::Edge(_) | Step::Rewrite { .. } => {}
                Step::SetDscp(_) => written = written.with(Field::Dscp),
                Step::Functions(stage, _) => {
                    let Some(this) = manners(stage).filter(|this| {
                        !this.reads.meets(written)
                            && together.iter().all(|other| payloads_commute(this.payload, other.payload))
                    }) else {
                        break;
                    };
                    steps[first + together.len()..=next].rotate_right(1);
                    together.push(this);
                }
                _ => break,
            }
            next += 1;
        }
        if together.len() > 1 {
            steps.insert(first, Step::Together(together.len()));
            first += 1;
        }
        first += together.len().max(1);
    }
}

#[cfg(test)]
mod tests {
    use nf::StateFunction;

    use super::super::Batch;
    use super::*;

    /// Recordings with one state function each, with its access to the payload and the fields that
    /// it reads.
    fn recordings(of: &[(Access, &'static [Field])]) -> Vec<Option<Recording>> {
        let recording = |&(access, reads): &(Access, &'static [Field])| {
            let mut recording = Recording::default();
            recording.functions.push(StateFunction { id: 1, access, reads });
            Some(recording)
        };
        of.iter().map(recording).collect()
    }

    fn functions(stage: usize, recordings: &[Option<Recording>]) -> Step {
        Step::Functions(stage, Batch::of(recordings[stage].as_ref().unwrap()).unwrap())
    }

    // B18: all pairs of types.
    #[test]
    fn payloads_are_read_together_and_written_alone() {
        use Access::{Ignore, Read, Write};
        for (one, other, commute) in [
            (Ignore, Ignore, true),
            (Ignore, Read, true),
            (Ignore, Write, true),
            (Read, Read, true),
            (Read, Write, false),
            (Write, Write, false),
        ] {
            for pair in [[one, other], [other, one]] {
                let recordings = recordings(&pair.map(|access| (access, &[][..])));
                let plain = vec![functions(0, &recordings), functions(1, &recordings)];
                let mut steps = plain.clone();
                put_together(&mut steps, &recordings);
                let together = steps.first() == Some(&Step::Together(2)) && steps[1..] == plain;
                assert!(if commute { together } else { steps == plain }, "{pair:?}: {steps:?}");
            }
        }
    }

    #[test]
    fn the_strongest_of_a_batch_counts() {
        let mut recordings = recordings(&[(Access::Ignore, &[]), (Access::Read, &[])]);
        let strong = StateFunction { id: 2, access: Access::Write, reads: &[] };
        if let Some(recording) = &mut recordings[0] {
            recording.functions.insert(0, strong);
        }
        let plain = vec![functions(0, &recordings), functions(1, &recordings)];
        let mut steps = plain.clone();
        put_together(&mut steps, &recordings);
        assert_eq!(steps, plain);
    }

    #[test]
    fn who_reads_what_is_written_between_stays_behind_it() {
        let reads: [&'static [Field]; 3] = [&[], &[Field::Dscp], &[Field::TcpFlags]];
        let recordings = recordings(&reads.map(|reads| (Access::Read, reads)));
        let [a, reader, c] = [0, 1, 2].map(|stage| functions(stage, &recordings));
        let put = |steps: &[Step]| {
            let mut steps = steps.to_vec();
            put_together(&mut steps, &recordings);
            steps
        };
        let (dscp, ends) = (Step::SetDscp(7), Step::Rewrite { known: true });
        assert_eq!(put(&[a, dscp, reader]), [a, dscp, reader]);
        assert_eq!(put(&[a, dscp, c]), [Step::Together(2), a, c, dscp]);
        assert_eq!(put(&[reader, dscp, a]), [Step::Together(2), reader, a, dscp], "it reads what was there");
        // A later batch does not pass one that stays: both form another set.
        assert_eq!(put(&[a, dscp, reader, c]), [a, dscp, Step::Together(2), reader, c]);
        assert_eq!(
            put(&[a, Step::Pass(5), ends, c, Step::Pass(6), reader]),
            [Step::Together(3), a, c, reader, Step::Pass(5), ends, Step::Pass(6)]
        );
    }

    #[test]
    fn nobody_is_moved_across_what_may_drop_packets_or_resize_them() {
        let recordings = recordings(&[(Access::Ignore, &[]), (Access::Ignore, &[])]);
        let [a, b] = [0, 1].map(|stage| functions(stage, &recordings));
        for between in [Step::Process(7), Step::Encap(7)] {
            let mut steps = vec![a, between, b];
            put_together(&mut steps, &recordings);
            assert_eq!(steps, [a, between, b]);
        }
    }
}
