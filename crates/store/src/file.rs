//! A store in a file, for the processes of one machine (redb).

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redb::{ConcurrencyMode, Database, ReadTransaction, ReadableDatabase, ReadableTable};
use redb::{Table, TableDefinition, TableError, TransactionError, WriteTransaction};

use crate::{
    CALL_MAX, ClusterStore, Expected, LIST_MAX, LeaseId, Listing, StoreChange, StoreEntry, StoreError,
    check_put,
};

/// Changes that a file remembers. The oldest are discarded.
pub const HISTORY_MAX: u64 = 1_000;

/// Interval between looks into the file by waiting calls.
const LOOK: Duration = Duration::from_millis(50);

/// Revision, lease (0: none) and value by key.
const ENTRIES: TableDefinition<&str, (u64, i64, &[u8])> = TableDefinition::new("entries");
/// Time to live and deadline by lease, in ms of the clock since the machine's start.
const LEASES: TableDefinition<i64, (u64, u64)> = TableDefinition::new("leases");
/// The keys of each lease.
const LEASED: TableDefinition<(i64, &str), ()> = TableDefinition::new("leased");
/// Key, and value if it was written, by revision.
const CHANGES: TableDefinition<u64, (&str, Option<&[u8]>)> = TableDefinition::new("changes");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");

const REVISION: &str = "revision";
const COMPACTED: &str = "compacted";
const LAST_LEASE: &str = "last_lease";
const BOOT: &str = "boot";

/// A store in a file. Processes of one machine may open it at the same time.
pub struct FileStore {
    database: Database,
    path: PathBuf,
}

/// The tables of a transaction.
struct Tables<'t> {
    entries: Table<'t, &'static str, (u64, i64, &'static [u8])>,
    leases: Table<'t, i64, (u64, u64)>,
    leased: Table<'t, (i64, &'static str), ()>,
    changes: Table<'t, u64, (&'static str, Option<&'static [u8]>)>,
    numbers: Table<'t, &'static str, u64>,
}

/// A fault of the file, or one of the call.
enum Fault {
    File(String),
    Call(StoreError),
}

impl<E: Into<redb::Error>> From<E> for Fault {
    fn from(error: E) -> Fault {
        Fault::File(error.into().to_string())
    }
}

impl FileStore {
    /// Opens a file, or creates it. Leases of before a restart of the machine begin again.
    ///
    /// # Errors
    /// If the file cannot be opened, or is none of a store.
    pub fn open(path: &Path) -> Result<FileStore, StoreError> {
        let mut builder = Database::builder();
        builder.set_concurrency_mode(ConcurrencyMode::MultiWriter);
        let database = builder.create(path).map_err(|error| unreachable(path, &error))?;
        let store = FileStore { database, path: path.to_owned() };
        let boot = boot_number();
        store.write(|tables| {
            if tables.number(BOOT)? == boot {
                return Ok(());
            }
            tables.numbers.insert(BOOT, boot)?;
            for (lease, time_ms, _) in tables.all_leases()? {
                tables.leases.insert(lease, (time_ms, now_ms() + time_ms))?;
            }
            Ok(())
        })?;
        Ok(store)
    }

    /// Executes a write transaction, after leases with a past deadline have expired.
    fn write<T>(&self, change: impl FnOnce(&mut Tables<'_>) -> Result<T, Fault>) -> Result<T, StoreError> {
        self.try_write(change).map_err(|fault| self.error(fault))
    }

    fn try_write<T>(&self, change: impl FnOnce(&mut Tables<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        let transaction = self.begin_write()?;
        let outcome = {
            let mut tables = Tables {
                entries: transaction.open_table(ENTRIES)?,
                leases: transaction.open_table(LEASES)?,
                leased: transaction.open_table(LEASED)?,
                changes: transaction.open_table(CHANGES)?,
                numbers: transaction.open_table(NUMBERS)?,
            };
            tables.expire()?;
            change(&mut tables)
        };
        match outcome {
            Ok(outcome) => {
                transaction.commit()?;
                Ok(outcome)
            }
            Err(fault) => {
                transaction.abort()?;
                Err(fault)
            }
        }
    }

    /// Begins a transaction, after those of other processes, within [`CALL_MAX`].
    fn begin_write(&self) -> Result<WriteTransaction, Fault> {
        let began = Instant::now();
        loop {
            match self.database.try_begin_write() {
                Err(TransactionError::WouldBlock) if began.elapsed() < CALL_MAX => {
                    sleep(Duration::from_millis(1));
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Executes a read transaction, after leases with a past deadline have expired.
    fn read<T>(&self, read: impl FnOnce(&ReadTransaction) -> Result<T, Fault>) -> Result<T, StoreError> {
        let look = || {
            if has_expired_lease(&self.database.begin_read()?)? {
                self.try_write(|_| Ok(()))?;
            }
            Ok(self.database.begin_read()?)
        };
        look().and_then(|transaction| read(&transaction)).map_err(|fault| self.error(fault))
    }

    fn error(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::File(cause) => unreachable(&self.path, &cause),
            Fault::Call(error) => error,
        }
    }

    fn look(&self, prefix: &str, after: u64) -> Result<Vec<StoreChange>, StoreError> {
        self.read(|transaction| {
            let compacted = number(transaction, COMPACTED)?;
            if after < compacted {
                return Err(Fault::Call(StoreError::Compacted { oldest: compacted + 1 }));
            }
            let mut found = Vec::new();
            for change in transaction.open_table(CHANGES)?.range(after + 1..)? {
                let (revision, change) = change?;
                let (revision, (key, value)) = (revision.value(), change.value());
                if !key.starts_with(prefix) {
                    continue;
                }
                let key = key.to_owned();
                found.push(match value {
                    Some(value) => StoreChange::Put(StoreEntry { key, value: value.to_vec(), revision }),
                    None => StoreChange::Deleted { key, revision },
                });
            }
            Ok(found)
        })
    }
}

impl Tables<'_> {
    fn number(&self, name: &str) -> Result<u64, Fault> {
        Ok(self.numbers.get(name)?.map_or(0, |number| number.value()))
    }

    fn next(&mut self, name: &str) -> Result<u64, Fault> {
        let next = self.number(name)? + 1;
        self.numbers.insert(name, next)?;
        Ok(next)
    }

    /// Notes a change, and returns its revision.
    fn note(&mut self, key: &str, value: Option<&[u8]>) -> Result<u64, Fault> {
        let revision = self.next(REVISION)?;
        self.changes.insert(revision, (key, value))?;
        if revision.saturating_sub(self.number(COMPACTED)?) > HISTORY_MAX {
            self.compact(revision - HISTORY_MAX)?;
        }
        Ok(revision)
    }

    fn compact(&mut self, through: u64) -> Result<(), Fault> {
        self.changes.retain_in(..=through, |_, _| false)?;
        let compacted = through.max(self.number(COMPACTED)?);
        self.numbers.insert(COMPACTED, compacted)?;
        Ok(())
    }

    /// Returns the revision and lease of a key.
    fn present(&self, key: &str) -> Result<Option<(u64, i64)>, Fault> {
        let entry = self.entries.get(key)?;
        Ok(entry.map(|entry| (entry.value().0, entry.value().1)))
    }

    /// Checks that a key is as expected, and takes it from its lease.
    fn detach(&mut self, key: &str, expected: Expected) -> Result<bool, Fault> {
        let present = self.present(key)?;
        let fits = match expected {
            Expected::Any => true,
            Expected::Absent => present.is_none(),
            Expected::Revision(revision) => present.is_some_and(|(present, _)| present == revision),
        };
        if !fits {
            return Err(Fault::Call(StoreError::Conflict { key: key.to_owned() }));
        }
        if let Some((_, lease)) = present {
            self.leased.remove((lease, key))?;
        }
        Ok(present.is_some())
    }

    fn remove(&mut self, key: &str, expected: Expected) -> Result<bool, Fault> {
        let was_present = self.detach(key, expected)?;
        if was_present {
            self.entries.remove(key)?;
            self.note(key, None)?;
        }
        Ok(was_present)
    }

    /// Ends a lease, and deletes its keys.
    fn end(&mut self, lease: i64) -> Result<bool, Fault> {
        let existed = self.leases.remove(lease)?.is_some();
        let mut keys = Vec::new();
        for of_lease in self.leased.range((lease, "")..(lease + 1, ""))? {
            keys.push(of_lease?.0.value().1.to_owned());
        }
        for key in keys {
            self.remove(&key, Expected::Any)?;
        }
        Ok(existed)
    }

    /// Ends leases with a past deadline.
    fn expire(&mut self) -> Result<(), Fault> {
        let now_ms = now_ms();
        for (lease, _, due_ms) in self.all_leases()? {
            if due_ms <= now_ms {
                self.end(lease)?;
            }
        }
        Ok(())
    }

    /// Returns all leases with time to live and deadline.
    fn all_leases(&self) -> Result<Vec<(i64, u64, u64)>, Fault> {
        let mut all = Vec::new();
        for lease in self.leases.iter()? {
            let (lease, times) = lease?;
            let (time_ms, due_ms) = times.value();
            all.push((lease.value(), time_ms, due_ms));
        }
        Ok(all)
    }
}

impl ClusterStore for FileStore {
    fn get(&self, key: &str) -> Result<Option<StoreEntry>, StoreError> {
        self.read(|transaction| {
            let entry = transaction.open_table(ENTRIES)?.get(key)?;
            Ok(entry.map(|entry| entry_of(key, entry.value())))
        })
    }

    fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        self.read(|transaction| {
            let mut entries = Vec::new();
            for entry in transaction.open_table(ENTRIES)?.range(prefix..)? {
                let (key, entry) = entry?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                if entries.len() == LIST_MAX {
                    return Err(Fault::Call(StoreError::TooMany(prefix.to_owned())));
                }
                entries.push(entry_of(key.value(), entry.value()));
            }
            Ok(Listing { revision: number(transaction, REVISION)?, entries, refused: 0 })
        })
    }

    fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
        lease: Option<LeaseId>,
    ) -> Result<u64, StoreError> {
        check_put(key, value)?;
        self.write(|tables| {
            if let Some(lease) = lease
                && tables.leases.get(lease.0)?.is_none()
            {
                return Err(Fault::Call(StoreError::LeaseExpired(lease)));
            }
            tables.detach(key, expected)?;
            let (revision, lease) = (tables.note(key, Some(value))?, lease.map_or(0, |lease| lease.0));
            tables.entries.insert(key, (revision, lease, value))?;
            if lease != 0 {
                tables.leased.insert((lease, key), ())?;
            }
            Ok(revision)
        })
    }

    fn delete(&self, key: &str, expected: Expected) -> Result<bool, StoreError> {
        self.write(|tables| tables.remove(key, expected))
    }

    fn changes(&self, prefix: &str, after: u64, wait: Duration) -> Result<Vec<StoreChange>, StoreError> {
        let began = Instant::now();
        loop {
            let found = self.look(prefix, after)?;
            if !found.is_empty() || began.elapsed() >= wait {
                return Ok(found);
            }
            sleep(LOOK.min(wait.saturating_sub(began.elapsed())));
        }
    }

    fn grant(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        let time_ms = (time_to_live.as_millis().div_ceil(1_000).max(1) * 1_000) as u64;
        self.write(|tables| {
            // Leases count from 1.
            let lease = tables.next(LAST_LEASE)? as i64;
            tables.leases.insert(lease, (time_ms, now_ms() + time_ms))?;
            Ok(LeaseId(lease))
        })
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        self.write(|tables| {
            let times = tables.leases.get(lease.0)?.map(|times| times.value());
            let (time_ms, _) = times.ok_or(Fault::Call(StoreError::LeaseExpired(lease)))?;
            tables.leases.insert(lease.0, (time_ms, now_ms() + time_ms))?;
            Ok(Duration::from_millis(time_ms))
        })
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.write(|tables| match tables.end(lease.0)? {
            true => Ok(()),
            false => Err(Fault::Call(StoreError::LeaseExpired(lease))),
        })
    }

    fn compact(&self, through: u64) -> Result<(), StoreError> {
        let place = self.path.display().to_string();
        self.write(|tables| {
            let revision = tables.number(REVISION)?;
            if through > revision {
                let reason = format!("expected a revision up to {revision}");
                return Err(Fault::Call(StoreError::Refused { place, reason }));
            }
            tables.compact(through)
        })
    }
}

fn entry_of(key: &str, (revision, _, value): (u64, i64, &[u8])) -> StoreEntry {
    StoreEntry { key: key.to_owned(), value: value.to_vec(), revision }
}

fn number(transaction: &ReadTransaction, name: &str) -> Result<u64, Fault> {
    Ok(transaction.open_table(NUMBERS)?.get(name)?.map_or(0, |number| number.value()))
}

fn has_expired_lease(transaction: &ReadTransaction) -> Result<bool, Fault> {
    let leases = match transaction.open_table(LEASES) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(false),
        leases => leases?,
    };
    let now_ms = now_ms();
    for lease in leases.iter()? {
        if lease?.1.value().1 <= now_ms {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unreachable(path: &Path, cause: &impl Display) -> StoreError {
    StoreError::Unreachable { place: path.display().to_string(), cause: cause.to_string() }
}

/// Returns the time since the machine's start, the same for all its processes.
fn now_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Neither is negative.
    time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
}

/// Returns a number that is another one after each start of the machine.
fn boot_number() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(1)
}
