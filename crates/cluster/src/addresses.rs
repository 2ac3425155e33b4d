//! Addresses of nodes, and sockets at them: of IPv4 and of IPv6, by names or not.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use values::HostPort;

/// Addresses of a name that an attempt to connect tries, at most. The next attempt tries others.
pub const ADDRESSES_MAX: usize = 8;

/// Connections that the kernel holds until they are taken.
const BACKLOG: i32 = 128;

/// The ends of a link's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The address of this host that the other end uses; none: the system chooses.
    pub local: Option<IpAddr>,
    /// The other end.
    pub remote: SocketAddr,
}

impl Endpoints {
    /// Creates those with these addresses, in their [one form](canonical).
    pub(crate) fn new(local: Option<IpAddr>, remote: SocketAddr) -> Endpoints {
        Endpoints { local: local.map(|local| local.to_canonical()), remote: canonical(remote) }
    }
}

/// Returns an address in the form in which addresses are compared and shown: one of IPv4 as such,
/// also if a socket for both has it in the form of IPv6 (RFC 4291 2.5.5.2).
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Returns the addresses of a host, in the order in which they must be tried (RFC 6724): at least
/// one. It may take as long as the system's resolver.
///
/// # Errors
/// If it has none.
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

/// Listens at an address; for a name, at the first of its addresses that this host has. `[::]` is
/// for IPv4, too, and for IPv4 alone where the kernel has no IPv6.
///
/// # Errors
/// If it cannot be used.
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

/// Returns a socket for all addresses, of IPv6 and of IPv4; none if the kernel has no IPv6.
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
    #![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

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
