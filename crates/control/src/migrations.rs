//! Migrations: flows that move batch by batch, and back again (A16).

mod batch_size;
mod course;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::message::{FlowId, UnitId};

use crate::dispatcher::DispatcherClient;
use crate::filter::FlowFilter;
use crate::flow_id;
use crate::problem::Problem;
use crate::resources::{MigrationRequest, MigrationResource, MigrationState};

use self::course::{Course, MovedFlow, Selection};

/// Limit on the migrations that are kept; the oldest ended one is discarded first.
pub const MIGRATIONS_MAX: usize = 32;
/// Limit on the migrations that run at once.
pub const MIGRATIONS_RUNNING_MAX: usize = 4;
/// Limit on the flows of a migration.
pub const MIGRATION_FLOWS_MAX: usize = 1 << 18;
/// Limit on the flows that a request names one by one.
pub const FLOWS_NAMED_MAX: usize = 1024;

/// The migrations of a dispatcher.
#[derive(Clone)]
pub(crate) struct Migrations {
    dispatcher: DispatcherClient,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    migrations: VecDeque<Arc<Migration>>,
    last_id: u64,
}

/// A migration.
pub(crate) struct Migration {
    progress: Mutex<MigrationResource>,
    is_cancelled: AtomicBool,
    /// The flows that have moved, to be moved back.
    moved: Mutex<Vec<MovedFlow>>,
}

impl Migrations {
    pub fn new(dispatcher: DispatcherClient) -> Migrations {
        Migrations { dispatcher, kept: Arc::default() }
    }

    /// Returns all migrations that are kept, the oldest first.
    pub fn all(&self) -> Vec<MigrationResource> {
        self.lock().migrations.iter().map(|migration| migration.resource()).collect()
    }

    /// Returns a migration.
    pub fn get(&self, id: u64) -> Result<MigrationResource, Problem> {
        self.find(id).map(|migration| migration.resource())
    }

    /// Returns the number of migrations under way.
    pub fn running(&self) -> usize {
        self.lock().migrations.iter().filter(|migration| migration.is_running()).count()
    }

    /// Starts a migration.
    pub fn start(&self, request: MigrationRequest) -> Result<MigrationResource, Problem> {
        let selection = self.selection(&request)?;
        let migration = {
            let mut kept = self.lock();
            check_running(&kept)?;
            kept.last_id += 1;
            let migration = Arc::new(Migration::new(kept.last_id, request));
            kept.add(Arc::clone(&migration));
            migration
        };
        let started = migration.resource();
        let course = Course::new(self.dispatcher.clone(), migration);
        tokio::spawn(course.run(selection));
        Ok(started)
    }

    /// Moves the flows of a migration back, unless they have left the unit that they moved to.
    pub fn undo(&self, id: u64) -> Result<MigrationResource, Problem> {
        let migration = self.find(id)?;
        {
            let kept = self.lock();
            check_running(&kept)?;
            let mut progress = migration.progress();
            match progress.state {
                MigrationState::Done | MigrationState::Cancelled | MigrationState::Failed => {}
                MigrationState::Running => {
                    return Err(Problem::conflict(
                        "running",
                        format!("migration {id} runs; cancel it before"),
                    ));
                }
                MigrationState::Reverting | MigrationState::Reverted => {
                    return Err(Problem::conflict("reverted", format!("migration {id} is undone already")));
                }
            }
            progress.state = MigrationState::Reverting;
        }
        migration.is_cancelled.store(false, Ordering::Relaxed);
        let reverting = migration.resource();
        tokio::spawn(Course::new(self.dispatcher.clone(), migration).revert());
        Ok(reverting)
    }

    /// Stops a migration after its present batch.
    pub fn cancel(&self, id: u64) -> Result<MigrationResource, Problem> {
        let migration = self.find(id)?;
        if !migration.is_running() {
            return Err(Problem::conflict("not_running", format!("migration {id} does not run")));
        }
        migration.is_cancelled.store(true, Ordering::Relaxed);
        Ok(migration.resource())
    }

    /// Checks a request, and resolves its names.
    fn selection(&self, request: &MigrationRequest) -> Result<Selection, Problem> {
        let MigrationRequest { flows, from, filter, count, to } = request;
        if flows.is_none() && from.is_none() && filter.is_none() && count.is_none() {
            let detail = "the request selects no flows; expected `flows`, `from`, `filter` or `count`";
            return Err(Problem::invalid(("flows", detail.to_owned())));
        }
        let named = flows.as_deref().map(named_flows).transpose()?;
        let unit = |field, name: &Option<_>| -> Result<Option<UnitId>, Problem> {
            name.as_ref().map(|name| self.dispatcher.unit(field, name)).transpose()
        };
        let (from, to) = (unit("from", from)?, unit("to", to)?);
        if from.is_some() && from == to {
            return Err(Problem::invalid(("to", "`to` is the same unit as `from`".to_owned())));
        }
        let filter = filter.as_deref().map(FlowFilter::read).transpose()?;
        let count = count.map_or(usize::MAX, |count| count as usize);
        Ok(Selection { named, from, to, filter, count })
    }

    fn find(&self, id: u64) -> Result<Arc<Migration>, Problem> {
        let found = self.lock().migrations.iter().find(|migration| migration.progress().id == id).cloned();
        let detail = || format!("there is no migration {id}; the last {MIGRATIONS_MAX} are kept");
        found.ok_or_else(|| Problem::unknown("unknown_migration", detail()))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_running(kept: &Kept) -> Result<(), Problem> {
    let running = kept.migrations.iter().filter(|migration| migration.is_running()).count();
    if running < MIGRATIONS_RUNNING_MAX {
        return Ok(());
    }
    Err(Problem::busy(
        "migrations",
        format!("{running} migrations run already; try again after one has ended"),
    ))
}

fn named_flows(names: &[String]) -> Result<Vec<FlowId>, Problem> {
    let invalid = |detail: String| Problem::invalid(("flows", detail));
    if names.len() > FLOWS_NAMED_MAX {
        return Err(invalid(format!("{} flows are named; expected up to {FLOWS_NAMED_MAX}", names.len())));
    }
    let flows = names.iter().map(|name| flow_id::from_text(name).map_err(|error| invalid(error.to_string())));
    flows.collect()
}

impl Kept {
    fn add(&mut self, migration: Arc<Migration>) {
        if self.migrations.len() >= MIGRATIONS_MAX {
            // Few run, so one has ended.
            if let Some(oldest) = self.migrations.iter().position(|migration| !migration.is_running()) {
                self.migrations.remove(oldest);
            }
        }
        self.migrations.push_back(migration);
    }
}

impl Migration {
    fn new(id: u64, request: MigrationRequest) -> Migration {
        let progress = MigrationResource {
            id,
            state: MigrationState::Running,
            request,
            wanted: 0,
            moved: 0,
            refused: 0,
            failed: 0,
            reverted: 0,
            copies_late: 0,
            batch_size: 0,
            is_truncated: false,
            reason: None,
        };
        Migration {
            progress: Mutex::new(progress),
            is_cancelled: AtomicBool::new(false),
            moved: Mutex::default(),
        }
    }

    fn resource(&self) -> MigrationResource {
        self.progress().clone()
    }

    fn is_running(&self) -> bool {
        matches!(self.progress().state, MigrationState::Running | MigrationState::Reverting)
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    fn progress(&self) -> MutexGuard<'_, MigrationResource> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self) -> MutexGuard<'_, Vec<MovedFlow>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
