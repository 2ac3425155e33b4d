//! What one end tells the other of what it decodes: that it is there, since when it keeps what
//! comes, and what it was referred to that it does not have.

use nf::{Meters, PacketView};
use packet::Addr;

use super::shim::{REPORT, checksum};

/// Fingerprints of a report at most.
pub const MISSING_MAX: usize = super::shim::TOKENS_MAX;

/// The other end is told at most once in so many nanoseconds what is missing.
pub const TELL_INTERVAL_NS: u64 = 1_000_000;

/// The other end is told so often, in nanoseconds, that this one is there, as long as packets come.
pub const HELLO_INTERVAL_NS: u64 = 1_000_000_000;

/// Bytes before the fingerprints.
const HEAD: usize = 20;

/// Bytes of the longest report.
const REPORT_LEN_MAX: usize = HEAD + 8 * MISSING_MAX;

/// A report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// How its sender makes fingerprints: the window's bytes, and the logarithm of how many one is
    /// sampled of.
    pub parameters: [u8; 2],
    /// When its sender began to keep what comes, in nanoseconds.
    pub epoch_ns: u64,
    /// Fingerprints that lead to nothing, or to what is not right.
    missing: &'a [[u8; 8]],
}

impl<'a> Report<'a> {
    /// Reads it; none if it is damaged.
    pub fn read(bytes: &'a [u8]) -> Option<Report<'a>> {
        let (head, missing) = bytes.split_first_chunk::<HEAD>()?;
        let &[REPORT, window, sample, count, ref rest @ ..] = head else { return None };
        let (epoch, sum) = rest.split_first_chunk::<8>()?;
        let missing = missing.get(..8 * usize::from(count))?;
        if usize::from(count) > MISSING_MAX || sum != sum_of(head, missing).to_be_bytes() {
            return None;
        }
        let epoch_ns = u64::from_be_bytes(*epoch);
        Some(Report { parameters: [window, sample], epoch_ns, missing: missing.as_chunks().0 })
    }

    /// What is missing.
    pub fn missing(&self) -> impl Iterator<Item = u64> + '_ {
        self.missing.iter().map(|bytes| u64::from_be_bytes(*bytes))
    }
}

/// Writes a report with up to [`MISSING_MAX`] fingerprints; how long it is.
fn write(parameters: [u8; 2], epoch_ns: u64, missing: &[u64], out: &mut [u8; REPORT_LEN_MAX]) -> usize {
    let missing = &missing[..missing.len().min(MISSING_MAX)];
    out[..4].copy_from_slice(&[REPORT, parameters[0], parameters[1], missing.len() as u8]);
    out[4..12].copy_from_slice(&epoch_ns.to_be_bytes());
    for (place, fingerprint) in out[HEAD..].as_chunks_mut().0.iter_mut().zip(missing) {
        *place = fingerprint.to_be_bytes();
    }
    let len = HEAD + 8 * missing.len();
    let (head, rest) = out[..len].split_at(HEAD);
    let sum = sum_of(head, rest).to_be_bytes();
    out[12..HEAD].copy_from_slice(&sum);
    len
}

/// The checksum of all but itself.
fn sum_of(head: &[u8], missing: &[u8]) -> u64 {
    checksum(head[3], &head[..12]) ^ checksum(REPORT, missing)
}

/// What an end remembers of the other one, and of what it told it.
pub struct Acquaintance<'a>(pub &'a mut Meters);

/// Meters that it takes.
pub const METERS: u32 = 2;

const HEARD: [u64; 4] = [1, 0, 0, 0];
const TOLD: [u64; 4] = [2, 0, 0, 0];

impl Acquaintance<'_> {
    /// A report came; whether it is the first one since the other end has begun, so that it may
    /// have nothing of what it was sent before.
    pub fn hear(&mut self, report: &Report<'_>, now_ns: u64) -> bool {
        let Some([heard_ns, epoch_ns, is_known]) = self.0.of(&HEARD, now_ns, u64::MAX) else { return true };
        *heard_ns = (*heard_ns).max(now_ns);
        let is_new = *is_known == 0 || *epoch_ns != report.epoch_ns;
        (*epoch_ns, *is_known) = (report.epoch_ns, 1);
        is_new
    }

    /// Whether the other end was heard within this time.
    #[inline]
    pub fn is_heard(&self, patience_ns: u64, now_ns: u64) -> bool {
        let heard = self.0.get(&HEARD);
        heard
            .is_some_and(|&[heard_ns, _, known]| known == 1 && now_ns <= heard_ns.saturating_add(patience_ns))
    }

    /// When this end began to keep what comes, if it is time to tell the other one; `interval_ns`
    /// is how long ago that was done last.
    #[inline]
    pub fn is_due(&mut self, interval_ns: u64, now_ns: u64) -> Option<u64> {
        let [epoch_ns, told_ns, has_begun] = self.0.of(&TOLD, now_ns, u64::MAX)?;
        if *has_begun == 0 {
            (*epoch_ns, *has_begun) = (now_ns, 1);
        } else if now_ns < told_ns.saturating_add(interval_ns) {
            return None;
        }
        *told_ns = now_ns;
        Some(*epoch_ns)
    }
}

/// Answers a packet between these addresses with a report.
pub fn send(
    packet: &PacketView<'_>,
    (source, destination): (Addr, Addr),
    protocol: u8,
    (parameters, epoch_ns): ([u8; 2], u64),
    missing: &[u64],
    context: &mut nf::Context<'_>,
) -> bool {
    let (mut report, mut buffer) = ([0; REPORT_LEN_MAX], nf::answer::buffer());
    let len = write(parameters, epoch_ns, missing, &mut report);
    nf::answer::message(packet, (destination, source), protocol, &report[..len], &mut buffer)
        .is_ok_and(|message| context.answer(packet, message).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_as_they_were_written_or_not_at_all() {
        let mut out = [0; REPORT_LEN_MAX];
        let len = write([32, 5], 77, &[1, u64::MAX], &mut out);
        assert_eq!(len, 36);
        let report = Report::read(&out[..len]).unwrap();
        assert_eq!((report.parameters, report.epoch_ns), ([32, 5], 77));
        assert_eq!(report.missing().collect::<Vec<_>>(), [1, u64::MAX]);
        for bit in 0..8 * len {
            let mut changed = out;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Report::read(&changed[..len]).is_none(), "bit {bit}");
        }
        assert!((0..len).all(|len| Report::read(&out[..len]).is_none()));
        assert_eq!(write([32, 5], 77, &[3; 99], &mut out), REPORT_LEN_MAX);
        assert_eq!(Report::read(&out).unwrap().missing().count(), MISSING_MAX);
    }

    #[test]
    fn who_is_there_is_known_for_a_time() {
        let mut meters = Meters::new("acquaintance", METERS as usize, 1).unwrap();
        let mut known = Acquaintance(&mut meters);
        assert!(!known.is_heard(10, 5));
        let report = |epoch_ns| Report { parameters: [32, 5], epoch_ns, missing: &[] };
        assert!(known.hear(&report(1), 100));
        assert!(known.is_heard(10, 110) && !known.is_heard(10, 111));
        assert!(!known.hear(&report(1), 120) && known.hear(&report(2), 130) && !known.hear(&report(2), 140));
        assert_eq!(
            [(9, 200), (9, 208), (9, 209), (1, 210)].map(|(interval, now)| known.is_due(interval, now)),
            [Some(200), None, Some(200), Some(200)]
        );
    }
}
