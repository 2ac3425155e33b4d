//! `rivulet migrate`: flows of a running dispatcher move to other units, and back.

use std::process::ExitCode;
use std::time::Duration;

use control::{MigrationRequest, MigrationResource, MigrationState};

use crate::api::{ApiOptions, Client};
use crate::flows::unit_name;
use crate::output::{self, Format, Table, thousands};

/// Migrate flows of a running dispatcher to other units
///
/// Flows are selected by all of --flow, --from, --filter and --count that are given, at least one.
/// Connections continue: no packet is lost.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    task: Option<MigrateTask>,
    /// Flow to migrate, such as 17.0; repeatable
    #[arg(long, value_name = "FLOW")]
    flow: Vec<String>,
    /// Flows of this unit, by number or node
    #[arg(long, value_name = "UNIT")]
    from: Option<String>,
    /// Flows with packets of one direction that match, in the policy's language
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Migrate up to N flows
    #[arg(long, value_name = "N")]
    count: Option<u32>,
    /// Their new unit, by number or node [default: for each, the other active unit with the fewest
    /// flows]
    #[arg(long, value_name = "UNIT")]
    to: Option<String>,
    /// Return at once; `rivulet migrate show` has the result
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Subcommand)]
enum MigrateTask {
    /// List the latest migrations
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Show a migration
    Show {
        /// Its number
        migration: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Move the flows of a migration back, except flows that have moved again since
    Undo {
        /// Its number
        migration: u64,
        /// Return at once
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Stop a migration; flows that have moved stay where they are
    Cancel {
        /// Its number
        migration: u64,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    api: ApiOptions,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  rivulet migrate --from unit-1
  rivulet migrate --from unit-1 --to unit-2 --count 500
  rivulet migrate --filter 'dst port 443 && net 10.1.0.0/16' --to unit-3
  rivulet migrate list
  rivulet migrate undo 1";

/// Period of looks at a migration under way.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = |id: &u64, end: &str| format!("/v1/migrations/{id}{end}");
    let (client, migration, waits, output) = match &args.task {
        None => {
            let request = MigrationRequest {
                flows: Some(args.flow.clone()).filter(|flows| !flows.is_empty()),
                from: args.from.as_deref().map(unit_name),
                filter: args.filter.clone(),
                count: args.count,
                to: args.to.as_deref().map(unit_name),
            };
            let client = args.common.api.client()?;
            let migration = client.post("/v1/migrations", &request)?;
            (client, migration, !args.no_wait, args.common.output)
        }
        Some(MigrateTask::List { common }) => {
            let migrations = common.api.client()?.list("/v1/migrations", &Vec::new(), usize::MAX)?;
            show(&migrations, common.output)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(MigrateTask::Show { migration, common }) => {
            let client = common.api.client()?;
            let migration = client.get(&path(migration, ""))?;
            (client, migration, false, common.output)
        }
        Some(MigrateTask::Undo { migration, no_wait, common }) => {
            let client = common.api.client()?;
            let migration = client.act(&path(migration, "/undo"))?;
            (client, migration, !no_wait, common.output)
        }
        Some(MigrateTask::Cancel { migration, common }) => {
            let client = common.api.client()?;
            let migration = client.act(&path(migration, "/cancel"))?;
            (client, migration, true, common.output)
        }
    };
    let migration = if waits { wait(&client, migration)? } else { migration };
    let has_failed = migration.state == MigrationState::Failed;
    match output {
        Format::Json => output::print_json(&migration)?,
        Format::Table => {
            if let Some(reason) = &migration.reason {
                crate::messages::say!("rivulet: {reason}");
            }
            show(&[migration], output)?;
        }
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Waits until a migration has ended, and shows its progress.
fn wait(client: &Client, mut migration: MigrationResource) -> anyhow::Result<MigrationResource> {
    let bar = output::progress(None, "flows");
    while matches!(migration.state, MigrationState::Running | MigrationState::Reverting) {
        std::thread::sleep(PERIOD);
        migration = client.get(&format!("/v1/migrations/{}", migration.id))?;
        let is_back = migration.state == MigrationState::Reverting;
        bar.set_position(if is_back { migration.reverted } else { migration.moved });
    }
    bar.finish_and_clear();
    Ok(migration)
}

fn show(migrations: &[MigrationResource], output: Format) -> anyhow::Result<()> {
    if output == Format::Json {
        return output::print_json(&migrations);
    }
    let mut table = Table::new(&["MIGRATION", "STATE", "WANTED", "MOVED", "REFUSED", "FAILED", "REVERTED"]);
    for migration in migrations {
        let counts =
            [migration.wanted, migration.moved, migration.refused, migration.failed, migration.reverted];
        let cells = [migration.id.to_string(), state(migration.state).to_owned()];
        table.row(cells.into_iter().chain(counts.map(thousands)).collect());
    }
    output::print(&table.render())?;
    Ok(())
}

fn state(state: MigrationState) -> &'static str {
    match state {
        MigrationState::Running => "running",
        MigrationState::Done => "done",
        MigrationState::Cancelled => "cancelled",
        MigrationState::Failed => "failed",
        MigrationState::Reverting => "reverting",
        MigrationState::Reverted => "reverted",
    }
}
