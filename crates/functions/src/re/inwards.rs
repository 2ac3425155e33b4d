//! Packets from the other site: what was left out of them is put in again.

use nf::{Context, PacketView, PayloadCache};
use packet::DropReason;

use super::outline::{Outline, PAYLOAD_MAX};
use super::report::{self, Acquaintance, HELLO_INTERVAL_NS, Report, TELL_INTERVAL_NS};
use super::shim::{self, REPORT, Shim};
use super::{METERS, RECEIVED, Re, SENT, Scratch, counter};

impl Re {
    /// Decodes the packet, if it is encoded, and remembers what it brings.
    pub(super) fn receive(
        &self,
        outline: &Outline,
        packet: &mut PacketView<'_>,
        scratch: &mut Scratch,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let network = packet.outermost();
        if outline.protocol == self.protocol {
            if outline.is_fragment {
                return Err(DropReason::ReFragment);
            }
            let payload = outline.payload(network).ok_or(DropReason::ReMalformed)?;
            if payload.first() == Some(&REPORT) {
                return Err(self.hear(payload, context));
            }
            let shim = Shim::read(payload).filter(|shim| shim.len() <= PAYLOAD_MAX);
            let shim = shim.ok_or(DropReason::ReMalformed)?;
            let (protocol, restored) = (shim.protocol, shim.len() - shim.literals.len());
            if let Err(reason) = self.restore(&shim, scratch, context) {
                self.tell(outline, packet, TELL_INTERVAL_NS, &scratch.missing, context);
                return Err(reason);
            }
            packet.replace_payload(protocol, &scratch.payload)?;
            context.count(counter::DECODED, 1);
            context.count(counter::RESTORED, restored as u64);
        } else if let Some(payload) = outline.content(network) {
            self.rabin.sample(payload, &mut scratch.samples);
            super::keep(context.payload_cache(RECEIVED), payload, &scratch.samples);
        }
        self.tell(outline, packet, HELLO_INTERVAL_NS, &[], context);
        Ok(())
    }

    /// Puts the payload together that the shim stands for, and remembers it. If that fails, what is
    /// missing is in the scratch.
    fn restore(
        &self,
        shim: &Shim<'_>,
        scratch: &mut Scratch,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        scratch.missing.clear();
        let received = context.payload_cache(RECEIVED);
        put_together(received, shim, scratch);
        if !scratch.missing.is_empty() {
            context.count(counter::MISSED, scratch.missing.len() as u64);
            return Err(DropReason::ReMissing);
        }
        if shim::checksum(shim.protocol, &scratch.payload) != shim.checksum {
            // The ends differ in what one of them leads to, if it was not changed on the way.
            scratch.missing.extend(shim.tokens().map(|token| token.fingerprint));
            return Err(DropReason::ReChecksum);
        }
        self.rabin.sample(&scratch.payload, &mut scratch.samples);
        super::keep(received, &scratch.payload, &scratch.samples);
        Ok(())
    }

    /// Takes a report to heart. It goes no further.
    fn hear(&self, payload: &[u8], context: &mut Context<'_>) -> DropReason {
        let Some(report) = Report::read(payload) else { return DropReason::ReMalformed };
        if report.parameters != self.parameters {
            context.count(counter::STRANGE, 1);
            return DropReason::ReReport;
        }
        let now_ns = context.now_ns();
        let has_begun_anew = Acquaintance(context.meters(METERS)).hear(&report, now_ns);
        let sent = context.payload_cache(SENT);
        if has_begun_anew {
            sent.clear();
        }
        let forgotten = report.missing().filter(|fingerprint| sent.forget(*fingerprint)).count();
        context.count(counter::REPORTS_HEARD, 1);
        context.count(counter::FORGOTTEN, forgotten as u64);
        DropReason::ReReport
    }

    /// Tells the other end that this one is there, and what is missing, if it was not told anything
    /// for so long.
    #[inline]
    fn tell(
        &self,
        outline: &Outline,
        packet: &PacketView<'_>,
        interval_ns: u64,
        missing: &[u64],
        context: &mut Context<'_>,
    ) {
        let now_ns = context.now_ns();
        if let Some(epoch_ns) = Acquaintance(context.meters(METERS)).is_due(interval_ns, now_ns) {
            let ends = (outline.source, outline.destination);
            let sent =
                report::send(packet, ends, self.protocol, (self.parameters, epoch_ns), missing, context);
            context.count(counter::REPORTS_SENT, u64::from(sent));
        }
    }
}

/// Puts regions and literals one behind the other, and notes which regions are not here.
#[inline]
fn put_together(received: &PayloadCache, shim: &Shim<'_>, scratch: &mut Scratch) {
    let (payload, mut literals) = (&mut scratch.payload, shim.literals);
    payload.clear();
    for token in shim.tokens() {
        // Places are in order, and within what regions and literals come to; but regions that are
        // not here leave gaps.
        let gap = usize::from(token.place).saturating_sub(payload.len()).min(literals.len());
        let (before, behind) = literals.split_at(gap);
        (literals, _) = (behind, payload.extend_from_slice(before));
        let region = received.find(token.fingerprint).and_then(|found| {
            let from = found.offset.checked_sub(token.before.into())?;
            found.payload.get(from..from + usize::from(token.len))
        });
        match region {
            Some(region) => payload.extend_from_slice(region),
            None => scratch.missing.push(token.fingerprint),
        }
    }
    payload.extend_from_slice(literals);
}
