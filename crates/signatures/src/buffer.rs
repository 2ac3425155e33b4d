//! The buffers that contents are looked for in.

use std::fmt;

macro_rules! buffers {
    ($($(#[$doc:meta])* $variant:ident $name:literal $(also $($also:literal),+)? $(modifier $modifier:literal)? $([$many:ident])?;)*) => {
        /// What contents are looked for in: the payload, or something cut out of it and, often,
        /// brought into a normal form. Each is inspected by itself, and positions count within it.
        ///
        /// In text a buffer is chosen by its name, which holds for all that follows up to the next
        /// name ("sticky"), or by an older keyword behind each content (`http_uri`);
        /// [`Buffer::Payload`] is chosen by `pkt_data` or, at the start of a rule, by no word at
        /// all.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Buffer {
            $($(#[$doc])* $variant,)*
        }

        impl Buffer {
            /// All of them.
            pub const ALL: &'static [Buffer] = &[$(Buffer::$variant),*];

            /// The keyword that chooses the buffer for what follows.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Other keywords that do the same.
            pub const fn aliases(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$($($also),+)?],)*
                }
            }

            /// The older keyword that puts the content before it into the buffer.
            pub const fn modifier(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => buffers!(@modifier $($modifier)?),)*
                }
            }

            /// Whether there may be several such buffers at a time (each file, each DNS question).
            /// Each naming of the buffer then stands for one of them, and another naming may stand
            /// for another one.
            pub const fn is_many(self) -> bool {
                match self {
                    $(Self::$variant => buffers!(@many $($many)?),)*
                }
            }
        }
    };
    (@modifier) => { None };
    (@modifier $modifier:literal) => { Some($modifier) };
    (@many) => { false };
    (@many many) => { true };
}

buffers! {
    /// The payload: of a packet and, for TCP, of the stream that it belongs to, whichever the
    /// rule's protocol and `flow` leave open.
    Payload "pkt_data";
    /// What [`crate::Match::Base64Decode`] decoded.
    Base64Data "base64_data";
    /// The Ethernet header.
    EthernetHeader "ether.hdr";
    /// The IPv4 header.
    Ipv4Header "ipv4.hdr";
    /// The IPv6 header.
    Ipv6Header "ipv6.hdr";
    /// The TCP header with its options.
    TcpHeader "tcp.hdr";
    /// The UDP header.
    UdpHeader "udp.hdr";
    /// The ICMP header.
    Icmpv4Header "icmpv4.hdr";
    /// The ICMPv6 header.
    Icmpv6Header "icmpv6.hdr";

    /// The content of a file: a body of HTTP, an attachment, a file of FTP or SMB.
    FileData "file.data" also "file_data" [many];
    /// What the file's first bytes say that it is.
    FileMagic "file.magic" [many];
    /// The file's name.
    FileName "file.name" [many];

    /// The normalised request target.
    HttpUri "http.uri" also "http.uri.normalized" modifier "http_uri";
    /// The request target as it was sent.
    HttpUriRaw "http.uri.raw" modifier "http_raw_uri";
    /// The method.
    HttpMethod "http.method" modifier "http_method";
    /// The version, `HTTP/1.1`.
    HttpProtocol "http.protocol" also "http_protocol";
    /// The request line.
    HttpRequestLine "http.request_line" also "http_request_line";
    /// The status line.
    HttpResponseLine "http.response_line" also "http_response_line";
    /// The status code.
    HttpStatusCode "http.stat_code" modifier "http_stat_code";
    /// The reason phrase.
    HttpStatusMessage "http.stat_msg" modifier "http_stat_msg";
    /// All headers but cookies, normalised.
    HttpHeader "http.header" modifier "http_header";
    /// All headers as they were sent.
    HttpHeaderRaw "http.header.raw" modifier "http_raw_header";
    /// The names of the headers, a line each, between empty lines.
    HttpHeaderNames "http.header_names" also "http_header_names";
    /// Each request header, name and value.
    HttpRequestHeader "http.request_header" also "http_request_header" [many];
    /// Each response header, name and value.
    HttpResponseHeader "http.response_header" also "http_response_header" [many];
    /// The cookies of a request or response.
    HttpCookie "http.cookie" modifier "http_cookie";
    /// The header `User-Agent`.
    HttpUserAgent "http.user_agent" modifier "http_user_agent";
    /// The host name, in lower case, without port.
    HttpHost "http.host" modifier "http_host";
    /// The host as it was sent, with port.
    HttpHostRaw "http.host.raw" modifier "http_raw_host";
    /// The header `Accept`.
    HttpAccept "http.accept" also "http_accept";
    /// The header `Accept-Encoding`.
    HttpAcceptEncoding "http.accept_enc" also "http_accept_enc";
    /// The header `Accept-Language`.
    HttpAcceptLanguage "http.accept_lang" also "http_accept_lang";
    /// The header `Connection`.
    HttpConnection "http.connection" also "http_connection";
    /// The header `Content-Length`.
    HttpContentLength "http.content_len" also "http_content_len";
    /// The header `Content-Type`.
    HttpContentType "http.content_type" also "http_content_type";
    /// The header `Location`.
    HttpLocation "http.location";
    /// The header `Referer`.
    HttpReferer "http.referer" also "http_referer";
    /// The header `Server`.
    HttpServer "http.server";
    /// The body of a request.
    HttpRequestBody "http.request_body" modifier "http_client_body";
    /// The body of a response.
    HttpResponseBody "http.response_body" modifier "http_server_body";
    /// The first line and the headers, as they were sent.
    HttpStart "http.start" also "http_start";
    /// Each header's name of HTTP/2.
    Http2HeaderName "http2.header_name" [many];

    /// Each name that is asked for, in requests and answers, dotted.
    DnsQuery "dns.query" also "dns_query", "dns.query.name" [many];
    /// Each name that is asked for, likewise, in either direction.
    DnsQueriesName "dns.queries.rrname" [many];
    /// Each name that is answered for.
    DnsAnswersName "dns.answers.rrname" also "dns.answer.name" [many];
    /// Each name in the authority section.
    DnsAuthoritiesName "dns.authorities.rrname" [many];
    /// Each name in the additional section.
    DnsAdditionalsName "dns.additionals.rrname" [many];
    /// Each name in a response.
    DnsResponseName "dns.response.rrname" [many];

    /// The server's name that the client asked for.
    TlsSni "tls.sni" also "tls_sni";
    /// The subject of the server's certificate.
    TlsCertSubject "tls.cert_subject" also "tls_cert_subject";
    /// The issuer of the server's certificate.
    TlsCertIssuer "tls.cert_issuer" also "tls_cert_issuer";
    /// The serial number of the server's certificate, hexadecimal bytes between colons.
    TlsCertSerial "tls.cert_serial" also "tls_cert_serial";
    /// The SHA-1 hash of the server's certificate, likewise in lower case.
    TlsCertFingerprint "tls.cert_fingerprint" also "tls_cert_fingerprint";
    /// Each certificate of the chain, as it was sent.
    TlsCertificates "tls.certs" [many];
    /// Each alternative name of the server's certificate.
    TlsSubjectAltName "tls.subjectaltname" [many];
    /// Each protocol that the client offers (ALPN).
    TlsAlpn "tls.alpn" [many];
    /// The 32 bytes of the hello's random.
    TlsRandom "tls.random";
    /// Its first four bytes.
    TlsRandomTime "tls.random_time";
    /// Its other bytes.
    TlsRandomBytes "tls.random_bytes";
    /// The JA3 hash of the client's hello.
    Ja3Hash "ja3.hash" also "ja3_hash";
    /// What that is a hash of.
    Ja3String "ja3.string" also "ja3_string";
    /// The JA3S hash of the server's hello.
    Ja3sHash "ja3s.hash";
    /// What that is a hash of.
    Ja3sString "ja3s.string";
    /// The JA4 hash of the client's hello.
    Ja4Hash "ja4.hash" also "ja4_hash";

    /// The version in SSH's greeting.
    SshProtocol "ssh.proto" also "ssh_proto";
    /// The software in SSH's greeting.
    SshSoftware "ssh.software" also "ssh_software";
    /// The hash of what an SSH client offers.
    SshHassh "ssh.hassh";
    /// What that is a hash of.
    SshHasshString "ssh.hassh.string";
    /// The hash of what an SSH server offers.
    SshHasshServer "ssh.hassh.server";
    /// What that is a hash of.
    SshHasshServerString "ssh.hassh.server.string";

    /// The argument of SMTP's HELO or EHLO.
    SmtpHelo "smtp.helo";
    /// The sender that SMTP was given.
    SmtpMailFrom "smtp.mail_from";
    /// Each receiver that SMTP was given.
    SmtpRcptTo "smtp.rcpt_to" [many];
    /// A mail's header `From`.
    EmailFrom "email.from";
    /// A mail's header `To`.
    EmailTo "email.to";
    /// A mail's header `Cc`.
    EmailCc "email.cc";
    /// A mail's header `Subject`.
    EmailSubject "email.subject";
    /// A mail's header `Date`.
    EmailDate "email.date";
    /// A mail's header `Message-Id`.
    EmailMessageId "email.message_id";
    /// A mail's header `X-Mailer`.
    EmailXMailer "email.x_mailer";
    /// Each address of a page in a mail's text.
    EmailUrl "email.url" [many];
    /// Each of a mail's headers `Received`.
    EmailReceived "email.received" [many];

    /// A command of FTP.
    FtpCommand "ftp.command";
    /// The argument of a command of FTP.
    FtpCommandData "ftp.command_data";
    /// Each line of an answer of FTP.
    FtpReply "ftp.reply" [many];
    /// The code of an answer of FTP.
    FtpCompletionCode "ftp.completion_code" [many];

    /// The pipe that SMB opens.
    SmbNamedPipe "smb.named_pipe" also "smb_named_pipe";
    /// The share that SMB connects to.
    SmbShare "smb.share" also "smb_share";
    /// The user of an SMB session.
    SmbUser "smb.ntlmssp_user";
    /// The domain of an SMB session.
    SmbDomain "smb.ntlmssp_domain";
    /// The arguments of a DCERPC call.
    DcerpcStubData "dcerpc.stub_data" also "dce_stub_data";

    /// The method of a SIP request.
    SipMethod "sip.method";
    /// The URI of a SIP request.
    SipUri "sip.uri";
    /// The version of SIP.
    SipProtocol "sip.protocol";
    /// The status code of SIP.
    SipStatusCode "sip.stat_code";
    /// The reason phrase of SIP.
    SipStatusMessage "sip.stat_msg";
    /// The request line of SIP.
    SipRequestLine "sip.request_line";
    /// The status line of SIP.
    SipResponseLine "sip.response_line";
    /// The header `From` of SIP.
    SipFrom "sip.from" [many];
    /// The header `To` of SIP.
    SipTo "sip.to" [many];
    /// The header `Via` of SIP.
    SipVia "sip.via" [many];
    /// The header `User-Agent` of SIP.
    SipUserAgent "sip.user_agent" [many];

    /// The community of SNMP.
    SnmpCommunity "snmp.community";
    /// The user of SNMP.
    SnmpUser "snmp.usm";
    /// The desktop's name of RFB.
    RfbName "rfb.name";
    /// The client's name of Kerberos.
    Krb5Cname "krb5_cname" [many];
    /// The server's name of Kerberos.
    Krb5Sname "krb5_sname" [many];
    /// The server's name of QUIC.
    QuicSni "quic.sni";
    /// The user agent of QUIC.
    QuicUserAgent "quic.ua";
    /// The version of QUIC.
    QuicVersion "quic.version";
    /// The client's identifier of MQTT.
    MqttClientId "mqtt.connect.clientid";
    /// The user of MQTT.
    MqttUserName "mqtt.connect.username";
    /// The password of MQTT.
    MqttPassword "mqtt.connect.password";
    /// The topic of an MQTT publication.
    MqttPublishTopic "mqtt.publish.topic";
    /// The message of an MQTT publication.
    MqttPublishMessage "mqtt.publish.message";
    /// Each topic of an MQTT subscription.
    MqttSubscribeTopic "mqtt.subscribe.topic" [many];
    /// The message of a WebSocket.
    WebSocketPayload "websocket.payload";
}

impl Buffer {
    /// Which buffers a search for many patterns looks in first: lower before higher. Application
    /// buffers hold less than the payload, and what they hold is rarer, but for the method and the
    /// status.
    pub(crate) const fn search_rank(self) -> u8 {
        match self {
            Self::Payload | Self::HttpStatusMessage => 3,
            Self::HttpMethod | Self::HttpStatusCode => 4,
            _ => 2,
        }
    }

    /// Whether a search for many patterns can look in the buffer.
    pub(crate) const fn is_searchable(self) -> bool {
        !matches!(self, Self::Base64Data)
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
