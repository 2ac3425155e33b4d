//! The tables of `docs/protocol.md` and the lists of the Wireshark dissector, written from
//! the declarations of frames and messages. `RIVULET_BLESS=1` rewrites them.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cluster::wire::{FRAMES, FrameError, frames_table, read_frame};
use protocol::message::{FromDispatcher, FromPeer, FromUnit, MessageInfo, losses_table, messages_table};
use protocol::wire::WireForm;
use telemetry::replace_tables;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn compare(path: &Path, found: &str, expected: &str) {
    if std::env::var_os("RIVULET_BLESS").is_some() {
        fs::write(path, expected).unwrap();
    } else {
        let hint = "RIVULET_BLESS=1 cargo test -p cluster --test declarations writes it";
        assert!(found == expected, "{}: {hint}", path.display());
    }
}

#[test]
fn page_lists_all_frames_and_messages_and_names_tests_that_exist() {
    let path = root().join("docs/protocol.md");
    let found = fs::read_to_string(&path).unwrap();
    let table = |name: &str| {
        Some(match name {
            "frames" => frames_table(),
            "messages of the dispatcher" => messages_table(FromDispatcher::MESSAGES),
            "messages to the dispatcher" => messages_table(FromUnit::MESSAGES),
            "messages between units" => messages_table(FromPeer::MESSAGES),
            "losses of the dispatcher" => losses_table(FromDispatcher::MESSAGES),
            "losses to the dispatcher" => losses_table(FromUnit::MESSAGES),
            "losses between units" => losses_table(FromPeer::MESSAGES),
            _ => return None,
        })
    };
    let page = replace_tables(&found, table).unwrap();
    assert_eq!(page.matches("<!-- table: ").count(), 7);
    compare(&path, &found, &page);
    check_named_tests(&page);
}

/// The tests that the page names with an invariant are there: items of a file and its tests.
fn check_named_tests(page: &str) {
    let mut count = 0;
    let items = page.split("\n- `crates/").skip(1);
    for item in items.map(|item| item.split("\n\n").next().unwrap()) {
        let item = format!("`crates/{item}");
        let mut spans = item.split('`').skip(1).step_by(2);
        let file = spans.next().unwrap();
        let text = fs::read_to_string(root().join(file)).unwrap();
        for name in spans {
            assert!(text.contains(&format!("fn {name}(")), "{file} has no test {name}");
            count += 1;
        }
    }
    assert!(count > 20, "only {count} tests found");
}

#[test]
fn every_kind_of_frame_is_declared() {
    let kinds: BTreeSet<u8> = FRAMES.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds.len(), FRAMES.len());
    for kind in 0..=u8::MAX {
        let is_unknown = matches!(read_frame(&[kind], 0, |_| 0), Err(FrameError::UnknownKind(_)));
        assert_eq!(is_unknown, !kinds.contains(&kind), "{kind:#04x}");
    }
}

#[test]
fn the_dissector_has_all_frames_and_messages() {
    let mut text = "-- Frames and messages, written from their declarations by \
                    `RIVULET_BLESS=1 cargo test -p cluster\n-- --test declarations`. Fields are in \
                    the order of their bytes: `words` are the names of values,\n-- `cases` the \
                    fields that follow a value, `each` those of each value of a list, and \
                    `later`\n-- ones may be missing.\n\nreturn {\n    \
                    kinds = {\n"
        .to_owned();
    for frame in FRAMES {
        text += &format!("        [{:#04x}] = \"{}\",\n", frame.kind, frame.name);
    }
    text += "    },\n";
    for (name, messages) in [
        ("of_dispatcher", FromDispatcher::MESSAGES),
        ("of_unit", FromUnit::MESSAGES),
        ("of_peer", FromPeer::MESSAGES),
    ] {
        text += &format!("    {name} = {{\n");
        messages.iter().for_each(|message| add_message(message, &mut text));
        text += "    },\n";
    }
    text += "}\n";
    let path = root().join("contrib/wireshark/rivulet_messages.lua");
    compare(&path, &fs::read_to_string(&path).unwrap_or_default(), &text);
}

fn add_message(message: &MessageInfo, text: &mut String) {
    *text += &format!("        [{}] = {{ name = \"{}\", fields = {{\n", message.tag, message.name);
    for field in message.fields {
        let later = if field.since > 1 { ", later = true" } else { "" };
        for line in lua_fields(field.name, &field.form, later) {
            *text += &format!("            {line},\n");
        }
    }
    *text += "        } },\n";
}

/// Returns the Lua tables of a field's parts. `more`: what else their tables have.
fn lua_fields(name: &str, form: &WireForm, more: &str) -> Vec<String> {
    let words = |names: &mut dyn Iterator<Item = &str>| {
        let names: Vec<_> = names.map(|name| format!("\"{name}\"")).collect();
        format!("words = {{ [0] = {} }}", names.join(", "))
    };
    let inner = |parts: &[(String, WireForm)]| {
        let parts = parts.iter().flat_map(|(name, form)| lua_fields(name, form, ""));
        format!("{{ {} }}", parts.collect::<Vec<_>>().join(", "))
    };
    let one = |kind: &str, rest: &str| vec![format!("{{ \"{name}\", \"{kind}\"{rest}{more} }}")];
    match form {
        WireForm::Number(len) => one(&format!("uint{}", 8 * len), ""),
        WireForm::Flag => one("uint8", ""),
        WireForm::Choice(names) => one("uint8", &format!(", {}", words(&mut names.iter().copied()))),
        WireForm::Sized => one("bytes", ""),
        WireForm::Parts(parts) => {
            parts.iter().flat_map(|part| lua_fields(part.name, &part.form, more)).collect()
        }
        WireForm::Cases(cases) => {
            let words = words(&mut cases.iter().map(|case| case.name));
            let filled = cases.iter().enumerate().filter(|(_, case)| !case.parts.is_empty());
            let filled = filled.map(|(at, case)| {
                let parts: Vec<_> = case.parts.iter().map(|part| (part.name.to_owned(), part.form)).collect();
                format!("[{at}] = {}", inner(&parts))
            });
            one("uint8", &format!(", {words}, cases = {{ {} }}", filled.collect::<Vec<_>>().join(", ")))
        }
        WireForm::List(form) => {
            let parts = vec![(format!("{name}_value"), **form)];
            one("uint16", &format!(", each = {}", inner(&parts)))
        }
        WireForm::Optional(form) => {
            let parts = match form {
                WireForm::Parts(parts) => {
                    parts.iter().map(|part| (format!("{name}_{}", part.name), part.form)).collect()
                }
                other => vec![(format!("{name}_value"), **other)],
            };
            one("uint8", &format!(", cases = {{ [1] = {} }}", inner(&parts)))
        }
    }
}
