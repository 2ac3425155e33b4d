//! What is done with what the parser tells: it is counted, judged, and put together to
//! transactions.

use applayer::http::{Anomaly, Event, Field, Header, RequestLine, Side, Sink, StatusLine};
use nf::{Context, FlowBuffer};

use super::state::{Blocked, Notes, Phase};
use super::transactions::{self, Answer, Fields, Item};
use super::{Anomalies, MethodPolicy, Smuggling};
use super::{Http, attribute, buffer, counter, group, smuggling};
use crate::lines::FlowLine;

/// Bytes of a line (a header with its folds) that are read.
pub const LINE_MAX: usize = 16 << 10;

/// A direction's incomplete line.
pub type Kept = FlowLine<LINE_MAX>;

/// Takes what the parser tells of one direction.
pub struct Watch<'a, 'c> {
    pub(super) http: &'a Http,
    pub(super) notes: &'a mut Notes,
    pub(super) context: &'a mut Context<'c>,
    pub(super) side: Side,
}

impl Sink for Watch<'_, '_> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        if self.notes.phase() != Phase::Http && !self.is_recognised_by(event) {
            return;
        }
        match event {
            Event::Request(request) => self.request(request),
            Event::Response(response) => self.response(response),
            Event::Header(header) => self.header(header),
            Event::Body(bytes) if self.side == Side::Response => self.notes.length += bytes.len() as u64,
            Event::End(_) => self.end(),
            Event::Skipped(bytes) => self.context.count(counter::BYTES_SKIPPED, bytes.len() as u64),
            Event::Opaque(bytes) => self.context.count(counter::BYTES_OPAQUE, bytes.len() as u64),
            Event::Gap(len) => {
                self.context.count(counter::GAPS, 1);
                self.context.count(counter::BYTES_MISSING, len);
            }
            Event::Anomaly(anomaly) => self.anomaly(anomaly),
            Event::Body(_)
            | Event::HeadersEnd(_)
            | Event::ChunkExtension(_)
            | Event::Trailer(_)
            | Event::Switched(_)
            | Event::Resynchronised => {}
        }
    }
}

impl Watch<'_, '_> {
    /// Where a start line is searched for, whether this is one: then the flow speaks HTTP.
    fn is_recognised_by(&mut self, event: Event<'_>) -> bool {
        let found = matches!(event, Event::Request(_) | Event::Response(_));
        if found && self.notes.phase() == Phase::Suspected {
            self.recognised();
        }
        found && self.notes.phase() == Phase::Http
    }

    /// The flow speaks HTTP.
    pub fn recognised(&mut self) {
        self.notes.enter(Phase::Http);
        self.context.count(counter::FLOWS, 1);
        self.context.tag_flow(attribute::HTTP, 1);
    }

    fn request(&mut self, request: RequestLine<'_>) {
        self.context.count(counter::REQUESTS, 1);
        self.context.count_in(group::METHODS, group::method(request.method), 1);
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
        self.context.count(counter::METHODS_REFUSED, 1);
        if self.http.method_policy == MethodPolicy::Drop {
            self.notes.block(Blocked::Method);
        }
        if self.alerts_for_the_first_time(METHOD_BIT) {
            self.context.alert(smuggling::METHOD_SIGNATURE, "method-not-allowed", "http-method", 2);
        }
    }

    /// Keeps of a request what is told when it is answered.
    fn keep(&mut self, request: RequestLine<'_>) {
        let mut queue = self.take_queue();
        self.notes.found = 0;
        if transactions::begin(&mut queue, request.number) {
            self.notes.found = Item::Method.bit() | Item::Url.bit() | Item::Protocol.bit();
            let texts = [
                (Item::Method, request.name),
                (Item::Url, request.target),
                (Item::Protocol, request.protocol),
            ];
            for (item, text) in texts {
                if !transactions::add(&mut queue, item, text) {
                    self.context.count(counter::TEXTS_CUT, 1);
                }
            }
        } else {
            self.context.count(counter::REQUESTS_FORGOTTEN, 1);
        }
        self.context.give_buffer(buffer::QUEUE, queue);
    }

    #[inline]
    fn header(&mut self, header: Header<'_>) {
        if !self.http.events {
            return;
        }
        let item = match (self.side, header.field) {
            (Side::Request, Field::Host) => Item::Host,
            (Side::Request, Field::UserAgent) => Item::Agent,
            (Side::Request, Field::Referer) => Item::Referer,
            (Side::Response, Field::ContentType) => Item::ContentType,
            _ => return,
        };
        // Of several of a name the first counts.
        let (wanted, place) = match self.side {
            Side::Request => (self.notes.found != 0, buffer::QUEUE),
            Side::Response => (self.notes.answering != 0, buffer::ANSWER),
        };
        let known = match self.side {
            Side::Request => &mut self.notes.found,
            Side::Response => &mut self.notes.answering,
        };
        if !wanted || *known & item.bit() != 0 {
            return;
        }
        *known |= item.bit();
        let mut kept = match self.side {
            Side::Request => self.take_queue(),
            Side::Response => self.take_answer(),
        };
        let is_forgotten = self.side == Side::Request && self.notes.found == 0;
        if !is_forgotten && !transactions::add(&mut kept, item, header.value) {
            self.context.count(counter::TEXTS_CUT, 1);
        }
        self.context.give_buffer(place, kept);
    }

    fn response(&mut self, response: StatusLine<'_>) {
        self.context.count(counter::RESPONSES, 1);
        self.context.count_in(group::STATUSES, group::status(response.status), 1);
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
        if answer.as_slice().is_empty() && !transactions::add(&mut answer, Item::Protocol, response.protocol)
        {
            self.context.count(counter::TEXTS_CUT, 1);
        }
        self.context.give_buffer(buffer::ANSWER, answer);
    }

    /// Moves the request of this number from the queue to `answer`. Those before it will get no
    /// answer any more.
    fn find_request(&mut self, number: u32, answer: &mut FlowBuffer) {
        let mut queue = self.take_queue();
        while let Some((oldest, items)) = transactions::oldest(queue.as_slice()) {
            let ahead = oldest.wrapping_sub(number);
            if ahead == 0 {
                answer.push(items);
            } else if ahead < u32::MAX / 2 {
                break;
            } else {
                tell(self.notes, self.context, items, None);
            }
            let len = items.len();
            queue.consume(len);
        }
        if queue.as_slice().is_empty() {
            self.notes.found = 0;
        }
        self.context.give_buffer(buffer::QUEUE, queue);
    }

    /// The requests that wait for their answers; if they gave way to others, they are forgotten.
    fn take_queue(&mut self) -> FlowBuffer {
        let queue = self.context.take_buffer(buffer::QUEUE);
        if queue.was_evicted() {
            self.notes.found = 0;
            self.context.count(counter::REQUESTS_FORGOTTEN, 1);
        }
        queue
    }

    /// The transaction that is being answered, without its texts so far if they gave way to others.
    fn take_answer(&mut self) -> FlowBuffer {
        let answer = self.context.take_buffer(buffer::ANSWER);
        if answer.was_evicted() {
            self.context.count(counter::TEXTS_CUT, 1);
        }
        answer
    }

    fn end(&mut self) {
        if self.side == Side::Response && self.notes.answering != 0 {
            let mut answer = self.take_answer();
            let Notes { status, length, .. } = *self.notes;
            tell(self.notes, self.context, answer.as_slice(), Some(Answer { status, length }));
            self.notes.answering = 0;
            answer.clear();
            self.context.give_buffer(buffer::ANSWER, answer);
        }
    }

    /// Nobody will answer what is in the queue.
    pub fn give_up_requests(&mut self) {
        let mut queue = self.take_queue();
        while let Some((_, items)) = transactions::oldest(queue.as_slice()) {
            tell(self.notes, self.context, items, None);
            let len = items.len();
            queue.consume(len);
        }
        queue.clear();
        self.notes.found = 0;
        self.context.give_buffer(buffer::QUEUE, queue);
    }

    #[cold]
    pub(super) fn anomaly(&mut self, anomaly: Anomaly) {
        self.context.count_in(group::ANOMALIES, anomaly as usize, 1);
        let smuggles = smuggling::is_smuggling(anomaly);
        if smuggles {
            self.context.tag_flow(attribute::SMUGGLING, 1);
            if self.http.smuggling == Smuggling::Drop {
                self.notes.block(Blocked::Smuggling);
            }
        }
        let wanted = if smuggles {
            self.http.smuggling != Smuggling::Off
        } else {
            // What methods HTTP/2 brings, nobody sees.
            let hides_methods = anomaly == Anomaly::Http2Unread && !self.http.methods.is_empty();
            hides_methods || self.http.anomalies == Anomalies::Alert
        };
        if wanted && self.alerts_for_the_first_time(1 << anomaly as u32) {
            let (category, severity) = if smuggles { ("http-smuggling", 1) } else { ("http-anomaly", 3) };
            self.context.alert(smuggling::signature(anomaly), anomaly.name(), category, severity);
        }
    }

    /// Whether nothing with this bit was told of the connection; notes that it was.
    fn alerts_for_the_first_time(&mut self, bit: u64) -> bool {
        let first = self.notes.alerted & bit == 0;
        self.notes.alerted |= bit;
        first
    }
}

/// The bit of [`Notes::answering`] that says that a response is under way; the others are those of
/// what it has already.
const ANSWERING: u8 = 1;

/// Among the bits of anomalies, that of a method that is not allowed.
const METHOD_BIT: u64 = 1 << 63;

const _: () = assert!(Anomaly::ALL.len() < 63, "each anomaly has a bit of its own");

/// Tells of a transaction: of the client's request, whoever's packet it was that ended it.
fn tell(notes: &Notes, context: &mut Context<'_>, items: &[u8], answer: Option<Answer>) {
    let fields = Fields::new(items, answer);
    context.event("http", notes.client(), fields.as_slice());
}
