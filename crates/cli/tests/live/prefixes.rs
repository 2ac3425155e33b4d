//! A prefix of a NAT on a link with neighbours that have other addresses of it.

use crate::net::{Host, Io, Network, wait_until};

/// Adds an address after the kernel's duplicate address detection. Returns whether it is free.
fn takes(host: &Host, address: &str) -> bool {
    host.ip(&format!("addr add {address}/64 dev eth0"));
    let shown = || host.run(&format!("ip -6 addr show dev eth0 to {address}"));
    wait_until("the check has ended", || !shown().contains("tentative") || shown().contains("dadfailed"));
    !shown().contains("dadfailed")
}

#[test]
fn neighbours_with_the_outside_prefix_keep_their_addresses() {
    let Some(network) = Network::unconnected(Io::PacketSocket) else { return };
    network.connect_with("inside", &["fd07::1/64"]);
    network.connect_with("outside", &["2001:db8:2::fe/64"]);
    network.inside.ip("-6 route add default via fd07::254");
    let rivulet = network.up(
        "Port<0> inside { address: \"fd07::254/64\" };
         Port<1> outside { address: \"2001:db8:2::1/64\", gateway: \"2001:db8:2::fe\" };
         NAT translate { nptv6: [{ inside: fd07::/64, outside: 2001:db8:2::/64 }] };
         pipelet { inside <-> translate <-> outside; }",
        "",
    );
    // No inside host uses the address: it is free for a neighbour.
    assert!(takes(&network.outside, "2001:db8:2::77"));
    for neighbour in ["2001:db8:2::fe", "2001:db8:2::77"] {
        network.inside.ping(&format!("-c 3 -i 0.05 -W 2 {neighbour}"));
    }
    // The host's own outside address is known there by now, and is defended.
    let known = network.outside.run("ip -6 neigh show dev eth0");
    let is_hosts = |address: &&str| address.starts_with("2001:db8:2:") && *address != "2001:db8:2::1";
    let host = known.lines().filter_map(|line| line.split_whitespace().next()).find(is_hosts);
    let host = host.unwrap_or_else(|| panic!("{known}")).to_owned();
    std::thread::sleep(std::time::Duration::from_millis(1_500)); // Its probe has ended.
    network.outside.ip("neigh flush dev eth0");
    assert!(!takes(&network.outside, &host), "{host} is the host's");
    network.outside.ip(&format!("addr del {host}/64 dev eth0"));
    network.outside.run(&format!("ping -c 3 -i 0.05 -W 2 {host}"));
    let report = rivulet.end();
    assert_eq!(report["interfaces"]["outside"]["host"]["in_use"], 1, "{report}");
    assert_eq!(report["interfaces"]["outside"]["host"]["duplicate"], 0, "{report}");
}
