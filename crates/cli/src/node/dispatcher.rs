//! The role `dispatcher`: `rivulet up --cluster`, with ports and options from the configuration.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use clap::error::ErrorKind;

use super::NodeArgs;
use crate::cluster::config::NodeConfig;
use crate::up;

/// `rivulet up`, as a command of its own.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct UpCommand {
    #[command(flatten)]
    args: up::Args,
}

/// Runs the role.
pub fn run(args: &NodeArgs, config: &NodeConfig) -> anyhow::Result<ExitCode> {
    let file = args.config.display();
    if args.report.is_some() || args.alerts.is_some() || args.export.ipfix.is_some() || args.metrics.is_some()
    {
        bail!("{file}: a dispatcher has its options in `[options]`, as of `rivulet up`");
    }
    let words = words(args, config).with_context(|| file.to_string())?;
    let command = UpCommand::try_parse_from(&words).map_err(|error| {
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        match error.kind() {
            ErrorKind::UnknownArgument => anyhow::anyhow!("{file}: `[options]`: {text}"),
            _ => anyhow::anyhow!("{file}: {text}"),
        }
    })?;
    up::run(&command.args)
}

/// Returns the arguments of `rivulet up`.
fn words(args: &NodeArgs, config: &NodeConfig) -> anyhow::Result<Vec<String>> {
    let path = |path: &Path| {
        path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
    };
    let policy = config.policy.as_deref().context("expected `policy`, a file")?;
    if config.ports.is_empty() {
        bail!("expected `[ports]`, with a line `PORT = \"INTERFACE\"` for each port of the policy");
    }
    let mut words = vec![path(policy)?, format!("--cluster={}", path(&args.config)?)];
    words.extend(config.ports.iter().map(|(port, interface)| format!("--port={port}={interface}")));
    for (option, value) in &config.options {
        match value {
            toml::Value::Boolean(true) => words.push(format!("--{option}")),
            toml::Value::Boolean(false) => {}
            toml::Value::String(text) => words.push(format!("--{option}={text}")),
            toml::Value::Integer(number) => words.push(format!("--{option}={number}")),
            toml::Value::Float(number) => words.push(format!("--{option}={number}")),
            toml::Value::Array(values) if values.iter().all(toml::Value::is_str) => {
                words.extend(
                    values.iter().filter_map(toml::Value::as_str).map(|text| format!("--{option}={text}")),
                );
            }
            _ => bail!("`[options]` {option}: expected text, a number, true, or a list of texts"),
        }
    }
    Ok(words)
}
