//! The second inspection of an HTTP message's head, with its trailers.

use super::{InspectionPoint, Inspector};
use crate::ids::COUNTERS;
use crate::ids::alert_subject::AlertSubject;
use crate::ids::facts::InspectionFacts;
use crate::ids::flowbits::Flowbits;
use crate::ids::inspection_buffers::{InspectionBuffers, InspectionInput};
use crate::ids::inspection_point::MessageKind;
use crate::ids::message::HttpMessages;

impl Inspector<'_, '_> {
    /// Inspects rules about a head that match now that its trailers have come, and did not before.
    #[cold]
    pub(super) fn trailers(
        &mut self,
        messages: &mut HttpMessages,
        number: usize,
        facts: InspectionFacts<'_>,
        flowbits: &mut Flowbits,
    ) {
        let Some(search) = self.ids.searches.message(MessageKind::HttpHead, facts.to_server) else { return };
        let transaction = messages.transaction(number);
        let (message, head) = messages.with_bare_head(number);
        let [mut buffers, mut before] = [InspectionBuffers::default(), InspectionBuffers::default()];
        message.fill(&mut buffers, &search.wanted, None, &mut self.work.decoder);
        head.fill(&mut before, &search.wanted, None, &mut self.work.decoder);
        let payload = message.payload(false);
        let view = InspectionInput { payload, start: 0, buffers: &buffers, packet: None };
        let mut may_match = std::mem::take(&mut self.work.may_match);
        may_match.clear();
        may_match.extend_from_slice(&search.always);
        let mut searched = 0;
        for (buffer, bytes) in view.all() {
            if let Some(prefilter) = search.of(buffer, false) {
                searched += bytes.len() as u64;
                prefilter.find(bytes, |hit| may_match.push(hit.rule));
            }
        }
        self.context.count(COUNTERS.bytes_searched, searched);
        may_match.sort_unstable();
        may_match.dedup();
        let was = InspectionInput { buffers: &before, ..view };
        may_match.retain(|rule| {
            !was.holds(&self.ids.signatures[*rule as usize].inspection, &mut self.work.scratch)
        });
        let about = AlertSubject::Http(message, transaction);
        let point = InspectionPoint { view, facts, excerpt: payload, is_stream: true, about };
        self.inspect(&mut may_match, point, flowbits);
        self.work.may_match = may_match;
    }
}
