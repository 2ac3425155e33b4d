//! `ftpbounce`: an FTP client that sends the server to a third party (RFC 2577).

use std::net::{IpAddr, Ipv4Addr};

/// Returns whether a `PORT` command that ends within the last `news` bytes names another host than
/// the client.
pub fn bounces(commands: &[u8], news: usize, client: IpAddr) -> bool {
    let (before, mut begin) = (commands.len().saturating_sub(news), 0);
    memchr::memchr_iter(b'\n', commands).any(|end| {
        let line = &commands[std::mem::replace(&mut begin, end + 1)..end];
        end >= before && host(line).is_some_and(|host| client != host)
    })
}

/// Returns the host that a `PORT` command names.
fn host(line: &[u8]) -> Option<Ipv4Addr> {
    let (command, argument) = line.split_at_checked(4)?;
    if !command.eq_ignore_ascii_case(b"PORT") || !argument.first()?.is_ascii_whitespace() {
        return None;
    }
    let mut parts = argument.split(|byte| *byte == b',');
    let mut octets = [0; 4];
    for octet in &mut octets {
        *octet = std::str::from_utf8(parts.next()?.trim_ascii()).ok()?.parse().ok()?;
    }
    // A port follows.
    parts.next().map(|_| Ipv4Addr::from(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_command_to_another_host_bounces() {
        let client = IpAddr::from([10, 0, 0, 1]);
        for (commands, news, expected) in [
            ("PORT 10,0,0,2,4,1\r\n", 100, true),
            ("PORT 10,0,0,1,4,1\r\n", 100, false),
            ("port 10,0,0,2,4,1\n", 100, true),
            ("USER a\r\nPORT 10,0,0,2,4,1\r\n", 20, true),
            ("PORT 10,0,0,1,4,1\r\nPORT 10,0,0,2,4,1\r\n", 40, true),
            // It ended before.
            ("PORT 10,0,0,2,4,1\r\nLIST\r\n", 6, false),
            // It has not ended.
            ("PORT 10,0,0,2,4,1", 17, false),
            ("PORT 10,0,0,2\r\n", 15, false),
            ("PORT 10,0,0,256,4,1\r\n", 21, false),
            ("PORTS 10,0,0,2,4,1\r\n", 20, false),
            ("XPORT 10,0,0,2,4,1\r\n", 20, false),
            ("PORT\r\n", 6, false),
        ] {
            assert_eq!(bounces(commands.as_bytes(), news, client), expected, "{commands:?}");
        }
        assert!(bounces(b"PORT 10,0,0,1,4,1\r\n", 19, IpAddr::from([0u16; 8])));
    }
}
