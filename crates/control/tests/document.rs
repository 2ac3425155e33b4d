//! The committed OpenAPI document is that of the code.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

use std::path::Path;

#[test]
fn the_document_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api/v1.json");
    let document = control::document();
    if std::env::var_os("RIVULET_BLESS").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == document,
        "docs/api/v1.json is not that of the code: RIVULET_BLESS=1 cargo test -p control --test document"
    );
}

#[test]
fn every_operation_is_described_and_has_its_problems() {
    let document: serde_json::Value = serde_json::from_str(&control::document()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    let mut names = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        assert!(path.starts_with("/v1/"), "{path}");
        for (method, operation) in operations.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{method} {path}");
            let problem = &operation["responses"]["default"]["content"]["application/problem+json"];
            assert_eq!(problem["schema"]["$ref"], "#/components/schemas/Problem", "{method} {path}");
            names.push(name);
        }
    }
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!((names.len(), count > 15), (count, true));
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(!name.contains("Resource") || name.starts_with("Page_"), "{name} is a name of the code");
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            assert!(
                property["description"].is_string()
                    || property["$ref"].is_string()
                    || property["oneOf"].is_array(),
                "{name}.{field} has no description"
            );
        }
    }
}

/// Calls `visit` with each schema of an integer, and its place.
fn each_integer(value: &serde_json::Value, place: &str, visit: &mut impl FnMut(&str, &serde_json::Value)) {
    let has_type = |kind: &serde_json::Value| kind == "integer" || kind[0] == "integer";
    match value {
        serde_json::Value::Object(fields) => {
            if fields.get("type").is_some_and(has_type) {
                visit(place, value);
            }
            fields.iter().for_each(|(name, field)| each_integer(field, &format!("{place}/{name}"), visit));
        }
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| each_integer(item, place, visit));
        }
        _ => {}
    }
}

#[test]
fn integers_have_the_range_of_the_code() {
    let document: serde_json::Value = serde_json::from_str(&control::document()).unwrap();
    let mut count = 0;
    each_integer(&document, "", &mut |place, schema| {
        count += 1;
        let max = match schema["format"].as_str() {
            Some("uint8") => u64::from(u8::MAX),
            Some("uint16") => u64::from(u16::MAX),
            Some("uint32") => u64::from(u32::MAX),
            Some("uint64") => u64::MAX,
            other => panic!("{place}: {other:?}"),
        };
        let is_within = |bound: &serde_json::Value| bound.as_u64().is_some_and(|bound| bound <= max);
        assert!(is_within(&schema["minimum"]) && is_within(&schema["maximum"]), "{place}: {schema}");
    });
    assert!(count > 50, "{count}");
}
