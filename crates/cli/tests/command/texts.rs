//! Text files: encodings, limits, and permitted folders.

use super::*;

const FIREWALL: &str = "Port<0> inside;\nPort<1> outside;\nFirewall f { rules: file(\"f.rules\") };\npipelet { inside <-> f <-> outside; }\n";
const IDS: &str = "Port<0> inside;\nPort<1> outside;\nIDS i { rules: file(\"i.rules\"), mode: detect };\npipelet { inside <-> i <-> outside; }\n";

fn place() -> Place {
    let place = Place::new();
    place.stdout("traffic --preset web --packets 200 --seed 1 --write in.pcap");
    place
}

#[test]
fn byte_order_marks_and_line_ends_are_ignored() {
    let place = place();
    let utf16: Vec<u8> = "\u{feff}allow out\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let policy = [b"\xef\xbb\xbf", FIREWALL.replace('\n', "\r\n").as_bytes()].concat();
    place.write("p.rvl", policy);
    for rules in [&b"\xef\xbb\xbfallow out\r\n"[..], &utf16, b"# r\xe4gles\nallow out"] {
        place.write("f.rules", rules);
        place.json("run p.rvl --read in.pcap -o json --seed 1");
    }
    place.write("script", b"\xef\xbb\xbf0s f default allow\r\n");
    place.json("run p.rvl --read in.pcap --control script -o json --seed 1");
}

#[test]
fn a_byte_that_is_not_utf8_refuses_only_its_rule() {
    let place = place();
    place.write("p.rvl", IDS);
    let rules: &[u8] = b"# r\xe8gles\n\
        alert tcp any any -> any any (msg:\"B\xfcro\"; content:\"GET\"; sid:1;)\n\
        alert tcp any any -> any any (msg:\"bytes\"; content:\"B\xfcro\"; sid:2;)\n\
        alert tcp any any -> any any (msg:\"bytes\"; pcre:\"/B\xfcro/\"; sid:3;)\n";
    place.write("i.rules", rules);
    let output = place.run("rules i.rules -o json");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["loaded"], &answer["refused"]), (&1.into(), &2.into()), "{answer}");
    let problems = answer["problems"].as_array().unwrap();
    let places: Vec<_> = problems.iter().map(|it| (it["line"].as_u64(), it["column"].as_u64())).collect();
    assert_eq!(places, [(Some(3), Some(54)), (Some(4), Some(52))], "{answer}");
    let said = stderr(&place.run("run p.rvl --read in.pcap --seed 1"));
    assert!(said.contains("i.rules:3:54") && said.contains("not UTF-8"), "{said}");
    place.write("i.rules", rules.split_inclusive(|&byte| byte == b'\n').take(2).collect::<Vec<_>>().concat());
    place.json("run p.rvl --read in.pcap -o json --seed 1 --alerts eve.json");
    assert!(!place.read("eve.json").is_empty());
}

#[test]
fn a_policy_reads_files_in_its_folder_or_in_included_ones() {
    let place = place();
    for folder in ["site", "shared", "shared/deep"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("shared/deep/f.rules", "allow out");
    let run = "run site/p.rvl --read in.pcap --seed 1";
    place.write("site/p.rvl", FIREWALL.replace("f.rules", "../shared/deep/f.rules"));
    let said = place.refused(1, run);
    assert!(said.contains("site/p.rvl:3:26") && said.contains("outside of the policy's folder"), "{said}");
    place.stdout(&format!("{run} --include shared"));
    place.write(
        "site/p.rvl",
        FIREWALL.replace("f.rules", place.path("shared/deep/f.rules").to_str().unwrap()),
    );
    place.refused(1, run);
    place.stdout(&format!("{run} --include shared/deep"));
    // A link that leads out of the folder.
    place.write("site/p.rvl", FIREWALL);
    std::os::unix::fs::symlink("/etc/shadow", place.path("site/f.rules")).unwrap();
    let said = place.refused(1, run);
    assert!(!said.contains("root:"), "{said}");
}

#[test]
fn endless_files_are_not_read() {
    let place = place();
    place.write("p.rvl", FIREWALL.replace("f.rules", "/dev/zero"));
    let said = place.refused(1, "run p.rvl --read in.pcap --include /dev");
    assert!(said.contains("not a regular file"), "{said}");
    place.write("p.rvl", FIREWALL);
    assert!(Command::new("mkfifo").arg(place.path("f.rules")).status().unwrap().success());
    let said = place.refused(1, "run p.rvl --read in.pcap");
    assert!(said.contains("not a regular file"), "{said}");
    let said = place.refused(1, "run /dev/zero --read in.pcap");
    assert!(said.contains("neither a file nor a pipe"), "{said}");
    place.write("large", vec![b'#'; ::policy::SOURCE_BYTES_MAX + 1]);
    place.write("p.rvl", FIREWALL.replace("f.rules", "large"));
    let said = place.refused(1, "run p.rvl --read in.pcap");
    assert!(said.contains("longer than 16777216 bytes"), "{said}");
    place.write("p.rvl", WIRE);
    let said = place.refused(1, "run p.rvl --read in.pcap --control large");
    assert!(said.contains("longer than 16777216 bytes"), "{said}");
}

/// The text of a filter cannot end the policy that defines its names, and add to it.
#[test]
fn a_filter_is_only_a_filter() {
    let place = place();
    place.write("p.rvl", format!("let web = [80, 443];\n{WIRE}"));
    let explain = |filter: &str| {
        let mut command = place.command("explain p.rvl --read in.pcap --seed 1 --limit 3 -o json");
        command.args(["--filter", filter]).output().unwrap()
    };
    for filter in ["dst port $web", "tcp && !(src port 1-1023)", "true # whatever\n"] {
        assert!(explain(filter).status.success(), "{filter}: {}", stderr(&explain(filter)));
    }
    for (filter, wrong) in [
        ("true ] -> Drop; } Monitor m; pipelet { rivulet-filter-in [ true", "the end of the filter"),
        ("true; Port<7> x", "the end of the filter"),
        ("", "found the end"),
        ("dst port nonsense", "nonsense"),
    ] {
        let output = explain(filter);
        assert_eq!(output.status.code(), Some(1), "{filter}");
        assert!(stderr(&output).contains(wrong), "{filter}: {}", stderr(&output));
    }
}
