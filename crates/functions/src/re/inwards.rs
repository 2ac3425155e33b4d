//! Packets from the other site: decoding.

use nf::{Context, PacketView, PayloadCache};
use packet::DropReason;

use super::outline::{PAYLOAD_MAX, PacketOutline};
use super::report::{self, HELLO_INTERVAL_NS, PeerReport, PeerState, REPORT_INTERVAL_NS};
use super::shim::{self, EncodedPayload, REPORT};
use super::{COUNTERS, METERS, RECEIVED, Re, SENT, Scratch};

impl Re {
    /// Decodes the packet, if it is encoded, and caches its payload.
    pub(super) fn receive(
        &self,
        outline: &PacketOutline,
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
                return Err(self.handle_report(payload, context));
            }
            let shim = EncodedPayload::read(payload).filter(|shim| shim.len() <= PAYLOAD_MAX);
            let shim = shim.ok_or(DropReason::ReMalformed)?;
            let (protocol, restored) = (shim.protocol, shim.len() - shim.literals.len());
            if let Err(reason) = self.restore(&shim, scratch, context) {
                self.send_report(outline, packet, REPORT_INTERVAL_NS, &scratch.missing, context);
                return Err(reason);
            }
            packet.replace_payload(protocol, &scratch.payload)?;
            context.count(COUNTERS.packets_decoded, 1);
            context.count(COUNTERS.bytes_restored, restored as u64);
        } else if let Some(payload) = outline.content(network) {
            self.rabin.sample(payload, &mut scratch.samples);
            super::keep(context.payload_cache(RECEIVED), payload, &scratch.samples);
        }
        self.send_report(outline, packet, HELLO_INTERVAL_NS, &[], context);
        Ok(())
    }

    /// Restores the payload of an encoded packet and caches it. On failure, the missing
    /// fingerprints are in the scratch.
    fn restore(
        &self,
        shim: &EncodedPayload<'_>,
        scratch: &mut Scratch,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        scratch.missing.clear();
        let received = context.payload_cache(RECEIVED);
        assemble(received, shim, scratch);
        if !scratch.missing.is_empty() {
            context.count(COUNTERS.references_missed, scratch.missing.len() as u64);
            return Err(DropReason::ReMissing);
        }
        if shim::checksum(shim.protocol, &scratch.payload) != shim.checksum {
            // If the packet was not corrupted, the ends differ in the payload of one of these
            // fingerprints.
            scratch.missing.extend(shim.tokens().map(|token| token.fingerprint));
            return Err(DropReason::ReChecksum);
        }
        self.rabin.sample(&scratch.payload, &mut scratch.samples);
        super::keep(received, &scratch.payload, &scratch.samples);
        Ok(())
    }

    /// Handles a report, which goes no further.
    fn handle_report(&self, payload: &[u8], context: &mut Context<'_>) -> DropReason {
        let Some(report) = PeerReport::read(payload) else { return DropReason::ReMalformed };
        if report.parameters != self.parameters {
            context.count(COUNTERS.reports_invalid, 1);
            return DropReason::ReReport;
        }
        let now_ns = context.now_ns();
        let has_restarted = PeerState(context.meters(METERS)).handle_report(&report, now_ns);
        let sent = context.payload_cache(SENT);
        if has_restarted {
            sent.clear();
        }
        let forgotten = report.missing().filter(|fingerprint| sent.forget(*fingerprint)).count();
        context.count(COUNTERS.reports_received, 1);
        context.count(COUNTERS.payloads_evicted, forgotten as u64);
        DropReason::ReReport
    }

    /// Sends a report with the missing fingerprints to the other end, unless one was sent within
    /// the interval.
    #[inline]
    fn send_report(
        &self,
        outline: &PacketOutline,
        packet: &PacketView<'_>,
        interval_ns: u64,
        missing: &[u64],
        context: &mut Context<'_>,
    ) {
        let now_ns = context.now_ns();
        if let Some(epoch_ns) = PeerState(context.meters(METERS)).is_due(interval_ns, now_ns) {
            let ends = (outline.source, outline.destination);
            let sent =
                report::send(packet, ends, self.protocol, (self.parameters, epoch_ns), missing, context);
            context.count(COUNTERS.reports_sent, u64::from(sent));
        }
    }
}

/// Concatenates regions and literals, and records the regions that are not cached.
#[inline]
fn assemble(received: &PayloadCache, shim: &EncodedPayload<'_>, scratch: &mut Scratch) {
    let (payload, mut literals) = (&mut scratch.payload, shim.literals);
    payload.clear();
    for token in shim.tokens() {
        // Offsets are in order and within the total of regions and literals; regions that are not
        // cached leave gaps.
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
