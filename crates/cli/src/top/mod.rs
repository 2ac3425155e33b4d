//! `rivulet top`: what a running `rivulet up` does now, on a terminal.

mod client;
mod rates;
mod view;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::Value;
use sim::scenario::Time;

use crate::output;
use rates::Rates;
use view::View;

/// Shows what a running `rivulet up --metrics` does: traffic, drops, flows, functions, interfaces.
///
/// Keys: q quits, p or space pauses, s sorts the functions by another column, r turns the order round, ? shows the keys.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where it answers
    #[arg(default_value = crate::up::DEFAULT_ADDRESS)]
    pub address: SocketAddr,
    /// Ask so often
    #[arg(short, long, value_name = "TIME", default_value = "1s")]
    pub interval: Time,
    /// Ask twice, print what was seen in between, and end
    #[arg(long)]
    pub once: bool,
}

const EXAMPLES: &str = "\
Examples:
  rivulet up site.rvl --port inside=eth0 --port outside=eth1 --metrics &
  rivulet top
  rivulet top 192.0.2.7:9600 --interval 250ms
  rivulet top --once";

/// Columns and lines of what `--once` prints.
const PRINTED: (u16, u16) = (110, 40);

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let interval = Duration::from_nanos(args.interval.0).max(Duration::from_millis(50));
    let ask = || {
        client::report(args.address).with_context(|| {
            format!("nobody answers at {}: is there a `rivulet up --metrics`?", args.address)
        })
    };
    let mut rates = Rates::new(ask()?);
    let mut view = View::new(args.address);
    if args.once {
        std::thread::sleep(interval);
        rates.take(ask()?);
        output::print(&view.print(&rates, PRINTED))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        bail!("standard output is no terminal; `--once` prints what there is");
    }
    let mut terminal = ratatui::init();
    let ended = watch(&mut terminal, interval, &ask, &mut rates, &mut view);
    ratatui::restore();
    ended?;
    Ok(ExitCode::SUCCESS)
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    interval: Duration,
    ask: &impl Fn() -> anyhow::Result<Value>,
    rates: &mut Rates,
    view: &mut View,
) -> anyhow::Result<()> {
    let mut asked = Instant::now();
    loop {
        terminal.draw(|frame| view.draw(frame, rates))?;
        if event::poll(interval.saturating_sub(asked.elapsed()))?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Char(letter) => view.key(letter),
                _ => {}
            }
        }
        if asked.elapsed() >= interval {
            asked = Instant::now();
            if !view.is_paused() {
                match ask() {
                    Ok(report) => {
                        rates.take(report);
                        view.say(None);
                    }
                    Err(error) => view.say(Some(error.to_string())),
                }
            }
        }
    }
}
