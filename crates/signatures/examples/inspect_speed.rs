//! The speed of evaluations: `cargo run --profile dist -p signatures --example inspect_speed`.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on has failed")]

use std::hint::black_box;
use std::time::Instant;

use signatures::inspect::{Inspection, InspectionScratch};
use signatures::{Classifications, RuleVariables, Ruleset};

const REQUEST: &[u8] = b"POST /cgi-bin/status.cgi?id=4711&name=visitor HTTP/1.1\r\nHost: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-GB,en;q=0.5\r\n\
    Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n";

fn main() {
    let mut filled = REQUEST.to_vec();
    filled.extend((0..1460 - REQUEST.len()).map(|i| b"abcdefghij klmnopqrst=uvwxyz&0123456789"[i * 7 % 39]));
    let letters = vec![b'a'; 1460];
    let with_length = [&filled[..700], b"LEN:\x05_____end", &filled[700..1446]].concat();
    println!("{:>9}  what is asked of how many bytes", "ns");
    for (what, options, bytes) in [
        ("a content at the start", r#"content:"POST "; depth:5;"#, &filled),
        ("a content that is there", r#"content:"User-Agent|3a 20|";"#, &filled),
        ("a content that is not there", r#"content:"/etc/passwd";"#, &filled),
        ("the same in any case", r#"content:"/etc/passwd"; nocase;"#, &filled),
        (
            "four contents, the last three relative",
            r#"content:"POST "; depth:5; content:"/cgi-bin/"; distance:0; content:"id="; distance:0; content:"&name="; within:20;"#,
            &filled,
        ),
        (
            "a content, then a length to jump over",
            r#"content:"LEN|3a|"; byte_jump:1,0,relative; content:"end"; within:3;"#,
            &with_length,
        ),
        (
            "a content, then an expression",
            r#"content:"Host|3a|"; pcre:"/^\s*www\.[a-z]+\.org\r/R";"#,
            &filled,
        ),
        (
            "an expression that is not there",
            r#"pcre:"/(select|insert|update)\s+\w+\s+(from|into)/i";"#,
            &filled,
        ),
        (
            "hostile: three contents in a text of one letter",
            r#"content:"a"; content:"a"; distance:1; content:"b"; within:20;"#,
            &letters,
        ),
        (
            "hostile: to the last step",
            r#"content:"a"; byte_extract:1,0,n,relative; content:"a"; distance:0; content:"b"; distance:n;"#,
            &letters,
        ),
    ] {
        let ns = measure(options, bytes);
        println!("{ns:>9.0}  {what}, of {}", bytes.len());
    }
}

/// Returns the best of some rounds, in ns per evaluation.
fn measure(options: &str, bytes: &[u8]) -> f64 {
    let text = format!("alert tcp any any -> any any ({options} sid:1;)");
    let report = Ruleset::read("speed", &text, &RuleVariables::default(), &Classifications::default());
    let inspection = Inspection::new(&report.ruleset.rules()[0].rule).unwrap();
    let mut scratch = InspectionScratch::new();
    let mut round = |times: u32| {
        let start = Instant::now();
        for _ in 0..times {
            scratch.begin();
            black_box(inspection.buffer(0).holds(black_box(bytes), &mut scratch));
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(times)
    };
    let times = (2e7 / round(100)).clamp(10.0, 1e6) as u32;
    (0..15).map(|_| round(times)).fold(f64::INFINITY, f64::min)
}
