//! The inspection points of mails.

use applayer::detect::AppProtocol;
use memchr::memchr;
use nf::stream::{StreamEvent, StreamEventKind};
use packet::Direction;
use signatures::Buffer;

use super::protocols::BodyLocation;
use super::{InspectionPoint, Inspector};
use crate::ids::COUNTERS;
use crate::ids::alert_subject::AlertSubject;
use crate::ids::facts::InspectionFacts;
use crate::ids::inspection_buffers::InspectionInput;
use crate::ids::inspection_point::MessageKind;
use crate::ids::mail;
use crate::ids::state::{FlowFlags, KeptBuffer, State};

impl Inspector<'_, '_> {
    /// Handles the lines of SMTP, and inspects its mails.
    pub(super) fn smtp(&mut self, event: StreamEvent<'_>, facts: InspectionFacts<'_>, state: &mut State) {
        let is_read = facts.to_server && self.ids.searches.message(MessageKind::Mail, true).is_some();
        let mut bytes = match event.kind {
            StreamEventKind::Data(bytes) if is_read => bytes,
            StreamEventKind::Gap(len) if is_read => {
                state.mail.lose(len);
                return self.starttls(AppProtocol::Smtp, event, state);
            }
            StreamEventKind::Finished if is_read => {
                self.mail(event.direction, facts, state);
                return self.starttls(AppProtocol::Smtp, event, state);
            }
            _ => return self.starttls(AppProtocol::Smtp, event, state),
        };
        while !bytes.is_empty() {
            let Some((len, ends)) = state.mail.take(bytes) else {
                let (line, rest) = bytes.split_at(memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1));
                let kind = StreamEventKind::Data(line);
                self.starttls(AppProtocol::Smtp, StreamEvent { kind, ..event }, state);
                bytes = rest;
                continue;
            };
            let (part, rest) = bytes.split_at(len);
            self.keep_mail(event.direction, part, state);
            if ends {
                self.mail(event.direction, facts, state);
            }
            bytes = rest;
        }
    }

    /// Keeps the inspected part of a mail.
    fn keep_mail(&mut self, direction: Direction, part: &[u8], state: &mut State) {
        let mut text = self.context.take_buffer(KeptBuffer::Text.of(direction));
        let room = self.ids.lengths.body.saturating_sub(text.as_slice().len());
        text.push(&part[..part.len().min(room)]);
        self.context.give_buffer(KeptBuffer::Text.of(direction), text);
        if part.len() > room && !state.flags.has(FlowFlags::MAIL_CUT) {
            state.flags.set(FlowFlags::MAIL_CUT);
            self.count_cut(COUNTERS.bodies_cut, 1);
        }
    }

    /// Inspects the received part of a mail, and forgets it.
    pub(super) fn mail(&mut self, direction: Direction, facts: InspectionFacts<'_>, state: &mut State) {
        let kept = KeptBuffer::Text.of(direction);
        let was_cut = state.flags.has(FlowFlags::MAIL_CUT);
        state.flags.unset(FlowFlags::MAIL_CUT);
        if !self.context.has_buffer(kept) {
            return;
        }
        let Some(search) = self.ids.searches.message(MessageKind::Mail, facts.to_server) else { return };
        let mut text = self.context.take_buffer(kept);
        let mut buffers = std::mem::take(&mut self.work.empty);
        let is_cut = mail::attachments(text.as_slice(), |file| buffers.add(Buffer::FileData, file));
        self.count_cut(COUNTERS.bodies_cut, u64::from(is_cut && !was_cut));
        let payload = text.as_slice();
        let view = InspectionInput { payload, start: 0, buffers: &buffers, packet: None };
        let about = AlertSubject::Nothing;
        let point = InspectionPoint { view, facts, excerpt: payload, is_stream: true, about };
        self.search_message(search, BodyLocation::Apart, point, &mut state.flowbits);
        buffers.clear();
        self.work.empty = buffers;
        text.clear();
        self.context.give_buffer(kept, text);
    }
}
