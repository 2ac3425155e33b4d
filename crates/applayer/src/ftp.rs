//! FTP commands that make a server connect to a third party (RFC 2577 3).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Returns the address that a client's `PORT` (RFC 959 4.1.2) or `EPRT` (RFC 2428 2) command names,
/// if it is not the client's own.
///
/// The line may include its line ending. Returns `None` for other commands and for unreadable
/// addresses.
pub fn bounce(line: &[u8], client: IpAddr) -> Option<SocketAddr> {
    let line = std::str::from_utf8(line.trim_ascii()).ok()?;
    let (command, argument) = line.split_once(|c: char| c.is_ascii_whitespace())?;
    let argument = argument.trim_ascii();
    let target = match command {
        _ if command.eq_ignore_ascii_case("PORT") => port(argument)?,
        _ if command.eq_ignore_ascii_case("EPRT") => extended_port(argument)?,
        _ => return None,
    };
    (target.ip().to_canonical() != client.to_canonical()).then_some(target)
}

/// Parses `h1,h2,h3,h4,p1,p2`.
fn port(argument: &str) -> Option<SocketAddr> {
    let mut numbers = [0; 6];
    let mut words = argument.split(',');
    for number in &mut numbers {
        *number = words.next()?.trim_ascii().parse::<u8>().ok()?;
    }
    let [a, b, c, d, high, low] = numbers;
    let target = SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([high, low]));
    words.next().is_none().then_some(target)
}

/// Parses `|1|192.0.2.1|6275|` or `|2|2001:db8::1|6275|`, with any delimiter.
fn extended_port(argument: &str) -> Option<SocketAddr> {
    let delimiter = argument.chars().next()?;
    let mut words = argument[delimiter.len_utf8()..].split(delimiter);
    let family = words.next()?;
    let address = words.next()?;
    let address: IpAddr = match family {
        "1" => IpAddr::V4(address.parse().ok()?),
        "2" => IpAddr::V6(address.parse().ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(address, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_third_party_addresses_are_returned() {
        let rows = [
            ("PORT 192,0,2,1,24,131\r\n", "192.0.2.1", None),
            ("PORT 192,0,2,9,24,131\r\n", "192.0.2.1", Some("192.0.2.9:6275")),
            ("port  192,0,2,9,0,22", "192.0.2.1", Some("192.0.2.9:22")),
            ("PORT 192,0,2,9,24", "192.0.2.1", None),
            ("PORT 192,0,2,9,24,131,1", "192.0.2.1", None),
            ("PORT 192,0,2,256,24,131", "192.0.2.1", None),
            ("PORT 192,0,2,1,24,131", "::ffff:192.0.2.1", None),
            ("EPRT |1|192.0.2.9|6275|\r\n", "192.0.2.1", Some("192.0.2.9:6275")),
            ("EPRT |2|2001:db8::9|6275|", "2001:db8::1", Some("[2001:db8::9]:6275")),
            ("EPRT !2!2001:db8::1!6275!", "2001:db8::1", None),
            ("EPRT |3|x|6275|", "2001:db8::1", None),
            ("EPRT", "2001:db8::1", None),
            ("STOR 192,0,2,9,24,131", "192.0.2.1", None),
        ];
        for (line, client, expected) in rows {
            let found = bounce(line.as_bytes(), client.parse().unwrap());
            assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{line}");
        }
        assert_eq!(bounce(b"PORT \xff", "192.0.2.1".parse().unwrap()), None);
    }
}
