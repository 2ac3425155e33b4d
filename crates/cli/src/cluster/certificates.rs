//! `rivulet cluster`: issues, renews and revokes certificates.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use cluster::identity::{
    Authority, CERTIFICATE_DAYS, CERTIFICATE_DAYS_MAX, Holder, REVOKED_FILE, Subject, holders,
    is_authority_due, read_certificate,
};

use crate::output;

const EXAMPLES: &str = "\
Examples:
  rivulet cluster init certificates dispatcher unit-1 unit-2 operator:jane
  rivulet cluster init certificates dispatcher=10.0.0.1,rivulet.example
  rivulet cluster init certificates unit:host-3 viewer:monitoring
  rivulet cluster renew certificates
  rivulet cluster revoke certificates unit-2";

/// Issue, renew and revoke the certificates of a cluster
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct ClusterArgs {
    #[command(subcommand)]
    task: ClusterTask,
}

#[derive(Debug, clap::Subcommand)]
enum ClusterTask {
    /// Create an authority in a folder, if there is none, and issue certificates
    ///
    /// A node needs ca.pem and its own NAME.pem and NAME.key. Keep ca.key apart: its holder can
    /// admit nodes.
    Init {
        /// The folder
        folder: PathBuf,
        /// Role and name of each: unit, dispatcher, manager, operator, viewer or etcd. A name that
        /// begins with its role needs no other: unit-1. =HOST,... also gives hosts, names or IP
        /// addresses that clients use to reach a dispatcher's control API or etcd
        #[arg(required = true, value_name = "[ROLE:]NAME[=HOST,...]")]
        nodes: Vec<String>,
        /// Name of the cluster: nodes of clusters with other names are refused [default: that of
        /// the authority, or rivulet]
        #[arg(long, value_name = "NAME")]
        cluster: Option<String>,
        #[command(flatten)]
        validity: Validity,
    },
    /// Issue certificates again: those with less than a third of their time left, or no role
    ///
    /// Names, roles and hosts stay. Running nodes take new files within a second.
    Renew {
        /// The folder
        folder: PathBuf,
        /// Only these, whatever time is left; ROLE:NAME for a certificate without a role
        #[arg(value_name = "[ROLE:]NAME")]
        nodes: Vec<String>,
        /// All, whatever time is left; the authority, too
        #[arg(long, conflicts_with = "nodes")]
        all: bool,
        #[command(flatten)]
        validity: Validity,
    },
    /// Add certificates to the folder's list of revoked ones, crl.pem
    ///
    /// Nodes that get the list refuse them, and end their links to them. Of a name, all that were
    /// issued in the folder, also before they were renewed.
    Revoke {
        /// The folder
        folder: PathBuf,
        /// Names, or files of certificates
        #[arg(required = true, value_name = "NAME|FILE")]
        nodes: Vec<String>,
    },
}

/// Validity of certificates.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Validity {
    /// Validity of certificates in days
    #[arg(long, value_name = "DAYS", default_value_t = CERTIFICATE_DAYS, value_parser = clap::value_parser!(u32).range(1..=i64::from(CERTIFICATE_DAYS_MAX)))]
    days: u32,
}

/// Runs `rivulet cluster`.
pub fn issue(args: &ClusterArgs) -> anyhow::Result<ExitCode> {
    match &args.task {
        ClusterTask::Init { folder, nodes, cluster, validity } => {
            let subjects: Vec<Subject> =
                nodes.iter().map(|node| parse(node)).collect::<anyhow::Result<_>>()?;
            let authority = Authority::open(folder, cluster.as_deref())?;
            for subject in &subjects {
                let file = authority.issue_to(folder, subject, validity.days)?;
                say(&file, subject, "certificate and key")?;
            }
        }
        ClusterTask::Renew { folder, nodes, all, validity } => renew(folder, nodes, *all, validity.days)?,
        ClusterTask::Revoke { folder, nodes } => {
            let files: Vec<PathBuf> = nodes.iter().map(|node| file_of(folder, node)).collect();
            let names = nodes.iter().filter(|node| !node.ends_with(".pem"));
            let names: Vec<&str> = names.map(|node| node.rsplit(':').next().unwrap_or(node)).collect();
            let count = Authority::read(folder)?.revoke(folder, &files, &names)?;
            output::print(&format!(
                "{}: {count} more; copy it to the folder of each node\n",
                folder.join(REVOKED_FILE).display(),
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(node: &str) -> anyhow::Result<Subject> {
    node.parse().map_err(|error: String| anyhow!(error))
}

fn say(file: &Path, subject: &Subject, what: &str) -> anyhow::Result<()> {
    let Subject { role, name, .. } = subject;
    let line = format!("{}: {what} of {name}, for the role {role}\n", file.display());
    Ok(output::print(&line)?)
}

/// Returns the file of a certificate that is named by its node or by itself.
fn file_of(folder: &Path, node: &str) -> PathBuf {
    match node.ends_with(".pem") {
        true => PathBuf::from(node),
        false => folder.join(format!("{}.pem", node.rsplit(':').next().unwrap_or(node))),
    }
}

fn renew(folder: &Path, nodes: &[String], all: bool, days: u32) -> anyhow::Result<()> {
    let mut authority = Authority::read(folder)?;
    let mut count = 0;
    if all || nodes.is_empty() && is_authority_due(folder)? {
        authority.renew(folder)?;
        output::print(&format!("{}: certificate of the authority\n", folder.join("ca.pem").display()))?;
        count += 1;
    }
    let held = holders(folder)?;
    let subjects: Vec<Subject> = match nodes.is_empty() {
        false => nodes.iter().map(|node| named(&held, node)).collect::<anyhow::Result<_>>()?,
        true => {
            let due = held.iter().filter(|holder| all || holder.is_due());
            due.map(with_role).collect::<anyhow::Result<_>>()?
        }
    };
    for subject in &subjects {
        let file = authority.issue_to(folder, subject, days)?;
        say(&file, subject, "new certificate and key")?;
        count += 1;
    }
    if count == 0 {
        output::print("no certificate needs renewal; --all renews everything\n")?;
    }
    Ok(())
}

fn with_role(holder: &Holder) -> anyhow::Result<Subject> {
    let missing = || {
        format!(
            "{}: it has no role; expected `renew {} ROLE:{}`",
            holder.file.display(),
            holder.file.parent().unwrap_or(Path::new("")).display(),
            holder.name
        )
    };
    holder.subject.clone().with_context(missing)
}

/// Returns the holder of a certificate that is named: with another role if the name says it.
fn named(held: &[Holder], node: &str) -> anyhow::Result<Subject> {
    let name = node.split_once(':').map_or(node, |(_, name)| name);
    let Some(holder) = held.iter().find(|holder| holder.name == name) else {
        bail!("there is no certificate of `{name}` with its key; `rivulet cluster init` issues one");
    };
    if name == node {
        return with_role(holder);
    }
    let hosts = read_certificate(&holder.file)?.hosts.into_iter().filter(|host| host != name).collect();
    Ok(Subject { hosts, ..parse(node)? })
}
