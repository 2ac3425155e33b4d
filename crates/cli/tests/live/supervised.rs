//! Supervised programs that misbehave: what they write, and what is left of them.

use std::fs;
use std::process::Command;

use crate::externals::{alone, kill, processes, routed};
use crate::net::{Network, Rivulet, wait_until};

/// Returns a policy with a program between two ports: a shell that executes this script.
fn policy(network: &Network, script: &str) -> String {
    let path = network.path("program.sh");
    fs::write(&path, script).unwrap();
    format!(
        "Port<0> inside {{ address: 10.7.0.254/24 }};
         Port<1> outside {{ address: 203.0.113.254/24 }};
         Legacy box {{ command: \"sh {}\", stop_timeout: 1s }};
         pipelet {{ inside <-> box <-> outside; }}",
        path.display()
    )
}

#[test]
fn output_of_a_program_is_limited_and_escaped() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    let script = "printf 'one\\033]0;two\\007\\rrivulet: forged\\000end\\n'
        head -c 100000 /dev/zero | tr '\\0' a; echo
        yes flood | head -n 200000
        sleep 1
        echo done; exec sleep 600\n";
    let rivulet = network.up(&policy(&network, script), "");
    rivulet.wait_for_line("box: one\\u{1b}]0;two\\u{7}\\rrivulet: forged\\u{0}end");
    rivulet.wait_for_line(&format!("box: {}", "a".repeat(1_024)));
    rivulet.wait_for_line("rivulet: box: it writes more");
    // The log continues, and packets still pass.
    rivulet.wait_for_line("box: done");
    network.inside.ping("-c 2 -i 0.05 -W 2 203.0.113.2");
    let report = rivulet.end();
    let node = &report["programs"]["box"];
    assert_eq!(node["lines_cut"], 1, "{node}");
    assert!(node["lines_dropped"].as_u64().unwrap() > 190_000, "{node}");
}

#[test]
fn processes_of_killed_supervisors_end_at_the_next_start() {
    let _alone = alone();
    let Some(network) = routed() else { return };
    // Sessions of their own: three that ignore signals, and one without its environment.
    let name = network.middle.name().to_owned();
    let script = format!(
        "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; sleep 600; : {name}' & done
         env -i setsid sh -c 'sleep 600; : {name}' &
         exec sh -c 'sleep 600; : {name}'\n"
    );
    let policy = policy(&network, &script);
    let left = || processes(&format!(": {name}"));
    let start = || -> Rivulet {
        let rivulet = network.up(&policy, "");
        rivulet.wait_for_line("box: started");
        rivulet
    };
    let rivulet = start();
    wait_until("the program's processes run", || left().len() >= 5);
    let children = Command::new("pgrep").args(["-P", &rivulet.id().to_string()]).output().unwrap();
    let children = String::from_utf8(children.stdout).unwrap();
    kill(&children.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    drop(rivulet); // By SIGKILL.
    let former = left();
    assert!(former.len() >= 5, "nobody has killed them");
    let rivulet = start();
    wait_until("the program's processes run", || left().len() >= 5);
    let now = left();
    assert!(former.iter().all(|id| !now.contains(id)), "{former:?} are there besides {now:?}");
    network.inside.ping("-c 2 -i 0.05 -W 2 203.0.113.2");
    rivulet.end();
    assert_eq!(left(), [""; 0]);
}
