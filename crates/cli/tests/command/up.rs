//! `rivulet up` without interfaces; the tests in `live` have interfaces.

use super::*;

#[test]
fn invalid_dpdk_devices_are_refused() {
    let place = Place::new();
    place.write("wire.rvl", WIRE);
    for device in ["", "03:00", "03:00.9", ",iface=eth0"] {
        let said = place.refused(2, &format!("up wire.rvl --port inside=dpdk:{device} --port outside=eth0"));
        assert!(said.contains("0000:03:00.0") && said.contains("net_af_packet0,iface=eth0"), "{said}");
    }
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn a_build_without_dpdk_names_the_feature() {
    let place = Place::new();
    place.write("wire.rvl", WIRE);
    let said = place.refused(1, "up wire.rvl --port inside=dpdk:net_null0 --port outside=dpdk:03:00.0");
    assert!(said.contains("cannot open dpdk:net_null0"), "{said}");
    for part in ["without DPDK", "cargo build --release --features dpdk", "libdpdk-dev"] {
        assert!(said.contains(part), "{said}");
    }
    let findings = place.run("doctor -o json").stdout;
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&findings).unwrap();
    let dpdk = findings.iter().find(|finding| finding["check"] == "driver dpdk").unwrap();
    assert_eq!(dpdk["state"], "ok");
    assert!(dpdk["found"].as_str().unwrap().contains("not in this build"), "{dpdk}");
}
