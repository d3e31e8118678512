//! HTTP: `GET /`, whose status is the finding, whichever it is.

use weir_engine::settings::Address;

use super::{
    Protocol,
    probe::{ProbeConnection, excerpt, millis},
};

/// The row.
pub const PROTOCOL: Protocol = Protocol {
    word: "http",
    about: "Run the gateway in front of an HTTP server, without a configuration file",
    listen_port: 8080,
    server_port: 3000,
    listener_table: "",
    tls_request: None,
    ask,
    try_it,
};

/// The type of a TLS alert, which is how a TLS server responds to clear text (RFC 8446 section 5.1).
const TLS_ALERT: u8 = 21;

fn ask(contact: &mut ProbeConnection<'_>) -> Result<String, String> {
    get(contact, "/")
}

/// Sends a GET of a path.
///
/// # Errors
/// As [`Protocol::ask`](super::Protocol).
pub fn get(contact: &mut ProbeConnection<'_>, path: &str) -> Result<String, String> {
    let host = match contact.address {
        Address::Unix(_) => "localhost".to_owned(),
        other => other.to_string(),
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weir/{}\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    );
    let is_whole = |bytes: &[u8]| bytes.windows(4).any(|four| four == b"\r\n\r\n");
    let (response, took) = contact.exchange(request.as_bytes(), is_whole)?;
    if response.first() == Some(&TLS_ALERT) {
        return Err("the server speaks TLS: add --tls-upstream".to_owned());
    }
    let head = String::from_utf8_lossy(&response);
    let mut lines = head.split("\r\n");
    let status = lines.next().filter(|line| line.starts_with("HTTP/1."));
    let Some(status) = status else {
        return Err(format!(
            "something listens there that is not HTTP/1.1: it responds to GET with {}",
            excerpt(&response)
        ));
    };
    let field =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let named = lines.map_while(field).find(|(name, _)| name == "server").map(|(_, value)| format!(" ({value})"));
    Ok(format!("{status}{}, responded to GET {path} in {}", named.unwrap_or_default(), millis(took)))
}

fn try_it(address: &Address) -> String {
    match address {
        Address::Unix(path) => format!("curl --unix-socket {} http://localhost/", path.display()),
        other => format!("curl http://{other}/"),
    }
}
