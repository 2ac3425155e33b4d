//! `rivulet demo`.

use super::*;

#[test]
fn every_packet_of_a_demonstration_is_accounted_for() {
    let place = Place::new();
    let line = "demo --seconds 1 --rate 30kpps --flows 500 -o json";
    let mut outcome = place.json(line);
    let report = &outcome["report"];
    assert_adds_up(report);
    assert!(report["packets_in"].as_u64().unwrap() > 15_000, "clients' packets and replies: {report}");
    for reason in ["firewall-denied", "nat-untranslated", "tcp-truncated"] {
        assert!(report["drops"][reason].as_u64().unwrap() > 0, "{reason}: {report}");
    }
    let second = &outcome["each_second"][0];
    for name in ["packets_in", "packets_out"] {
        assert_eq!(second[name], report[name]);
    }
    // Halfway a server goes down, and its flows continue on the others.
    assert!(outcome["flows_moved"].as_u64().unwrap() > 0);
    let servers = outcome["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 4);
    for server in servers {
        assert!(server["packets_before"].as_u64().unwrap() > 0, "{server}");
        // Later fragments still go to the server that got the first one.
        let after = server["packets_after"].as_u64().unwrap();
        assert!(if server["went_down"] == true { after < 10 } else { after > 500 }, "{server}");
    }
    // Units follow the load.
    let units = &report["units"];
    assert!(units["units_started"].as_u64().unwrap() > 0, "{units}");
    assert!(units["tracking"]["units_max"].as_f64().unwrap() > 1.5, "{units}");
    // The same seed gives the same packets on any machine.
    let mut again = place.json(line);
    for outcome in [&mut outcome, &mut again] {
        outcome["report"].as_object_mut().unwrap().remove("timing").unwrap();
    }
    assert_eq!(outcome, again);
}

#[test]
fn without_a_terminal_a_line_per_second_and_a_summary_are_printed() {
    let place = Place::new();
    let text = place.stdout("demo --seconds 1 --rate 5kpps --write out.pcapng");
    assert!(text.contains("\n  1 s ") && text.contains("web2 went down; its flows"), "{text}");
    assert!(text.contains("every packet is accounted for") && text.contains("web2 went down"), "{text}");
    assert!(!text.contains('\u{1b}'), "no escape sequences without a terminal");
    place.write("wire.rvl", WIRE);
    let report = place.json("run wire.rvl --read out.pcapng -o json");
    assert!(report["ports"]["inside"]["packets_in"].as_u64().unwrap() > 0);
    assert!(report["ports"]["outside"]["packets_in"].as_u64().unwrap() > 0);
}
