//! The services of `ops/systemd` under systemd itself, which is the first process of a namespace.

use std::path::Path;
use std::process::Command;

const SYSTEMD: &str = "/lib/systemd/systemd";

/// A dispatcher and a unit, as the manual says: both restart, and the control API is there.
const SCRIPT: &str = "
systemd-sysusers
ip link set lo up
for port in a b; do
  ip link add ${port}0 type veth peer name ${port}1
  ip link set ${port}0 up
  ip link set ${port}1 up
done
cd /etc/rivulet
rivulet cluster init certificates dispatcher unit-1 >/dev/null
chown -R rivulet: certificates
cat >site.rvl <<'POLICY'
Port<0> inside; Port<1> outside;
Monitor m {};
pipelet { inside <-> m <-> outside; }
POLICY
cat >unit-1.toml <<'NODE'
name = \"unit-1\"
role = \"unit\"
listen = \"127.0.0.1:7400\"
policy = \"site.rvl\"
certificates = \"certificates\"
NODE
cat >dispatcher.toml <<'NODE'
name = \"dispatcher\"
certificates = \"certificates\"
[units]
unit-1 = \"127.0.0.1:7400\"
NODE
cat >site.env <<'OPTIONS'
PORTS=--port inside=a0 --port outside=b0
OPTIONS=--cluster /etc/rivulet/dispatcher.toml
OPTIONS
say() {
  echo \"$1: $(systemctl is-active rivulet-node@unit-1 rivulet@site | tr '\\n' ' ')$(rivulet nodes | grep -c 'unit-1 *active')\"
}
systemctl start rivulet-node@unit-1 rivulet@site
say started
stat -c '%n %U %a' /run/rivulet /run/rivulet/* /var/lib/rivulet /var/log/rivulet
systemctl restart rivulet-node@unit-1
for try in $(seq 100); do rivulet nodes | grep -q 'unit-1 *active' && systemctl is-active -q rivulet@site && break; sleep 0.1; done
say restarted
systemctl restart rivulet@site
for try in $(seq 100); do rivulet nodes 2>/dev/null | grep -q 'unit-1 *active' && systemctl is-active -q rivulet@site && break; sleep 0.1; done
say 'dispatcher restarted'
kill -9 $(systemctl show -P MainPID rivulet@site)
for try in $(seq 100); do sleep 0.1; rivulet nodes 2>/dev/null | grep -q 'unit-1 *active' && systemctl is-active -q rivulet@site && break; done
say killed
systemctl stop rivulet@site rivulet-node@unit-1
echo \"stopped: $(systemctl is-failed rivulet@site rivulet-node@unit-1 | tr '\\n' ' ')\"
systemd-analyze verify --man=no /etc/systemd/system/rivulet@.service /etc/systemd/system/rivulet-node@.service 2>&1 | grep rivulet
";

#[test]
fn services_run_under_systemd() {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root || !Path::new(SYSTEMD).exists() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "systemd, and root, are needed");
        println!("SKIPPED: systemd, and root, are needed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (own, script) = (Path::new(env!("CARGO_MANIFEST_DIR")), folder.path().join("script"));
    std::fs::write(&script, SCRIPT).unwrap();
    let spaces = ["--pid", "--mount", "--uts", "--ipc", "--net", "--fork", "--kill-child"];
    let output = Command::new("timeout")
        .args(["90", "unshare"])
        .args(spaces)
        .args(["--propagation", "private"])
        .arg(own.join("tests/live/services.sh"))
        .args([
            Path::new(env!("CARGO_BIN_EXE_rivulet")),
            &own.join("../../ops/systemd"),
            &script,
            folder.path(),
        ])
        .output()
        .unwrap();
    let said = std::fs::read_to_string(folder.path().join("result/output")).unwrap_or_default();
    let expected = "started: active active 1\n\
                    /run/rivulet rivulet 755\n\
                    /run/rivulet/dispatcher.sock rivulet 600\n\
                    /var/lib/rivulet rivulet 750\n\
                    /var/log/rivulet rivulet 750\n\
                    restarted: active active 1\n\
                    dispatcher restarted: active active 1\n\
                    killed: active active 1\n\
                    stopped: inactive inactive \n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
