//! Addresses of nodes, IPv4 or IPv6, by name or number, and sockets at them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use values::HostPort;

/// Limit on the addresses of a name that one connection attempt tries. The next attempt tries
/// others.
pub const ADDRESSES_MAX: usize = 8;

/// Limit on connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 128;

/// Addresses of a link's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Address of this host that the other end uses; `None` lets the system choose.
    pub local: Option<IpAddr>,
    /// The other end.
    pub remote: SocketAddr,
}

impl Endpoints {
    /// Creates endpoints in [canonical](canonical) form.
    pub(crate) fn new(local: Option<IpAddr>, remote: SocketAddr) -> Endpoints {
        Endpoints { local: local.map(|local| local.to_canonical()), remote: canonical(remote) }
    }
}

/// Returns the canonical form of an address, for comparison and display: an IPv4-mapped IPv6
/// address becomes an IPv4 address (RFC 4291 2.5.5.2).
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Resolves a host to at least one address, in the order of preference (RFC 6724). Blocks as long
/// as the system's resolver does.
///
/// # Errors
/// If the host has no address.
pub fn resolve(at: &HostPort) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in (at.host().as_str(), at.port()).to_socket_addrs()?.map(canonical) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    match addresses.is_empty() {
        true => Err(io::Error::other("the name has no address")),
        false => Ok(addresses),
    }
}

/// Listens at an address; for a name, at the first of its addresses that this host has. `[::]`
/// accepts IPv4, too, and only IPv4 where the kernel has no IPv6.
///
/// # Errors
/// If the address cannot be bound.
pub fn listen_at(at: &HostPort) -> io::Result<TcpListener> {
    let mut fault = None;
    for address in resolve(at)? {
        let socket = match address.ip() {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => listen_at_all(address.port()),
            _ => TcpListener::bind(address),
        };
        match socket {
            Ok(socket) => return Ok(socket),
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    Err(fault.unwrap_or_else(|| io::Error::other("the name has no address")))
}

fn listen_at_all(port: u16) -> io::Result<TcpListener> {
    match bound_to_all(SocketType::STREAM, port)? {
        Some(socket) => {
            listen(&socket, BACKLOG)?;
            Ok(socket.into())
        }
        None => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
    }
}

/// Returns a socket bound to all IPv6 and IPv4 addresses; `None` if the kernel has no IPv6.
pub(crate) fn bound_to_all(kind: SocketType, port: u16) -> io::Result<Option<OwnedFd>> {
    let socket = match socket_with(AddressFamily::INET6, kind, SocketFlags::CLOEXEC, None) {
        Err(Errno::AFNOSUPPORT) => return Ok(None),
        socket => socket?,
    };
    sockopt::set_ipv6_v6only(&socket, false)?;
    if kind == SocketType::STREAM {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    Ok(Some(socket))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test fails by panicking.

    use std::net::TcpStream;

    use super::*;

    #[test]
    fn addresses_of_ipv4_are_shown_as_such() {
        for (address, shown) in [
            ("[::ffff:10.0.0.1]:1", "10.0.0.1:1"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("[2001:db8::1]:1", "[2001:db8::1]:1"),
            ("[fe80::1%3]:1", "[fe80::1%3]:1"),
        ] {
            assert_eq!(canonical(address.parse().unwrap()).to_string(), shown);
        }
    }

    #[test]
    fn all_addresses_are_those_of_both_families() {
        let listener = listen_at(&"[::]:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "::1", "localhost"] {
            TcpStream::connect((host, port)).unwrap();
        }
    }

    #[test]
    fn link_local_addresses_keep_their_interface() {
        let at: HostPort = "[fe80::1%lo]:7400".parse().unwrap();
        let SocketAddr::V6(address) = resolve(&at).unwrap()[0] else { unreachable!() };
        assert_eq!((address.scope_id(), address.port()), (1, 7400));
        assert!(listen_at(&"[fe80::1%no-such]:7400".parse().unwrap()).is_err());
    }
}
