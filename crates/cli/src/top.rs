//! `rivulet top`: a live view of a running `rivulet up`.

mod client;

use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use observe::live::{LiveView, ReportRates};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::Value;
use values::Nanos;

use crate::output::{self, Format};

/// Shows traffic, drops, flows, functions and interfaces of a running `rivulet up --metrics`
///
/// Keys: q quit, p or space pause, s sort by the next column, r reverse the order, ? help.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address of the metrics: an address or name, optionally with a port
    #[arg(default_value = crate::metrics_address::DEFAULT_ADDRESS)]
    pub address: String,
    /// Refresh interval
    #[arg(short, long, value_name = "TIME", default_value = "1s")]
    pub interval: Nanos,
    /// Print a single snapshot, with rates over one interval, and exit
    #[arg(long)]
    pub once: bool,
    /// Format of the snapshot: tables, or the report with `rates` in JSON, which implies --once
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: Format,
}

const EXAMPLES: &str = "\
Examples:
  rivulet up site.rvl --port inside=eth0 --port outside=eth1 --metrics &
  rivulet top
  rivulet top gateway.example:9600 --interval 250ms
  rivulet top --once
  rivulet top -o json | jq .rates";

/// Minimum refresh interval.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Columns and lines of a snapshot.
const PRINTED: (u16, u16) = (110, 40);

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut view = LiveView::new(&args.address);
    if args.once || args.output == Format::Json {
        let rates = measure(&args.address, args.interval)?;
        match args.output {
            Format::Table => output::print(&view.print(&rates, PRINTED))?,
            Format::Json => output::print_json(&rates.to_json())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        bail!("stdout is not a terminal; use --once for a single snapshot");
    }
    let interval = Duration::from_nanos(args.interval.0).max(INTERVAL_MIN);
    let addresses = resolve(&args.address)?;
    let ask = || ask(&addresses, &args.address);
    let mut rates = ReportRates::new(ask()?);
    let mut terminal = ratatui::init();
    let ended = watch(&mut terminal, interval, &ask, &mut rates, &mut view);
    ratatui::restore();
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Requests two reports of a running `rivulet up --metrics`, an interval apart.
pub fn measure(address: &str, interval: Nanos) -> anyhow::Result<ReportRates> {
    let addresses = resolve(address)?;
    let mut rates = ReportRates::new(ask(&addresses, address)?);
    std::thread::sleep(Duration::from_nanos(interval.0).max(INTERVAL_MIN));
    rates.take(ask(&addresses, address)?);
    Ok(rates)
}

fn ask(addresses: &[SocketAddr], name: &str) -> anyhow::Result<Value> {
    // Its kind is left out: a connection that breaks is not a standard output that is closed.
    client::report(addresses, name)
        .map_err(|error| anyhow!("no answer from {name}; expected --metrics of `rivulet up`, or `metrics` in a node's `[options]`: {error:#}"))
}

/// Resolves a name with an optional port; the default is the port of `rivulet up --metrics`.
fn resolve(text: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let (_, port) = crate::metrics_address::DEFAULT_ADDRESS.rsplit_once(':').unwrap_or_default();
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let (Ok(address), Ok(port)) = (bare.parse::<IpAddr>(), port.parse()) {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let named = if text.contains(':') { text.to_owned() } else { format!("{text}:{port}") };
    let resolved = named.to_socket_addrs();
    let addresses = resolved.with_context(|| format!("`{text}` is not an address; expected HOST:PORT"))?;
    let addresses: Vec<_> = addresses.collect();
    if addresses.is_empty() { bail!("`{text}` has no address") } else { Ok(addresses) }
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    interval: Duration,
    ask: &impl Fn() -> anyhow::Result<Value>,
    rates: &mut ReportRates,
    view: &mut LiveView,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_name_may_lack_the_port() {
        for (text, expected) in [
            ("127.0.0.1:9601", "127.0.0.1:9601"),
            ("127.0.0.1", "127.0.0.1:9600"),
            ("[::1]:9601", "[::1]:9601"),
            ("::1", "[::1]:9600"),
        ] {
            assert_eq!(resolve(text).unwrap(), [expected.parse().unwrap()], "{text}");
        }
        for name in ["localhost:9601", "localhost"] {
            assert!(resolve(name).unwrap().iter().all(|address| address.ip().is_loopback()), "{name}");
        }
        for wrong in ["localhost:", "localhost:x", ":9600", "a b"] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
    }
}
