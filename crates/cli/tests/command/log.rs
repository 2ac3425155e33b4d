//! The log on standard error.

use serde_json::Value;

use super::*;

const POLICED: &str = "Port<0> inside;\nPort<1> outside;\nPolicer p { rate: 1Mbps };\n\
                       pipelet { inside <-> p <-> outside; }\n";

/// A run on units that start and stop, with an executed and a refused command.
pub(super) const RUN: &str = "run p.rvl --read in.pcapng -q --control script --mode flowlet --units-max 4 \
                   --unit-capacity 2Mbps --gap 5ms";

pub(super) fn place() -> Place {
    let place = Place::new();
    place.write("p.rvl", POLICED);
    place.write("script", "1ms p rate 2Mbps\n");
    place.stdout("traffic --write in.pcapng --packets 3000 --seed 7");
    place
}

/// Runs with this value of RIVULET_LOG, and returns standard error.
fn logged(place: &Place, line: &str, filter: Option<&str>) -> String {
    let mut command = place.command(line);
    command.env_remove("RIVULET_LOG").env_remove("JOURNAL_STREAM");
    if let Some(filter) = filter {
        command.env("RIVULET_LOG", filter);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {}", stderr(&output));
    stderr(&output)
}

#[test]
fn text_has_messages_and_the_events_that_are_asked_for() {
    let place = place();
    let quiet = logged(&place, RUN, None);
    assert_eq!(quiet, "rivulet: script:1: executed: p rate 2Mbps\n".replace("p rate", "1ms p rate"));
    let text = logged(&place, RUN, Some("info,rivulet::flow=debug"));
    for (level, target, message) in [
        ("INFO", "rivulet::policy", "policy applied policy=p.rvl functions=1 ports=2"),
        ("INFO", "rivulet::unit", "unit started unit="),
        ("DEBUG", "rivulet::flow", "handover asked flow=flow "),
    ] {
        let has = |line: &str| line.contains(&format!("{level} {target}: {message}"));
        assert!(text.lines().any(has), "{message}: {text}");
    }
    let units = logged(&place, RUN, Some("rivulet::unit=info"));
    assert!(units.contains("unit started") && !units.contains("policy applied"), "{units}");
}

#[test]
fn json_is_an_object_per_line_with_the_fields_of_the_event() {
    let place = place();
    let text = logged(&place, &format!("--log-format json {RUN}"), None);
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named = |message: &str| events.iter().filter(|event| event["message"] == message).collect::<Vec<_>>();
    let [applied] = named("policy applied")[..] else { panic!("{text}") };
    assert_eq!((&applied["policy"], &applied["functions"]), (&"p.rvl".into(), &1.into()));
    assert_eq!((&applied["level"], &applied["target"]), (&"INFO".into(), &"rivulet::policy".into()));
    let [executed] = named("command executed")[..] else { panic!("{text}") };
    assert_eq!((&executed["place"], &executed["command"]), (&"script:1".into(), &"1ms p rate 2Mbps".into()));
    let started = named("unit started");
    assert!(!started.is_empty() && started.iter().all(|event| event["unit"].is_u64()), "{text}");
    assert!(named("handover asked").is_empty(), "below the default level: {text}");
}

#[test]
fn errors_are_events_of_a_structured_log() {
    let place = Place::new();
    let error = place.refused(1, "--log-format json run none.rvl --read none.pcap");
    let event: Value = serde_json::from_str(error.trim()).unwrap();
    assert_eq!(event["level"], "ERROR");
    assert!(event["message"].as_str().unwrap().contains("none.rvl"), "{error}");
    let mut wrong = place.command("nf list");
    let wrong = wrong.env("RIVULET_LOG", "rivulet=loud").output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("RIVULET_LOG: `rivulet=loud` is not a filter"), "{}", stderr(&wrong));
}

/// Standard error of a test is a pipe, so a variable that an outer service left changes nothing.
#[test]
fn a_journal_stream_of_another_process_is_ignored() {
    let place = place();
    let mut command = place.command(RUN);
    let output = command.env("JOURNAL_STREAM", "8:1").env_remove("RIVULET_LOG").output().unwrap();
    assert!(stderr(&output).starts_with("rivulet: script:1: executed"), "{}", stderr(&output));
}
