//! The machine: which bytes are what, by the phase that a direction is in.

use crate::http::chunk::{ChunkLine, chunk_line};
use crate::http::event::{End, Event, Framing, Protocol, RequestLine, Sink, StatusLine, Version};
use crate::http::exchange::{Asked, Half, Outstanding, Phase, Side, flag};
use crate::http::gather::{self, Next, Whole};
use crate::http::token::{is_blank, without_line_end};
use crate::http::{
    Anomalies, Anomaly, FixedLine, HEAD_BYTES_MAX, HEADER_MAX, Line, Method, head, opening, start,
};

/// One direction at work: its state, the other direction's, and who is told.
pub(crate) struct Reader<'a, S> {
    pub(crate) side: Side,
    pub(crate) half: &'a mut Half,
    pub(crate) other: &'a mut Half,
    pub(crate) outstanding: &'a mut Outstanding,
    pub(crate) sink: &'a mut S,
}

impl<S: Sink> Reader<'_, S> {
    /// Takes the next bytes, all of them.
    pub(crate) fn take<L: Line>(&mut self, mut bytes: &[u8], line: &mut L) {
        while !bytes.is_empty() {
            let used = self.take_some(bytes, line);
            bytes = &bytes[used..];
        }
    }

    /// Takes a byte at least of those that come next, and says how many; or enters a phase that
    /// takes one.
    #[inline(always)]
    pub(crate) fn take_some<L: Line>(&mut self, bytes: &[u8], line: &mut L) -> usize {
        match self.half.phase() {
            Phase::Headers | Phase::ChunkSize | Phase::ChunkEnd | Phase::Trailers => {
                self.take_line(bytes, line)
            }
            Phase::Start | Phase::Search => self.take_start(bytes, line),
            Phase::Body | Phase::ChunkData => self.take_body(bytes),
            Phase::BodyUntilClose => self.tell_all(bytes, Event::Body),
            Phase::Opaque => self.take_opaque(bytes),
            Phase::Closed => self.tell_all(bytes, Event::Skipped),
        }
    }

    /// The next bytes are lost.
    pub(crate) fn lose<L: Line>(&mut self, mut len: u64, line: &mut L) {
        self.give_up_line(line);
        while len > 0 {
            len -= self.lose_some(len, line);
        }
    }

    /// The direction ends.
    pub(crate) fn close<L: Line>(&mut self, line: &mut L) {
        if self.is_readable(line) {
            self.on_kept_line(line);
        }
        let partial = self.give_up_line(line);
        self.end_loose(End::Complete);
        match self.half.phase() {
            Phase::BodyUntilClose => self.finish(End::Complete),
            Phase::Headers if self.may_be_simple() => self.finish_head(Framing::None),
            phase if phase.is_in_message() => {
                self.tell(Event::End(End::Closed));
                self.report(Anomalies::NONE.with(Anomaly::IncompleteMessage));
            }
            _ if partial => self.report(Anomalies::NONE.with(Anomaly::IncompleteMessage)),
            _ => {}
        }
        self.half.enter(Phase::Closed);
    }

    /// Whether the line that is kept is read without its end when no more comes: a header, or a
    /// start line that is one without doubt.
    fn is_readable<L: Line>(&self, line: &L) -> bool {
        let text = line.as_slice();
        match (self.half.phase(), self.side) {
            (Phase::Headers, _) => !text.is_empty(),
            (Phase::Start, Side::Request) => start::is_certain_request(text),
            (Phase::Start, Side::Response) => start::is_certain_status(text),
            _ => false,
        }
    }

    #[inline(always)]
    fn take_line<L: Line>(&mut self, bytes: &[u8], line: &mut L) -> usize {
        match gather::next_line(self.half, self.half.phase().folds(), bytes, line) {
            Next::InPlace(whole, used) => {
                self.on_line(whole);
                used
            }
            Next::Kept(used) => {
                self.on_kept_line(line);
                used
            }
            Next::Incomplete => bytes.len(),
        }
    }

    fn take_start<L: Line>(&mut self, bytes: &[u8], line: &mut L) -> usize {
        if self.half.has(flag::TO_ANY) {
            self.switch(line);
            return 0;
        }
        match self.side {
            Side::Request if self.is_early_tunnel(bytes, line) => {
                self.half.enter(Phase::Opaque);
                self.tell(Event::Switched(Protocol::Tunnel));
                self.report(Anomalies::NONE.with(Anomaly::EarlyTunnelData));
                0
            }
            Side::Response if self.half.has(flag::MAY_GO_ON) && is_no_status_line(bytes, line) => {
                self.go_on(line);
                0
            }
            Side::Response if self.lacks_status_line(bytes, line) => {
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
            self.tell(Event::Body(&bytes[..taken]));
        }
        if request.is_some() {
            self.report(Anomalies::NONE.with(Anomaly::RequestInBody));
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
        self.tell_all(bytes, Event::Opaque)
    }

    fn tell_all<'b>(&mut self, bytes: &'b [u8], event: impl Fn(&'b [u8]) -> Event<'b>) -> usize {
        self.tell(event(bytes));
        bytes.len()
    }

    /// So many bytes of a body of known length, or of a chunk, are over.
    fn pass_body(&mut self, len: u64) {
        self.half.remaining -= len;
        match self.half.phase() {
            _ if self.half.remaining > 0 => {}
            Phase::ChunkData => self.half.enter(Phase::ChunkEnd),
            _ => self.finish(End::Complete),
        }
    }

    /// Loses what belongs together of so many bytes, and says how many those are.
    fn lose_some<L: Line>(&mut self, len: u64, line: &mut L) -> u64 {
        let phase = self.half.phase();
        match phase {
            Phase::Body | Phase::ChunkData => {
                let lost = len.min(self.half.remaining);
                self.half.opening = opening::NONE;
                if lost > 0 {
                    self.tell(Event::Gap(lost));
                }
                self.pass_body(lost);
                return lost;
            }
            Phase::Start | Phase::Search if self.half.has(flag::TO_ANY) => {
                self.switch(line);
                return 0;
            }
            _ => self.tell(Event::Gap(len)),
        }
        self.end_loose(End::Lost);
        let was_tunnel = phase == Phase::Opaque && !self.half.has(flag::REFUSED);
        if was_tunnel || matches!(phase, Phase::BodyUntilClose | Phase::Closed) {
            return len;
        }
        if phase.is_in_message() {
            self.tell(Event::End(End::Lost));
        }
        self.half.clear(flag::REFUSED);
        self.half.set(flag::LOSSY);
        self.half.enter(Phase::Search);
        len
    }

    /// Nothing more comes to the line that is kept: a whole one is read, another one skipped.
    /// Whether one was skipped.
    fn give_up_line<L: Line>(&mut self, line: &mut L) -> bool {
        if self.half.has(flag::LINE_ENDED) {
            self.on_kept_line(line);
            return false;
        }
        let partial = !line.as_slice().is_empty();
        if partial && self.is_body_line() {
            if self.half.phase() == Phase::Start {
                self.half.set(flag::LOOSE);
                self.report(Anomalies::NONE.with(Anomaly::UnexpectedBody));
            }
            self.tell(Event::Body(line.as_slice()));
        } else if partial {
            self.tell(Event::Skipped(line.as_slice()));
        }
        gather::forget(self.half, line);
        partial
    }

    #[inline(never)]
    fn on_kept_line<L: Line>(&mut self, line: &mut L) {
        self.on_line(gather::kept(self.half, line));
        gather::forget(self.half, line);
    }

    #[inline(always)]
    fn on_line(&mut self, mut whole: Whole<'_>) {
        whole.found.add_if(whole.cut, Anomaly::LineTooLong);
        match self.half.phase() {
            Phase::Headers | Phase::Trailers => self.on_header_line(whole),
            Phase::ChunkSize => self.on_chunk_line(whole),
            Phase::ChunkEnd => self.on_chunk_end(whole),
            Phase::Search => self.on_searched_line(whole),
            _ if self.side == Side::Request => self.on_request_line(whole),
            _ => self.on_status_line(whole),
        }
    }

    fn on_searched_line(&mut self, whole: Whole<'_>) {
        let text = without_line_end(whole.raw);
        let certain = match self.side {
            Side::Request => start::is_certain_request(text),
            Side::Response => start::is_certain_status(text),
        };
        if !certain {
            return self.tell(Event::Skipped(whole.raw));
        }
        self.tell(Event::Resynchronised);
        self.half.enter(Phase::Start);
        match self.side {
            Side::Request => self.on_request_line(whole),
            Side::Response => {
                // Answers were lost with their number: one that comes now is most likely to the
                // newest request.
                if self.half.has(flag::LOSSY) {
                    self.outstanding.keep_newest();
                }
                self.on_status_line(whole);
            }
        }
    }

    fn on_request_line(&mut self, whole: Whole<'_>) {
        let text = without_line_end(whole.raw);
        if text.is_empty() {
            return; // RFC 9112 2.2: empty lines before a request are ignored.
        }
        let Some((mut request, mut found)) = start::request_line(text, whole.cut) else {
            self.tell(Event::Skipped(whole.raw));
            let mut found = whole.found.with(Anomaly::InvalidRequestLine);
            found.add_if(head::begins_like_framing(text), Anomaly::DisguisedFraming);
            return self.report(found);
        };
        if is_http2_preface(&request) {
            self.other.set(flag::TO_HTTP2);
            self.half.enter(Phase::Opaque);
            self.tell(Event::Switched(Protocol::Http2));
            self.report(Anomalies::NONE.with(Anomaly::Http2Unread));
            return self.tell(Event::Opaque(whole.raw));
        }
        self.begin(request.version, &whole);
        request.number = self.outstanding.next_number();
        let remembered = self.outstanding.push(asked(&request));
        found.add_if(!remembered, Anomaly::PipelineFull);
        found.add_if(self.half.has(flag::AFTER_LAST), Anomaly::DataAfterClose);
        found.add_if(self.half.has(flag::CONNECTING), Anomaly::EarlyTunnelData);
        match request.method {
            Method::Connect => self.half.set(flag::CONNECT),
            _ => head::note_target(self.half, request.target),
        }
        self.tell(Event::Request(request));
        self.report(found.union(whole.found));
        if request.version == Version::Http09 {
            self.half.set(flag::SIMPLE);
        }
        self.half.enter(Phase::Headers);
    }

    fn on_status_line(&mut self, whole: Whole<'_>) {
        let text = without_line_end(whole.raw);
        if text.is_empty() {
            return;
        }
        let Some((mut response, mut found)) = start::status_line(text) else {
            if self.half.has(flag::MAY_BE_LOOSE) {
                self.half.set(flag::LOOSE);
                self.report(whole.found.with(Anomaly::UnexpectedBody));
                return self.tell(Event::Body(whole.raw));
            }
            self.tell(Event::Skipped(whole.raw));
            return self.report(whole.found.with(Anomaly::InvalidStatusLine));
        };
        self.end_loose(End::Complete);
        self.begin(response.version, &whole);
        self.half.status = response.status;
        response.answers = self.answer(response.interim);
        let lossy = self.half.has(flag::LOSSY) || self.other.has(flag::LOSSY);
        found.add_if(response.answers.is_none() && !lossy, Anomaly::ResponseWithoutRequest);
        found.add_if(self.half.has(flag::AFTER_LAST), Anomaly::DataAfterClose);
        found.add_if(response.status == 101 && !self.half.has(flag::ASKED), Anomaly::UnexpectedUpgrade);
        self.tell(Event::Response(response));
        self.report(found.union(whole.found));
        self.half.enter(Phase::Headers);
    }

    /// A response of HTTP/0.9: a body and nothing else. So is read, too, what a server says first
    /// if that is no status line.
    fn on_simple_response<L: Line>(&mut self, line: &mut L) {
        let expected = matches!(self.outstanding.oldest(), Some((Asked::Simple, ..)));
        self.end_loose(End::Complete);
        self.begin(Version::Http09, &Whole::EMPTY);
        let answers = self.answer(false);
        self.tell(Event::Response(StatusLine {
            raw: &[],
            protocol: &[],
            version: Version::Http09,
            code: &[],
            status: 0,
            reason: &[],
            interim: false,
            answers,
        }));
        if !expected {
            self.report(Anomalies::NONE.with(Anomaly::InvalidStatusLine));
        }
        self.tell(Event::HeadersEnd(Framing::UntilClose));
        self.half.enter(Phase::BodyUntilClose);
        if !line.as_slice().is_empty() {
            self.tell(Event::Body(line.as_slice()));
        }
        gather::forget(self.half, line);
    }

    #[inline(always)]
    fn on_header_line(&mut self, whole: Whole<'_>) {
        if self.may_be_simple() && !head::is_header(whole.raw) {
            // A request of HTTP/0.9 is over with its line; only some clients that forget the
            // version send headers nevertheless.
            self.finish_head(Framing::None);
            return self.on_request_line(whole);
        }
        if without_line_end(whole.raw).is_empty() {
            let chunked = self.half.phase() == Phase::Trailers;
            self.report(if chunked { with_chunk_end(whole.found) } else { self.with_head_end(whole.found) });
            return match self.half.phase() {
                Phase::Trailers => self.finish(End::Complete),
                _ => self.on_headers_end(),
            };
        }
        if whole.raw.first().is_some_and(|&b| is_blank(b)) {
            self.tell(Event::Skipped(whole.raw));
            return self.report(whole.found.with(Anomaly::BlankBeforeHeaders));
        }
        let (header, mut found) = head::header(whole);
        head::note_name(self.half, &header, &mut found);
        self.half.headers = self.half.headers.saturating_add(1);
        self.half.head_bytes = self.half.head_bytes.saturating_add(whole.raw.len() as u32);
        found.add_if(self.half.headers > HEADER_MAX, Anomaly::TooManyHeaders);
        found.add_if(self.half.head_bytes > HEAD_BYTES_MAX, Anomaly::HeadTooLong);
        if self.half.phase() == Phase::Trailers {
            found.add_if(head::is_framing(header.field), Anomaly::FramingInTrailer);
            self.tell(Event::Trailer(header));
        } else {
            head::note(self.half, self.side, &header, &mut found);
            self.tell(Event::Header(header));
        }
        self.report(found);
    }

    fn on_headers_end(&mut self) {
        let (framing, found) = head::framing(self.half, self.side);
        if self.side == Side::Request && self.half.has(flag::UPGRADE) {
            self.outstanding.newest_wants_upgrade();
        }
        self.tell(Event::HeadersEnd(framing));
        self.report(found);
        self.finish_or_enter(framing);
    }

    fn finish_head(&mut self, framing: Framing) {
        self.tell(Event::HeadersEnd(framing));
        self.finish_or_enter(framing);
    }

    fn finish_or_enter(&mut self, framing: Framing) {
        match framing {
            Framing::None | Framing::Length(0) => self.finish(End::Complete),
            Framing::Length(len) => {
                self.half.remaining = len;
                self.enter_body(Phase::Body);
            }
            Framing::Chunked => self.half.enter(Phase::ChunkSize),
            Framing::UntilClose => self.half.enter(Phase::BodyUntilClose),
        }
    }

    /// A body, or a chunk, begins.
    fn enter_body(&mut self, phase: Phase) {
        self.half.enter(phase);
        self.half.opening = if self.side == Side::Request { opening::FIRST } else { opening::NONE };
    }

    fn on_chunk_line(&mut self, whole: Whole<'_>) {
        let Ok(ChunkLine { size, extension, mut found }) = chunk_line(without_line_end(whole.raw)) else {
            return self.on_broken_chunk(whole);
        };
        if !extension.is_empty() {
            self.tell(Event::ChunkExtension(extension));
        }
        if whole.found.has(Anomaly::BareLineFeed) {
            found.add(match extension {
                [] => Anomaly::BareLineFeedInChunkSize,
                _ => Anomaly::BareLineFeedInChunkExtension,
            });
        }
        self.report(found.union(whole.found));
        self.half.remaining = size;
        match size {
            0 => self.half.enter(Phase::Trailers),
            _ => self.enter_body(Phase::ChunkData),
        }
    }

    fn on_broken_chunk(&mut self, whole: Whole<'_>) {
        let found = whole.found.with(Anomaly::InvalidChunkSize);
        match self.side {
            Side::Request => {
                self.tell(Event::Skipped(whole.raw));
                self.report(found);
                self.tell(Event::End(End::Lost));
                self.half.enter(Phase::Search);
            }
            Side::Response => {
                self.tell(Event::Body(whole.raw));
                self.report(found);
                self.half.enter(Phase::BodyUntilClose);
            }
        }
    }

    fn on_chunk_end(&mut self, whole: Whole<'_>) {
        let mut found = with_chunk_end(whole.found);
        if !without_line_end(whole.raw).is_empty() {
            self.tell(Event::Skipped(whole.raw));
            found.add(Anomaly::MissingChunkEnd);
        }
        self.report(found);
        self.half.enter(Phase::ChunkSize);
    }

    fn begin(&mut self, version: Version, line: &Whole<'_>) {
        self.half.begin();
        self.half.head_bytes = u32::try_from(line.raw.len()).unwrap_or(u32::MAX);
        let ends = if line.found.has(Anomaly::BareLineFeed) { 0 } else { flag::CR_LF };
        self.half.set(
            ends | match version {
                Version::Http10 => flag::HTTP_10,
                Version::Http11 => flag::HTTP_11,
                Version::Http09 | Version::Other => 0,
            },
        );
    }

    /// Whether all of the message so far is a line without version.
    fn may_be_simple(&self) -> bool {
        self.half.has(flag::SIMPLE) && self.half.headers == 0
    }

    /// Finds the request that a response answers, and notes what of it matters to the response.
    fn answer(&mut self, interim: bool) -> Option<u32> {
        let (asked, wants_upgrade, number) = self.outstanding.oldest()?;
        if interim {
            return Some(number);
        }
        self.outstanding.pop();
        match asked {
            Asked::Head => self.half.set(flag::HEAD),
            Asked::Connect => {
                self.half.set(flag::CONNECT);
                self.on_connect_answered();
            }
            Asked::Ordinary | Asked::Simple => {}
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

    /// The message is over.
    fn finish(&mut self, end: End) {
        self.tell(Event::End(end));
        self.half.enter(Phase::Start);
        if self.side == Side::Response && self.cannot_have_body() {
            self.half.set(if self.announces_body() { flag::MAY_GO_ON } else { flag::MAY_BE_LOOSE });
        }
        match self.side {
            Side::Request if self.half.has(flag::CONNECT) => self.half.set(flag::CONNECTING),
            Side::Response if self.half.status == 101 => self.upgrade(),
            Side::Response if head::answers_connect(self.half) => self.become_opaque(Protocol::Tunnel),
            Side::Response if matches!(self.half.status, 100..=199) => {}
            _ if self.is_last() => self.half.set(flag::AFTER_LAST),
            _ => {}
        }
    }

    /// The connection goes on with the protocol that both headers Upgrade, or one of them, name.
    fn upgrade(&mut self) {
        if !self.half.has(flag::H2C) && !self.other.has(flag::H2C) {
            self.other.set(flag::TO_UPGRADE);
            return self.become_opaque(Protocol::Upgrade);
        }
        self.other.set(flag::TO_HTTP2);
        self.become_opaque(Protocol::Http2);
        self.report(Anomalies::NONE.with(Anomaly::Http2Unread));
    }

    /// Whether it is a response that cannot have a body, and was not followed by one. Of what
    /// answers HEAD nobody reads one.
    fn cannot_have_body(&self) -> bool {
        let told = Anomalies::from_bits(self.half.told).has(Anomaly::UnexpectedBody);
        let bodiless = matches!(self.half.status, 100..=199 | 204 | 304);
        bodiless && !told && !self.half.has(flag::HEAD | flag::CONNECT)
    }

    /// Whether the message's headers announce a body.
    fn announces_body(&self) -> bool {
        self.half.has(flag::TRANSFER_ENCODING) || self.half.has(flag::LENGTH) && self.half.content_length > 0
    }

    /// Whether the line that is kept is a part of a body to who reads with good will, though it is
    /// not complete: lines behind a response that cannot have a body, or what stands where a
    /// chunk's size is to be.
    fn is_body_line(&self) -> bool {
        self.side == Side::Response
            && match self.half.phase() {
                Phase::Start => self.half.has(flag::MAY_BE_LOOSE),
                phase => phase == Phase::ChunkSize,
            }
    }

    /// Lines behind a response that cannot have a body are over, if there were any.
    fn end_loose(&mut self, end: End) {
        if self.half.has(flag::LOOSE) {
            self.half.clear(flag::LOOSE | flag::MAY_BE_LOOSE);
            self.tell(Event::End(end));
        }
    }

    /// What follows a response that cannot have a body is one, as its headers have it.
    fn go_on<L: Line>(&mut self, line: &mut L) {
        self.half.clear(flag::MAY_GO_ON);
        self.report(Anomalies::NONE.with(Anomaly::UnexpectedBody));
        if self.half.has(flag::CHUNKED) {
            // The line that was begun is a chunk's.
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
            self.tell(Event::Body(&begun[..len]));
        }
        if is_sized {
            self.pass_body(len as u64);
        }
        // What was begun can be longer than the body: then it begins the next line. It is less than
        // what status lines begin with.
        let mut rest = FixedLine::<{ start::HTTP.len() }>::default();
        rest.push(&begun[len..]);
        gather::forget(self.half, line);
        line.push(rest.as_slice());
    }

    /// What is wrong with the line that ends a head.
    fn with_head_end(&self, mut found: Anomalies) -> Anomalies {
        let alone = found.has(Anomaly::BareLineFeed) && self.half.has(flag::CR_LF);
        found.add_if(alone && self.side == Side::Request, Anomaly::BareLineFeedEndsHead);
        found
    }

    /// Whether the connection is to end behind this message (RFC 9112 9.3).
    fn is_last(&self) -> bool {
        self.half.has(flag::CLOSE) || self.half.has(flag::HTTP_10) && !self.half.has(flag::KEEP_ALIVE)
    }

    /// The other direction has settled that this one is no longer HTTP/1, and no message is in its
    /// way.
    fn switch<L: Line>(&mut self, line: &mut L) {
        let protocol = match self.half.flags {
            flags if flags & flag::TO_HTTP2 != 0 => Protocol::Http2,
            flags if flags & flag::TO_UPGRADE != 0 => Protocol::Upgrade,
            _ => Protocol::Tunnel,
        };
        self.become_opaque(protocol);
        if !line.as_slice().is_empty() {
            self.tell(Event::Opaque(line.as_slice()));
        }
        gather::forget(self.half, line);
    }

    fn become_opaque(&mut self, protocol: Protocol) {
        self.end_loose(End::Complete);
        self.half.clear(flag::TO_ANY);
        self.half.enter(Phase::Opaque);
        self.tell(Event::Switched(protocol));
    }

    /// Whether bytes behind a CONNECT that is not answered yet are the tunnel's: they do not begin
    /// like a method.
    fn is_early_tunnel<L: Line>(&self, bytes: &[u8], line: &L) -> bool {
        let at_start = self.half.phase() == Phase::Start && line.as_slice().is_empty();
        let like_http = |b: &u8| b.is_ascii_uppercase() || matches!(b, b'\r' | b'\n');
        self.half.has(flag::CONNECTING) && at_start && !bytes.first().is_some_and(like_http)
    }

    /// Whether a response begins without a status line where this is to be read as HTTP/0.9.
    fn lacks_status_line<L: Line>(&self, bytes: &[u8], line: &L) -> bool {
        let simple = matches!(self.outstanding.oldest(), Some((Asked::Simple, ..)));
        if self.half.phase() != Phase::Start || !(simple || self.half.messages == 0) {
            return false;
        }
        let mut begun = line.as_slice().iter().chain(bytes).peekable();
        if !simple && matches!(begun.peek(), Some(b'\r' | b'\n')) {
            return false; // An empty line is passed over, as before a request.
        }
        begun.zip(start::HTTP).any(|(byte, expected)| !byte.eq_ignore_ascii_case(expected))
    }

    /// Tells those anomalies that were not told of this message yet, and counts all.
    fn report(&mut self, found: Anomalies) {
        if !found.is_empty() {
            self.report_some(found);
        }
    }

    #[cold]
    fn report_some(&mut self, found: Anomalies) {
        let told = Anomalies::from_bits(self.half.told);
        for anomaly in found.iter() {
            if told.has(anomaly) {
                self.half.repeated = self.half.repeated.saturating_add(1);
                continue;
            }
            self.half.anomalies = self.half.anomalies.saturating_add(1);
            self.tell(Event::Anomaly(anomaly));
        }
        self.half.told = told.union(found).bits();
    }

    fn tell(&mut self, event: Event<'_>) {
        self.sink.event(event);
    }
}

/// Whether what was begun of a line, and what comes, cannot become a status line or an empty one.
fn is_no_status_line<L: Line>(bytes: &[u8], line: &L) -> bool {
    let mut begun = line.as_slice().iter().chain(bytes).peekable();
    let is_empty = matches!(begun.peek(), Some(b'\r' | b'\n'));
    !is_empty && begun.zip(start::HTTP).any(|(byte, expected)| !byte.eq_ignore_ascii_case(expected))
}

/// What is wrong with a line that ends a chunk, or the chunked body.
fn with_chunk_end(mut found: Anomalies) -> Anomalies {
    found.add_if(found.has(Anomaly::BareLineFeed), Anomaly::BareLineFeedInChunkEnd);
    found
}

/// The first line of HTTP/2 with prior knowledge (RFC 9113 3.4).
fn is_http2_preface(request: &RequestLine<'_>) -> bool {
    (request.name, request.target, request.protocol) == (b"PRI", b"*", b"HTTP/2.0")
}

fn asked(request: &RequestLine<'_>) -> Asked {
    match (request.version, request.method) {
        (Version::Http09, _) => Asked::Simple,
        (_, Method::Head) => Asked::Head,
        (_, Method::Connect) => Asked::Connect,
        _ => Asked::Ordinary,
    }
}
