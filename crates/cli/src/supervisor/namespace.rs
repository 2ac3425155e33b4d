//! The network namespace of a legacy node, and the veth pairs into it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use runtime::external::{LegacyPlan, NodeMode};
use rustix::process::{Pid, Signal, kill_process};

use super::lock::NodeLock;
use super::program;
use super::remains::Mark;

/// Beginning of the alias of interfaces that Rivulet made.
const ALIAS: &str = "rivulet node";
/// The bridge of a bridged node.
const BRIDGE: &str = "rivulet0";

/// The namespace of a legacy node. [`Namespace::remove`] removes everything created for the node.
pub(super) struct Namespace<'p> {
    plan: &'p LegacyPlan,
    mark: Mark,
}

impl Namespace<'_> {
    /// Makes the namespace and the interfaces of a plan, and runs its setup. A former holder of the
    /// lock may have left remains.
    pub fn make<'p>(plan: &'p LegacyPlan, lock: &mut NodeLock) -> anyhow::Result<Namespace<'p>> {
        let namespace = Namespace { plan, mark: Mark::new() };
        if let Some(former) = lock.former() {
            former.kill_processes();
        }
        namespace.remove_remains()?;
        lock.note(&namespace.mark)?;
        let made = namespace.begin().and_then(|()| namespace.set_up());
        if let Err(error) = made {
            namespace.remove();
            return Err(error);
        }
        Ok(namespace)
    }

    /// Returns the mark of all processes that are started for the node.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Removes everything created for the node, and processes that the program left.
    pub fn remove(&self) {
        if self.plan.is_own_netns {
            self.kill_processes();
        }
        self.mark.kill_processes();
        for host in &self.plan.host_interfaces {
            let _ = ip(&["link", "del", host]);
        }
        if self.plan.is_own_netns {
            let _ = ip(&["netns", "del", &self.plan.netns]);
        }
    }

    /// Removes the remains of a killed predecessor.
    fn remove_remains(&self) -> anyhow::Result<()> {
        let plan = self.plan;
        for host in &plan.host_interfaces {
            match ip(&["-j", "link", "show", "dev", host]) {
                Ok(shown) if shown.contains(&format!("\"ifalias\":\"{ALIAS}")) => {
                    ip(&["link", "del", host])?;
                }
                Ok(_) => {
                    bail!("there is an interface {host} that Rivulet has not made; rename it or the node")
                }
                Err(_) => {}
            }
        }
        let is_there = Path::new("/run/netns").join(&plan.netns).exists();
        if plan.is_own_netns && is_there {
            self.kill_processes();
            ip(&["netns", "del", &plan.netns])?;
        }
        if !plan.is_own_netns && !is_there {
            bail!("there is no network namespace {0}; make it: `ip netns add {0}`", plan.netns);
        }
        Ok(())
    }

    fn begin(&self) -> anyhow::Result<()> {
        let plan = self.plan;
        if plan.is_own_netns {
            ip(&["netns", "add", &plan.netns])?;
        }
        let interfaces = plan.host_interfaces.iter().zip(&plan.interfaces).zip(plan.mtus);
        for ((host, inner), mtu) in interfaces {
            let (netns, alias) = (&*plan.netns, format!("{ALIAS} {}", plan.name));
            // Leaves room for a second VLAN tag; a single tag always fits.
            let mtu = (mtu + plan.tag_len).to_string();
            let pair = ["link", "add", host, "mtu", &mtu, "type", "veth", "peer", "name", inner, "mtu", &mtu];
            ip(&[&pair[..], &["netns", netns]].concat())?;
            // The kernel must not send IPv6 packets of its own on a link that only carries foreign
            // ones. `ip` sets an interface up before it sets the mode.
            ip(&["link", "set", host, "alias", &alias, "addrgenmode", "none"])?;
            ip(&["link", "set", host, "up"])?;
            if plan.mode != NodeMode::Routed {
                ip(&["-n", netns, "link", "set", inner, "addrgenmode", "none"])?;
            }
            ip(&["-n", netns, "link", "set", inner, "up"])?;
        }
        ip(&["-n", &plan.netns, "link", "set", "lo", "up"])?;
        if plan.is_own_netns {
            ip(&["-n", &plan.netns, "link", "set", "lo", "alias", &self.mark.alias()])?;
        }
        Ok(())
    }

    fn set_up(&self) -> anyhow::Result<()> {
        match self.plan.mode {
            NodeMode::Routed => self.route()?,
            NodeMode::Bridged => self.bridge()?,
            NodeMode::Inline => self.refuse_long_frames()?,
        }
        for words in &self.plan.setup {
            let line = words.join(" ");
            let output =
                program::command(self.plan, &self.mark, words)?.output().context("cannot run `ip`")?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                bail!("`{line}` failed ({}): {}", output.status, said.trim());
            }
        }
        Ok(())
    }

    /// Gives the namespace addresses and routes, and has it forward.
    fn route(&self) -> anyhow::Result<()> {
        let plan = self.plan;
        let netns = &*plan.netns;
        self.set("ipv4/ip_forward", 1)?;
        self.set("ipv6/conf/all/forwarding", 1)?;
        for interface in ["all", "default"].into_iter().chain(plan.interfaces.iter().map(String::as_str)) {
            self.set(&format!("ipv4/conf/{interface}/rp_filter"), 0)?;
            self.set(&format!("ipv4/conf/{interface}/send_redirects"), 0)?;
        }
        for (addresses, interface) in plan.addresses.iter().zip(&plan.interfaces) {
            for address in addresses {
                let arguments = ["-n", netns, "addr", "add", address, "dev", interface];
                let no_detection: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
                ip(&[&arguments, no_detection].concat())?;
            }
        }
        let [inside, outside] = &plan.gateways;
        for network in &plan.networks {
            let Some(via) = inside.iter().find(|via| via.is_ipv6() == network.contains(':')) else {
                continue;
            };
            let via = via.to_string();
            ip(&["-n", netns, "route", "replace", network, "via", &via, "dev", &plan.interfaces[0]])?;
        }
        for via in outside {
            let (version, via) = (if via.is_ipv4() { "-4" } else { "-6" }, via.to_string());
            let interface = &plan.interfaces[1];
            ip(&["-n", netns, version, "route", "replace", "default", "via", &via, "dev", interface])?;
        }
        Ok(())
    }

    /// Makes the interfaces ports of a bridge.
    fn bridge(&self) -> anyhow::Result<()> {
        let netns = &*self.plan.netns;
        ip(&["-n", netns, "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0"])?;
        ip(&["-n", netns, "link", "set", BRIDGE, "addrgenmode", "none"])?;
        ip(&["-n", netns, "link", "set", BRIDGE, "up"])?;
        for interface in &self.plan.interfaces {
            ip(&["-n", netns, "link", "set", interface, "master", BRIDGE])?;
        }
        Ok(())
    }

    /// Has the kernel segment frames for a program that reads them from the interface: it cannot
    /// send frames longer than the interface's MTU.
    fn refuse_long_frames(&self) -> anyhow::Result<()> {
        const OFF: [&str; 10] = ["rx", "off", "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
        for host in &self.plan.host_interfaces {
            run("ethtool", &[&["-K", host], &OFF[..]].concat())?;
        }
        for interface in &self.plan.interfaces {
            let inside = ["netns", "exec", &self.plan.netns, "ethtool", "-K", interface];
            ip(&[&inside, &OFF[..]].concat())?;
        }
        Ok(())
    }

    /// Sets a kernel variable of the namespace. Skips variables that the kernel lacks, as without
    /// IPv6.
    fn set(&self, name: &str, value: u8) -> anyhow::Result<()> {
        let (path, value) = (format!("/proc/sys/net/{name}"), value.to_string());
        let script = "test ! -e \"$1\" || echo \"$2\" > \"$1\"";
        ip(&["netns", "exec", &self.plan.netns, "sh", "-c", script, "sh", &path, &value])?;
        Ok(())
    }

    fn kill_processes(&self) {
        let Ok(ids) = ip(&["netns", "pids", &self.plan.netns]) else { return };
        for id in ids.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)) {
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

/// Runs `ip` and returns its output.
fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run `{program}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}`: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
