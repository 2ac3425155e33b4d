//! Tests of the configuration. `tests/behaviour/monitor*.rs` test the counts on whole paths.

use super::*;

fn make(json: &str) -> Result<Monitor, String> {
    let config: Config = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Monitor::new(config, &mut Setup::new(1, 1000)).map_err(|error| error.to_string())
}

#[test]
fn configurations_are_read_or_refused() {
    let monitor = make("{}").unwrap();
    assert_eq!(
        (monitor.active_timeout_ns, monitor.sample, monitor.reports_end),
        (1_800_000_000_000, 1, true)
    );
    let monitor = make(r#"{"active_timeout": "90s", "sample": 100, "report": ["active"]}"#).unwrap();
    assert_eq!(
        (monitor.active_timeout_ns, monitor.sample, monitor.reports_end),
        (90_000_000_000, 100, false)
    );
    assert_eq!(make(r#"{"report": ["end"]}"#).unwrap().active_timeout_ns, u64::MAX);
    for (wrong, why) in [
        (r#"{"active_timeout": 0}"#, "`report: [end]`"),
        (r#"{"active_timeout": "10"}"#, "a duration"),
        (r#"{"sample": 0}"#, "`report: []`"),
        (r#"{"sample": -1}"#, "-1"),
        (r#"{"report": ["begin"]}"#, "unknown variant `begin`"),
        (r#"{"colour": 1}"#, "unknown field `colour`"),
    ] {
        let error = make(wrong).err().unwrap_or_default();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}
