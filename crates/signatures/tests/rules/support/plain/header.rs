//! The header: action, protocol, and the members of its address and port groups.

use std::net::IpAddr;

use signatures::*;

use super::text::number;

/// Checks that the header equals the text, with this `$HOME_NET`.
pub fn check(header: &str, home: &str, rule: &Rule) {
    let mut plain = header.to_owned();
    while let Some(at) = plain.find("! ") {
        plain.remove(at + 1);
    }
    let (mut words, mut depth) = (vec![String::new()], 0);
    for sign in plain.chars() {
        depth += i32::from(sign == '[') - i32::from(sign == ']');
        match (sign.is_ascii_whitespace(), depth) {
            (true, 0) => words.push(String::new()),
            (true, _) => {}
            (false, _) => words.last_mut().unwrap().push(sign),
        }
    }
    words.retain(|word| !word.is_empty());
    let [action, protocol, source, source_ports, arrow, destination, destination_ports] = &words[..] else {
        panic!("{header}")
    };
    let expected = match &action[..] {
        "alert" => RuleAction::Alert,
        "pass" => RuleAction::Pass,
        "drop" => RuleAction::Drop,
        "reject" | "rejectsrc" => RuleAction::Reject(RejectTarget::Source),
        "rejectdst" => RuleAction::Reject(RejectTarget::Destination),
        _ => RuleAction::Reject(RejectTarget::Both),
    };
    assert_eq!(rule.action, expected, "{header}");
    let protocol = protocol.to_ascii_lowercase();
    let name = match &protocol[..] {
        "any" => "ip",
        "ip4" => "ipv4",
        "ip6" => "ipv6",
        "ssl" => "tls",
        "ikev2" => "ike",
        name => name,
    };
    assert_eq!(rule.protocol.to_string(), name, "{header}");
    assert_eq!(rule.direction == HeaderDirection::Both, arrow == "<>", "{header}");
    for (group, addresses) in [(source, &rule.source), (destination, &rule.destination)] {
        let mut samples = vec![0u128, u128::from(u32::MAX)];
        each_element(group, home, &mut |element| {
            samples.extend(address_ends(element).into_iter().flat_map(|n| [n.1.0, n.1.1]))
        });
        for sample in samples.into_iter().flat_map(|n| [n.wrapping_sub(1), n, n.wrapping_add(1)]) {
            for address in
                [u32::try_from(sample).ok().map(|n| IpAddr::V4(n.into())), Some(IpAddr::V6(sample.into()))]
            {
                let Some(address) = address else { continue };
                let holds = in_group(group, home, &|element| {
                    let (six, (low, high)) = address_ends(element).unwrap();
                    six == address.is_ipv6() && (low..=high).contains(&sample)
                });
                assert_eq!(addresses.contains(address), holds, "{address} in {group}");
            }
        }
    }
    for (group, ports) in [(source_ports, &rule.source_ports), (destination_ports, &rule.destination_ports)] {
        let mut samples = vec![0, u16::MAX];
        each_element(group, home, &mut |element| {
            samples.extend([port_ends(element).0, port_ends(element).1])
        });
        for port in samples.into_iter().flat_map(|n| [n.wrapping_sub(1), n, n.wrapping_add(1)]) {
            let holds = in_group(group, home, &|element| {
                (port_ends(element).0..=port_ends(element).1).contains(&port)
            });
            assert_eq!(ports.contains(port), holds, "{port} in {group}");
        }
    }
}

/// Returns the value of a variable, as in suricata.yaml, `vars`, except for the home network.
fn variable<'a>(name: &str, home: &'a str) -> &'a str {
    match name {
        "HOME_NET" => home,
        "EXTERNAL_NET" => "!$HOME_NET",
        "AIM_SERVERS" => "$EXTERNAL_NET",
        "HTTP_PORTS" => "80",
        "SHELLCODE_PORTS" => "!80",
        "ORACLE_PORTS" => "1521",
        "SSH_PORTS" => "22",
        "DNP3_PORTS" => "20000",
        "MODBUS_PORTS" => "502",
        "FILE_DATA_PORTS" => "[$HTTP_PORTS,110,143]",
        "FTP_PORTS" => "21",
        "GENEVE_PORTS" => "6081",
        "VXLAN_PORTS" => "4789",
        "TEREDO_PORTS" => "3544",
        "SIP_PORTS" => "[5060,5061]",
        _ => "$HOME_NET",
    }
}

/// Returns whether a group has a member, by its elements.
fn in_group(group: &str, home: &str, has: &dyn Fn(&str) -> bool) -> bool {
    let group = group.trim();
    if let Some(rest) = group.strip_prefix('!') {
        return !in_group(rest, home, has);
    }
    if let Some(name) = group.strip_prefix('$') {
        return in_group(variable(name, home), home, has);
    }
    let Some(list) = group.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return group.eq_ignore_ascii_case("any") || has(group);
    };
    let elements = elements(list);
    let (without, with): (Vec<_>, Vec<_>) =
        elements.into_iter().partition(|element| element.trim().starts_with('!'));
    (with.is_empty() || with.iter().any(|element| in_group(element, home, has)))
        && without.iter().all(|element| in_group(element, home, has))
}

fn each_element(group: &str, home: &str, see: &mut dyn FnMut(&str)) {
    let group = group.trim().trim_start_matches(['!', ' ']);
    match (group.strip_prefix('$'), group.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))) {
        (Some(name), _) => each_element(variable(name, home), home, see),
        (_, Some(list)) => elements(list).iter().for_each(|element| each_element(element, home, see)),
        _ if group.eq_ignore_ascii_case("any") => {}
        _ => see(group),
    }
}

fn elements(list: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, sign) in list.char_indices() {
        depth += i32::from(sign == '[') - i32::from(sign == ']');
        if sign == ',' && depth == 0 {
            parts.push(&list[from..at]);
            from = at + 1;
        }
    }
    parts.push(&list[from..]);
    parts
}

/// Returns whether an element is IPv6, and its first and last address.
fn address_ends(element: &str) -> Option<(bool, (u128, u128))> {
    let number = |text: &str| match text.trim().parse().unwrap() {
        IpAddr::V4(four) => (false, u128::from(u32::from(four))),
        IpAddr::V6(six) => (true, u128::from(six)),
    };
    let element = element.trim();
    if let Some((network, length)) = element.split_once('/') {
        let (six, network) = number(network);
        let bits: u32 = if six { 128 } else { 32 };
        let length: u32 = length.trim().parse().ok()?;
        let host = if bits == length { 0 } else { u128::MAX >> (128 - (bits - length)) };
        return Some((six, (network & !host, network | host)));
    }
    let (low, high) = element.split_once('-').unwrap_or((element, element));
    let ((six, low), (_, high)) = (number(low), number(high));
    Some((six, (low, high)))
}

fn port_ends(element: &str) -> (u16, u16) {
    let (low, high) = element.split_once(':').unwrap_or((element, element));
    let number = |text: &str, open: u16| match text.trim() {
        "" => open,
        text => u16::try_from(number(text).unwrap()).unwrap(),
    };
    (number(low, 0), number(high, u16::MAX))
}
