//! Inspection buffers.

use std::fmt;

macro_rules! buffers {
    ($($(#[$doc:meta])* $variant:ident $name:literal $(also $($also:literal),+)? $(modifier $modifier:literal)? $([$many:ident])?;)*) => {
        /// An inspection buffer: the payload, or a part of it, often normalised. Each buffer is
        /// inspected by itself, with positions of its own.
        ///
        /// A rule selects a buffer by its name for all keywords up to the next name ("sticky"), or
        /// by an older keyword after each content (`http_uri`). [`Buffer::Payload`] is selected by
        /// `pkt_data`, or by default at the start of a rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Buffer {
            $($(#[$doc])* $variant,)*
        }

        impl Buffer {
            /// All buffers.
            pub const ALL: &'static [Buffer] = &[$(Buffer::$variant),*];

            /// Returns the keyword that selects the buffer for the following keywords.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the other keywords that do the same.
            pub const fn aliases(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$($($also),+)?],)*
                }
            }

            /// Returns the older keyword that moves the preceding content into the buffer.
            pub const fn modifier(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => buffers!(@modifier $($modifier)?),)*
                }
            }

            /// Returns whether several such buffers can exist at a time (each file, each DNS
            /// question). Each naming of the buffer then refers to one of them, and another naming
            /// may refer to another.
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
    /// The payload: of a packet and, for TCP, of its stream, as the rule's protocol and `flow`
    /// permit.
    Payload "pkt_data";
    /// The output of [`crate::PayloadMatch::Base64Decode`].
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

    /// The content of a file: an HTTP body, an attachment, a file of FTP or SMB.
    FileData "file.data" also "file_data" [many];
    /// The file type according to its first bytes.
    FileMagic "file.magic" [many];
    /// The file's name.
    FileName "file.name" [many];

    /// The normalised request target.
    HttpUri "http.uri" also "http.uri.normalized" modifier "http_uri";
    /// The raw request target.
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
    /// All headers except cookies, normalised.
    HttpHeader "http.header" modifier "http_header";
    /// All raw headers.
    HttpHeaderRaw "http.header.raw" modifier "http_raw_header";
    /// The names of the headers, one per line, between empty lines.
    HttpHeaderNames "http.header_names" also "http_header_names";
    /// Each request header, name and value.
    HttpRequestHeader "http.request_header" also "http_request_header" [many];
    /// Each response header, name and value.
    HttpResponseHeader "http.response_header" also "http_response_header" [many];
    /// The cookies of a request or response.
    HttpCookie "http.cookie" modifier "http_cookie";
    /// The header `User-Agent`.
    HttpUserAgent "http.user_agent" modifier "http_user_agent";
    /// The host name, in lower case, without the port.
    HttpHost "http.host" modifier "http_host";
    /// The raw host, with the port.
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
    /// The raw first line and headers.
    HttpStart "http.start" also "http_start";
    /// Each header name of HTTP/2.
    Http2HeaderName "http2.header_name" [many];

    /// Each queried name, in requests and responses, dotted.
    DnsQuery "dns.query" also "dns_query", "dns.query.name" [many];
    /// Each queried name, dotted, in either direction.
    DnsQueriesName "dns.queries.rrname" [many];
    /// Each name in the answer section.
    DnsAnswersName "dns.answers.rrname" also "dns.answer.name" [many];
    /// Each name in the authority section.
    DnsAuthoritiesName "dns.authorities.rrname" [many];
    /// Each name in the additional section.
    DnsAdditionalsName "dns.additionals.rrname" [many];
    /// Each name in a response.
    DnsResponseName "dns.response.rrname" [many];

    /// The server name in the client's hello.
    TlsSni "tls.sni" also "tls_sni";
    /// The subject of the server's certificate.
    TlsCertSubject "tls.cert_subject" also "tls_cert_subject";
    /// The issuer of the server's certificate.
    TlsCertIssuer "tls.cert_issuer" also "tls_cert_issuer";
    /// The serial number of the server's certificate: hexadecimal bytes, separated by colons.
    TlsCertSerial "tls.cert_serial" also "tls_cert_serial";
    /// The SHA-1 fingerprint of the server's certificate: the same form in lower case.
    TlsCertFingerprint "tls.cert_fingerprint" also "tls_cert_fingerprint";
    /// Each raw certificate of the chain.
    TlsCertificates "tls.certs" [many];
    /// Each alternative name of the server's certificate.
    TlsSubjectAltName "tls.subjectaltname" [many];
    /// Each protocol that the client offers (ALPN).
    TlsAlpn "tls.alpn" [many];
    /// The 32-byte random of the hello.
    TlsRandom "tls.random";
    /// The first four bytes of the random.
    TlsRandomTime "tls.random_time";
    /// The other bytes of the random.
    TlsRandomBytes "tls.random_bytes";
    /// The JA3 hash of the client's hello.
    Ja3Hash "ja3.hash" also "ja3_hash";
    /// The input of the JA3 hash.
    Ja3String "ja3.string" also "ja3_string";
    /// The JA3S hash of the server's hello.
    Ja3sHash "ja3s.hash";
    /// The input of the JA3S hash.
    Ja3sString "ja3s.string";
    /// The JA4 hash of the client's hello.
    Ja4Hash "ja4.hash" also "ja4_hash";

    /// The version in the SSH identification string.
    SshProtocol "ssh.proto" also "ssh_proto";
    /// The software in the SSH identification string.
    SshSoftware "ssh.software" also "ssh_software";
    /// The hash of an SSH client's offers.
    SshHassh "ssh.hassh";
    /// The input of the HASSH hash.
    SshHasshString "ssh.hassh.string";
    /// The hash of an SSH server's offers.
    SshHasshServer "ssh.hassh.server";
    /// The input of the HASSH server hash.
    SshHasshServerString "ssh.hassh.server.string";

    /// The argument of SMTP's HELO or EHLO.
    SmtpHelo "smtp.helo";
    /// The sender in SMTP's `MAIL FROM`.
    SmtpMailFrom "smtp.mail_from";
    /// Each recipient in SMTP's `RCPT TO`.
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
    /// Each URL in the text of a mail.
    EmailUrl "email.url" [many];
    /// Each header `Received` of a mail.
    EmailReceived "email.received" [many];

    /// An FTP command.
    FtpCommand "ftp.command";
    /// The argument of an FTP command.
    FtpCommandData "ftp.command_data";
    /// Each line of an FTP reply.
    FtpReply "ftp.reply" [many];
    /// The code of an FTP reply.
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
    /// The desktop name of RFB.
    RfbName "rfb.name";
    /// The client name of Kerberos.
    Krb5Cname "krb5_cname" also "krb5.cname" [many];
    /// The server name of Kerberos.
    Krb5Sname "krb5_sname" also "krb5.sname" [many];
    /// The server name of QUIC.
    QuicSni "quic.sni";
    /// The user agent of QUIC.
    QuicUserAgent "quic.ua";
    /// The version of QUIC.
    QuicVersion "quic.version";
    /// The client identifier of MQTT.
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
    /// Returns the rank of the buffer for the fast pattern: lower ranks come first. Except for
    /// method and status, application buffers come before the payload: they are smaller, and their
    /// content is rarer.
    pub(crate) const fn search_rank(self) -> u8 {
        match self {
            Self::Payload | Self::HttpStatusMessage => 3,
            Self::HttpMethod | Self::HttpStatusCode => 4,
            _ => 2,
        }
    }

    /// Returns whether the buffer can hold the fast pattern.
    pub(crate) const fn is_searchable(self) -> bool {
        !matches!(self, Self::Base64Data)
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
