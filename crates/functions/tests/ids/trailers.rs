//! Trailers of chunked messages.

use crate::ids_support::*;

const POST: &str =
    "POST /a HTTP/1.1\r\nContent-Type: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n";
const ANSWER: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n";
const TRAILERS: &str = "X-Evil: yes\r\nContent-Type: evil\r\nContent-Encoding: gzip\r\n\r\n";

/// Returns a rule of this number about messages in this direction.
fn rule(direction: &str, options: &str, sid: u32) -> String {
    format!("alert http any any -> any any (flow:{direction}; {options} sid:{sid};)\n")
}

#[test]
fn trailers_are_lines_of_the_buffers_of_all_headers() {
    for (who, direction, head, single) in [
        (Client, "to_server", POST, "http.request_header"),
        (Server, "to_client", ANSWER, "http.response_header"),
    ] {
        let rules: String = [
            r#"http.header; content:"X-Evil: yes|0d 0a|";"#,
            r#"http.header.raw; content:"|0d 0a 0d 0a|X-Evil: yes|0d 0a|"; content:"gzip|0d 0a 0d 0a|"; endswith;"#,
            r#"http.header_names; content:"|0d 0a|X-Evil|0d 0a|";"#,
            &format!(r#"{single}; content:"X-Evil: yes"; bsize:11;"#),
            r#"http.start; content:"X-Evil: yes|0d 0a|";"#,
            r#"http.header; content:"X-Evil: yes"; file.data; content:"body"; bsize:4;"#,
            // They change neither the body nor the header of the same name.
            r#"http.content_type; content:"evil";"#,
            r#"http.content_type; content:"h, evil";"#,
            // It matched the head already.
            r#"http.header; content:"chunked";"#,
            r#"http.header_names; content:!"X-Evil";"#,
        ]
        .iter()
        .zip(1..)
        .map(|(options, sid)| rule(direction, options, sid))
        .collect();
        let text = [head, TRAILERS].concat();
        for len in [1, 7, head.len() - 3, 10_000] {
            let mut talk = Talk::open(80);
            if who == Server {
                talk.says(Client, "GET /a HTTP/1.1\r\n\r\n");
            }
            text.as_bytes().chunks(len).for_each(|part| talk.piece(who, part));
            let mut rules = watch(&rules, &talk.segments).rules();
            rules.sort_unstable();
            assert_eq!(rules, [1, 2, 3, 4, 5, 6, 9, 10], "{who:?} {len}");
        }
    }
}

#[test]
fn what_a_trailer_lets_match_is_reported_with_its_packet() {
    let rules = rule("to_server", r#"http.header; content:"X-Evil";"#, 1);
    let mut talk = Talk::open(80);
    talk.says(Client, POST).says(Client, TRAILERS).says(Client, [POST, "\r\n"].concat());
    assert_eq!(watch(&rules, &talk.segments).reported, [(5, 1)]);
}

#[test]
fn trailers_beyond_the_head_are_left_out() {
    let rules = rule("to_server", r#"http.header; content:"first";"#, 1)
        + &rule("to_server", r#"http.header; content:"second";"#, 2);
    let mut talk = Talk::open(80);
    talk.says(Client, [POST, "A: first\r\nB: ", &"x".repeat(100), "\r\nC: second\r\n\r\n"].concat());
    let seen = watch_with(&rules, serde_json::json!({ "head": "100B" }), &talk.segments);
    assert_eq!((seen.rules(), seen.counter("heads_cut")), (vec![1], 1));
}
