//! Mails in SMTP, and their files.

use crate::ids_support::*;

const EVIL: &str = r#"alert smtp any any -> any any (msg:"evil file"; flow:to_server; file.data; content:"evil literal"; sid:1;)"#;
/// `evil literal` in Base64.
const FILE: &str = "ZXZpbCBsaXRlcmFs";

/// Returns a mail with a text and, as a file, this one.
fn mail(coding: &str, file: &str) -> String {
    format!(
        "From: a@example.org\r\nContent-Type: multipart/mixed; boundary=\"b\"\r\n\r\n--b\r\n\r\nevil literal, in the text\r\n\
         --b\r\nContent-Disposition: attachment; filename=\"a\"\r\nContent-Transfer-Encoding: {coding}\r\n\r\n{file}\r\n--b--\r\n.\r\n"
    )
}

/// Returns a session that begins, up to the reply to `DATA`.
fn session(reply: &str) -> Talk {
    let mut talk = Talk::open(25);
    talk.says(Server, "220 mail.example\r\n").says(Client, "EHLO client.example\r\n");
    talk.says(Server, "250-mail.example\r\n250 PIPELINING\r\n");
    talk.says(Client, "MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.org>\r\nDATA\r\n");
    talk.says(Server, format!("250 ok\r\n250 ok\r\n{reply}\r\n"));
    talk
}

#[test]
fn a_file_is_inspected_when_its_mail_ends() {
    for (coding, file) in
        [("base64", FILE), ("quoted-printable", "=65vil =\r\nliteral"), ("7bit", "..evil literal")]
    {
        let mail = mail(coding, file);
        for len in [1, 7, 10_000] {
            let mut talk = session("354 go ahead");
            mail.as_bytes().chunks(len).for_each(|part| talk.piece(Client, part));
            let end = talk.segments.len() as u64;
            talk.says(Server, "250 ok\r\n").says(Client, "QUIT\r\n");
            assert_eq!(watch(EVIL, &talk.segments).reported, [(end, 1)], "{coding} {len}");
        }
    }
}

#[test]
fn only_files_of_mails_are_file_data_of_smtp() {
    // A text, and the same words among commands.
    let mut talk = session("354 go ahead");
    talk.says(Client, mail("7bit", "good literal")).says(Server, "250 ok\r\n");
    talk.says(Client, "NOOP evil literal\r\n").says(Server, "250 ok\r\n");
    assert_eq!(watch(EVIL, &talk.segments).rules(), [0; 0]);
    // `DATA` was refused: commands follow.
    let mut talk = session("554 no");
    talk.says(Client, mail("base64", FILE)).closes(Client);
    assert_eq!(watch(EVIL, &talk.segments).rules(), [0; 0]);
}

#[test]
fn each_mail_of_a_connection_is_inspected_and_so_are_chunks() {
    let mut talk = session("354 go ahead");
    let mail = mail("base64", FILE);
    talk.says(Client, &mail).says(Server, "250 ok\r\n");
    talk.says(Client, "DATA\r\n").says(Server, "354 go ahead\r\n").says(Client, &mail);
    let (a, b) = mail.split_at(100);
    talk.says(Client, format!("BDAT {}\r\n{a}BDAT {} LAST\r\n{b}RSET\r\n", a.len(), b.len()));
    assert_eq!(watch(EVIL, &talk.segments).rules(), [1, 1, 1]);
}

#[test]
fn rules_of_any_protocol_see_files_of_http_and_of_mails() {
    let rules = r#"
        alert tcp any any -> any any (msg:"any"; file.data; content:"evil literal"; sid:1;)
        alert http any any -> any any (msg:"http"; file.data; content:"evil literal"; sid:2;)
        alert tcp any any -> any any (msg:"response"; file.data; content:"evil literal"; http.stat_code; content:"200"; sid:3;)"#;
    let mut talk = session("354 go ahead");
    talk.says(Client, mail("base64", FILE));
    assert_eq!(watch(rules, &talk.segments).rules(), [1]);
    assert_eq!(
        reported(rules, &[(Client, b"GET / HTTP/1.1\r\n\r\n"), (Server, &page(b"evil literal"))]),
        [1, 2, 3]
    );
}

#[test]
fn an_incomplete_mail_is_inspected_when_its_connection_ends() {
    let mail = mail("base64", FILE);
    let begun = &mail[..mail.len() - 10];
    for ends in [true, false] {
        let mut talk = session("354 go ahead");
        talk.says(Client, begun);
        if ends {
            talk.closes(Client);
        }
        let packet = if ends { talk.segments.len() as u64 } else { 0 };
        assert_eq!(watch(EVIL, &talk.segments).reported, [(packet, 1)], "{ends}");
    }
}

#[test]
fn of_a_long_mail_the_first_bytes_are_inspected() {
    for (before, rules) in [(1_000, &[1][..]), (30_000, &[])] {
        let mut talk = session("354 go ahead");
        let text = mail("base64", FILE)
            .replace("--b\r\n\r\nevil", &format!("--b\r\n\r\n{}", "x\r\n".repeat(before / 3)));
        for part in text.as_bytes().chunks(1_400) {
            talk.piece(Client, part);
            talk.says(Server, "");
        }
        let seen = watch_with(EVIL, serde_json::json!({ "body": "10KiB" }), &talk.segments);
        assert_eq!((&seen.rules()[..], seen.counter("bodies_cut")), (rules, u64::from(rules.is_empty())));
    }
}

/// A mail inspected only in part is counted once, however it is cut into segments.
#[test]
fn the_rest_of_a_long_mail_is_counted_in_any_segments() {
    let text =
        mail("base64", FILE).replace("--b\r\n\r\nevil", &format!("--b\r\n\r\n{}", "x\r\n".repeat(3_000)));
    for (len, body) in [(1_000, 4_000), (1_000, 4_001), (1_024, 4_096), (1, 1_000)] {
        let mut talk = session("354 go ahead");
        for window in text.as_bytes().chunks(8 * len) {
            window.chunks(len).for_each(|part| talk.piece(Client, part));
            talk.says(Server, "");
        }
        let more = |beyond: &str| serde_json::json!({ "body": format!("{body}B"), "beyond": beyond });
        let seen = watch_with(EVIL, more("drop"), &talk.segments);
        assert_eq!((seen.rules(), seen.counter("bodies_cut")), (vec![], 1), "{len} {body}");
        assert_eq!(seen.drops.iter().find(|drop| drop.0 == "ids-beyond"), Some(&("ids-beyond", 1)));
        let seen = watch_with(EVIL, more("pass"), &talk.segments);
        assert_eq!((seen.drops.len(), seen.counter("bodies_cut")), (0, 1), "{len} {body}");
    }
    // The next mail counts for itself.
    let mut talk = session("354 go ahead");
    for text in [&text[..], "From: a\r\n\r\nx\r\n.\r\n", &text] {
        text.as_bytes().chunks(1_000).for_each(|part| {
            talk.says(Client, part).says(Server, "");
        });
        talk.says(Server, "250 ok\r\n").says(Client, "DATA\r\n").says(Server, "354 go ahead\r\n");
    }
    let seen = watch_with(EVIL, serde_json::json!({ "body": "4KiB" }), &talk.segments);
    assert_eq!(seen.counter("bodies_cut"), 2);
}

#[test]
fn a_mail_with_more_parts_than_are_inspected_is_counted() {
    let file = "Content-Type: a/b; name=x\r\n\r\n";
    let many = |parts: usize| {
        let parts = format!("--b\r\n{file}x\r\n").repeat(parts);
        format!(
            "Content-Type: multipart/mixed; boundary=b\r\n\r\n{parts}--b\r\n{file}evil literal\r\n--b--\r\n.\r\n"
        )
    };
    let deep = |depth: usize| {
        let begin = |level| format!("Content-Type: a/b; boundary=b{level}.\r\n\r\n--b{level}.\r\n");
        (0..depth).map(begin).collect::<String>() + file + "evil literal\r\n.\r\n"
    };
    for (mail, expected) in [(many(254), (1, 0)), (many(255), (0, 1)), (deep(16), (1, 0)), (deep(17), (0, 1))]
    {
        let mut talk = session("354 go ahead");
        mail.as_bytes().chunks(1_000).for_each(|part| {
            talk.says(Client, part).says(Server, "");
        });
        let seen = watch_with(EVIL, serde_json::json!({ "beyond": "drop" }), &talk.segments);
        assert_eq!((seen.rules().len() as u64, seen.counter("bodies_cut")), expected);
        assert_eq!(u64::from(seen.drops.iter().any(|drop| drop.0 == "ids-beyond")), expected.1);
    }
}
