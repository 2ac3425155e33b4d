//! NAT events as IPFIX records.

use functions::nat::events::{KIND, field};
use io::ipfix::NatRecord;
use nf::{Event, EventValue};
use packet::{Addr, Endpoint};

/// Returns the record of an event, if it is a NAT's.
pub fn nat_record(event: &Event<'_>) -> Option<NatRecord> {
    if event.kind != KIND {
        return None;
    }
    let mut record = NatRecord {
        time_ms: event.timestamp_ns / 1_000_000,
        protocol: event.key.protocol,
        ..NatRecord::default()
    };
    let [before, after] = [&mut record.before, &mut record.after];
    for (name, value) in event.fields() {
        match (name, value) {
            (field::EVENT, EventValue::Number(number)) => record.event = number as u8,
            (field::REALM, EventValue::Number(number)) => record.realm = number as u8,
            (field::QUOTA, EventValue::Number(number)) => record.quota = number as u32,
            (field::LIMIT, EventValue::Number(number)) => record.limit = number as u32,
            (field::FIRST_PORT, EventValue::Number(port)) => record.ports[0] = port as u16,
            (field::LAST_PORT, EventValue::Number(port)) => record.ports[1] = port as u16,
            (field::SOURCE, EventValue::Text(text)) => set_address(&mut before[0], text),
            (field::DESTINATION, EventValue::Text(text)) => set_address(&mut before[1], text),
            (field::POST_SOURCE, EventValue::Text(text)) => set_address(&mut after[0], text),
            (field::POST_DESTINATION, EventValue::Text(text)) => set_address(&mut after[1], text),
            (field::SOURCE_PORT, EventValue::Number(port)) => before[0].port = port as u16,
            (field::DESTINATION_PORT, EventValue::Number(port)) => before[1].port = port as u16,
            (field::POST_SOURCE_PORT, EventValue::Number(port)) => after[0].port = port as u16,
            (field::POST_DESTINATION_PORT, EventValue::Number(port)) => after[1].port = port as u16,
            _ => {}
        }
    }
    Some(record)
}

fn set_address(end: &mut Endpoint, text: &[u8]) {
    let address = str::from_utf8(text).ok().and_then(|text| text.parse::<std::net::IpAddr>().ok());
    if let Some(address) = address {
        end.addr = Addr::from(address);
    }
}
