//! Valid messages and their events.

use crate::support::Connection;
use applayer::http::ExchangeSide::{Request, Response};

#[test]
fn a_request_and_its_response() {
    let mut c = Connection::default();
    c.request("GET /a?b HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
    assert_eq!(
        c.reported(Request),
        "request GET /a?b HTTP/1.1 Get #0\nheader Host: x\nheader Accept: */*\nframing None\nend Complete"
    );
    assert_eq!(c.exchange.unanswered(), 1);
    c.response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 ");
    assert_eq!(
        c.reported(Response),
        "response HTTP/1.1 200 OK to #0\nheader Content-Length: 5\nframing Length(5)\nbody hello\nend Complete"
    );
    assert_eq!(c.exchange.unanswered(), 0);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut c = Connection::default();
    c.request("HEAD /0 HTTP/1.1\r\nHost: x\r\n\r\nGET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    c.response(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx",
    );
    let reported = c.reported(Response);
    assert!(reported.contains("to #0\nheader Content-Length: 5\nframing None\nend Complete"), "{reported}");
    assert!(
        reported.contains("404 Not Found to #1\nheader Content-Length: 1\nframing Length(1)\nbody x"),
        "{reported}"
    );
    assert!(!reported.contains('!'), "{reported}");
}

#[test]
fn chunked_bodies_are_decoded() {
    let mut c = Connection::default();
    c.request("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    c.request(
        "5;a=b\r\nhello\r\n10\r\n, wonderful worl\r\n1\r\nd\r\n0\r\nDigest: y\r\n\r\nGET / HTTP/1.1\r\n",
    );
    assert_eq!(
        c.reported(Request),
        "request POST / HTTP/1.1 Post #0\nheader Host: x\nheader Transfer-Encoding: chunked\nframing Chunked\n\
         extension ;a=b\nbody hello, wonderful world\ntrailer Digest: y\nend Complete\nrequest GET / HTTP/1.1 Get #1"
    );
}

#[test]
fn responses_without_length_go_on_until_the_end() {
    let mut c = Connection::default();
    c.request("GET / HTTP/1.0\r\n\r\n").response("HTTP/1.0 200 OK\r\n\r\na\nb").end(Response);
    assert_eq!(
        c.reported(Response),
        "response HTTP/1.0 200 OK to #0\nframing UntilClose\nbody a\\nb\nend Complete"
    );
    c.response("late");
    assert_eq!(c.reported(Response), "skipped late");
}

#[test]
fn interim_responses_answer_nothing() {
    let mut c = Connection::default();
    c.request("PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    c.response("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: y\r\n\r\n");
    c.request("z").response("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(
        c.reported(Response),
        "response HTTP/1.1 100 Continue to #0 interim\nframing None\nend Complete\n\
         response HTTP/1.1 103 Early Hints to #0 interim\nheader Link: y\nframing None\nend Complete\n\
         response HTTP/1.1 204 No Content to #0\nframing None\nend Complete"
    );
}

#[test]
fn an_upgrade_makes_both_directions_opaque() {
    let mut c = Connection::default();
    c.request("GET /chat HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    c.response("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x01GET");
    c.request("\x02GET / HTTP/1.1\r\n").request("\x03");
    let reported = c.reported(Response);
    assert!(
        reported.ends_with("framing None\nend Complete\nswitched Upgrade\nopaque \\x01GET"),
        "{reported}"
    );
    let reported = c.reported(Request);
    assert!(
        reported.ends_with("end Complete\nswitched Upgrade\nopaque \\x02GET / HTTP/1.1\\r\\n\\x03"),
        "{reported}"
    );
    assert!(!reported.contains('!'));
}

#[test]
fn an_upgrade_waits_for_the_body_of_its_request() {
    let mut c = Connection::default();
    c.request("POST / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\na");
    c.response("HTTP/1.1 101 Switching Protocols\r\n\r\n");
    assert!(!c.exchange.is_switched(), "the request has not ended");
    c.request("bPRI");
    assert!(c.exchange.is_switched());
    let reported = c.reported(Request);
    assert!(reported.ends_with("body ab\nend Complete\nswitched Http2\nopaque PRI"), "{reported}");
}

#[test]
fn connect_opens_a_tunnel() {
    let mut c = Connection::default();
    c.request("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n");
    assert!(!c.exchange.is_switched());
    c.response("HTTP/1.1 200 OK\r\n\r\n\x16\x03");
    assert!(c.exchange.is_switched());
    c.request("GET / HTTP/1.1\r\n");
    assert!(c.reported(Response).ends_with("end Complete\nswitched Tunnel\nopaque \\x16\\x03"));
    assert!(c.reported(Request).ends_with("end Complete\nswitched Tunnel\nopaque GET / HTTP/1.1\\r\\n"));
}

#[test]
fn a_refused_connect_opens_no_tunnel() {
    let mut c = Connection::default();
    c.request("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n\x16\x03");
    assert!(c.reported(Request).ends_with("switched Tunnel\n! early-tunnel-data\nopaque \\x16\\x03"));
    c.response("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").request("GET / HTTP/1.1\r\n");
    assert_eq!(c.reported(Request), "request GET / HTTP/1.1 Get #1");
}

#[test]
fn requests_after_an_unanswered_connect_are_parsed() {
    let mut c = Connection::default();
    c.request("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(c.reported(Request).contains("request GET /hidden HTTP/1.1 Get #1\n! early-tunnel-data"));
    c.response("HTTP/1.1 200 OK\r\n\r\n").request("more");
    assert_eq!(c.reported(Request), "switched Tunnel\nopaque more");
}

#[test]
fn http2_with_prior_knowledge_is_opaque() {
    let mut c = Connection::default();
    c.request("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0").response("\0\0\x12\x04");
    assert_eq!(
        c.reported(Request),
        "switched Http2\n! http2-unread\nopaque PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\x00"
    );
    assert_eq!(c.reported(Response), "switched Http2\nopaque \\x00\\x00\\x12\\x04");
}

#[test]
fn http_09_has_no_headers() {
    let mut c = Connection::default();
    c.request("GET /old\r\n").response("<html>\n").response("</html>").end(Response);
    assert_eq!(c.reported(Request), "request GET /old  Get #0\n! missing-version");
    assert_eq!(
        c.reported(Response),
        "response  0  to #0\nframing UntilClose\nbody <html>\\n</html>\nend Complete"
    );
    c.request("GET /next\r\n").end(Request);
    assert_eq!(
        c.reported(Request),
        "framing None\nend Complete\nrequest GET /next  Get #1\n! missing-version\nframing None\nend Complete"
    );
    let mut c = Connection::default();
    c.request("POST /a\r\nContent-Length: 1\r\n\r\nb");
    assert!(
        c.reported(Request).ends_with("header Content-Length: 1\nframing Length(1)\nbody b\nend Complete")
    );
    let mut c = Connection::default();
    c.request("GET /old\r\n").response("HTTP/1.0 404 Not Found\r\n\r\n");
    assert!(c.reported(Response).starts_with("response HTTP/1.0 404 Not Found to #0"));
}

#[test]
fn gaps_in_bodies_cost_no_message() {
    let mut c = Connection::default();
    c.request("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab")
        .gap(Request, 5)
        .request("hijGET /n HTTP/1.1\r\n");
    let reported = c.reported(Request);
    assert!(
        reported.ends_with("body ab\ngap 5\nbody hij\nend Complete\nrequest GET /n HTTP/1.1 Get #1"),
        "{reported}"
    );
    let mut c = Connection::default();
    c.request("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    c.response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
        .gap(Response, 3)
        .response("\r\n0\r\n\r\n");
    let reported = c.reported(Response);
    assert!(reported.ends_with("body ab\ngap 3\nend Complete"), "{reported}");
}

#[test]
fn after_a_gap_in_a_head_the_next_start_line_is_found() {
    let mut c = Connection::default();
    c.request("GET /0 HTTP/1.1\r\nHo").gap(Request, 100);
    c.request("t: y\r\n\r\nET /x HTTP/1.1\r\n\r\nGET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(
        c.reported(Request),
        "request GET /0 HTTP/1.1 Get #0\nskipped Ho\ngap 100\nend Lost\n\
         skipped t: y\\r\\n\\r\\nET /x HTTP/1.1\\r\\n\\r\\nresynchronised\nrequest GET /1 HTTP/1.1 Get #1\n\
         header Host: x\nframing None\nend Complete"
            .replace("\\r\\nresynchronised", "\\r\\n\nresynchronised")
    );
    c.response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").gap(Response, 60);
    c.response("tail\r\nHTTP/1.1 304 Not Modified\r\n\r\n");
    let reported = c.reported(Response);
    assert!(
        reported.contains(
            "gap 1\nend Complete\ngap 59\nskipped tail\\r\\n\nresynchronised\nresponse HTTP/1.1 304"
        ),
        "{reported}"
    );
    assert!(!reported.contains('!'), "{reported}");
}

#[test]
fn an_early_end_truncates_the_message() {
    let mut c = Connection::default();
    c.request("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab").end(Request);
    assert!(c.reported(Request).ends_with("body ab\nend Closed\n! incomplete-message"));
    let mut c = Connection::default();
    c.request("GET / HTTP/1.1\r\nHost: x\r\n").end(Request);
    assert!(c.reported(Request).ends_with("header Host: x\nend Closed\n! incomplete-message"));
    // A line without its line ending is parsed if it is unambiguous.
    let mut c = Connection::default();
    c.request("GET / HTTP/1.1\r\nHost: x").end(Request);
    assert!(c.reported(Request).ends_with("header Host: x\nend Closed\n! incomplete-message"));
    let mut c = Connection::default();
    c.request("GET / HTTP/1.1").end(Request);
    assert!(c.reported(Request).ends_with("request GET / HTTP/1.1 Get #0\nend Closed\n! incomplete-message"));
    let mut c = Connection::default();
    c.request("GET / HT").end(Request);
    assert_eq!(c.reported(Request), "skipped GET / HT\n! incomplete-message");
}

#[test]
fn a_forbidden_body_ends_at_its_content_length() {
    let mut c = Connection::default();
    c.request("GET /0 HTTP/1.1\r\nHost: x\r\n\r\nGET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    c.response("HTTP/1.1 304 Not\r\nContent-Length: 5\r\n\r\n")
        .response("HT")
        .response("HT")
        .response("!HTTP/1.1 200 OK\r\n");
    assert_eq!(
        c.reported(Response),
        "response HTTP/1.1 304 Not to #0\nheader Content-Length: 5\nframing None\nend Complete\n! unexpected-body\n\
         body HTHT!\nend Complete\nresponse HTTP/1.1 200 OK to #1"
    );
}

#[test]
fn bytes_after_a_forbidden_body_are_kept_in_any_segmentation() {
    let head = "HTTP/1.1 304 Not\r\nContent-Length: 2\r\n\r\n";
    let cases = [
        ("HTTX\r\n", "HT", "skipped TX\\r\\n\n! invalid-status-line"),
        ("hTt!\r\n", "hT", "skipped t!\\r\\n\n! invalid-status-line"),
        ("HTHTTP/1.1 200 OK\r\n", "HT", "response HTTP/1.1 200 OK to #1"),
    ];
    for (text, body, next) in cases {
        for cut in 0..text.len() {
            let mut c = Connection::default();
            c.request("GET /0 HTTP/1.1\r\nHost: x\r\n\r\nGET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
            c.response(head).response(&text[..cut]).response(&text[cut..]);
            let reported = c.reported(Response);
            let expected = format!("! unexpected-body\nbody {body}\nend Complete\n{next}");
            assert!(reported.ends_with(&expected), "{text:?} cut at {cut}: {reported}");
        }
    }
}

#[test]
fn lines_after_a_bodiless_response_form_a_body_until_the_next_response() {
    let mut c = Connection::default();
    c.request("GET /0 HTTP/1.1\r\nHost: x\r\n\r\nGET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    c.response("HTTP/1.1 204 No\r\n\r\na\r\nHT\nb\r\nHTTP/1.1 304 Not\r\n\r\nend").end(Response);
    assert_eq!(
        c.reported(Response),
        "response HTTP/1.1 204 No to #0\nframing None\nend Complete\n! unexpected-body\nbody a\\r\\n\n\
         ! bare-line-feed\nbody HT\\nb\\r\\n\nend Complete\nresponse HTTP/1.1 304 Not to #1\nframing None\nend Complete\n\
         ! unexpected-body\nbody end\nend Complete\n! incomplete-message"
    );
    // Bytes in place of a chunk size are finally a body.
    let mut c = Connection::default();
    c.request("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    c.response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno chunk").end(Response);
    assert!(
        c.reported(Response).ends_with("framing Chunked\nbody no chunk\nend Closed\n! incomplete-message")
    );
}

#[test]
fn each_direction_counts() {
    let mut c = Connection::default();
    c.request("GET / HTTP/1.1\nHost: x\nA: b\n\n");
    let half = c.exchange.direction(Request);
    assert_eq!((half.messages(), half.anomalies(), half.repeated_anomalies()), (1, 1, 3));
    assert!(half.is_idle() && !half.is_opaque());
}

#[test]
fn a_full_pipeline_is_reported() {
    let mut c = Connection::default();
    let one = "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n";
    c.request(&one.repeat(applayer::http::PIPELINE_MAX));
    assert!(!c.reported(Request).contains('!'));
    c.request(one);
    assert!(c.reported(Request).contains("! pipeline-full"));
    c.response(&"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n".repeat(applayer::http::PIPELINE_MAX + 1));
    let reported = c.reported(Response);
    assert_eq!(reported.matches("framing None").count(), applayer::http::PIPELINE_MAX);
    assert!(reported.ends_with("to #32\nheader Content-Length: 1\nframing Length(1)"), "{reported}");
}
