//! Edits of the files that list functions, targets and benchmarks.

use super::name::Name;

/// A file lacks the line at which to insert.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has no line like `{0}`")]
pub struct MissingLine(&'static str);

/// Adds the function's module and registration to `crates/functions/src/lib.rs`.
pub fn register(text: &str, name: &Name) -> Result<String, MissingLine> {
    const MODULE: &str = "pub mod ";
    const END: &str = "    registry\n}";
    let module = format!("pub mod {name};");
    let mut lines: Vec<&str> = text.lines().collect();
    let behind = lines.iter().rposition(|line| line.starts_with(MODULE) && *line < module.as_str());
    let before = lines.iter().position(|line| line.starts_with(MODULE));
    let at = behind.map(|line| line + 1).or(before).ok_or(MissingLine("pub mod function;"))?;
    lines.insert(at, &module);
    let text = lines.join("\n") + "\n";
    let end = text.find(END).ok_or(MissingLine("    registry\n}"))?;
    let registration = format!(
        "    registry.add(nf::loader!({name}::{}), include_str!(\"{name}/README.md\"));\n",
        name.type_name()
    );
    Ok(format!("{}{registration}{}", &text[..end], &text[end..]))
}

/// Adds the function's benchmark to `crates/functions/Cargo.toml`.
pub fn add_bench(text: &str, name: &Name) -> String {
    format!("{}\n\n[[bench]]\nname = \"{name}\"\nharness = false\n", text.trim_end())
}

/// Adds the function's target and the crates that it needs to `fuzz/Cargo.toml`.
pub fn add_fuzz_target(text: &str, name: &Name) -> Result<String, MissingLine> {
    const DEPENDENCIES: &str = "[dependencies]\n";
    let mut text = text.to_owned();
    for needed in ["packet", "nf", "functions", "graph"] {
        let has =
            |line: &str| line.strip_prefix(needed).is_some_and(|rest| rest.starts_with([' ', '=', '.']));
        if !text.lines().any(has) {
            let at = text.find(DEPENDENCIES).ok_or(MissingLine("[dependencies]"))? + DEPENDENCIES.len();
            text.insert_str(at, &format!("{needed} = {{ path = \"../crates/{needed}\" }}\n"));
        }
    }
    let target = format!(
        "[[bin]]\nname = \"{name}\"\npath = \"targets/{name}.rs\"\ntest = false\ndoc = false\nbench = false\n"
    );
    Ok(format!("{}\n\n{target}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "//! Doc.\n\npub mod alpha;\npub mod gamma;\n\nuse nf::Registry;\n\n\
        pub fn registry() -> Registry {\n    let mut registry = Registry::new();\n    \
        registry.add(nf::loader!(alpha::Alpha), include_str!(\"alpha/README.md\"));\n    registry\n}\n";

    #[test]
    fn modules_stay_sorted() {
        let with = |name: &str| register(LIB, &name.parse().unwrap()).unwrap();
        assert!(with("beta").contains("pub mod alpha;\npub mod beta;\npub mod gamma;\n"));
        assert!(with("aa").contains("\n\npub mod aa;\npub mod alpha;\n"));
        assert!(with("zeta_x").contains("pub mod gamma;\npub mod zeta_x;\n"));
        let registered = "registry.add(nf::loader!(zeta_x::ZetaX), include_str!(\"zeta_x/README.md\"));\n    registry\n}\n";
        assert!(with("zeta_x").ends_with(registered));
        assert!(register("fn main() {}", &"beta".parse().unwrap()).is_err());
    }

    #[test]
    fn a_fuzz_target_adds_missing_dependencies() {
        let name = "beta".parse().unwrap();
        let before = "[package]\nname = \"fuzz\"\n\n[dependencies]\ngraph = \"1\"\nnf.path = \"../nf\"\n";
        let after = add_fuzz_target(before, &name).unwrap();
        assert_eq!(after.matches("\ngraph =").count(), 1);
        assert_eq!(after.matches("\nnf").count(), 1);
        assert!(after.contains("[dependencies]\nfunctions = { path = \"../crates/functions\" }\n"));
        assert!(after.ends_with("\n\n[[bin]]\nname = \"beta\"\npath = \"targets/beta.rs\"\ntest = false\ndoc = false\nbench = false\n"));
        assert!(add_fuzz_target("", &name).is_err());
    }
}
