//! Flow reports and NAT events as IPFIX messages (RFC 7011, RFC 7012, RFC 8158), to collectors over
//! UDP or into files.
//!
//! [`Exporter`] only encodes: it has no socket and no clock. [`UdpCollector`] and [`FileWriter`]
//! have one each and carry its messages away.
//!
//! ```
//! use io::ipfix::{Exporter, Options};
//! use nf::FlowReport;
//!
//! let report = FlowReport { version: 4, packets: [1, 0], bytes: [84, 0], ..FlowReport::default() };
//! let mut exporter = Exporter::new(Options::default()).unwrap();
//! let mut reports = &[report; 100][..];
//! let mut messages = 0;
//! while let Some(message) = exporter.next_message(&mut reports, 1_700_000_000) {
//!     assert!(message.len() <= 1400);
//!     messages += 1;
//! }
//! assert_eq!(messages, 5);
//! ```

use nf::FlowReport;

mod nat;
mod sampling;
mod template;
mod writer;

pub use nat::NatRecord;
pub use writer::{FileWriter, UdpCollector};

use nat::NatTemplate;
use template::Template;

/// Options of the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Distinguishes this exporter's flows from others of its host (RFC 7011 3.1).
    pub observation_domain: u32,
    /// Bytes of a message at most, [`MESSAGE_MIN`] to 65,535, to fit the path's MTU (RFC 7011
    /// 10.3.3).
    pub message_max: usize,
    /// Messages after which the templates are repeated; 0 disables it (RFC 7011 8.4).
    pub template_every_messages: u32,
    /// Seconds after which the templates are repeated; 0 disables it.
    pub template_every_s: u32,
    /// Use one record for both directions (RFC 5103), instead of one for each direction that had
    /// packets. Off by default: nfdump 1.7 replaces the forward direction's times and flags by the
    /// reverse ones.
    pub biflow: bool,
}

/// The lowest limit of a message.
pub const MESSAGE_MIN: usize = 1_024;

impl Default for Options {
    fn default() -> Options {
        Options {
            observation_domain: 1,
            message_max: 1400,
            template_every_messages: 64,
            template_every_s: 60,
            biflow: false,
        }
    }
}

/// The limit of messages is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("IPFIX messages cannot be limited to {0} bytes: choose {MESSAGE_MIN} to 65535")]
pub struct MessageLimitError(pub usize);

/// Encodes flow reports as the messages of one transport session, of one collector or file.
#[derive(Debug)]
pub struct Exporter {
    options: Options,
    message: Vec<u8>,
    /// Data records in all messages so far, modulo 2^32 (RFC 7011 3.1).
    sequence: u32,
    templates: Option<TemplatesSent>,
    nat_templates: Option<TemplatesSent>,
    /// One of this many flows is reported, as last announced to the collector; initially 1.
    sampling: u32,
}

/// Time and number of messages since templates were sent.
#[derive(Clone, Copy, Debug)]
struct TemplatesSent {
    export_time_s: u32,
    messages_since: u32,
}

/// Length of a message header (RFC 7011 3.1): version, length, export time, sequence number,
/// observation domain.
const HEADER_LEN: usize = 16;

/// Length of a set header (RFC 7011 3.3.2): identifier, length.
const SET_HEADER_LEN: usize = 4;

/// Protocol version (RFC 7011 3.1).
const VERSION: u16 = 10;

/// Identifier of sets that hold templates (RFC 7011 3.3.2).
const TEMPLATE_SET: u16 = 2;

/// A set that records are still added to.
#[derive(Clone, Copy)]
struct OpenSet {
    id: u16,
    start: usize,
}

impl Exporter {
    /// Makes an exporter.
    ///
    /// # Errors
    /// If `message_max` is out of range.
    pub fn new(options: Options) -> Result<Exporter, MessageLimitError> {
        if !(MESSAGE_MIN..=usize::from(u16::MAX)).contains(&options.message_max) {
            return Err(MessageLimitError(options.message_max));
        }
        let message = Vec::with_capacity(options.message_max);
        Ok(Exporter { options, message, sequence: 0, templates: None, nat_templates: None, sampling: 1 })
    }

    /// Encodes as many reports as one message holds, and removes them from the slice; returns none
    /// when no report with packets is left. `export_time_s` is the time of sending, in seconds
    /// since 1970 (modulo 2^32).
    ///
    /// If not all flows are reported, an options record states the share: with the templates, and
    /// when it changes.
    ///
    /// The collector detects the loss of a message by the gap in the sequence numbers.
    pub fn next_message(&mut self, reports: &mut &[FlowReport], export_time_s: u32) -> Option<&[u8]> {
        while reports.first().is_some_and(|report| report.packets == [0, 0]) {
            *reports = &reports[1..];
        }
        let sampling = reports.first()?.sampling.max(1);
        let with_templates = self.templates_due(self.templates, export_time_s);
        let with_sampling = sampling != self.sampling || (with_templates && sampling != 1);
        self.begin(export_time_s);
        if with_templates {
            let set = self.open(TEMPLATE_SET);
            for template in Template::all(self.options.biflow) {
                template.put_specification(&mut self.message);
            }
            self.close(set);
        }
        if with_sampling {
            sampling::put_template_set(&mut self.message);
            sampling::put_record(self.options.observation_domain, sampling, &mut self.message);
        }
        let records = self.add_records(reports, sampling) + u32::from(with_sampling);
        self.sampling = sampling;
        self.templates = Some(repeated(self.templates, with_templates, export_time_s));
        Some(self.finish(records))
    }

    /// Encodes as many NAT events as one message holds, and removes them from the slice; returns
    /// none when no event with a record is left.
    pub fn next_nat_message(&mut self, events: &mut &[NatRecord], export_time_s: u32) -> Option<&[u8]> {
        while events.first().is_some_and(|event| NatTemplate::of(event.event).is_none()) {
            *events = &events[1..];
        }
        events.first()?;
        let with_templates = self.templates_due(self.nat_templates, export_time_s);
        self.begin(export_time_s);
        if with_templates {
            let set = self.open(TEMPLATE_SET);
            NatTemplate::all().iter().for_each(|template| template.put_specification(&mut self.message));
            self.close(set);
        }
        let records = self.add_nat_records(events);
        self.nat_templates = Some(repeated(self.nat_templates, with_templates, export_time_s));
        Some(self.finish(records))
    }

    /// Completes the message, which has this many records.
    fn finish(&mut self, records: u32) -> &[u8] {
        let len = self.message.len() as u16; // At most `message_max`, which fits.
        self.message[2..4].copy_from_slice(&len.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(records);
        &self.message
    }

    fn templates_due(&self, sent: Option<TemplatesSent>, now_s: u32) -> bool {
        let Some(sent) = sent else { return true };
        let Options { template_every_messages: messages, template_every_s: seconds, .. } = self.options;
        (messages != 0 && sent.messages_since >= messages)
            || (seconds != 0 && now_s.wrapping_sub(sent.export_time_s) >= seconds)
    }

    /// Writes the message header.
    fn begin(&mut self, export_time_s: u32) {
        self.message.clear();
        self.message.extend(VERSION.to_be_bytes());
        self.message.extend([0; 2]); // The length, when it is known.
        self.message.extend(export_time_s.to_be_bytes());
        self.message.extend(self.sequence.to_be_bytes());
        self.message.extend(self.options.observation_domain.to_be_bytes());
    }

    /// Adds data sets of as many NAT events as fit; returns the number of records.
    fn add_nat_records(&mut self, events: &mut &[NatRecord]) -> u32 {
        let mut records = 0;
        let mut set: Option<OpenSet> = None;
        while let Some((event, rest)) = events.split_first() {
            let Some(template) = NatTemplate::of(event.event) else {
                *events = rest;
                continue;
            };
            let current = set.filter(|set| set.id == template.id);
            let set_header_len = if current.is_some() { 0 } else { SET_HEADER_LEN };
            if self.message.len() + set_header_len + template.record_len() > self.options.message_max {
                break;
            }
            *events = rest;
            if current.is_none() {
                set.into_iter().for_each(|set| self.close(set));
                set = Some(self.open(template.id));
            }
            template.put_record(event, &mut self.message);
            records += 1;
        }
        set.into_iter().for_each(|set| self.close(set));
        records
    }

    /// Adds data sets of as many reports of this sampling as fit; returns the number of records.
    fn add_records(&mut self, reports: &mut &[FlowReport], sampling: u32) -> u32 {
        let mut records = 0;
        let mut set: Option<OpenSet> = None;
        while let Some((report, rest)) = reports.split_first() {
            let template = Template::of(report.version, report.translated.is_some(), self.options.biflow);
            let directions = self.directions(report);
            let current = set.filter(|set| set.id == template.id);
            let set_header_len = if current.is_some() { 0 } else { SET_HEADER_LEN };
            let len = set_header_len + directions.len() * template.record_len();
            let other_sampling = report.sampling.max(1) != sampling && !directions.is_empty();
            if self.message.len() + len > self.options.message_max || other_sampling {
                break;
            }
            *reports = rest;
            if directions.is_empty() {
                continue;
            }
            if current.is_none() {
                set.into_iter().for_each(|set| self.close(set));
                set = Some(self.open(template.id));
            }
            for &direction in directions {
                template.put_record(report, direction, &mut self.message);
            }
            records += directions.len() as u32;
        }
        set.into_iter().for_each(|set| self.close(set));
        records
    }

    /// Returns the directions of a report's records.
    fn directions(&self, report: &FlowReport) -> &'static [usize] {
        match report.packets {
            [0, 0] => &[],
            _ if self.options.biflow => &[0],
            [_, 0] => &[0],
            [0, _] => &[1],
            _ => &[0, 1],
        }
    }

    fn open(&mut self, id: u16) -> OpenSet {
        let start = self.message.len();
        self.message.extend(id.to_be_bytes());
        self.message.extend([0; 2]); // The length, when it is known.
        OpenSet { id, start }
    }

    fn close(&mut self, set: OpenSet) {
        let len = (self.message.len() - set.start) as u16; // Within a message, so it fits.
        self.message[set.start + 2..set.start + 4].copy_from_slice(&len.to_be_bytes());
    }
}

/// Returns the last time of sending templates, after a message with or without them.
fn repeated(sent: Option<TemplatesSent>, with_templates: bool, export_time_s: u32) -> TemplatesSent {
    match sent {
        Some(sent) if !with_templates => {
            TemplatesSent { messages_since: sent.messages_since.saturating_add(1), ..sent }
        }
        _ => TemplatesSent { export_time_s, messages_since: 1 },
    }
}

// The templates and the longest report's records fit the smallest message, so each message makes
// progress.
const _: () = {
    let mut biflow = false;
    loop {
        let layouts = [(4, false), (4, true), (6, false), (6, true)];
        let (mut templates_len, mut i) = (SET_HEADER_LEN, 0);
        while i < layouts.len() {
            templates_len += Template::of(layouts[i].0, layouts[i].1, biflow).specification_len();
            i += 1;
        }
        let longest = Template::of(6, true, biflow).record_len();
        let records_len = SET_HEADER_LEN + longest * if biflow { 1 } else { 2 };
        assert!(HEADER_LEN + templates_len + sampling::SETS_LEN + records_len <= MESSAGE_MIN);
        if biflow {
            break;
        }
        biflow = true;
    }
    let nat_len = 2 * SET_HEADER_LEN + NatTemplate::specifications_len() + NatTemplate::longest_len();
    assert!(HEADER_LEN + nat_len <= MESSAGE_MIN);
};
