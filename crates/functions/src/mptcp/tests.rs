//! Tests of configurations.

use nf::NetworkFunction;

use super::*;

fn make(config: &str) -> Result<Mptcp, String> {
    let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
    Mptcp::new(config, &mut Setup::new(0, 16)).map_err(|error| error.message)
}

#[test]
fn duplicates_are_marked_by_default() {
    assert_eq!(make("{}").unwrap().duplicates, DuplicateAction::Mark);
    assert_eq!(make(r#"{"duplicates": "drop"}"#).unwrap().duplicates, DuplicateAction::Drop);
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    for (wrong, why) in [
        (r#"{"duplicates": "strip"}"#, "unknown variant `strip`"),
        (r#"{"connections": 0}"#, "from 1 to 1048576"),
        (r#"{"connections": 1048577}"#, "from 1 to 1048576"),
        (r#"{"colour": 1}"#, "unknown field `colour`"),
    ] {
        let error = make(wrong).err().unwrap_or_default();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}
