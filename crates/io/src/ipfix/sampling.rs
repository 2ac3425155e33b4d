//! The share of flows that is reported, as an options record: flow selection (RFC 7014), and the
//! older samplingInterval, which is all that most collectors read.

/// Identifier of the options template.
const ID: u16 = 271;

/// flowSelectorAlgorithm (RFC 7014): uniform probabilistic.
const UNIFORM_PROBABILISTIC: u16 = 4;

/// Elements with their lengths; the first is the scope. Without samplingAlgorithm (35): nfdump 1.7
/// ignores an interval that has one.
const ELEMENTS: [(u16, u16); 4] = [
    (149, 4), // observationDomainId
    (390, 2), // flowSelectorAlgorithm
    (311, 8), // samplingProbability
    (34, 4),  // samplingInterval: deprecated, but read by collectors
];

/// Bytes of the options template set and of the set with its record.
pub const SETS_LEN: usize = {
    let (mut record_len, mut i) = (0, 0);
    while i < ELEMENTS.len() {
        record_len += ELEMENTS[i].1 as usize;
        i += 1;
    }
    4 + 6 + 4 * ELEMENTS.len() + 4 + record_len
};

/// Appends the options template set (RFC 7011 3.4.2.2).
pub fn put_template_set(out: &mut Vec<u8>) {
    const OPTIONS_TEMPLATE_SET: u16 = 3;
    const SCOPE_FIELDS: u16 = 1;
    let len = 4 + 6 + 4 * ELEMENTS.len() as u16;
    let numbers = [OPTIONS_TEMPLATE_SET, len, ID, ELEMENTS.len() as u16, SCOPE_FIELDS];
    out.extend(numbers.into_iter().flat_map(u16::to_be_bytes));
    out.extend(ELEMENTS.into_iter().flat_map(|(element, len)| [element, len]).flat_map(u16::to_be_bytes));
}

/// Appends the set with the record that one of `interval` flows is reported.
pub fn put_record(observation_domain: u32, interval: u32, out: &mut Vec<u8>) {
    let len: u16 = 4 + ELEMENTS.iter().map(|(_, len)| len).sum::<u16>();
    out.extend(ID.to_be_bytes());
    out.extend(len.to_be_bytes());
    out.extend(observation_domain.to_be_bytes());
    out.extend(UNIFORM_PROBABILISTIC.to_be_bytes());
    out.extend((1.0 / f64::from(interval)).to_be_bytes());
    out.extend(interval.to_be_bytes());
}
