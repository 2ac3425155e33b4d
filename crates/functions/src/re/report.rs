//! Reports: one end's feedback to the other. They show that it is alive, since when it caches
//! payloads, and which references it could not resolve.

use nf::{Meters, PacketView};
use packet::Addr;

use super::shim::{REPORT, checksum};

/// Maximum fingerprints of a report.
pub const MISSING_MAX: usize = super::shim::TOKENS_MAX;

/// Minimum interval between reports of missing fingerprints, in nanoseconds.
pub const REPORT_INTERVAL_NS: u64 = 1_000_000;

/// Interval between reports while packets arrive, in nanoseconds.
pub const HELLO_INTERVAL_NS: u64 = 1_000_000_000;

/// Bytes before the fingerprints.
const HEAD: usize = 20;

/// Maximum bytes of a report.
const REPORT_LEN_MAX: usize = HEAD + 8 * MISSING_MAX;

/// A report from the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerReport<'a> {
    /// The sender's fingerprint parameters: bytes of the window, and the logarithm of the sampling.
    pub parameters: [u8; 2],
    /// The time at which the sender began to cache, in nanoseconds.
    pub epoch_ns: u64,
    /// Fingerprints with a missing or wrong payload.
    missing: &'a [[u8; 8]],
}

impl<'a> PeerReport<'a> {
    /// Parses a report; `None` if it is damaged.
    pub fn read(bytes: &'a [u8]) -> Option<PeerReport<'a>> {
        let (head, missing) = bytes.split_first_chunk::<HEAD>()?;
        let &[REPORT, window, sample, count, ref rest @ ..] = head else { return None };
        let (epoch, sum) = rest.split_first_chunk::<8>()?;
        let missing = missing.get(..8 * usize::from(count))?;
        if usize::from(count) > MISSING_MAX || sum != sum_of(head, missing).to_be_bytes() {
            return None;
        }
        let epoch_ns = u64::from_be_bytes(*epoch);
        Some(PeerReport { parameters: [window, sample], epoch_ns, missing: missing.as_chunks().0 })
    }

    /// Returns the missing fingerprints.
    pub fn missing(&self) -> impl Iterator<Item = u64> + '_ {
        self.missing.iter().map(|bytes| u64::from_be_bytes(*bytes))
    }
}

/// Writes a report with up to [`MISSING_MAX`] fingerprints; returns its length.
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

/// Returns the checksum of everything but the checksum itself.
fn sum_of(head: &[u8], missing: &[u8]) -> u64 {
    checksum(head[3], &head[..12]) ^ checksum(REPORT, missing)
}

/// The known state of the other end, and the time of the last report to it.
pub struct PeerState<'a>(pub &'a mut Meters);

/// Number of meters used.
pub const METERS: u32 = 2;

const HEARD: [u64; 4] = [1, 0, 0, 0];
const TOLD: [u64; 4] = [2, 0, 0, 0];

impl PeerState<'_> {
    /// Handles a report. Returns whether it is the first since the other end restarted, so that its
    /// cache may be empty.
    pub fn handle_report(&mut self, report: &PeerReport<'_>, now_ns: u64) -> bool {
        let Some([heard_ns, epoch_ns, is_known]) = self.0.of(&HEARD, now_ns, u64::MAX) else { return true };
        *heard_ns = (*heard_ns).max(now_ns);
        let is_new = *is_known == 0 || *epoch_ns != report.epoch_ns;
        (*epoch_ns, *is_known) = (report.epoch_ns, 1);
        is_new
    }

    /// Returns whether a report of the other end arrived within this time.
    #[inline]
    pub fn is_alive(&self, patience_ns: u64, now_ns: u64) -> bool {
        let heard = self.0.get(&HEARD);
        heard
            .is_some_and(|&[heard_ns, _, known]| known == 1 && now_ns <= heard_ns.saturating_add(patience_ns))
    }

    /// Returns the time at which this end began to cache, if the last report was sent `interval_ns`
    /// ago or earlier.
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

/// Responds with a report to a packet between these addresses.
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
    fn reports_are_parsed_as_written_or_rejected() {
        let mut out = [0; REPORT_LEN_MAX];
        let len = write([32, 5], 77, &[1, u64::MAX], &mut out);
        assert_eq!(len, 36);
        let report = PeerReport::read(&out[..len]).unwrap();
        assert_eq!((report.parameters, report.epoch_ns), ([32, 5], 77));
        assert_eq!(report.missing().collect::<Vec<_>>(), [1, u64::MAX]);
        for bit in 0..8 * len {
            let mut changed = out;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(PeerReport::read(&changed[..len]).is_none(), "bit {bit}");
        }
        assert!((0..len).all(|len| PeerReport::read(&out[..len]).is_none()));
        assert_eq!(write([32, 5], 77, &[3; 99], &mut out), REPORT_LEN_MAX);
        assert_eq!(PeerReport::read(&out).unwrap().missing().count(), MISSING_MAX);
    }

    #[test]
    fn the_peer_counts_as_alive_for_a_time() {
        let mut meters = Meters::new("acquaintance", METERS as usize, 1).unwrap();
        let mut known = PeerState(&mut meters);
        assert!(!known.is_alive(10, 5));
        let report = |epoch_ns| PeerReport { parameters: [32, 5], epoch_ns, missing: &[] };
        assert!(known.handle_report(&report(1), 100));
        assert!(known.is_alive(10, 110) && !known.is_alive(10, 111));
        assert!(
            !known.handle_report(&report(1), 120)
                && known.handle_report(&report(2), 130)
                && !known.handle_report(&report(2), 140)
        );
        assert_eq!(
            [(9, 200), (9, 208), (9, 209), (1, 210)].map(|(interval, now)| known.is_due(interval, now)),
            [Some(200), None, Some(200), Some(200)]
        );
    }
}
