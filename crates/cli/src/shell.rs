//! `rivulet completions` and `rivulet man`: generated from the command line's definition.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap_complete::Shell;

/// Prints a shell's completion script
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS)]
pub struct Completions {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  rivulet completions bash > ~/.local/share/bash-completion/completions/rivulet
  rivulet completions zsh > ~/.zfunc/_rivulet
  rivulet completions fish > ~/.config/fish/completions/rivulet.fish";

/// Prints the manual page of `rivulet`, or writes all pages to a directory
#[derive(Debug, clap::Args)]
#[command(after_help = MAN)]
pub struct Man {
    /// Write one page for each command into this directory, which is created if missing
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const MAN: &str = "\
Examples:
  rivulet man | man -l -
  rivulet man --dir /usr/local/share/man/man1";

/// Runs `rivulet completions`.
pub fn completions(args: &Completions, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    // Buffered: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "rivulet", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `rivulet man`.
pub fn man(args: &Man, command: clap::Command) -> anyhow::Result<ExitCode> {
    match &args.dir {
        Some(dir) => {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            clap_mangen::generate_to(command, dir)
                .with_context(|| format!("cannot write to {}", dir.display()))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            io::stdout().lock().write_all(&page)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
