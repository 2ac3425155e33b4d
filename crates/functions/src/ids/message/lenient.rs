//! Bodies as lenient clients may read them.

use applayer::http::FieldName;
use signatures::Buffer;

use super::HttpMessage;
use crate::ids::decoder::ContentDecoder;
use crate::ids::inspection_buffers::InspectionBuffers;
use crate::ids::{multipart, odd_head};

impl HttpMessage {
    /// Returns whether there is a body, for lenient clients at least.
    pub(super) fn may_have_body(&self) -> bool {
        !self.body().is_empty() || self.hidden_body().is_some()
    }

    /// Adds the body as lenient clients read it, if that differs; returns whether a part of that
    /// reading was left out. `is_decoded`: its content codings were undone.
    pub(super) fn fill_lenient_body(
        &self,
        buffers: &mut InspectionBuffers,
        own: Buffer,
        decoder: &mut ContentDecoder,
        is_decoded: bool,
        body_max: usize,
    ) -> Option<bool> {
        let hidden = self.hidden_body();
        let (head, body) =
            hidden.unwrap_or_else(|| (&self.text[..self.state.head_len as usize], self.body()));
        let read = decoder.lenient(head, body, is_decoded && hidden.is_none(), body_max);
        let is_cut = read.as_ref().is_some_and(|read| read.is_cut);
        let bytes = read.map(|read| read.bytes).or(hidden.map(|_| body))?;
        buffers.add(own, bytes);
        buffers.again(Buffer::FileData);
        let kind = self.first_value(FieldName::ContentType).unwrap_or_default();
        let files = multipart::files(kind, bytes);
        for file in files.places {
            buffers.add(Buffer::FileData, &bytes[file]);
        }
        Some(is_cut || files.is_cut)
    }

    /// Returns head and body of a response that begins or ends in a way only lenient clients
    /// accept.
    fn hidden_body(&self) -> Option<(&[u8], &[u8])> {
        if self.is_request() {
            return None;
        }
        if self.state.start_len == 0 {
            let bytes = self.body();
            let (head, body) = odd_head::late_response(bytes)?;
            return Some((&bytes[head..body], &bytes[body..]));
        }
        if !self.body().is_empty() {
            return None;
        }
        let lines = self.text.get(self.header_lines())?;
        // The last line is the empty line that ends any head.
        let lines = &lines[..lines.len().saturating_sub(super::LINE_END.len())];
        let end = self.header_lines().start + odd_head::behind_blank_line(lines)?;
        let body = &self.text[end..self.header_lines().start + lines.len()];
        Some((&self.text[..end], body)).filter(|_| !body.is_empty())
    }
}
