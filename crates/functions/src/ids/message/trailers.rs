//! Trailers of chunked messages (RFC 9112 7.1.2): header lines that follow the body.

use applayer::http::HeaderLine;

use super::{HttpMessage, HttpMessages, OTHER};

impl HttpMessages {
    /// Returns the message with this number, and its head without trailers.
    pub fn with_bare_head(&mut self, number: usize) -> (&HttpMessage, &HttpMessage) {
        self.bare_head.be_head_of(&self.messages[number]);
        (&self.messages[number], &self.bare_head)
    }

    /// Puts the head of this message, without trailers that have come already, where
    /// [`HttpMessages::head`] finds it.
    pub fn part_head(&mut self, number: usize) {
        if self.messages[number].has_trailers() {
            self.bare_head.be_head_of(&self.messages[number]);
        }
    }

    /// Returns the message with this number as it was when its head was complete.
    pub fn head(&self, number: usize) -> &HttpMessage {
        let message = &self.messages[number];
        if message.has_trailers() { &self.bare_head } else { message }
    }
}

impl HttpMessage {
    /// Adds a trailer, a header of its own: recipients do not merge trailers into headers (RFC 9110
    /// 6.5.1). So it changes nothing about the body or the host.
    pub(super) fn trailer(&mut self, header: &HeaderLine<'_>, head_max: usize) {
        if !self.has_trailers() {
            self.state.body_end = self.text.len() as u32;
        }
        let trailers = self.text.len() - self.state.body_end as usize;
        let room = head_max.saturating_sub(self.state.head_len as usize + trailers);
        self.line(header, OTHER, room);
    }

    /// Returns whether the message has trailers.
    pub(super) fn has_trailers(&self) -> bool {
        self.state.body_end != 0
    }

    /// Writes the raw header lines, each list with the empty line after it.
    pub(super) fn write_raw_lines(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text.get(self.header_lines()).unwrap_or_default());
        out.extend_from_slice(self.text.get(self.state.body_end as usize..).unwrap_or_default());
        out.extend_from_slice(super::LINE_END);
    }

    /// Makes this the head of a message, as it was before its trailers.
    pub(super) fn be_head_of(&mut self, message: &HttpMessage) {
        self.clear();
        self.state = message.state;
        self.state.body_end = 0;
        let head = message.state.head_len;
        self.text.extend_from_slice(&message.text[..message.text.len().min(head as usize)]);
        self.lines.extend(message.lines.iter().filter(|line| line.start < head));
    }
}
