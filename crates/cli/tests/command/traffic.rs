//! `rivulet traffic`.

use super::*;

#[test]
fn the_same_options_give_the_same_file() {
    let place = Place::new();
    for name in ["a", "b"] {
        place.stdout(&format!("traffic --write {name}.pcapng --packets 2k --preset attack --seed 3 -q"));
    }
    place.stdout("traffic --write c.pcapng --packets 2k --preset attack --seed 4 -q");
    assert!(place.read("a.pcapng") == place.read("b.pcapng"));
    assert!(place.read("a.pcapng") != place.read("c.pcapng"));
}

#[test]
fn every_preset_and_format_is_written() {
    let place = Place::new();
    place.write("wire.rvl", WIRE);
    let presets = place.json("traffic --list-presets -o json");
    for preset in presets.as_array().unwrap() {
        let name = preset["name"].as_str().unwrap();
        for file in ["x.pcap", "x.pcapng", "x.pcapng.gz"] {
            let written =
                place.json(&format!("traffic --write {file} --preset {name} --packets 300 -o json"));
            assert_eq!(written["packets"], 300);
            let report = place.json(&format!("run wire.rvl --read {file} -o json"));
            assert_eq!(
                (&report["packets_in"], &report["bytes_in"]),
                (&written["packets"], &written["bytes"])
            );
        }
    }
    let text = place.stdout("traffic --list-presets");
    assert_eq!(text.lines().count(), 1 + presets.as_array().unwrap().len());
}

#[test]
fn replies_are_on_an_interface_of_their_own() {
    let place = Place::new();
    place.write("wire.rvl", WIRE);
    let written = place.json("traffic --write x.pcapng --packets 1000 -o json");
    let report = place.json("run wire.rvl --read x.pcapng -o json");
    assert!(written["from_servers"].as_u64().unwrap() > 100);
    assert_eq!(report["ports"]["outside"]["packets_in"], written["from_servers"]);
    let silent = place.json("traffic --write x.pcapng --packets 1000 --no-replies -o json");
    assert_eq!(silent["from_servers"], 0);
}

#[test]
fn each_option_has_its_effect() {
    let place = Place::new();
    let written = |options: &str| place.json(&format!("traffic --write x.pcapng -o json {options}"));
    let even = written("--preset smallest --packets 1000 --size 128 --rate 1Mpps");
    assert_eq!(even["bytes"], 1000 * 124);
    assert_eq!(even["span_ns"], 999_000);
    let long = written("--duration 50ms --rate 10kpps --pacing constant");
    assert_eq!(long["packets"], 500);
    assert!(place.refused(1, "traffic --write x.pcapng --attack scan=2").contains("attacks"));
    assert!(place.refused(2, "traffic --write x.pcapng --attack flood=0.1").contains("syn-flood"));
    assert!(place.refused(2, "traffic --write x.pcapng --rate 10s").contains("200k"));
    assert!(place.refused(2, "traffic").contains("--write"));
    assert!(place.refused(1, "traffic --write no/such/x.pcapng").contains("no/such/x.pcapng"));
}
