//! A strict reading of bytes: anything that could be read in a second way is an error. This is neither the codec under test nor
//! anybody else's parser.

use std::fmt;

/// A request on the way to an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Path and query, or `*`.
    pub target: String,
    /// All fields, names in lower case.
    pub fields: Vec<(String, String)>,
    /// Without chunks.
    pub body: Vec<u8>,
    /// It is there to its end.
    pub is_whole: bool,
}

impl Request {
    /// The value of a field.
    pub fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|field| field.0 == name).map_or("", |field| &field.1)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} of {:?}: {:?}",
            self.method,
            self.target,
            self.field("host"),
            String::from_utf8_lossy(&self.body)
        )
    }
}

/// A response, on either side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedResponse {
    /// The status.
    pub status: u16,
    /// The body, without chunks.
    pub body: String,
    /// It is the last one.
    pub closes: bool,
}

/// Fields that must not go on to an origin; `te` may, if it is `trailers`.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "upgrade", "http2-settings", "proxy-authorization", "trailers"];

/// Trailers that would change what was judged, were they taken for fields.
const NO_TRAILERS: [&str; 12] = [
    "content-length",
    "transfer-encoding",
    "host",
    "connection",
    "upgrade",
    "te",
    "authorization",
    "cookie",
    "content-encoding",
    "content-type",
    "x-forwarded-for",
    "forwarded",
];

/// The requests of a connection; the last one may be unfinished.
///
/// # Errors
/// Something could be read in two ways, or should not have been sent.
pub fn requests(bytes: &[u8]) -> Result<Vec<Request>, String> {
    let mut reader = Reader { bytes, at: 0 };
    let mut requests = Vec::new();
    while reader.at < bytes.len() {
        let mut request = Request::default();
        request.is_whole = reader.request(&mut request)?.is_some();
        requests.push(request);
    }
    Ok(requests)
}

/// The final responses of a connection, without interim ones. `methods` are those of the requests. The last
/// response may lack its end: then it ends with the connection.
///
/// # Errors
/// Something could be read in two ways, or answers nothing.
pub fn responses<'a>(
    bytes: &[u8],
    methods: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<ObservedResponse>, String> {
    let mut reader = Reader { bytes, at: 0 };
    let (mut responses, mut methods) = (Vec::new(), methods.into_iter());
    while reader.at < bytes.len() {
        let (line, fields) = reader.head()?.ok_or("a response without an end of its head")?;
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.ok_or_else(|| format!("no status line: {line:?}"))?;
        if status < 200 {
            continue;
        }
        let has_body = methods.next() != Some("HEAD") && !matches!(status, 204 | 304);
        let body = match has_body {
            true => reader.body(&fields)?.ok_or("a response without its end")?,
            false => Vec::new(),
        };
        let closes = fields.iter().any(|(name, value)| name == "connection" && value.eq_ignore_ascii_case("close"));
        responses.push(ObservedResponse { status, body: String::from_utf8_lossy(&body).into_owned(), closes });
    }
    Ok(responses)
}

type Fields = Vec<(String, String)>;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next line without its end; `None`: it is not whole.
    fn line(&mut self) -> Result<Option<&'a [u8]>, String> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            self.at = self.bytes.len();
            return Ok(None);
        };
        match &rest[end..] {
            [b'\r', b'\n', ..] => {
                self.at += end + 2;
                Ok(Some(&rest[..end]))
            }
            [b'\r'] => {
                self.at = self.bytes.len();
                Ok(None)
            }
            _ => Err(format!("CR or LF alone: {:?}", String::from_utf8_lossy(rest))),
        }
    }

    /// First line and fields.
    fn head(&mut self) -> Result<Option<(String, Fields)>, String> {
        let Some(first) = self.line()? else { return Ok(None) };
        let first = String::from_utf8(first.to_vec()).map_err(|_| "a first line that is not ASCII")?;
        Ok(self.fields()?.map(|fields| (first, fields)))
    }

    /// Field lines up to the empty one.
    fn fields(&mut self) -> Result<Option<Fields>, String> {
        let mut fields = Vec::new();
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            if line.is_empty() {
                return Ok(Some(fields));
            }
            let text: String = line.iter().map(|byte| char::from(*byte)).collect();
            let (name, value) = text.split_once(':').ok_or_else(|| format!("no field: {text:?}"))?;
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_name) || value.bytes().any(|byte| byte < b' ' && byte != b'\t') {
                return Err(format!("no field: {text:?}"));
            }
            fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
        }
    }

    fn request(&mut self, request: &mut Request) -> Result<Option<()>, String> {
        let Some((line, fields)) = self.head()? else { return Ok(None) };
        let words: Vec<&str> = line.split(' ').collect();
        let [method, target, "HTTP/1.1"] = words[..] else { return Err(format!("no request line: {line:?}")) };
        let is_target = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !is_target || !(target.starts_with('/') || target == "*") || method.is_empty() {
            return Err(format!("no request line: {line:?}"));
        }
        let count = |name: &str| fields.iter().filter(|field| field.0 == name).count();
        let framings = count("content-length") + count("transfer-encoding");
        if count("host") != 1 || framings > 1 {
            return Err(format!("fields that decide come once: {fields:?}"));
        }
        let is_hop = |(name, value): &(String, String)| {
            HOP_BY_HOP.contains(&name.as_str()) || (name == "te" && !value.eq_ignore_ascii_case("trailers"))
        };
        if let Some(field) = fields.iter().find(|field| is_hop(field)) {
            return Err(format!("of the client's connection: {field:?}"));
        }
        *request = Request { method: method.into(), target: target.into(), fields, ..Request::default() };
        // Without one of the two a request has no body.
        let body = if framings == 0 { Some(Vec::new()) } else { self.body(&request.fields)? };
        let Some(body) = body else { return Ok(None) };
        request.body = body;
        Ok(Some(()))
    }

    /// A body; `None`: it is not whole.
    fn body(&mut self, fields: &Fields) -> Result<Option<Vec<u8>>, String> {
        let all =
            |name: &str| fields.iter().filter(|field| field.0 == name).map(|field| &field.1[..]).collect::<Vec<_>>();
        let length = match (&all("content-length")[..], &all("transfer-encoding")[..]) {
            ([], ["chunked"]) => return self.chunks(),
            ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
                length.parse::<usize>().map_err(|_| format!("no length: {length:?}"))?
            }
            ([], []) => self.bytes.len() - self.at,
            other => return Err(format!("no framing: {other:?}")),
        };
        let rest = &self.bytes[self.at..];
        self.at += length.min(rest.len());
        Ok(rest.get(..length).map(<[u8]>::to_vec))
    }

    fn chunks(&mut self) -> Result<Option<Vec<u8>>, String> {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            let digits = String::from_utf8_lossy(line).into_owned();
            let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let size = usize::from_str_radix(&digits, 16).ok().filter(|_| is_number);
            let size = size.ok_or_else(|| format!("no chunk size: {digits:?}"))?;
            if size == 0 {
                let Some(trailers) = self.fields()? else { return Ok(None) };
                let bad = trailers.iter().find(|(name, _)| NO_TRAILERS.contains(&&name[..]));
                return bad.map_or(Ok(Some(body)), |bad| Err(format!("no trailer: {bad:?}")));
            }
            let rest = &self.bytes[self.at..];
            body.extend_from_slice(&rest[..size.min(rest.len())]);
            self.at += size.min(rest.len());
            match &rest[size.min(rest.len())..] {
                [b'\r', b'\n', ..] => self.at += 2,
                [] | [b'\r'] => {
                    self.at = self.bytes.len();
                    return Ok(None);
                }
                _ => return Err("a chunk without its end".into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unambiguous_input_is_read() {
        let seen = requests(
            b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n\
              POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nxGET /c HTTP/1.1\r\nHost: a\r\n\r\nPOST /d HT",
        );
        let seen = seen.expect("plain requests");
        let bodies: Vec<(&str, &[u8], bool)> =
            seen.iter().map(|one| (&one.target[..], &one.body[..], one.is_whole)).collect();
        let none = &b""[..];
        assert_eq!(bodies, [("/a", &b"hi"[..], true), ("/b", b"x", true), ("/c", none, true), ("", none, false)]);
        let told = responses(b"HTTP/1.1 103 x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", ["GET"]);
        assert_eq!(told, Ok(vec![ObservedResponse { status: 200, body: "hi".into(), closes: false }]));
    }

    #[test]
    fn ambiguous_input_is_an_error() {
        for bytes in [
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;x\r\na\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: b\r\n\r\n",
        ] {
            assert!(requests(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
    }
}
