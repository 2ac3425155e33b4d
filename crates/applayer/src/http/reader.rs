//! The state machine: interprets bytes by the phase of their direction.

use crate::http::chunk::{ChunkLine, chunk_line};
use crate::http::direction::{DirectionState, ExchangeSide, Phase, flag};
use crate::http::event::{
    Framing, HttpEvent, HttpSink, HttpVersion, MessageEnd, RequestLine, StatusLine, SwitchedProtocol,
};
use crate::http::gather::{self, GatheredLine, NextLine};
use crate::http::token::{is_blank, without_line_end};
use crate::http::unanswered::{RequestKind, UnansweredRequests};
use crate::http::{
    FixedLineBuffer, HEAD_BYTES_MAX, HEADER_MAX, HttpAnomalies, HttpAnomaly, LineBuffer, Method, head,
    opening, start,
};

/// The parser of one direction: its state, the other direction's, and the sink.
pub(crate) struct DirectionParser<'a, S> {
    pub(crate) side: ExchangeSide,
    pub(crate) half: &'a mut DirectionState,
    pub(crate) other: &'a mut DirectionState,
    pub(crate) outstanding: &'a mut UnansweredRequests,
    pub(crate) sink: &'a mut S,
}

impl<S: HttpSink> DirectionParser<'_, S> {
    /// Parses all of the next bytes.
    pub(crate) fn take<L: LineBuffer>(&mut self, mut bytes: &[u8], line: &mut L) {
        while !bytes.is_empty() {
            let used = self.take_some(bytes, line);
            bytes = &bytes[used..];
        }
    }

    /// Parses at least one of the next bytes and returns their number, or enters a phase that will.
    #[inline(always)]
    pub(crate) fn take_some<L: LineBuffer>(&mut self, bytes: &[u8], line: &mut L) -> usize {
        match self.half.phase() {
            Phase::Headers | Phase::ChunkSize | Phase::ChunkEnd | Phase::Trailers => {
                self.take_line(bytes, line)
            }
            Phase::Start | Phase::Search => self.take_start(bytes, line),
            Phase::Body | Phase::ChunkData => self.take_body(bytes),
            Phase::BodyUntilClose => self.emit_all(bytes, HttpEvent::Body),
            Phase::Opaque => self.take_opaque(bytes),
            Phase::Closed => self.emit_all(bytes, HttpEvent::Skipped),
        }
    }

    /// Handles `len` lost bytes.
    pub(crate) fn lose<L: LineBuffer>(&mut self, mut len: u64, line: &mut L) {
        self.give_up_line(line);
        while len > 0 {
            len -= self.lose_some(len, line);
        }
    }

    /// Handles the end of the direction.
    pub(crate) fn close<L: LineBuffer>(&mut self, line: &mut L) {
        if self.is_readable(line) {
            self.on_kept_line(line);
        }
        let partial = self.give_up_line(line);
        self.end_loose(MessageEnd::Complete);
        match self.half.phase() {
            Phase::BodyUntilClose => self.finish(MessageEnd::Complete),
            Phase::Headers if self.may_be_simple() => self.finish_head(Framing::None),
            phase if phase.is_in_message() => {
                self.emit(HttpEvent::End(MessageEnd::Closed));
                self.report(HttpAnomalies::NONE.with(HttpAnomaly::IncompleteMessage));
            }
            _ if partial => self.report(HttpAnomalies::NONE.with(HttpAnomaly::IncompleteMessage)),
            _ => {}
        }
        self.half.enter(Phase::Closed);
    }

    /// Returns whether the partial line is parsed at the end: a header, or a certain start line.
    fn is_readable<L: LineBuffer>(&self, line: &L) -> bool {
        let text = line.as_slice();
        match (self.half.phase(), self.side) {
            (Phase::Headers, _) => !text.is_empty(),
            (Phase::Start, ExchangeSide::Request) => start::is_certain_request(text),
            (Phase::Start, ExchangeSide::Response) => start::is_certain_status(text),
            _ => false,
        }
    }

    #[inline(always)]
    fn take_line<L: LineBuffer>(&mut self, bytes: &[u8], line: &mut L) -> usize {
        match gather::next_line(self.half, self.half.phase().folds(), bytes, line) {
            NextLine::InPlace(whole, used) => {
                self.on_line(whole);
                used
            }
            NextLine::Kept(used) => {
                self.on_kept_line(line);
                used
            }
            NextLine::Incomplete => bytes.len(),
        }
    }

    fn take_start<L: LineBuffer>(&mut self, bytes: &[u8], line: &mut L) -> usize {
        if self.half.has(flag::TO_ANY) {
            self.switch(line);
            return 0;
        }
        match self.side {
            ExchangeSide::Request if self.is_early_tunnel(bytes, line) => {
                self.half.enter(Phase::Opaque);
                self.emit(HttpEvent::Switched(SwitchedProtocol::Tunnel));
                self.report(HttpAnomalies::NONE.with(HttpAnomaly::EarlyTunnelData));
                0
            }
            ExchangeSide::Response if self.half.has(flag::MAY_GO_ON) && is_no_status_line(bytes, line) => {
                self.go_on(line);
                0
            }
            ExchangeSide::Response if self.lacks_status_line(bytes, line) => {
                self.on_simple_response(line);
                0
            }
            _ => self.take_line(bytes, line),
        }
    }

    fn take_body(&mut self, bytes: &[u8]) -> usize {
        let mut taken =
            usize::try_from(self.half.remaining).map_or(bytes.len(), |left| left.min(bytes.len()));
        let request = opening::find(&mut self.half.opening, &bytes[..taken]);
        taken = request.unwrap_or(taken);
        if taken > 0 {
            self.emit(HttpEvent::Body(&bytes[..taken]));
        }
        if request.is_some() {
            self.report(HttpAnomalies::NONE.with(HttpAnomaly::RequestInBody));
        }
        self.pass_body(taken as u64);
        taken
    }

    fn take_opaque(&mut self, bytes: &[u8]) -> usize {
        if self.half.has(flag::REFUSED) {
            self.half.clear(flag::REFUSED);
            self.half.enter(Phase::Start);
            return 0;
        }
        self.emit_all(bytes, HttpEvent::Opaque)
    }

    fn emit_all<'b>(&mut self, bytes: &'b [u8], event: impl Fn(&'b [u8]) -> HttpEvent<'b>) -> usize {
        self.emit(event(bytes));
        bytes.len()
    }

    /// Counts `len` bytes of a body of known length, or of a chunk.
    fn pass_body(&mut self, len: u64) {
        self.half.remaining -= len;
        match self.half.phase() {
            _ if self.half.remaining > 0 => {}
            Phase::ChunkData => self.half.enter(Phase::ChunkEnd),
            _ => self.finish(MessageEnd::Complete),
        }
    }

    /// Handles the first part of a gap that belongs together and returns its length.
    fn lose_some<L: LineBuffer>(&mut self, len: u64, line: &mut L) -> u64 {
        let phase = self.half.phase();
        match phase {
            Phase::Body | Phase::ChunkData => {
                let lost = len.min(self.half.remaining);
                self.half.opening = opening::NONE;
                if lost > 0 {
                    self.emit(HttpEvent::Gap(lost));
                }
                self.pass_body(lost);
                return lost;
            }
            Phase::Start | Phase::Search if self.half.has(flag::TO_ANY) => {
                self.switch(line);
                return 0;
            }
            _ => self.emit(HttpEvent::Gap(len)),
        }
        self.end_loose(MessageEnd::Lost);
        let was_tunnel = phase == Phase::Opaque && !self.half.has(flag::REFUSED);
        if was_tunnel || matches!(phase, Phase::BodyUntilClose | Phase::Closed) {
            return len;
        }
        if phase.is_in_message() {
            self.emit(HttpEvent::End(MessageEnd::Lost));
        }
        self.half.clear(flag::REFUSED);
        self.half.set(flag::LOSSY);
        self.half.enter(Phase::Search);
        len
    }

    /// Ends the buffered line: parses it if it is complete, otherwise skips it. Returns whether it
    /// was skipped.
    fn give_up_line<L: LineBuffer>(&mut self, line: &mut L) -> bool {
        if self.half.has(flag::LINE_ENDED) {
            self.on_kept_line(line);
            return false;
        }
        let partial = !line.as_slice().is_empty();
        if partial && self.is_body_line() {
            if self.half.phase() == Phase::Start {
                self.half.set(flag::LOOSE);
                self.report(HttpAnomalies::NONE.with(HttpAnomaly::UnexpectedBody));
            }
            self.emit(HttpEvent::Body(line.as_slice()));
        } else if partial {
            self.emit(HttpEvent::Skipped(line.as_slice()));
        }
        gather::forget(self.half, line);
        partial
    }

    #[inline(never)]
    fn on_kept_line<L: LineBuffer>(&mut self, line: &mut L) {
        self.on_line(gather::kept(self.half, line));
        gather::forget(self.half, line);
    }

    #[inline(always)]
    fn on_line(&mut self, mut whole: GatheredLine<'_>) {
        whole.found.add_if(whole.cut, HttpAnomaly::LineTooLong);
        match self.half.phase() {
            Phase::Headers | Phase::Trailers => self.on_header_line(whole),
            Phase::ChunkSize => self.on_chunk_line(whole),
            Phase::ChunkEnd => self.on_chunk_end(whole),
            Phase::Search => self.on_searched_line(whole),
            _ if self.side == ExchangeSide::Request => self.on_request_line(whole),
            _ => self.on_status_line(whole),
        }
    }

    fn on_searched_line(&mut self, whole: GatheredLine<'_>) {
        let text = without_line_end(whole.raw);
        let certain = match self.side {
            ExchangeSide::Request => start::is_certain_request(text),
            ExchangeSide::Response => start::is_certain_status(text),
        };
        if !certain {
            return self.emit(HttpEvent::Skipped(whole.raw));
        }
        self.emit(HttpEvent::Resynchronised);
        self.half.enter(Phase::Start);
        match self.side {
            ExchangeSide::Request => self.on_request_line(whole),
            ExchangeSide::Response => {
                // Responses were lost with their number: the next one most likely answers the
                // newest request.
                if self.half.has(flag::LOSSY) {
                    self.outstanding.keep_newest();
                }
                self.on_status_line(whole);
            }
        }
    }

    fn on_request_line(&mut self, whole: GatheredLine<'_>) {
        let text = without_line_end(whole.raw);
        if text.is_empty() {
            return; // RFC 9112 2.2: empty lines before a request are ignored.
        }
        let Some((mut request, mut found)) = start::request_line(text, whole.cut) else {
            self.emit(HttpEvent::Skipped(whole.raw));
            let mut found = whole.found.with(HttpAnomaly::InvalidRequestLine);
            found.add_if(head::begins_like_framing(text), HttpAnomaly::DisguisedFraming);
            return self.report(found);
        };
        if is_http2_preface(&request) {
            self.other.set(flag::TO_HTTP2);
            self.half.enter(Phase::Opaque);
            self.emit(HttpEvent::Switched(SwitchedProtocol::Http2));
            self.report(HttpAnomalies::NONE.with(HttpAnomaly::Http2Unread));
            return self.emit(HttpEvent::Opaque(whole.raw));
        }
        self.begin(request.version, &whole);
        request.number = self.outstanding.next_number();
        let remembered = self.outstanding.push(asked(&request));
        found.add_if(!remembered, HttpAnomaly::PipelineFull);
        found.add_if(self.half.has(flag::AFTER_LAST), HttpAnomaly::DataAfterClose);
        found.add_if(self.half.has(flag::CONNECTING), HttpAnomaly::EarlyTunnelData);
        match request.method {
            Method::Connect => self.half.set(flag::CONNECT),
            _ => head::note_target(self.half, request.target),
        }
        self.emit(HttpEvent::Request(request));
        self.report(found.union(whole.found));
        if request.version == HttpVersion::Http09 {
            self.half.set(flag::SIMPLE);
        }
        self.half.enter(Phase::Headers);
    }

    fn on_status_line(&mut self, whole: GatheredLine<'_>) {
        let text = without_line_end(whole.raw);
        if text.is_empty() {
            return;
        }
        // Clients pass over CRs before it, as over empty lines.
        let line = &text[text.iter().take_while(|byte| **byte == b'\r').count()..];
        let Some((mut response, mut found)) = start::status_line(line) else {
            if self.half.has(flag::MAY_BE_LOOSE) {
                self.half.set(flag::LOOSE);
                self.report(whole.found.with(HttpAnomaly::UnexpectedBody));
                return self.emit(HttpEvent::Body(whole.raw));
            }
            self.emit(HttpEvent::Skipped(whole.raw));
            return self.report(whole.found.with(HttpAnomaly::InvalidStatusLine));
        };
        found.add_if(line.len() < text.len(), HttpAnomaly::StatusLineBlanks);
        self.end_loose(MessageEnd::Complete);
        self.begin(response.version, &whole);
        self.half.status = response.status;
        response.answers = self.answer(response.interim);
        let lossy = self.half.has(flag::LOSSY) || self.other.has(flag::LOSSY);
        found.add_if(response.answers.is_none() && !lossy, HttpAnomaly::ResponseWithoutRequest);
        found.add_if(self.half.has(flag::AFTER_LAST), HttpAnomaly::DataAfterClose);
        found.add_if(response.status == 101 && !self.half.has(flag::ASKED), HttpAnomaly::UnexpectedUpgrade);
        self.emit(HttpEvent::Response(response));
        self.report(found.union(whole.found));
        self.half.enter(Phase::Headers);
    }

    /// Handles a response of HTTP/0.9, which is just a body. The first bytes of a server are parsed
    /// as one, too, if they are not a status line.
    fn on_simple_response<L: LineBuffer>(&mut self, line: &mut L) {
        let expected = matches!(self.outstanding.oldest(), Some((RequestKind::Simple, ..)));
        self.end_loose(MessageEnd::Complete);
        self.begin(HttpVersion::Http09, &GatheredLine::EMPTY);
        let answers = self.answer(false);
        self.emit(HttpEvent::Response(StatusLine {
            raw: &[],
            protocol: &[],
            version: HttpVersion::Http09,
            code: &[],
            status: 0,
            reason: &[],
            interim: false,
            answers,
        }));
        if !expected {
            self.report(HttpAnomalies::NONE.with(HttpAnomaly::InvalidStatusLine));
        }
        self.emit(HttpEvent::HeadersEnd(Framing::UntilClose));
        self.half.enter(Phase::BodyUntilClose);
        if !line.as_slice().is_empty() {
            self.emit(HttpEvent::Body(line.as_slice()));
        }
        gather::forget(self.half, line);
    }

    #[inline(always)]
    fn on_header_line(&mut self, whole: GatheredLine<'_>) {
        if self.may_be_simple() && !head::is_header(whole.raw) {
            // A request of HTTP/0.9 ends with its line. Some clients that omit the version send
            // headers anyway.
            self.finish_head(Framing::None);
            return self.on_request_line(whole);
        }
        if without_line_end(whole.raw).is_empty() {
            let chunked = self.half.phase() == Phase::Trailers;
            self.report(if chunked { with_chunk_end(whole.found) } else { self.with_head_end(whole.found) });
            return match self.half.phase() {
                Phase::Trailers => self.finish(MessageEnd::Complete),
                _ => self.on_headers_end(),
            };
        }
        if whole.raw.first().is_some_and(|&b| is_blank(b)) {
            self.emit(HttpEvent::Skipped(whole.raw));
            return self.report(whole.found.with(HttpAnomaly::BlankBeforeHeaders));
        }
        let (header, mut found) = head::header(whole);
        head::note_name(self.half, &header, &mut found);
        self.half.headers = self.half.headers.saturating_add(1);
        self.half.head_bytes = self.half.head_bytes.saturating_add(whole.raw.len() as u32);
        found.add_if(self.half.headers > HEADER_MAX, HttpAnomaly::TooManyHeaders);
        found.add_if(self.half.head_bytes > HEAD_BYTES_MAX, HttpAnomaly::HeadTooLong);
        if self.half.phase() == Phase::Trailers {
            found.add_if(head::is_framing(header.field), HttpAnomaly::FramingInTrailer);
            self.emit(HttpEvent::Trailer(header));
        } else {
            head::note(self.half, self.side, &header, &mut found);
            self.emit(HttpEvent::Header(header));
        }
        self.report(found);
    }

    fn on_headers_end(&mut self) {
        let (framing, found) = head::framing(self.half, self.side);
        if self.side == ExchangeSide::Request && self.half.has(flag::UPGRADE) {
            self.outstanding.newest_wants_upgrade();
        }
        self.emit(HttpEvent::HeadersEnd(framing));
        self.report(found);
        self.finish_or_enter(framing);
    }

    fn finish_head(&mut self, framing: Framing) {
        self.emit(HttpEvent::HeadersEnd(framing));
        self.finish_or_enter(framing);
    }

    fn finish_or_enter(&mut self, framing: Framing) {
        match framing {
            Framing::None | Framing::Length(0) => self.finish(MessageEnd::Complete),
            Framing::Length(len) => {
                self.half.remaining = len;
                self.enter_body(Phase::Body);
            }
            Framing::Chunked => self.half.enter(Phase::ChunkSize),
            Framing::UntilClose => self.half.enter(Phase::BodyUntilClose),
        }
    }

    /// Begins a body or a chunk.
    fn enter_body(&mut self, phase: Phase) {
        self.half.enter(phase);
        self.half.opening = if self.side == ExchangeSide::Request { opening::FIRST } else { opening::NONE };
    }

    fn on_chunk_line(&mut self, whole: GatheredLine<'_>) {
        let Ok(ChunkLine { size, extension, mut found }) = chunk_line(without_line_end(whole.raw)) else {
            return self.on_broken_chunk(whole);
        };
        if !extension.is_empty() {
            self.emit(HttpEvent::ChunkExtension(extension));
        }
        if whole.found.has(HttpAnomaly::BareLineFeed) {
            found.add(match extension {
                [] => HttpAnomaly::BareLineFeedInChunkSize,
                _ => HttpAnomaly::BareLineFeedInChunkExtension,
            });
        }
        self.report(found.union(whole.found));
        self.half.remaining = size;
        match size {
            0 => self.half.enter(Phase::Trailers),
            _ => self.enter_body(Phase::ChunkData),
        }
    }

    fn on_broken_chunk(&mut self, whole: GatheredLine<'_>) {
        let found = whole.found.with(HttpAnomaly::InvalidChunkSize);
        match self.side {
            ExchangeSide::Request => {
                self.emit(HttpEvent::Skipped(whole.raw));
                self.report(found);
                self.emit(HttpEvent::End(MessageEnd::Lost));
                self.half.enter(Phase::Search);
            }
            ExchangeSide::Response => {
                self.emit(HttpEvent::Body(whole.raw));
                self.report(found);
                self.half.enter(Phase::BodyUntilClose);
            }
        }
    }

    fn on_chunk_end(&mut self, whole: GatheredLine<'_>) {
        let mut found = with_chunk_end(whole.found);
        if !without_line_end(whole.raw).is_empty() {
            self.emit(HttpEvent::Skipped(whole.raw));
            found.add(HttpAnomaly::MissingChunkEnd);
        }
        self.report(found);
        self.half.enter(Phase::ChunkSize);
    }

    fn begin(&mut self, version: HttpVersion, line: &GatheredLine<'_>) {
        self.half.begin();
        self.half.head_bytes = u32::try_from(line.raw.len()).unwrap_or(u32::MAX);
        let ends = if line.found.has(HttpAnomaly::BareLineFeed) { 0 } else { flag::CR_LF };
        self.half.set(
            ends | match version {
                HttpVersion::Http10 => flag::HTTP_10,
                HttpVersion::Http11 => flag::HTTP_11,
                HttpVersion::Http09 | HttpVersion::Other => 0,
            },
        );
    }

    /// Returns whether the message so far is just a line without a version.
    fn may_be_simple(&self) -> bool {
        self.half.has(flag::SIMPLE) && self.half.headers == 0
    }

    /// Finds the request that a response answers and records its effect on the response.
    fn answer(&mut self, interim: bool) -> Option<u32> {
        let (asked, wants_upgrade, number) = self.outstanding.oldest()?;
        if interim {
            return Some(number);
        }
        self.outstanding.pop();
        match asked {
            RequestKind::Head => self.half.set(flag::HEAD),
            RequestKind::Connect => {
                self.half.set(flag::CONNECT);
                self.on_connect_answered();
            }
            RequestKind::Ordinary | RequestKind::Simple => {}
        }
        if wants_upgrade {
            self.half.set(flag::ASKED);
        }
        Some(number)
    }

    fn on_connect_answered(&mut self) {
        self.other.clear(flag::CONNECTING);
        let assumed = self.other.phase() == Phase::Opaque;
        match head::answers_connect(self.half) {
            true if !assumed => self.other.set(flag::TO_TUNNEL),
            false if assumed => self.other.set(flag::REFUSED),
            _ => {}
        }
    }

    /// Ends the message.
    fn finish(&mut self, end: MessageEnd) {
        self.emit(HttpEvent::End(end));
        self.half.enter(Phase::Start);
        if self.side == ExchangeSide::Response && self.cannot_have_body() {
            self.half.set(if self.announces_body() { flag::MAY_GO_ON } else { flag::MAY_BE_LOOSE });
        }
        match self.side {
            ExchangeSide::Request if self.half.has(flag::CONNECT) => self.half.set(flag::CONNECTING),
            ExchangeSide::Response if self.half.status == 101 => self.upgrade(),
            ExchangeSide::Response if head::answers_connect(self.half) => {
                self.become_opaque(SwitchedProtocol::Tunnel)
            }
            ExchangeSide::Response if matches!(self.half.status, 100..=199) => {}
            _ if self.is_last() => self.half.set(flag::AFTER_LAST),
            _ => {}
        }
    }

    /// Handles an upgrade to the protocol that either or both Upgrade headers name.
    fn upgrade(&mut self) {
        if !self.half.has(flag::H2C) && !self.other.has(flag::H2C) {
            self.other.set(flag::TO_UPGRADE);
            return self.become_opaque(SwitchedProtocol::Upgrade);
        }
        self.other.set(flag::TO_HTTP2);
        self.become_opaque(SwitchedProtocol::Http2);
        self.report(HttpAnomalies::NONE.with(HttpAnomaly::Http2Unread));
    }

    /// Returns whether this is a response that must not have a body and has none so far. No client
    /// expects a body after a response to HEAD.
    fn cannot_have_body(&self) -> bool {
        let reported = HttpAnomalies::from_bits(self.half.reported).has(HttpAnomaly::UnexpectedBody);
        let bodiless = matches!(self.half.status, 100..=199 | 204 | 304);
        bodiless && !reported && !self.half.has(flag::HEAD | flag::CONNECT)
    }

    /// Returns whether the headers announce a body.
    fn announces_body(&self) -> bool {
        self.half.has(flag::TRANSFER_ENCODING) || self.half.has(flag::LENGTH) && self.half.content_length > 0
    }

    /// Returns whether a lenient implementation would take the partial line as part of a body:
    /// lines after a response that must not have one, or bytes in place of a chunk size.
    fn is_body_line(&self) -> bool {
        self.side == ExchangeSide::Response
            && match self.half.phase() {
                Phase::Start => self.half.has(flag::MAY_BE_LOOSE),
                phase => phase == Phase::ChunkSize,
            }
    }

    /// Ends a body that consists of lines after a response, if there is one.
    fn end_loose(&mut self, end: MessageEnd) {
        if self.half.has(flag::LOOSE) {
            self.half.clear(flag::LOOSE | flag::MAY_BE_LOOSE);
            self.emit(HttpEvent::End(end));
        }
    }

    /// Begins the body, framed by the headers, of a response that must not have one.
    fn go_on<L: LineBuffer>(&mut self, line: &mut L) {
        self.half.clear(flag::MAY_GO_ON);
        self.report(HttpAnomalies::NONE.with(HttpAnomaly::UnexpectedBody));
        if self.half.has(flag::CHUNKED) {
            // The partial line is a chunk-size line.
            return self.half.enter(Phase::ChunkSize);
        }
        if self.half.has(flag::TRANSFER_ENCODING) {
            self.half.enter(Phase::BodyUntilClose);
        } else {
            self.half.remaining = self.half.content_length;
            self.enter_body(Phase::Body);
        }
        let (begun, is_sized) = (line.as_slice(), self.half.phase() == Phase::Body);
        let room = if is_sized { self.half.remaining } else { u64::MAX };
        let len = usize::try_from(room).map_or(begun.len(), |room| room.min(begun.len()));
        if len > 0 {
            self.emit(HttpEvent::Body(&begun[..len]));
        }
        if is_sized {
            self.pass_body(len as u64);
        }
        // The partial line can be longer than the body: then the rest begins the next line. It is
        // shorter than the prefix of a status line.
        let mut rest = FixedLineBuffer::<{ start::HTTP.len() }>::default();
        rest.push(&begun[len..]);
        gather::forget(self.half, line);
        line.push(rest.as_slice());
    }

    /// Returns the anomalies of the line that ends a head.
    fn with_head_end(&self, mut found: HttpAnomalies) -> HttpAnomalies {
        let alone = found.has(HttpAnomaly::BareLineFeed) && self.half.has(flag::CR_LF);
        found.add_if(alone && self.side == ExchangeSide::Request, HttpAnomaly::BareLineFeedEndsHead);
        found
    }

    /// Returns whether the connection must close after this message (RFC 9112 9.3).
    fn is_last(&self) -> bool {
        self.half.has(flag::CLOSE) || self.half.has(flag::HTTP_10) && !self.half.has(flag::KEEP_ALIVE)
    }

    /// Switches protocols: the other direction decided it, and no message is in progress.
    fn switch<L: LineBuffer>(&mut self, line: &mut L) {
        let protocol = match self.half.flags {
            flags if flags & flag::TO_HTTP2 != 0 => SwitchedProtocol::Http2,
            flags if flags & flag::TO_UPGRADE != 0 => SwitchedProtocol::Upgrade,
            _ => SwitchedProtocol::Tunnel,
        };
        self.become_opaque(protocol);
        if !line.as_slice().is_empty() {
            self.emit(HttpEvent::Opaque(line.as_slice()));
        }
        gather::forget(self.half, line);
    }

    fn become_opaque(&mut self, protocol: SwitchedProtocol) {
        self.end_loose(MessageEnd::Complete);
        self.half.clear(flag::TO_ANY);
        self.half.enter(Phase::Opaque);
        self.emit(HttpEvent::Switched(protocol));
    }

    /// Returns whether bytes after an unanswered CONNECT belong to the tunnel: they do not begin
    /// like a method.
    fn is_early_tunnel<L: LineBuffer>(&self, bytes: &[u8], line: &L) -> bool {
        let at_start = self.half.phase() == Phase::Start && line.as_slice().is_empty();
        let like_http = |b: &u8| b.is_ascii_uppercase() || matches!(b, b'\r' | b'\n');
        self.half.has(flag::CONNECTING) && at_start && !bytes.first().is_some_and(like_http)
    }

    /// Returns whether a response without a status line must be parsed as HTTP/0.9.
    fn lacks_status_line<L: LineBuffer>(&self, bytes: &[u8], line: &L) -> bool {
        let simple = matches!(self.outstanding.oldest(), Some((RequestKind::Simple, ..)));
        if self.half.phase() != Phase::Start || !(simple || self.half.messages == 0) {
            return false;
        }
        let mut begun = line.as_slice().iter().chain(bytes).peekable();
        if !simple && matches!(begun.peek(), Some(b'\r' | b'\n')) {
            return false; // An empty line is passed over, as before a request.
        }
        begun.zip(start::HTTP).any(|(byte, expected)| !byte.eq_ignore_ascii_case(expected))
    }

    /// Reports the anomalies that are new for this message, and counts all.
    fn report(&mut self, found: HttpAnomalies) {
        if !found.is_empty() {
            self.report_some(found);
        }
    }

    #[cold]
    fn report_some(&mut self, found: HttpAnomalies) {
        let reported = HttpAnomalies::from_bits(self.half.reported);
        for anomaly in found.iter() {
            if reported.has(anomaly) {
                self.half.repeated = self.half.repeated.saturating_add(1);
                continue;
            }
            self.half.anomalies = self.half.anomalies.saturating_add(1);
            self.emit(HttpEvent::Anomaly(anomaly));
        }
        self.half.reported = reported.union(found).bits();
    }

    fn emit(&mut self, event: HttpEvent<'_>) {
        self.sink.event(event);
    }
}

/// Returns whether the partial line with the next bytes can become neither a status line nor an
/// empty line.
fn is_no_status_line<L: LineBuffer>(bytes: &[u8], line: &L) -> bool {
    let mut begun = line.as_slice().iter().chain(bytes).peekable();
    let is_empty = matches!(begun.peek(), Some(b'\r' | b'\n'));
    !is_empty && begun.zip(start::HTTP).any(|(byte, expected)| !byte.eq_ignore_ascii_case(expected))
}

/// Returns the anomalies of a line that ends a chunk or the chunked body.
fn with_chunk_end(mut found: HttpAnomalies) -> HttpAnomalies {
    found.add_if(found.has(HttpAnomaly::BareLineFeed), HttpAnomaly::BareLineFeedInChunkEnd);
    found
}

/// Returns whether this is the first line of HTTP/2 with prior knowledge (RFC 9113 3.4).
fn is_http2_preface(request: &RequestLine<'_>) -> bool {
    (request.name, request.target, request.protocol) == (b"PRI", b"*", b"HTTP/2.0")
}

fn asked(request: &RequestLine<'_>) -> RequestKind {
    match (request.version, request.method) {
        (HttpVersion::Http09, _) => RequestKind::Simple,
        (_, Method::Head) => RequestKind::Head,
        (_, Method::Connect) => RequestKind::Connect,
        _ => RequestKind::Ordinary,
    }
}
