//! Error messages that operators see: each `errors/*.rvl` against the `.txt` of its name. With
//! `RIVULET_BLESS=1` in the environment the `.txt` files are written instead.

use std::fs;
use std::path::Path;

use policy::{Colour, Diagnostics, Policy};
use serde::Deserialize;
use values::{ByteCount, ConfigError, Located, Nanos};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only whether it can be read matters")]
struct Nat {
    external: Vec<String>,
    idle: Option<Nanos>,
    buffer: Option<ByteCount>,
    flows: Option<u16>,
    mapping: Option<Mapping>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mapping {
    EndpointIndependent,
    AddressDependent,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Firewall {
    rules: Located,
}

impl Firewall {
    /// Requires each line to begin with `allow` or `deny`.
    fn check(&self) -> Result<(), ConfigError> {
        let mut offset = 0;
        for line in self.rules.split_inclusive('\n') {
            let word = line.split_whitespace().next().unwrap_or("allow");
            if !matches!(word, "allow" | "deny") {
                return Err(self
                    .rules
                    .error(offset..offset + word.len(), format!("unknown action `{word}`")));
            }
            offset += line.len();
        }
        Ok(())
    }
}

/// Returns all faults of a policy and of the configurations in it.
fn report(name: &str, text: &str, folder: &Path) -> Diagnostics {
    let mut files = |path: &str| match fs::read_to_string(folder.join(path)) {
        Ok(text) => Ok(text.into()),
        Err(_) => Err("there is no such file".to_owned()),
    };
    let policy = match Policy::read(name, text, &mut files) {
        Ok(policy) => policy,
        Err(report) => return *report,
    };
    let mut report = policy.report.clone();
    for nf in &policy.nfs {
        let error = match nf.type_name.as_str() {
            "NAT" => policy.config::<Nat>(&nf.config).err().map(|e| *e),
            "Firewall" => match policy.config::<Firewall>(&nf.config) {
                Ok(firewall) => firewall.check().err().map(|e| policy.diagnose(&e, nf.span)),
                Err(error) => Some(*error),
            },
            _ => None,
        };
        report.diagnostics.extend(error);
    }
    report
}

#[test]
fn messages_match_the_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors");
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "rvl"));
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap();
        let report = report(name, &fs::read_to_string(&path).unwrap(), &folder);
        let found = format!("{report}\n{}", report.render(Colour::Off));
        let agreed = path.with_extension("txt");
        if std::env::var_os("RIVULET_BLESS").is_some() {
            fs::write(&agreed, &found).unwrap();
        }
        assert_eq!(found, fs::read_to_string(&agreed).unwrap_or_default(), "{name}");
        assert!(report.render(Colour::On).contains("\u{1b}["));
    }
}
