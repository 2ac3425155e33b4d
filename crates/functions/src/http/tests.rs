use std::collections::BTreeSet;

use applayer::http::HttpAnomaly;

use super::transactions::{ResponseFields, StoredField, TransactionFields, add, begin, oldest};
use super::{label, smuggling};
use nf::{EventValue, FlowBuffer};

/// A queue without room stores nothing and reports it.
#[test]
fn a_full_buffer_accepts_no_request() {
    let mut none = FlowBuffer::default();
    assert!(!begin(&mut none, 1));
    assert!(!add(&mut none, StoredField::Url, b"/"));
    assert!(none.as_slice().is_empty());
}

#[test]
fn foreign_items_do_no_harm() {
    let damaged: [&[u8]; 5] = [&[0], &[0, 4, 0, 1], &[0, 1, 0, 1], &[1, 1, 0, b'G'], &[0xff; 40]];
    for bytes in damaged {
        assert_eq!(oldest(bytes), None, "{bytes:?}");
        let _ = TransactionFields::new(bytes, Some(ResponseFields::default())).as_slice();
    }
    let two = [&[0, 4, 0, 7, 0, 0, 0, 1, 1, 0, b'G'][..], &[0, 4, 0, 8, 0, 0, 0]].concat();
    assert_eq!(oldest(&two), Some((7, &two[..11])));
    assert_eq!(oldest(&two[11..]), Some((8, &two[11..])));
    assert_eq!(
        TransactionFields::new(&two[..11], None).as_slice(),
        [("http_method", EventValue::Text(b"G"))]
    );
}

#[test]
fn the_targets_own_authority_counts() {
    let item = |item: StoredField, text: &[u8]| [&[item as u8, text.len() as u8, 0], text].concat();
    let items = [item(StoredField::Host, b"h:1"), item(StoredField::Url, b"http://u@[::1]:80/x")].concat();
    let fields = TransactionFields::new(&items, None);
    assert_eq!(
        fields.as_slice()[..2],
        [("hostname", EventValue::Text(b"[::1]")), ("http_port", EventValue::Number(80))]
    );
    let items = item(StoredField::Host, b"h:99999");
    assert_eq!(TransactionFields::new(&items, None).as_slice(), [("hostname", EventValue::Text(b"h"))]);
}

#[test]
fn alerts_have_numbers_of_their_own_and_labels_their_names() {
    let mut signatures: BTreeSet<u32> = HttpAnomaly::ALL.into_iter().map(smuggling::signature).collect();
    signatures.insert(smuggling::METHOD_SIGNATURE);
    assert_eq!(signatures.len(), HttpAnomaly::ALL.len() + 1);
    assert_eq!(label::METHODS[label::method(applayer::http::Method::Unknown)], "unknown");
    let statuses = [0, 100, 404, 599, 600].map(|status| label::STATUSES[label::status(status)]);
    assert_eq!(statuses, ["other", "1xx", "4xx", "5xx", "other"]);
}

/// The manual lists the anomalies that count as smuggling, and the alerts' limits.
#[test]
fn the_manual_lists_the_smuggling_anomalies() {
    let manual = include_str!("README.md");
    let list = manual.split("### Smuggling").nth(1).and_then(|rest| rest.split("\n## ").next());
    let list = list.expect("the manual has the section");
    for anomaly in HttpAnomaly::ALL {
        let named = list.contains(&format!("`{}`", anomaly.name()));
        assert_eq!(named, smuggling::is_smuggling(anomaly), "{}", anomaly.name());
    }
}
