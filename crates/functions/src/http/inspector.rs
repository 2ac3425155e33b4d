//! Handling of parser events: counting, judging, and assembly of transactions.

use applayer::http::{
    ExchangeSide, FieldName, HeaderLine, HttpAnomaly, HttpEvent, HttpSink, Method, RequestLine, StatusLine,
};
use nf::{Context, FlowBuffer};

use super::state::{BlockReason, FlowNotes, Phase};
use super::transactions::{self, ResponseFields, StoredField, TransactionFields};
use super::{AnomalyPolicy, MethodPolicy, SmugglingPolicy};
use super::{COUNTERS, Http, attribute, buffer, label, smuggling};

/// Maximum bytes of a line (a header with its folds); a longer one is truncated.
pub const LINE_MAX: usize = 16 << 10;

/// The receiver of parser events of one direction.
pub struct HttpInspector<'a, 'c> {
    pub(super) http: &'a Http,
    pub(super) notes: &'a mut FlowNotes,
    pub(super) context: &'a mut Context<'c>,
    pub(super) side: ExchangeSide,
}

impl HttpSink for HttpInspector<'_, '_> {
    #[inline]
    fn event(&mut self, event: HttpEvent<'_>) {
        if self.notes.phase() != Phase::Http && !self.is_recognised_by(event) {
            return;
        }
        match event {
            HttpEvent::Request(request) => self.request(request),
            HttpEvent::Response(response) => self.response(response),
            HttpEvent::Header(header) => self.header(header),
            HttpEvent::Body(bytes) if self.side == ExchangeSide::Response => {
                self.notes.length += bytes.len() as u64
            }
            HttpEvent::End(_) => self.end(),
            HttpEvent::Skipped(bytes) => self.context.count(COUNTERS.bytes_skipped, bytes.len() as u64),
            HttpEvent::Opaque(bytes) => self.context.count(COUNTERS.bytes_opaque, bytes.len() as u64),
            HttpEvent::Gap(len) => {
                self.context.count(COUNTERS.gaps, 1);
                self.context.count(COUNTERS.bytes_missing, len);
            }
            HttpEvent::Anomaly(anomaly) => self.anomaly(anomaly),
            HttpEvent::Body(_)
            | HttpEvent::HeadersEnd(_)
            | HttpEvent::ChunkExtension(_)
            | HttpEvent::Trailer(_)
            | HttpEvent::Switched(_)
            | HttpEvent::Resynchronised => {}
        }
    }
}

impl HttpInspector<'_, '_> {
    /// Returns whether the event is a start line while the direction searches for one, which means
    /// that the flow speaks HTTP.
    fn is_recognised_by(&mut self, event: HttpEvent<'_>) -> bool {
        let found = matches!(event, HttpEvent::Request(_) | HttpEvent::Response(_));
        if found && self.notes.phase() == Phase::Suspected {
            self.recognised();
        }
        found && self.notes.phase() == Phase::Http
    }

    /// Records that the flow speaks HTTP.
    pub fn recognised(&mut self) {
        self.notes.enter(Phase::Http);
        self.context.count(COUNTERS.flows, 1);
        self.context.tag_flow(attribute::HTTP, 1);
    }

    fn request(&mut self, request: RequestLine<'_>) {
        self.context.count(COUNTERS.requests, 1);
        self.context.count_at(COUNTERS.requests_by_method, label::method(request.method), 1);
        self.context.tag_flow(attribute::METHOD, method_value(request.method));
        let methods = &self.http.methods;
        if !methods.is_empty() && !methods.iter().any(|allowed| allowed == request.name) {
            self.refuse_method();
        }
        if self.http.events {
            self.keep(request);
        }
    }

    #[cold]
    fn refuse_method(&mut self) {
        self.context.count(COUNTERS.methods_refused, 1);
        if self.http.method_policy == MethodPolicy::Drop {
            self.notes.block(BlockReason::Method);
        }
        if self.alerts_for_the_first_time(METHOD_BIT) {
            self.context.alert(smuggling::METHOD_SIGNATURE, "method-not-allowed", "http-method", 2);
        }
    }

    /// Stores the fields of a request that are reported with its response.
    fn keep(&mut self, request: RequestLine<'_>) {
        let mut queue = self.take_queue();
        self.notes.found = 0;
        if transactions::begin(&mut queue, request.number) {
            self.notes.found =
                StoredField::Method.bit() | StoredField::Url.bit() | StoredField::Protocol.bit();
            let texts = [
                (StoredField::Method, request.name),
                (StoredField::Url, request.target),
                (StoredField::Protocol, request.protocol),
            ];
            for (item, text) in texts {
                if !transactions::add(&mut queue, item, text) {
                    self.context.count(COUNTERS.fields_truncated, 1);
                }
            }
        } else {
            self.context.count(COUNTERS.requests_evicted, 1);
        }
        self.context.give_buffer(buffer::QUEUE, queue);
    }

    #[inline]
    fn header(&mut self, header: HeaderLine<'_>) {
        if !self.http.events {
            return;
        }
        let item = match (self.side, header.field) {
            (ExchangeSide::Request, FieldName::Host) => StoredField::Host,
            (ExchangeSide::Request, FieldName::UserAgent) => StoredField::Agent,
            (ExchangeSide::Request, FieldName::Referer) => StoredField::Referer,
            (ExchangeSide::Response, FieldName::ContentType) => StoredField::ContentType,
            _ => return,
        };
        // Of several headers of a name, the first counts.
        let (wanted, place) = match self.side {
            ExchangeSide::Request => (self.notes.found != 0, buffer::QUEUE),
            ExchangeSide::Response => (self.notes.answering != 0, buffer::ANSWER),
        };
        let known = match self.side {
            ExchangeSide::Request => &mut self.notes.found,
            ExchangeSide::Response => &mut self.notes.answering,
        };
        if !wanted || *known & item.bit() != 0 {
            return;
        }
        *known |= item.bit();
        let mut kept = match self.side {
            ExchangeSide::Request => self.take_queue(),
            ExchangeSide::Response => self.take_answer(),
        };
        let is_forgotten = self.side == ExchangeSide::Request && self.notes.found == 0;
        if !is_forgotten && !transactions::add(&mut kept, item, header.value) {
            self.context.count(COUNTERS.fields_truncated, 1);
        }
        self.context.give_buffer(place, kept);
    }

    fn response(&mut self, response: StatusLine<'_>) {
        self.context.count(COUNTERS.responses, 1);
        self.context.count_at(COUNTERS.responses_by_status, label::status(response.status), 1);
        if response.interim || !self.http.events {
            return;
        }
        self.notes.answering = ANSWERING;
        self.notes.status = response.status;
        self.notes.length = 0;
        let mut answer = self.context.take_buffer(buffer::ANSWER);
        answer.clear();
        if let Some(number) = response.answers {
            self.find_request(number, &mut answer);
        }
        if answer.as_slice().is_empty()
            && !transactions::add(&mut answer, StoredField::Protocol, response.protocol)
        {
            self.context.count(COUNTERS.fields_truncated, 1);
        }
        self.context.give_buffer(buffer::ANSWER, answer);
    }

    /// Moves the request with this number from the queue to `answer`. Earlier ones will get no
    /// response.
    fn find_request(&mut self, number: u32, answer: &mut FlowBuffer) {
        let mut queue = self.take_queue();
        while let Some((oldest, items)) = transactions::oldest(queue.as_slice()) {
            let ahead = oldest.wrapping_sub(number);
            if ahead == 0 {
                answer.push(items);
            } else if ahead < u32::MAX / 2 {
                break;
            } else {
                report_event(self.notes, self.context, items, None);
            }
            let len = items.len();
            queue.consume(len);
        }
        if queue.as_slice().is_empty() {
            self.notes.found = 0;
        }
        self.context.give_buffer(buffer::QUEUE, queue);
    }

    /// Takes the pending requests; if the buffer was evicted, they are lost.
    fn take_queue(&mut self) -> FlowBuffer {
        let queue = self.context.take_buffer(buffer::QUEUE);
        if queue.was_evicted() {
            self.notes.found = 0;
            self.context.count(COUNTERS.requests_evicted, 1);
        }
        queue
    }

    /// Takes the transaction in progress, without its texts if the buffer was evicted.
    fn take_answer(&mut self) -> FlowBuffer {
        let answer = self.context.take_buffer(buffer::ANSWER);
        if answer.was_evicted() {
            self.context.count(COUNTERS.fields_truncated, 1);
        }
        answer
    }

    fn end(&mut self) {
        if self.side == ExchangeSide::Response && self.notes.answering != 0 {
            let mut answer = self.take_answer();
            let FlowNotes { status, length, .. } = *self.notes;
            report_event(
                self.notes,
                self.context,
                answer.as_slice(),
                Some(ResponseFields { status, length }),
            );
            self.notes.answering = 0;
            answer.clear();
            self.context.give_buffer(buffer::ANSWER, answer);
        }
    }

    /// Reports the pending requests, which will get no response.
    pub fn give_up_requests(&mut self) {
        let mut queue = self.take_queue();
        while let Some((_, items)) = transactions::oldest(queue.as_slice()) {
            report_event(self.notes, self.context, items, None);
            let len = items.len();
            queue.consume(len);
        }
        queue.clear();
        self.notes.found = 0;
        self.context.give_buffer(buffer::QUEUE, queue);
    }

    #[cold]
    pub(super) fn anomaly(&mut self, anomaly: HttpAnomaly) {
        self.context.count_at(COUNTERS.anomalies, anomaly as usize, 1);
        let smuggles = smuggling::is_smuggling(anomaly);
        if smuggles {
            self.context.tag_flow(attribute::SMUGGLING, 1);
            if self.http.smuggling == SmugglingPolicy::Drop {
                self.notes.block(BlockReason::Smuggling);
            }
        }
        let wanted = if smuggles {
            self.http.smuggling != SmugglingPolicy::Off
        } else {
            // The methods within HTTP/2 are not visible.
            let hides_methods = anomaly == HttpAnomaly::Http2Unread && !self.http.methods.is_empty();
            hides_methods || self.http.anomalies == AnomalyPolicy::Alert
        };
        if wanted && self.alerts_for_the_first_time(1 << anomaly as u32) {
            let (category, severity) = if smuggles { ("http-smuggling", 1) } else { ("http-anomaly", 3) };
            self.context.alert(smuggling::signature(anomaly), anomaly.name(), category, severity);
        }
    }

    /// Returns whether the bit is new for the connection, and records it.
    fn alerts_for_the_first_time(&mut self, bit: u64) -> bool {
        let first = self.notes.alerted & bit == 0;
        self.notes.alerted |= bit;
        first
    }
}

/// Bit of [`FlowNotes::answering`]: a response is in progress. The other bits are the fields that
/// it has.
const ANSWERING: u8 = 1;

/// Bit of a forbidden method, among the bits of anomalies.
const METHOD_BIT: u64 = 1 << 63;

const _: () = assert!(HttpAnomaly::ALL.len() < 63, "each anomaly has a bit of its own");

/// Reports a transaction, in the client's direction, whichever packet ended it.
fn report_event(notes: &FlowNotes, context: &mut Context<'_>, items: &[u8], answer: Option<ResponseFields>) {
    let fields = TransactionFields::new(items, answer);
    context.event("http", notes.client(), fields.as_slice());
}

/// Returns the value of the attribute `method`.
fn method_value(method: Method) -> u16 {
    match method {
        Method::Get => 1,
        Method::Head => 2,
        Method::Post => 3,
        Method::Put => 4,
        Method::Delete => 5,
        Method::Connect => 6,
        Method::Options => 7,
        Method::Trace => 8,
        Method::Patch => 9,
        Method::Registered | Method::Unknown => 10,
    }
}
