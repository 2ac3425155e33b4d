//! `rivulet lab`.

use super::*;

#[test]
fn experiments_are_listed_with_their_claims() {
    let place = Place::new();
    let list = place.json("lab list --json");
    let ids: Vec<&str> = list.as_array().unwrap().iter().map(|e| e["id"].as_str().unwrap()).collect();
    let simulated = ["X1", "X2", "X3", "X4", "X5", "X6", "X10", "X11", "X12", "X13", "X14", "XC"];
    let measured = ["Y1", "Y2", "Y3", "Y4", "Y5", "Y6", "Y7", "Y8", "V1", "V2", "V3", "V4", "V5"];
    for id in simulated.iter().chain(&measured) {
        assert!(ids.contains(id), "{ids:?}");
    }
    assert!(list[0]["matches"][0]["text"].as_str().unwrap().contains("demand"));
    assert_eq!(place.stdout("lab list").lines().count(), 1 + ids.len());
    let said = place.refused(2, "lab run X99");
    assert!(said.contains("X99") && said.contains("X12"), "{said}");
    place.refused(2, "lab run X4 --quick --full");
}

#[test]
fn an_experiment_shows_figures_and_writes_files() {
    let place = Place::new();
    let shown = place.stdout("lab run x4 --smoke --out here");
    for part in ["published", "5.18", "W-A, T = 100us", "match: ", "beat: none", "P-paper"] {
        assert!(shown.contains(part), "{part} in: {shown}");
    }
    let json = place.json("lab run X4 --smoke --json --out there");
    let file: serde_json::Value = serde_json::from_slice(&place.read("there/X4.json")).unwrap();
    assert_eq!(file, json);
    for extension in ["csv", "json", "svg"] {
        let name = format!("X4.{extension}");
        assert_eq!(place.read(&format!("here/{name}")), place.read(&format!("there/{name}")), "{name}");
    }
    let page = String::from_utf8(place.read("here/X4.md")).unwrap();
    assert!(page.starts_with("# X4: ") && page.contains("rivulet lab run X4 --smoke"), "{page}");
    let index = String::from_utf8(place.read("here/README.md")).unwrap();
    assert!(index.contains("| [X4](X4.md) |"), "{index}");
    let scenario = json["rows"][0]["scenario"].as_str().unwrap();
    place.write("x4.toml", scenario);
    let report = place.json("sim x4.toml --seed 1 --json");
    let figure = &json["rows"][0]["figures"]["flowlets per flow"]["values"][0];
    assert_eq!(&report["assignment"]["flowlets_per_flow"], figure);
    let several = place.json("lab run X4 X14 --smoke --json --out there");
    assert_eq!(several.as_array().unwrap().len(), 2);
}

#[test]
fn baselines_are_tuned_on_separate_seeds() {
    let place = Place::new();
    let shown = place.stdout("lab tune x6 --smoke --out here");
    for part in ["seeds 1001 to 1001", "timeout only, least p99: ", "best of 15", "gap 2ms, lambda 1.0"] {
        assert!(shown.contains(part), "{part} in: {shown}");
    }
    let json = place.json("lab tune X6 --smoke --json --out there");
    let file: serde_json::Value = serde_json::from_slice(&place.read("there/X6-tuning.json")).unwrap();
    assert_eq!(file, json);
    assert_eq!(place.read("here/X6-tuning.csv"), place.read("there/X6-tuning.csv"));
    assert_eq!(json["rows"].as_array().unwrap().len(), 1 + 15);
    assert!(json["best"][0]["settings"]["dispatcher.gap"].is_string(), "{}", json["best"]);
    let said = place.refused(2, "lab tune X4");
    assert!(said.contains("X4") && said.contains("X6"), "{said}");
}

#[test]
fn captures_are_replayed_by_experiments_that_use_them() {
    let place = Place::new();
    place.stdout("traffic --packets 4000 --flows 16 --write some.pcap");
    let json = place.json("lab run Y5 --smoke --json --captures some.pcap");
    let rows: Vec<&str> =
        json["rows"].as_array().unwrap().iter().map(|r| r["row"].as_str().unwrap()).collect();
    assert!(rows.contains(&"consolidated, chain 1, some"), "{rows:?}");
    let output = place.run("lab run Y5 --smoke --captures none.pcap");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("FAILED: plain, chain 1") && said.contains("none.pcap"), "{said}");
}
