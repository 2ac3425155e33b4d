//! Expected values of options, in the debug notation of a loaded rule.

use signatures::*;

use super::text::{bytes, number, operand, plain_quotes};

/// Formats a number in a buffer: bytes and offset, and its test or jump.
pub fn number_match(name: &str, words: &[&str], relative: bool) -> String {
    let named = |wanted: &str| {
        let mut cut = words.iter().filter_map(|word| word.split_once(char::is_whitespace));
        cut.find(|(word, _)| *word == wanted).map(|(_, value)| operand(value.trim()))
    };
    match name {
        "byte_test" => {
            let (not, sign) =
                words[1].strip_prefix('!').map_or((false, words[1]), |rest| (true, rest.trim()));
            let sign = if sign.is_empty() { "=" } else { sign };
            let [bytes, value, offset] = [words[0], words[2], words[3]].map(operand);
            format!("byte_test {bytes} {not} {sign} {value} {offset} {relative}")
        }
        "byte_math" => {
            let [bytes, offset, value] = ["bytes", "offset", "rvalue"].map(|word| named(word).unwrap());
            format!("byte_math {bytes} {offset} {value} {} {relative}", named("result").unwrap())
        }
        "byte_extract" => {
            let [bytes, offset] = [words[0], words[1]].map(operand);
            let multiplier = named("multiplier").unwrap_or_else(|| "1".to_owned());
            format!("byte_extract {bytes} {offset} {} {multiplier} {relative}", words[2])
        }
        "byte_jump" => {
            let [bytes, offset] = [words[0], words[1]].map(operand);
            let [multiplier, post] = [("multiplier", "1"), ("post_offset", "0")]
                .map(|(word, without)| named(word).unwrap_or_else(|| without.to_owned()));
            format!("byte_jump {bytes} {offset} {multiplier} {post} {relative}")
        }
        _ => {
            let bytes = named("bytes");
            format!(
                "base64_decode {bytes:?} {} {relative}",
                named("offset").unwrap_or_else(|| "0".to_owned())
            )
        }
    }
}

/// Formats a transform with its values.
pub fn step(name: &str, value: &str) -> String {
    let words = plain_quotes(value).split(',').map(|part| part.trim().trim_matches('"').trim());
    let words: Vec<Vec<&str>> = words.map(|part| part.split_whitespace().collect()).collect();
    let of = |wanted: &[&str]| {
        let named = |words: &&Vec<&str>| words.len() == 2 && wanted.contains(&words[0]);
        words.iter().filter(named).map(|words| words[1]).next_back()
    };
    let offset = of(&["offset"]).map_or_else(|| "0".to_owned(), operand);
    match name {
        "xor" => {
            let key = words.iter().find(|words| words.len() == 1).unwrap()[0];
            format!("xor {offset} {:02x?}", bytes(&format!("\"|{key}|\"")))
        }
        "pcrexform" => {
            let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            format!("pcrexform {}", quoted.unwrap_or(value))
        }
        "from_base64" => {
            let mode = match of(&["mode", "mode:"]) {
                Some("rfc2045") => Base64Mode::Rfc2045,
                Some("strict") => Base64Mode::Strict,
                _ => Base64Mode::Rfc4648,
            };
            let bytes: Option<u32> = of(&["bytes"]).map(|bytes| number(bytes).unwrap().try_into().unwrap());
            format!("from_base64 {bytes:?} {offset} {mode:?}")
        }
        _ => name.to_owned(),
    }
}

/// Formats a test of a number like [`Comparison`].
pub fn comparison(text: &str) -> String {
    let text = text.trim();
    let value = |text: &str| {
        let text = text.trim().to_ascii_lowercase();
        let units = [("kib", 10), ("mib", 20), ("gib", 30), ("kb", 10), ("mb", 20), ("gb", 30)];
        let unit = units.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, *bits)));
        let (digits, bits) = unit.unwrap_or((&text, 0));
        number(digits.trim()).unwrap() << bits
    };
    if let Some((mask, wanted)) = text.strip_prefix('&').and_then(|rest| rest.split_once('=')) {
        let (name, mask) = mask.strip_suffix('!').map_or(("Masked", mask), |mask| ("NotMasked", mask));
        return format!("{name} {{ mask: {}, value: {} }}", value(mask), value(wanted));
    }
    if let Some((low, high)) = text.split_once("<>").or_else(|| text.split_once('-'))
        && !low.trim().is_empty()
    {
        let (name, low) = low.trim().strip_prefix('!').map_or(("Between", low), |low| ("Outside", low));
        return format!("{name}({}, {})", value(low), value(high));
    }
    let signs = [
        ("<=", "AtMost"),
        (">=", "AtLeast"),
        ("!=", "NotEqual"),
        ("!", "NotEqual"),
        ("<", "Less"),
        (">", "Greater"),
        ("=", "Equal"),
        ("", "Equal"),
    ];
    let (rest, name) = signs.iter().find_map(|(sign, name)| Some((text.strip_prefix(sign)?, name))).unwrap();
    format!("{name}({})", value(rest))
}

/// Formats a packet test, a flowbit, or a rate of alerts.
pub fn test_of(name: &str, value: &str) -> Option<String> {
    let parts: Vec<_> = value.split(',').map(str::trim).collect();
    let of = |wanted: &str| {
        let mut cut = parts.iter().filter_map(|part| part.split_once(char::is_whitespace));
        cut.find(|(word, _)| *word == wanted).map(|(_, value)| value.trim())
    };
    let track = || match of("track").unwrap() {
        "by_src" | "ip_src" => "Source",
        "by_dst" | "ip_dst" => "Destination",
        "by_both" => "Both",
        "by_rule" => "Rule",
        "by_flow" => "Flow",
        "ip_pair" => "Pair",
        _ => "Transaction",
    };
    let operation = |word: &str| match word {
        "set" => "Set",
        "unset" => "Unset",
        "isset" => "IsSet",
        "toggle" => "Toggle",
        _ => "IsNotSet",
    };
    Some(match name {
        "ttl" => format!("packet Ttl({})", comparison(value)),
        "id" => format!("packet IpId({})", comparison(value)),
        "fragoffset" => format!("packet FragmentOffset({})", comparison(value)),
        "seq" | "tcp.seq" => format!("packet Sequence({})", comparison(value)),
        "ack" | "tcp.ack" => format!("packet Acknowledgement({})", comparison(value)),
        "window" | "tcp.window" => format!("packet Window({})", comparison(value)),
        "tcp.mss" => format!("packet Mss({})", comparison(value)),
        "tcp.wscale" => format!("packet WindowScale({})", comparison(value)),
        "itype" => format!("packet IcmpType({})", comparison(value)),
        "icode" => format!("packet IcmpCode({})", comparison(value)),
        "dsize" => format!("packet PayloadBytes({})", comparison(value)),
        "ip_proto" => {
            let (test, name) =
                value.strip_prefix('!').map_or(("Equal", value), |rest| ("NotEqual", rest.trim()));
            let named = PROTOCOLS.iter().find(|row| row.0.eq_ignore_ascii_case(name));
            let test = named.map_or_else(|| comparison(value), |row| format!("{test}({})", row.1));
            format!("packet IpProtocol({test})")
        }
        "sameip" => "packet SameAddress".to_owned(),
        "icmp_id" => format!("packet IcmpId({})", operand(plain_quotes(value))),
        "icmp_seq" => format!("packet IcmpSequence({})", operand(plain_quotes(value))),
        "ipopts" if value == "any" => "packet IpOption(Any)".to_owned(),
        "ipopts" => {
            let option = IpOption::NAMES.iter().find(|(name, _)| *name == value).unwrap();
            format!("packet IpOption(Type({}))", option.1)
        }
        "tos" => {
            let (negated, value) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim()));
            let hex = value.strip_prefix('x').map(|digits| i128::from_str_radix(digits, 16).unwrap());
            let value = hex.or_else(|| number(value)).unwrap();
            format!("packet Tos {{ negated: {negated}, value: {value} }}")
        }
        "flags" | "tcp.flags" => format!("packet TcpFlags({})", flags(value, &FlagTest::TCP)),
        "fragbits" => format!("packet FragmentBits({})", flags(value, &FlagTest::FRAGMENT)),
        "stream_size" => {
            let side = match parts[0] {
                "client" => "Client",
                "server" => "Server",
                "both" => "Both",
                _ => "Either",
            };
            let bytes = comparison(&format!("{}{}", parts[1], parts[2]));
            format!("packet StreamSize(StreamSize {{ side: {side}, bytes: {bytes} }})")
        }
        "flowint" => {
            let value = || match number(parts[2]) {
                Some(number) => format!("Number({number})"),
                None => format!("Name({:?})", parts[2]),
            };
            let operation = match parts[1] {
                "isset" => "IsSet".to_owned(),
                "isnotset" | "notset" => "IsNotSet".to_owned(),
                "=" => format!("Set({})", value()),
                "+" => format!("Add({})", value()),
                "-" => format!("Subtract({})", value()),
                "<" => format!("Test(Less, {})", value()),
                "<=" => format!("Test(AtMost, {})", value()),
                ">" => format!("Test(Greater, {})", value()),
                ">=" => format!("Test(AtLeast, {})", value()),
                "==" => format!("Test(Equal, {})", value()),
                _ => format!("Test(NotEqual, {})", value()),
            };
            format!("flowint {} {operation}", parts[0])
        }
        "xbits" => {
            let expire = of("expire").map_or_else(|| DEFAULT_XBIT_SECONDS.to_string(), operand);
            format!("xbit {} {} {} {expire}", operation(parts[0]), parts[1], track())
        }
        "hostbits" => {
            let whose = if parts.get(2) == Some(&"dst") { "Destination" } else { "Source" };
            format!("xbit {} {} {whose} {DEFAULT_XBIT_SECONDS}", operation(parts[0]), parts[1])
        }
        "threshold" => {
            let seconds = || operand(of("seconds").unwrap());
            let kind = match of("type").unwrap() {
                "limit" => format!("Limit {{ seconds: {} }}", seconds()),
                "threshold" => format!("Each {{ seconds: {} }}", seconds()),
                "both" => format!("Once {{ seconds: {} }}", seconds()),
                _ => format!("Backoff {{ multiplier: {} }}", operand(of("multiplier").unwrap())),
            };
            format!("threshold {kind} {} {}", track(), operand(of("count").unwrap()))
        }
        "detection_filter" => {
            let unique = of("unique_on").map(|port| match port {
                "src_port" => UniqueOn::SourcePort,
                _ => UniqueOn::DestinationPort,
            });
            let [count, seconds] = ["count", "seconds"].map(|word| operand(of(word).unwrap()));
            format!("detection_filter {} {count} {seconds} {unique:?}", track())
        }
        "tag" => {
            let scope = match (parts[0], parts.get(3)) {
                ("session", _) => "Session",
                (_, Some(&"src")) => "Source",
                _ => "Destination",
            };
            let unit = match parts.get(2) {
                Some(&"bytes") => "Bytes",
                Some(&"seconds") => "Seconds",
                _ => "Packets",
            };
            let count = parts.get(1).map_or_else(|| DEFAULT_TAG_PACKETS.to_string(), |count| operand(count));
            format!("tag {scope} {count} {unit}")
        }
        _ => return None,
    })
}

/// Names of protocols above IP, by IANA's numbers.
const PROTOCOLS: [(&str, u8); 21] = [
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
];

/// Formats a test of flags like [`FlagTest`].
fn flags(text: &str, letters: &[(char, u8)]) -> String {
    let (asked, ignored) = text.split_once(',').unwrap_or((text, ""));
    let bits = |text: &str| {
        let plain = text.to_ascii_uppercase().replace('1', "C").replace('2', "E");
        let bit = |letter: char| letters.iter().find(|row| row.0 == letter).map_or(0, |row| row.1);
        plain.chars().map(bit).sum::<u8>()
    };
    let mode = match asked.chars().find(|sign| "+*!-=".contains(*sign)) {
        Some('+') => FlagTestMode::All,
        Some('*') => FlagTestMode::Any,
        Some('!' | '-') => FlagTestMode::NotAll,
        _ => FlagTestMode::Exactly,
    };
    format!("{:?}", FlagTest { mode, bits: bits(asked), ignored: bits(ignored) })
}
