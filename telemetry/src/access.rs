//! Lines of the access log. A worker writes them straight into the buffer that is on its way to the log's thread: nothing is
//! allocated for it, and no line is held up by another worker.
//!
//! Redaction happens by type: no record has a field that could hold a key, a value, an argument or a secret of a database. A
//! record of an HTTP request has its path without the query and some fields, cut and made printable: see [`HttpAccess`].

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use crate::log::Peer;

/// One exchange that was chosen for the access log.
#[derive(Clone, Debug)]
pub struct AccessRecord<'a> {
    /// Name of the listener.
    pub listener: &'a str,
    /// The client.
    pub peer: Peer,
    /// Number of the client connection, unique in the process.
    pub connection: u64,
    /// Name from the command table, or `unknown`; never what the client wrote.
    pub command: &'static str,
    /// Name of the upstream; none if the gateway answered by itself.
    pub upstream: Option<&'a str>,
    /// From head complete to the end of the reply, in nanoseconds.
    pub duration_nanos: u64,
    /// The part of it spent waiting for the upstream, in nanoseconds.
    pub upstream_nanos: u64,
    /// Bytes of the request.
    pub request_bytes: u64,
    /// Bytes of the reply.
    pub reply_bytes: u64,
    /// `ok`, `error`, or the reason the gateway refused.
    pub outcome: &'static str,
    /// Fields of an HTTP request. Its `request_bytes` are the bytes of its body, its `reply_bytes` all bytes sent to the client.
    pub http: Option<HttpAccess<'a>>,
}

/// Further fields of an HTTP request in the access log. Texts written by a client have gone through [`printable`].
#[derive(Clone, Debug, Default)]
pub struct HttpAccess<'a> {
    /// Status of the response; 0 if it broke off.
    pub status: u16,
    /// Method.
    pub method: &'a str,
    /// Path as it came, without the query.
    pub path: &'a str,
    /// `HTTP/1.1`.
    pub protocol: &'static str,
    /// Host and port that were requested.
    pub authority: &'a str,
    /// Name of the route.
    pub route: Option<&'a str>,
    /// Address of the last queried endpoint, as configured.
    pub endpoint: Option<&'a str>,
    /// The authenticated user.
    pub user: Option<&'a str>,
    /// User-Agent.
    pub user_agent: Option<&'a str>,
    /// X-Forwarded-For as it came.
    pub forwarded_for: Option<&'a str>,
    /// X-Request-Id as it went on.
    pub request_id: Option<&'a str>,
    /// Trace of the W3C trace context as it went on.
    pub trace_id: Option<&'a str>,
    /// How often an endpoint was queried.
    pub tries: u64,
    /// From head complete to the head of the response, in nanoseconds.
    pub first_byte_nanos: Option<u64>,
    /// Version of TLS towards the client: `1.3`.
    pub tls_version: Option<&'static str>,
    /// Cipher suite towards the client, by its IANA name.
    pub tls_cipher: Option<&'static str>,
    /// Status with which the origin ended a gRPC call.
    pub grpc_status: Option<u8>,
}

/// Bytes of one text of a client in the access log. Default 1,024; the rest is cut off.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// Appends a text of a client: at most [`TEXT_BYTES_MAX`] bytes, and everything but printable ASCII as `?`, so that a client
/// can neither forge log lines nor move a terminal's cursor.
pub fn printable(text: &[u8], into: &mut String) {
    let text = &text[..text.len().min(TEXT_BYTES_MAX)];
    let is_shown = |byte: &u8| matches!(byte, b' '..=b'~');
    match std::str::from_utf8(text) {
        Ok(plain) if text.iter().all(is_shown) => into.push_str(plain),
        _ => into.extend(text.iter().map(|byte| if is_shown(byte) { char::from(*byte) } else { '?' })),
    }
}

/// One thing that a line of the access log can say. The words of the file, and the keys of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "the names are those of the fields of `AccessRecord` and `HttpAccess`, times in microseconds"
)]
pub enum AccessField {
    Time,
    Listener,
    Peer,
    Connection,
    Command,
    Upstream,
    DurationUs,
    UpstreamUs,
    RequestBytes,
    ReplyBytes,
    Outcome,
    Status,
    Method,
    Path,
    Protocol,
    Authority,
    Route,
    Endpoint,
    User,
    UserAgent,
    ForwardedFor,
    RequestId,
    TraceId,
    Tries,
    FirstByteUs,
    TlsVersion,
    TlsCipher,
    GrpcStatus,
}

impl AccessField {
    /// Every one with its word, in the order of a line that has all.
    pub const NAMED: [(&'static str, Self); 28] = [
        ("time", Self::Time),
        ("listener", Self::Listener),
        ("peer", Self::Peer),
        ("connection", Self::Connection),
        ("command", Self::Command),
        ("upstream", Self::Upstream),
        ("duration_us", Self::DurationUs),
        ("upstream_us", Self::UpstreamUs),
        ("request_bytes", Self::RequestBytes),
        ("reply_bytes", Self::ReplyBytes),
        ("outcome", Self::Outcome),
        ("status", Self::Status),
        ("method", Self::Method),
        ("path", Self::Path),
        ("protocol", Self::Protocol),
        ("authority", Self::Authority),
        ("route", Self::Route),
        ("endpoint", Self::Endpoint),
        ("user", Self::User),
        ("user_agent", Self::UserAgent),
        ("forwarded_for", Self::ForwardedFor),
        ("request_id", Self::RequestId),
        ("trace_id", Self::TraceId),
        ("tries", Self::Tries),
        ("first_byte_us", Self::FirstByteUs),
        ("tls_version", Self::TlsVersion),
        ("tls_cipher", Self::TlsCipher),
        ("grpc_status", Self::GrpcStatus),
    ];

    /// Its word.
    fn name(self) -> &'static str {
        Self::NAMED[self as usize].0
    }
}

/// Form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessFormat {
    /// For people.
    Text,
    /// One object per line.
    Json,
}

/// Format of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessForm {
    /// Text or JSON.
    pub format: AccessFormat,
    /// The fields of a line, in this order. `None`: all.
    pub fields: Option<Vec<AccessField>>,
}

impl AccessForm {
    /// Appends the line of an exchange that ends now.
    pub fn write(&self, record: &AccessRecord<'_>, into: &mut Vec<u8>) {
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match (&self.fields, self.format) {
            (None, AccessFormat::Text) => text(record, at, into),
            (None, AccessFormat::Json) => json(record, at, AccessField::NAMED.iter().map(|(_, field)| *field), into),
            (Some(fields), AccessFormat::Json) => json(record, at, fields.iter().copied(), into),
            (Some(fields), AccessFormat::Text) => {
                let mut line = FormatWords::new(into);
                fields.iter().for_each(|field| line.value(value(*field, record, at)));
            }
        }
        into.push(b'\n');
    }
}

/// The value of a field.
enum Value<'r> {
    Text(&'r str),
    Number(u64),
    Peer(Peer),
    /// A Unix time.
    Time(Duration),
}

/// The value of a field; `None`: nothing is known.
fn value<'r>(field: AccessField, record: &AccessRecord<'r>, at: Duration) -> Option<Value<'r>> {
    let http = record.http.as_ref();
    let number = |number| Some(Value::Number(number));
    match field {
        AccessField::Time => Some(Value::Time(at)),
        AccessField::Listener => Some(Value::Text(record.listener)),
        AccessField::Peer => Some(Value::Peer(record.peer)),
        AccessField::Connection => number(record.connection),
        AccessField::Command => Some(Value::Text(record.command)),
        AccessField::Upstream => Some(Value::Text(record.upstream.unwrap_or("-"))),
        AccessField::DurationUs => number(record.duration_nanos / 1_000),
        AccessField::UpstreamUs => number(record.upstream_nanos / 1_000),
        AccessField::RequestBytes => number(record.request_bytes),
        AccessField::ReplyBytes => number(record.reply_bytes),
        AccessField::Outcome => Some(Value::Text(record.outcome)),
        AccessField::Status => number(http?.status.into()),
        AccessField::Protocol => Some(Value::Text(http?.protocol)),
        AccessField::Method => Some(Value::Text(http?.method)),
        AccessField::Path => Some(Value::Text(http?.path)),
        AccessField::Authority => Some(Value::Text(http?.authority)),
        AccessField::Route => http?.route.map(Value::Text),
        AccessField::Endpoint => http?.endpoint.map(Value::Text),
        AccessField::User => http?.user.map(Value::Text),
        AccessField::UserAgent => http?.user_agent.map(Value::Text),
        AccessField::ForwardedFor => http?.forwarded_for.map(Value::Text),
        AccessField::RequestId => http?.request_id.map(Value::Text),
        AccessField::TraceId => http?.trace_id.map(Value::Text),
        AccessField::Tries => number(http?.tries),
        AccessField::FirstByteUs => number(http?.first_byte_nanos? / 1_000),
        AccessField::TlsVersion => http?.tls_version.map(Value::Text),
        AccessField::TlsCipher => http?.tls_cipher.map(Value::Text),
        AccessField::GrpcStatus => number(http?.grpc_status?.into()),
    }
}

/// Pairs; what is not known is left out.
fn json(record: &AccessRecord<'_>, at: Duration, fields: impl Iterator<Item = AccessField>, into: &mut Vec<u8>) {
    let start = into.len();
    for field in fields {
        let Some(value) = value(field, record, at) else { continue };
        into.extend_from_slice(if into.len() == start { b"{\"" } else { b",\"" });
        into.extend_from_slice(field.name().as_bytes());
        into.extend_from_slice(b"\":");
        match value {
            Value::Text(text) => json_string(text, into),
            Value::Number(number) => decimal(number, into),
            Value::Time(at) => seconds(at, 6, into),
            Value::Peer(known) => {
                into.push(b'"');
                peer(known, into);
                into.push(b'"');
            }
        }
    }
    if into.len() == start {
        into.push(b'{');
    }
    into.push(b'}');
}

/// RFC 8259 section 7.
fn json_string(text: &str, into: &mut Vec<u8>) {
    into.push(b'"');
    for piece in text.as_bytes().split_inclusive(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
        let (last, plain) = piece.split_last().unwrap_or((&b' ', piece));
        match last {
            b'"' | b'\\' => {
                into.extend_from_slice(plain);
                into.extend_from_slice(&[b'\\', *last]);
            }
            0..0x20 => {
                into.extend_from_slice(plain);
                // Writing to memory does not fail.
                let _ = write!(into, "\\u{last:04x}");
            }
            _ => into.extend_from_slice(piece),
        }
    }
    into.push(b'"');
}

/// Words of a line, divided by blanks.
struct FormatWords<'w> {
    into: &'w mut Vec<u8>,
    is_first: bool,
}

impl<'w> FormatWords<'w> {
    fn new(into: &'w mut Vec<u8>) -> Self {
        Self { into, is_first: true }
    }

    fn next(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_first) {
            self.into.push(b' ');
        }
        self.into
    }

    /// An unknown value is `-`; a value with a blank in it is quoted.
    fn value(&mut self, value: Option<Value<'_>>) {
        match value {
            None => self.plain("-"),
            Some(Value::Text(text)) if text.is_empty() || text.contains([' ', '"']) => self.quoted(&[text]),
            Some(Value::Text(text)) => self.plain(text),
            Some(Value::Number(number)) => self.number(number, ""),
            Some(Value::Peer(known)) => peer(known, self.next()),
            Some(Value::Time(at)) => seconds(at, 3, self.next()),
        }
    }

    fn plain(&mut self, text: &str) {
        self.next().extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u64, unit: &str) {
        decimal(number, self.next());
        self.into.extend_from_slice(unit.as_bytes());
    }

    /// A quote of the client's ends nothing.
    fn quoted(&mut self, texts: &[&str]) {
        self.next().push(b'"');
        for (number, text) in texts.iter().enumerate() {
            if number > 0 {
                self.into.push(b' ');
            }
            let start = self.into.len();
            self.into.extend_from_slice(text.as_bytes());
            self.into[start..].iter_mut().filter(|byte| **byte == b'"').for_each(|byte| *byte = b'\'');
        }
        self.into.push(b'"');
    }
}

/// A line with everything: time, listener, peer, connection, command, upstream, how long it took in all and at the upstream,
/// bytes of both sides, outcome; of HTTP also status, "method path protocol", authority, route, endpoint, "user",
/// "user agent", "X-Forwarded-For", "request id", trace id, tries, time to the head of the response, version and cipher suite of
/// TLS, status of gRPC.
fn text(record: &AccessRecord<'_>, at: Duration, into: &mut Vec<u8>) {
    let mut line = FormatWords::new(into);
    line.value(Some(Value::Time(at)));
    line.plain(record.listener);
    line.value(Some(Value::Peer(record.peer)));
    line.number(record.connection, "");
    line.plain(record.command);
    line.plain(record.upstream.unwrap_or("-"));
    line.number(record.duration_nanos / 1_000, "us");
    line.number(record.upstream_nanos / 1_000, "us");
    line.number(record.request_bytes, "B");
    line.number(record.reply_bytes, "B");
    line.plain(record.outcome);
    let Some(http) = &record.http else { return };
    line.number(http.status.into(), "");
    line.quoted(&[http.method, http.path, http.protocol]);
    line.value(Some(Value::Text(http.authority)));
    line.plain(http.route.unwrap_or("-"));
    line.plain(http.endpoint.unwrap_or("-"));
    for text in [http.user, http.user_agent, http.forwarded_for, http.request_id] {
        line.quoted(&[text.unwrap_or("-")]);
    }
    line.plain(http.trace_id.unwrap_or("-"));
    line.number(http.tries, "");
    match http.first_byte_nanos {
        Some(nanos) => line.number(nanos / 1_000, "us"),
        None => line.plain("-"),
    }
    line.plain(http.tls_version.unwrap_or("-"));
    line.plain(http.tls_cipher.unwrap_or("-"));
    match http.grpc_status {
        Some(status) => line.number(status.into(), ""),
        None => line.plain("-"),
    }
}

fn decimal(number: u64, into: &mut Vec<u8>) {
    into.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Seconds with so many digits behind the point, 9 at most.
fn seconds(at: Duration, digits: usize, into: &mut Vec<u8>) {
    decimal(at.as_secs(), into);
    let mut buffer = itoa::Buffer::new();
    // The leading one keeps the zeros behind it.
    let fraction = buffer.format(1_000_000_000 + at.subsec_nanos());
    into.push(b'.');
    into.extend_from_slice(&fraction.as_bytes()[1..=digits]);
}

fn peer(peer: Peer, into: &mut Vec<u8>) {
    match peer {
        Peer::Ip(SocketAddr::V4(address)) => {
            for (number, octet) in address.ip().octets().into_iter().enumerate() {
                if number > 0 {
                    into.push(b'.');
                }
                decimal(octet.into(), into);
            }
            into.push(b':');
            decimal(address.port().into(), into);
        }
        peer => {
            // Writing to memory does not fail.
            let _ = write!(into, "{peer}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> AccessRecord<'static> {
        AccessRecord {
            listener: "web",
            peer: Peer::Ip(([192, 0, 2, 10], 4_000).into()),
            connection: 7,
            command: "GET",
            upstream: None,
            duration_nanos: 1_234_567,
            upstream_nanos: 999,
            request_bytes: 0,
            reply_bytes: u64::MAX,
            outcome: "ok",
            http: None,
        }
    }

    fn http() -> HttpAccess<'static> {
        HttpAccess {
            status: 200,
            method: "GET",
            path: "/a\"b\\",
            protocol: "HTTP/1.1",
            authority: "a",
            route: Some("r"),
            endpoint: None,
            user: Some("zo\u{eb}"),
            user_agent: Some("x y"),
            forwarded_for: Some(""),
            request_id: None,
            trace_id: None,
            tries: 2,
            first_byte_nanos: Some(1_999),
            tls_version: Some("1.3"),
            tls_cipher: None,
            grpc_status: None,
        }
    }

    fn line(format: AccessFormat, fields: Option<&[AccessField]>, record: &AccessRecord<'_>) -> String {
        let mut line = Vec::new();
        AccessForm { format, fields: fields.map(<[_]>::to_vec) }.write(record, &mut line);
        let line = String::from_utf8(line).expect("text");
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line}");
        line.trim_end().to_owned()
    }

    #[test]
    fn a_line_shows_the_known_fields_and_no_value_can_end_it() {
        let known = AccessRecord { http: Some(http()), ..record() };
        let text = line(AccessFormat::Text, None, &known);
        let (_, rest) = text.split_once(' ').expect("a time");
        assert_eq!(
            rest,
            "web 192.0.2.10:4000 7 GET - 1234us 0us 0B 18446744073709551615B ok 200 \"GET /a'b\\ HTTP/1.1\" a r - \"zo\u{eb}\" \
             \"x y\" \"\" \"-\" - 2 1us 1.3 - -"
        );
        let json = line(AccessFormat::Json, None, &known);
        assert!(json.starts_with("{\"time\":1"), "{json}");
        let (_, rest) = json.split_once(',').expect("a time");
        assert_eq!(
            rest,
            r#""listener":"web","peer":"192.0.2.10:4000","connection":7,"command":"GET","upstream":"-","duration_us":1234,"upstream_us":0,"request_bytes":0,"reply_bytes":18446744073709551615,"outcome":"ok","status":200,"method":"GET","path":"/a\"b\\","protocol":"HTTP/1.1","authority":"a","route":"r","user":"zoë","user_agent":"x y","forwarded_for":"","tries":2,"first_byte_us":1,"tls_version":"1.3"}"#
        );
        assert!(line(AccessFormat::Text, None, &record()).ends_with("B ok"));
    }

    #[test]
    fn chosen_fields_stand_in_their_order() {
        let known = AccessRecord { http: Some(http()), ..record() };
        let fields = [AccessField::UserAgent, AccessField::Endpoint, AccessField::Status, AccessField::ForwardedFor];
        assert_eq!(line(AccessFormat::Text, Some(&fields), &known), "\"x y\" - 200 \"\"");
        let json = line(AccessFormat::Json, Some(&fields), &known);
        assert_eq!(json, r#"{"user_agent":"x y","status":200,"forwarded_for":""}"#);
        assert_eq!(line(AccessFormat::Json, Some(&[AccessField::Status]), &record()), "{}");
    }

    #[test]
    fn seconds_keep_the_zeros_behind_the_point() {
        let mut bytes = Vec::new();
        seconds(Duration::new(12, 3_004_567), 6, &mut bytes);
        bytes.push(b' ');
        seconds(Duration::new(0, 999_999_999), 3, &mut bytes);
        assert_eq!(bytes, b"12.003004 0.999");
    }

    #[test]
    fn strings_of_json_have_no_raw_controls() {
        let mut bytes = Vec::new();
        json_string("a\u{1}\"\\b\u{eb}", &mut bytes);
        assert_eq!(bytes, "\"a\\u0001\\\"\\\\b\u{eb}\"".as_bytes());
    }

    #[test]
    fn the_word_of_a_field_is_its_own() {
        for (word, field) in AccessField::NAMED {
            assert_eq!(field.name(), word);
        }
    }

    #[test]
    fn client_text_is_printable_and_short() {
        let mut text = String::from("x");
        printable("a\n\u{eb}".as_bytes(), &mut text);
        printable(&[b'b'; 2 * TEXT_BYTES_MAX], &mut text);
        assert_eq!(text, format!("xa???{}", "b".repeat(TEXT_BYTES_MAX)));
    }
}
