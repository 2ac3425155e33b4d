//! Each keyword: the parsed result, as printed, and the refusals, with column and message.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use signatures::*;

/// Parses a rule with these options, which begin at column 1.
fn options(text: &str) -> Result<Rule, String> {
    let head = "alert ip any any -> any any (";
    let line = format!("{head}{text} sid:1; rev:2;)");
    let mut report = Ruleset::read("r", &line, &RuleVariables::default(), &Classifications::default());
    if let Some(fault) = report.faults.pop() {
        let column = fault.column as usize;
        assert_eq!((&fault.place.to_string()[..], fault.sid), ("r:1", Some(1)));
        let shown = fault.to_string();
        let message = shown.split_once("sid 1: ").unwrap().1;
        return Err(format!("{}: {message}", column.saturating_sub(head.len())));
    }
    Ok(report.ruleset.into_rules().pop().unwrap().rule)
}

/// Returns the options of a rule except the common ones.
fn normal(text: &str) -> String {
    match options(text) {
        Ok(rule) => {
            let printed = rule.to_string();
            let body = printed.split_once('(').unwrap().1;
            body.replace("priority:3; ", "").replace("sid:1; rev:2;)", "").trim().to_owned()
        }
        Err(error) => error,
    }
}

#[track_caller]
fn check(rows: &[(&str, &str)]) {
    for (text, expected) in rows {
        assert_eq!(normal(text), *expected, "of `{text}`");
    }
}

#[test]
fn of_the_rule() {
    check(&[
        (r#"msg:"a\;b\"c\\d\:e C:\x";"#, r#"msg:"a\;b\"c\\d:e C:\\x";"#),
        (r#"msg:"a"; msg:"b";"#, "10: keyword `msg` is repeated"),
        (r#"msg:"a;"#, "5: a `\"` without a second one; a `;` within is written `\\;`"),
        ("priority:0;", "10: priority: found `0`, expected a number from 1 to 255"),
        (
            "flowint:n,+,-1;",
            "13: flowint: found `-1`, expected a number, or a name that begins with a letter",
        ),
        ("classtype:x; gid:5;", "classtype:x; gid:5;"),
        ("reference:URL,a.b/c\\;d;", "reference:url,a.b/c\\;d;"),
        (
            "reference:cve;",
            "11: reference: found `cve`, expected `system,identifier`, such as `cve,2014-0160`",
        ),
        ("metadata:a b c,d , e  f;", "metadata:a b c, d, e f;"),
        ("target:dest_ip;", "target:dest_ip;"),
        ("target:x;", "8: target: found `x`, expected one of `src_ip`, `dest_ip`"),
        ("noalert;", "noalert;"),
        ("noalert:x;", "9: keyword `noalert` takes no argument"),
        ("tag:session; tag:host,5,bytes,src;", "tag:session,256,packets; tag:host,5,bytes,src;"),
        ("tag:session,1,bytes,src;", "21: tag: found `src`, expected no side with `session`"),
        ("priority;", "1: keyword `priority` requires an argument"),
        ("contant:\"a\";", "1: keyword `contant` is unknown; did you mean `content`?"),
        ("qqqq:1;", "1: keyword `qqqq` is unknown"),
        ("lua:x.lua;", "1: keyword `lua` is not supported: it runs a program of the rule's"),
        ("CONTENT:\"a\"; NoCase;", "content:\"a\"; nocase;"),
        ("rawbytes; prefilter;", ""),
    ]);
}

#[test]
fn of_flows() {
    check(&[
        (
            "flow: from_server , established,no_stream,only_frag;",
            "flow:to_client,established,no_stream,only_frag;",
        ),
        (
            "flow:to_server,from_server;",
            "16: flow: found `from_server`, expected an option that does not repeat or contradict one before it",
        ),
        ("flowbits:noalert;", "noalert;"),
        ("flowbits:isset, a | b; flowbits:toggle,c;", "flowbits:isset,a|b; flowbits:toggle,c;"),
        ("flowbits:isset;", "15: flowbits: found ``, expected the name of a mark"),
        (
            "flowbits:set,a b;",
            "14: flowbits: found `a b`, expected the name of a mark, without spaces, `,`, `|`, `;`, `\"` and `\\`",
        ),
        ("xbits:set,a,track ip_src,expire 5;", "xbits:set,a,track ip_src,expire 5;"),
        ("xbits:isset,a,track ip_pair, expire 30;", "xbits:isset,a,track ip_pair;"),
        ("xbits:isset,a;", "7: xbits: found `isset,a`, expected `operation,name,track ip_src`"),
        ("hostbits:noalert;", "noalert;"),
        ("hostbits:set,a,dst;", "xbits:set,a,track ip_dst;"),
        (
            "flowint: a, +, 1; flowint:a,>=,b; flowint:b,notset;",
            "flowint:a,+,1; flowint:a,>=,b; flowint:b,isnotset;",
        ),
        ("stream_size:both,<=,6;", "stream_size:both,<=,6;"),
        (
            "threshold: seconds 60,type limit,track by_src ,count 1;",
            "threshold:type limit, track by_src, count 1, seconds 60;",
        ),
        (
            "threshold:type backoff,track by_flow,count 1,multiplier 10;",
            "threshold:type backoff, track by_flow, count 1, multiplier 10;",
        ),
        (
            "threshold:type limit,track by_src,seconds 60;",
            "11: threshold: found `type limit,track by_src,seconds 60`, expected a `count` too",
        ),
        (
            "detection_filter:track by_dst, count 4, seconds 20, unique_on dst_port;",
            "detection_filter:track by_dst, count 4, seconds 20, unique_on dst_port;",
        ),
        (
            "threshold:type both,track by_src,count 1,seconds 1; detection_filter:track by_src,count 1,seconds 1;",
            "53: detection_filter and threshold exclude each other",
        ),
    ]);
}

#[test]
fn of_packets() {
    check(&[
        ("dsize:>10;", "dsize:>10;"),
        ("dsize: 5 <> 10;", "dsize:5<>10;"),
        ("dsize:!9;", "dsize:!9;"),
        ("dsize:<=0x10;", "dsize:<=16;"),
        (
            "dsize:5<>6;",
            "7: dsize: can never match: nothing lies between 5 and 6, which are themselves not in the range",
        ),
        ("dsize:<0;", "7: dsize: can never match: no number is `<0`"),
        ("dsize:70000;", "7: dsize: found `70000`, expected a number from 0 to 65535"),
        (
            "dsize:5; http.uri; content:\"a\";",
            "0: `dsize`, which is about packets, and a buffer of an application protocol exclude each other",
        ),
        ("ttl:!1-5;", "ttl:!1-5;"),
        ("ttl:&0xc0=0x80;", "ttl:&192=128;"),
        ("ttl:&0xc0=1;", "5: ttl: can never match: the value has bits outside of the mask"),
        ("tos:!x88;", "tos:!136;"),
        ("id:1; sameip; ipopts:lsrr;", "id:1; sameip; ipopts:lsrr;"),
        ("ip_proto:GRE; ip_proto:!41;", "ip_proto:47; ip_proto:!41;"),
        ("fragbits:M+; fragbits:!DR; fragoffset:!0;", "fragbits:+M; fragbits:!DR; fragoffset:!0;"),
        ("flags:S,12;", "tcp.flags:S,EC;"),
        ("flags:0; tcp.flags:*FSR;", "tcp.flags:0; tcp.flags:*FSR;"),
        (
            "flags:AA;",
            "7: flags: found `AA`, expected letters of `12FSRPAUEC`, each once, with one of `+*!` at most; or `0`",
        ),
        ("flags:A,A;", "7: flags: can never match: a flag is both asked for and ignored"),
        (
            "seq:0; ack:1; window:!55808; tcp.mss:<536; tcp.wscale:>10;",
            "tcp.seq:0; tcp.ack:1; tcp.window:!55808; tcp.mss:<536; tcp.wscale:>10;",
        ),
        ("itype:8; icode:>0; icmp_id:7; icmp_seq:0x10;", "itype:8; icode:>0; icmp_id:7; icmp_seq:16;"),
    ]);
}

#[test]
fn of_applications() {
    check(&[
        ("app-layer-protocol:!http|tls,final;", "app-layer-protocol:!http|tls,final;"),
        (
            "app-layer-protocol:!unknown;",
            "21: app-layer-protocol: found `unknown`, expected a protocol that is known: `!` holds only for those",
        ),
        (
            "app-layer-event:http.gzip_decompression_failed;",
            "app-layer-event:http.gzip_decompression_failed;",
        ),
        ("ssl_version:!sslv2, !sslv3;", "ssl_version:!sslv2,!sslv3;"),
        (
            "ssl_version:sslv2,!sslv3;",
            "13: ssl_version: found `sslv2,!sslv3`, expected `!` before all of them or before none",
        ),
        ("ssl_state:client_hello|server_hello;", "ssl_state:client_hello,server_hello;"),
        (
            "tls.version:1.2; dns.opcode:!0; dns.rrtype:16; dns.rcode:3;",
            "tls.version:tls1.2; dns.opcode:!0; dns.rrtype:16; dns.rcode:3;",
        ),
        (
            "ftpbounce; ftpdata_command:STOR; filesize:>1mb;",
            "ftpbounce; ftpdata_command:stor; filesize:>1048576;",
        ),
    ]);
}

#[test]
fn contents() {
    check(&[
        (r#"content:"a|3b 0D0a|b\;\:\"\\";"#, r#"content:"a|3B 0D 0A|b|3B 3A 22 5C|";"#),
        (r#"content: ! "a" ; nocase;"#, r#"content:!"a"; nocase;"#),
        (r#"content:"a|3|";"#, "13: a byte needs two hexadecimal digits"),
        (r#"content:"a|3g|";"#, "13: between `|` and `|` stand hexadecimal digits and spaces"),
        (r#"content:"a|33";"#, "11: a `|` without a second one"),
        (r#"content:"a\b";"#, "12: only `;`, `:`, `\"` and `\\` stand behind a `\\`"),
        (r#"content:"a"b";"#, "11: a `\"` within is written `\\\"` or `|22|`"),
        (r#"content:"";"#, "10: content: found ``, expected at least one byte"),
        ("content:a;", "9: content: found `a`, expected a text in quotes"),
        (r#"content:"abc"; depth:3; offset:2;"#, r#"content:"abc"; offset:2; depth:3;"#),
        (r#"content:"abc"; offset:0; depth:3;"#, r#"content:"abc"; startswith;"#),
        (
            r#"content:"abc"; depth:2;"#,
            "22: depth: can never match: the content has 3 bytes, which do not fit into 2",
        ),
        (
            r#"content:"abc"; within:2;"#,
            "23: within: can never match: the content has 3 bytes, which do not fit into 2",
        ),
        (
            r#"content:"a"; content:"b"; distance:-1; within:5;"#,
            r#"content:"a"; content:"b"; distance:-1; within:5;"#,
        ),
        (r#"content:"a"; within:5;"#, r#"content:"a"; within:5;"#),
        (r#"content:"a"; distance:0;"#, r#"content:"a"; distance:0;"#),
        (r#"content:"a"; depth:5; distance:1;"#, "23: distance and depth exclude each other"),
        (r#"content:"a"; nocase; nocase;"#, "22: keyword `nocase` is repeated"),
        ("depth:5;", "1: keyword `depth` requires a `content` before it"),
        (
            r#"content:"a"; depth:n;"#,
            "20: depth: found `n`, expected a number, or a variable that `byte_extract` or `byte_math` set before",
        ),
        (r#"content:"abcd"; fast_pattern:1,2;"#, r#"content:"abcd"; fast_pattern:1,2;"#),
        (
            r#"content:"abcd"; fast_pattern:3,2;"#,
            "30: fast_pattern: found `3,2`, expected a part of the content, which has 4 bytes",
        ),
        (
            r#"content:"a"; fast_pattern; content:"b"; fast_pattern;"#,
            "41: keyword `fast_pattern` is repeated",
        ),
        (
            r#"content:"a"; depth:4; fast_pattern:only;"#,
            "0: `fast_pattern:only` and `offset`, `depth`, `distance`, `within`, `endswith` or `!` exclude each other",
        ),
        (r#"content:"a"; isdataat:!1,relative;"#, r#"content:"a"; endswith;"#),
        (
            r#"content:"a"; isdataat:!2 , relative,rawbytes; isdataat:10;"#,
            r#"content:"a"; isdataat:!2,relative; isdataat:10;"#,
        ),
    ]);
}

#[test]
fn buffers() {
    check(&[
        // A modifier applies to the preceding content, a sticky buffer to everything that follows.
        (
            r#"content:"a"; http_uri; content:"b"; content:"c"; http_uri; distance:0;"#,
            r#"http.uri; content:"a"; content:"c"; distance:0; pkt_data; content:"b";"#,
        ),
        (
            r#"content:"a"; distance:1; http_header; nocase; fast_pattern; content:"b"; depth:4; http_method;"#,
            r#"http.header; content:"a"; nocase; distance:1; fast_pattern; http.method; content:"b"; depth:4;"#,
        ),
        (
            r#"file_data; content:"a"; content:"b"; distance:0; pkt_data; content:"c"; dns_query; bsize:>5;"#,
            r#"file.data; content:"a"; content:"b"; distance:0; pkt_data; content:"c"; dns.query; bsize:>5;"#,
        ),
        // Buffers that can exist several times are not merged.
        (
            r#"dns.query; content:"a"; dns.query; content:"b"; http.uri; content:"c"; http.uri; content:"d";"#,
            r#"dns.query; content:"a"; dns.query; content:"b"; http.uri; content:"c"; content:"d";"#,
        ),
        (
            r#"uricontent:"a"; urilen:5<>10; urilen:>1,raw;"#,
            r#"http.uri; content:"a"; bsize:5<>10; http.uri.raw; bsize:>1;"#,
        ),
        (
            r#"tls.subject:"CN=a"; tls.issuerdn:!"CN=b"; tls.fingerprint:"0A:f1";"#,
            r#"tls.cert_subject; content:"CN=a"; tls.cert_issuer; content:!"CN=b"; tls.cert_fingerprint; content:"0A|3A|f1"; nocase;"#,
        ),
        (
            r#"http.uri; content:"a"; http_uri;"#,
            "24: a buffer named for all that follows and one named behind a content exclude each other",
        ),
        (
            r#"content:"a"; http_uri; http_header;"#,
            "24: keyword `http_header` requires a `content` that has no buffer yet before it",
        ),
        ("http_uri;", "1: keyword `http_uri` requires a `content` before it"),
        (r#"http.uri; content:"a"; file.data;"#, "24: buffer `file.data` is selected, but no match follows"),
        (r#"http.uri; http.method; content:"a";"#, "1: buffer `http.uri` is selected, but no match follows"),
        ("bsize:5;", "1: keyword `bsize` requires the name of a buffer before it"),
        (r#"http.referer; absent;"#, "http.referer; absent;"),
        (
            r#"http.referer; absent; content:"a";"#,
            "0: `absent` and a match in the same buffer exclude each other",
        ),
        (r#"http.referer; absent:or_else; content:!"a";"#, r#"http.referer; absent:or_else; content:!"a";"#),
        (
            r#"http.host; content:"A";"#,
            "0: can never match: `http.host` is in lower case; write the content so, or give it `nocase`",
        ),
        (
            r#"http.uri; url_decode; to_lowercase; content:"a"; http.uri; content:"b";"#,
            r#"http.uri; url_decode; to_lowercase; content:"a"; http.uri; content:"b";"#,
        ),
        (
            r#"content:"a"; dotprefix;"#,
            "14: keyword `dotprefix` requires the name of a buffer, right before it",
        ),
        (
            r#"http.uri; content:"a"; to_md5;"#,
            "24: keyword `to_md5` requires the name of a buffer, right before it",
        ),
        (
            r#"file.data; xor:offset 1,0d0A; pcrexform:"a(b)"; from_base64:offset 6; content:"a";"#,
            r#"file.data; xor:offset 1,"0d0a"; pcrexform:"a(b)"; from_base64:offset 6, mode rfc4648; content:"a";"#,
        ),
        (
            r#"file.data; xor:"0d0"; content:"a";"#,
            "17: xor: found `0d0`, expected 1 to 255 bytes of two hexadecimal digits each",
        ),
        (
            r#"base64_decode:bytes 8, offset 1, relative; base64_data; content:"a";"#,
            r#"base64_decode:bytes 8,offset 1,relative; base64_data; content:"a";"#,
        ),
        (r#"base64_data; content:"a";"#, "1: keyword `base64_data` requires a `base64_decode` before it"),
    ]);
}

#[test]
fn numbers() {
    check(&[
        ("byte_test:2,!=,0x06,0;", "byte_test:2,!=,6,0;"),
        ("byte_test:1,!&,128,2,relative;", "byte_test:1,!&,128,2,relative;"),
        ("byte_test:4,!,1,0;", "byte_test:4,!=,1,0;"),
        ("byte_test:10,>,150,0,string,dec, relative;", "byte_test:10,>,150,0,relative,string,dec;"),
        ("byte_test:0,>,5,0;", "11: a number of 0 bytes is not supported"),
        ("byte_test:0,=,5,0,string,dec;", "11: a number of 0 bytes is not supported"),
        ("byte_extract:0,0,x;", "14: a number of 0 bytes is not supported"),
        ("byte_jump:0,0;", "byte_jump:0,0;"),
        ("byte_test:1,>,5,214748364;", "17: an offset beyond 1,048,576 bytes is not supported"),
        (
            "byte_test:1,>,5,2147483648;",
            "17: byte_test: found `2147483648`, expected a number from -1048576 to 1048576",
        ),
        ("byte_test:9,>,150,0;", "11: byte_test: found `9`, expected a number from 1 to 8"),
        (
            "byte_test:8,=,0xFFFFFFFFFFFFFFFF,-4,little,bitmask 0xf0;",
            "byte_test:8,=,18446744073709551615,-4,little,bitmask 0xf0;",
        ),
        (
            "byte_test:4,~,1,0;",
            "13: byte_test: found `~`, expected one of `<`, `<=`, `>`, `>=`, `=`, `&`, `^`",
        ),
        (
            "byte_test:4,=,1;",
            "11: byte_test: found `4,=,1`, expected `bytes,operator,value,offset` and options",
        ),
        ("byte_test:4,=,1,0,hex;", "11: a base and no `string` exclude each other"),
        (
            "byte_jump:2,8,little,from_beginning,multiplier 2,align;",
            "byte_jump:2,8,little,multiplier 2,align,from_beginning;",
        ),
        ("byte_jump:0,0, from_end, post_offset -8;", "byte_jump:0,0,from_end,post_offset -8;"),
        (
            "byte_extract:2,0,size; content:\"a\"; distance:size; within:3; isdataat:size; byte_test:2,=,size,0;",
            "byte_extract:2,0,size; content:\"a\"; distance:size; within:3; isdataat:size; byte_test:2,=,size,0;",
        ),
        (
            "byte_extract:2,0,a; byte_extract:2,0,a;",
            "38: byte_extract: found `a`, expected a variable that is not set yet",
        ),
        (
            "byte_extract:1,0,a,relative,multiplier 4,align 2; byte_math: bytes 1, offset 1, oper +, rvalue a, result b, string dec;",
            "byte_extract:1,0,a,relative,multiplier 4,align 2; byte_math:bytes 1,offset 1,oper +,rvalue a,result b,string,dec;",
        ),
        (
            "byte_math:bytes 1,offset 0,oper /,rvalue 0,result a;",
            "42: byte_math: can never match: it divides by 0",
        ),
        // Relative matches go to the buffer that they are relative to.
        (
            r#"content:"a"; http_uri; byte_test:1,>,5,0,relative; byte_test:1,>,5,0;"#,
            r#"http.uri; content:"a"; byte_test:1,>,5,0,relative; pkt_data; byte_test:1,>,5,0;"#,
        ),
        (
            r#"content:"a"; http.uri; byte_extract:1,0,v; pkt_data; content:"b"; offset:v;"#,
            "0: can never match: variable `v` is used in a buffer that is looked at before the one that sets it",
        ),
    ]);
}

#[test]
fn expressions() {
    check(&[
        (r#"pcre:"/a\/b[\x22\;]/Ri";"#, r#"pcre:"/a\/b[\x22\;]/iR";"#),
        (r#"pcre:!"/a/b/Ui";"#, r#"http.uri; pcre:!"/a/b/i";"#),
        // Without the first quote, as in published rules.
        ("pcre:/a/b\\d/Vi\";", r#"http.user_agent; pcre:"/a/b\d/i";"#),
        (
            r#"http.uri; pcre:"/a/U"; pcre:"/b/H";"#,
            "33: the buffer that was named before and the buffer of the expression's flags exclude each other",
        ),
        (r#"pcre:"/a/UH";"#, "10: pcre: found `UH`, expected one buffer at most"),
        (
            r#"pcre:"/a/q";"#,
            "7: pcre: found `/a/q`, expected a second `/`, and behind it flags of `imsxAEGRUIPQHDMCSYVWZBO`",
        ),
        (r#"pcre:"a";"#, "7: pcre: found `a`, expected an expression between `/` and `/`"),
        (
            r#"pcre:"/(a/";"#,
            "8: pcre: found `(a`, expected an expression in which parentheses, brackets and repetitions are whole",
        ),
        (r#"pcre:"/(a)x/G, flow:n/x,pkt:m";"#, r#"pcre:"/(a)x/G,flow:n/x,pkt:m";"#),
    ]);
}

#[test]
fn values_mean_what_the_types_say() {
    let rule =
        options(r#"content:"GET|20|"; startswith; content:"x"; within:5; isdataat:10,relative;"#).unwrap();
    let [buffer] = &rule.buffers[..] else { panic!() };
    assert_eq!(buffer.buffer, Buffer::Payload);
    let [PayloadMatch::Content(get), PayloadMatch::Content(x), PayloadMatch::DataAt(data)] =
        &buffer.matches[..]
    else {
        panic!()
    };
    assert_eq!(get.pattern, b"GET ");
    assert_eq!(
        get.position,
        ContentPosition::Absolute { offset: Operand::Value(0), depth: Some(Operand::Value(4)) }
    );
    assert_eq!(
        x.position,
        ContentPosition::Relative { distance: Operand::Value(0), within: Some(Operand::Value(5)) }
    );
    assert_eq!(*data, DataAt { offset: Operand::Value(10), relative: true, negated: false });

    let rule =
        options("byte_extract:1,0,a; http.uri; byte_extract:1,0,b; pkt_data; byte_extract:1,a,c;").unwrap();
    assert_eq!(rule.variables, ["a", "c", "b"]);
}

/// Returns whether a test names the number.
type Named = fn(u8) -> bool;

#[test]
fn packet_tests_match_the_named_numbers() {
    let tests: [(&str, Named); 19] = [
        ("ttl:7;", |n| n == 7),
        ("ttl:!7;", |n| n != 7),
        ("ttl:<7;", |n| n < 7),
        ("ttl:<=7;", |n| n < 8),
        ("ttl:>7;", |n| n > 7),
        ("ttl:>=7;", |n| n > 6),
        ("ttl:5<>8;", |n| n == 6 || n == 7),
        ("ttl:!5<>8;", |n| n != 6 && n != 7),
        ("ttl:&0xf0=0x40;", |n| n >> 4 == 4),
        ("ttl:&0xf0!=0x40;", |n| n >> 4 != 4),
        ("flags:S;", |flags| flags == 0x02),
        ("flags:S,12;", |flags| flags & 0x3f == 0x02),
        ("flags:+SA;", |flags| flags & 0x12 == 0x12),
        ("flags:*SF;", |flags| flags & 0x03 != 0),
        ("flags:!SF;", |flags| flags & 0x03 != 0x03),
        ("flags:FRPU;", |flags| flags == 0x2d),
        ("flags:0;", |flags| flags == 0),
        ("flags:1;", |flags| flags == 0x80),
        ("flags:E;", |flags| flags == 0x40),
    ];
    for (text, expected) in tests {
        let test = options(text).unwrap().packet[0];
        for number in 0..=u8::MAX {
            let holds = match test {
                PacketTest::Ttl(test) => test.holds(number),
                PacketTest::TcpFlags(bits) => bits.holds(number),
                _ => panic!("{text}"),
            };
            assert_eq!(holds, expected(number), "{number} of `{text}`");
        }
    }
}

#[test]
fn the_fast_pattern_is_chosen() {
    for (text, expected) in [
        (r#"content:"abc"; content:"abcd";"#, Some("abcd")),
        // Application buffers before the payload, the method after it.
        (r#"content:"longer"; content:"abc"; http_uri; content:"POSTPOST"; http_method;"#, Some("abc")),
        (r#"content:"abc"; content:"DELETE"; http_method;"#, Some("abc")),
        // Of two contents of one length the more varied; otherwise the first.
        (r#"content:"aaaa"; content:"a-b9"; content:"z-b9";"#, Some("a-b9")),
        (r#"content:"ab"; fast_pattern; content:"abcd";"#, Some("ab")),
        (r#"content:!"abcdef"; content:"ab";"#, Some("ab")),
        (r#"content:!"abcdef";"#, None),
    ] {
        let rule = options(text).unwrap();
        let found = rule.fast_pattern().map(|(b, m)| match &rule.buffers[b].matches[m] {
            PayloadMatch::Content(content) => std::str::from_utf8(&content.pattern).unwrap(),
            _ => panic!(),
        });
        assert_eq!(found, expected, "of `{text}`");
    }
}

#[test]
fn keywords_are_sorted_and_documented() {
    let mut last = "";
    for keyword in keywords() {
        assert!(last < keyword.name && keyword.name == keyword.name.to_ascii_lowercase());
        last = keyword.name;
        if let KeywordStatus::Unsupported(reason) = keyword.status {
            let error = options(&format!("{}:x;", keyword.name)).unwrap_err();
            assert_eq!(error, format!("1: keyword `{}` is not supported: {reason}", keyword.name));
        }
    }
    assert_eq!(
        keyword("HTTP_URI").map(|k| (k.name, k.kind)),
        Some(("http_uri", KeywordKind::BufferModifier))
    );
    assert!(keywords().count() > 350);
}
