//! One real request to each endpoint, beside the gateway: the finding in a line.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustls::{ClientConnection, StreamOwned};
use weir_config::Snapshot;
use weir_engine::{
    settings::{Address, TlsClientSettings},
    tls,
};

use super::{Protocol, TlsRequest};

/// To connect, and again for each read and write. Default 2 s: a server that takes longer is a finding.
const LIMIT: Duration = Duration::from_secs(2);
/// Bytes of a response that are looked at. Default 64 KiB: INFO of a Redis server has 6 KiB.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// A connection to a server, with [`LIMIT`] on each read and write.
pub trait Wire: Read + Write {}

impl<T: Read + Write> Wire for T {}

/// A connection to a server that was just made.
pub struct ProbeConnection<'a> {
    /// The connection, of TLS if the upstream wants it.
    pub wire: Box<dyn Wire>,
    /// Where it leads.
    pub address: &'a Address,
    /// The time until it stood, TLS included.
    pub connect_time: Duration,
}

impl ProbeConnection<'_> {
    /// Sends a request and reads until the response `is_whole`. The response, and the time that it took.
    ///
    /// # Errors
    /// In words: the server ended before its first byte, or says nothing for [`LIMIT`].
    pub fn exchange(
        &mut self,
        request: &[u8],
        is_whole: impl Fn(&[u8]) -> bool,
    ) -> Result<(Vec<u8>, Duration), String> {
        let begun = Instant::now();
        self.wire.write_all(request).and_then(|()| self.wire.flush()).map_err(|error| reason(&error))?;
        let response = read_until(&mut *self.wire, is_whole)?;
        Ok((response, begun.elapsed()))
    }
}

/// Sends one request to each endpoint of the snapshot, to all of an upstream at once, and prints a line for each upstream. `otherwise`
/// says what happens if a server cannot be reached.
pub fn print(protocol: &Protocol, snapshot: &Snapshot, otherwise: &str) {
    for upstream in &snapshot.upstreams {
        let (endpoints, tls) = (&upstream.settings.endpoints, upstream.settings.tls.as_ref());
        let findings: Vec<Finding<'_>> = thread::scope(|scope| {
            let asked: Vec<_> =
                endpoints.iter().map(|address| scope.spawn(move || ask(protocol, address, tls))).collect();
            let found = asked.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("the probe failed".to_owned())));
            endpoints.iter().zip(found).collect()
        });
        println!("{}", line(&findings, otherwise));
    }
}

/// An endpoint, and the server that responded there or the reason why none did.
type Finding<'a> = (&'a Address, Result<String, String>);

/// One line with the findings about an upstream. For several endpoints it has the number that responded, the first of these, and
/// the first of the others.
fn line(findings: &[Finding<'_>], otherwise: &str) -> String {
    let (all, responded) = (findings.len(), findings.iter().filter(|(_, found)| found.is_ok()).count());
    let first = |wanted: bool| findings.iter().find(|(_, found)| found.is_ok() == wanted);
    let shown = [first(true), first(false)].into_iter().flatten().map(|(address, found)| {
        let (Ok(words) | Err(words)) = found;
        format!("{address}: {words}")
    });
    let summary = if all > 1 { format!("{responded} of {all} endpoints responded; ") } else { String::new() };
    let end = if responded < all { format!(". {otherwise}") } else { String::new() };
    summary + &shown.collect::<Vec<_>>().join("; ") + &end
}

/// The finding about one server.
fn ask(protocol: &Protocol, address: &Address, tls: Option<&TlsClientSettings>) -> Result<String, String> {
    let mut contact = connect(protocol, address, tls)?;
    (protocol.ask)(&mut contact)
}

/// `0.3 ms`.
pub fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn connect<'a>(
    protocol: &Protocol,
    address: &'a Address,
    tls: Option<&TlsClientSettings>,
) -> Result<ProbeConnection<'a>, String> {
    let begun = Instant::now();
    let mut plain: Box<dyn Wire> = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).map_err(|error| reason(&error))?;
            bounded(stream.set_read_timeout(Some(LIMIT)), stream.set_write_timeout(Some(LIMIT)))?;
            Box::new(stream)
        }
        other => Box::new(tcp(other)?),
    };
    let wire = match tls {
        None => plain,
        Some(settings) => {
            request_tls(&mut *plain, protocol.tls_request.as_ref())?;
            encrypted(plain, address, settings)?
        }
    };
    Ok(ProbeConnection { wire, address, connect_time: begun.elapsed() })
}

/// Tries the addresses of the server in turn, as the gateway does.
fn tcp(address: &Address) -> Result<TcpStream, String> {
    let addresses: Vec<SocketAddr> = match address {
        Address::Host { name, port } => {
            let found = (&**name, *port).to_socket_addrs();
            found.map_err(|error| format!("cannot resolve the name: {error}"))?.collect()
        }
        Address::Socket(address) => vec![*address],
        Address::Unix(_) => Vec::new(),
    };
    let mut last = Err("the name has no address".to_owned());
    for address in addresses {
        match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(stream) => {
                bounded(stream.set_read_timeout(Some(LIMIT)), stream.set_write_timeout(Some(LIMIT)))?;
                return Ok(stream);
            }
            Err(error) => last = Err(reason(&error)),
        }
    }
    last
}

fn bounded(read: io::Result<()>, write: io::Result<()>) -> Result<(), String> {
    read.and(write).map_err(|error| reason(&error))
}

/// Requests TLS, where the protocol has it within.
fn request_tls(wire: &mut dyn Wire, request: Option<&TlsRequest>) -> Result<(), String> {
    let Some(TlsRequest { request, agreement }) = request else { return Ok(()) };
    let mut reply = [0];
    wire.write_all(request).and_then(|()| wire.read_exact(&mut reply)).map_err(|error| reason(&error))?;
    match reply[0] == *agreement {
        true => Ok(()),
        false => Err("the server has no TLS".to_owned()),
    }
}

/// With the settings of the gateway's own connections.
fn encrypted(plain: Box<dyn Wire>, address: &Address, settings: &TlsClientSettings) -> Result<Box<dyn Wire>, String> {
    let client = tls::client_config(settings).map_err(|error| error.to_string())?;
    let name = client.name_for(&address.host().unwrap_or_default()).map_err(|error| error.to_string())?;
    let session = ClientConnection::new(Arc::clone(&client.config), name).map_err(|error| format!("TLS: {error}"))?;
    let mut stream = StreamOwned::new(session, plain);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).map_err(|error| format!("TLS: {}", reason(&error)))?;
    }
    Ok(Box::new(stream))
}

/// The cause of the error, without the number of the system's error.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused: nothing listens there".to_owned(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => format!("no response within {} s", LIMIT.as_secs()),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "the server closed the connection without a response".to_owned()
        }
        io::ErrorKind::NotFound => "no such socket file".to_owned(),
        _ => error.to_string(),
    }
}

/// Reads until `is_whole`, the end, or the bound.
fn read_until(wire: &mut dyn Wire, is_whole: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while !is_whole(&bytes) && bytes.len() < RESPONSE_BYTES_MAX {
        match wire.read(&mut chunk) {
            Ok(0) if bytes.is_empty() => return Err(reason(&io::ErrorKind::UnexpectedEof.into())),
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(reason(&error)),
        }
    }
    Ok(bytes)
}

/// The first bytes of what another protocol said, for a message.
pub fn excerpt(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(32)]).into_owned();
    format!("\"{}\"", text.escape_debug())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustls::ServerConnection;
    use weir_engine::settings::{ClientAuth, TlsServerSettings};

    use super::*;

    /// A Redis server with an untrusted certificate. It knows PING only.
    fn server_of_tls() -> Address {
        let folder = tempfile::tempdir().expect("a folder");
        weir_parties::certificate::make(folder.path()).expect("a certificate");
        let settings = TlsServerSettings {
            cert_file: folder.path().join("tls.crt"),
            key_file: folder.path().join("tls.key"),
            client_ca_file: None,
            client_auth: ClientAuth::Off,
            handshake_timeout: LIMIT,
            certificates: Vec::new(),
            alpn: Vec::new(),
            files_digest: 0,
        };
        let config = tls::server_config(&settings).expect("a certificate with its key");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = Address::Socket(listener.local_addr().expect("an address"));
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
                let mut stream = StreamOwned::new(session, socket);
                let mut bytes = [0; 256];
                for reply in [&b"+PONG\r\n"[..], b"-ERR unknown command\r\n-ERR unknown command\r\n"] {
                    // The client may leave: it does not trust the certificate.
                    if stream.read(&mut bytes).is_err() || stream.write_all(reply).is_err() {
                        break;
                    }
                }
            }
        });
        address
    }

    #[test]
    fn a_tls_server_is_probed_over_tls_and_its_certificate_is_verified() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let address = server_of_tls();
        let redis = crate::front::named("redis").expect("Redis");
        let trusting = TlsClientSettings { insecure_skip_verify: true, ..TlsClientSettings::default() };
        let found = ask(redis, &address, Some(&trusting)).expect("a finding");
        assert!(found.starts_with("a server that speaks the Redis protocol, responded in "), "{found}");
        let refused = ask(redis, &address, Some(&TlsClientSettings::default())).expect_err("no trust");
        assert!(refused.starts_with("TLS: ") && refused.contains("certificate"), "{refused}");
        let plain = ask(redis, &address, None).expect_err("no Redis in clear text");
        assert!(!plain.is_empty());
    }

    #[test]
    fn several_endpoints_are_one_line_with_their_count() {
        let addresses = [1, 2, 3].map(|port| Address::Socket(([127, 0, 0, 1], port).into()));
        let words = |found: [Result<&str, &str>; 3]| {
            let owned = found.map(|one| one.map(str::to_owned).map_err(str::to_owned));
            line(&addresses.iter().zip(owned).collect::<Vec<_>>(), "Trying on.")
        };
        assert_eq!(words([Ok("a"), Ok("b"), Ok("c")]), "3 of 3 endpoints responded; 127.0.0.1:1: a");
        let some = "2 of 3 endpoints responded; 127.0.0.1:1: a; 127.0.0.1:2: refused. Trying on.";
        assert_eq!(words([Ok("a"), Err("refused"), Ok("c")]), some);
        let none = "0 of 3 endpoints responded; 127.0.0.1:1: refused. Trying on.";
        assert_eq!(words([Err("refused"), Err("silent"), Err("silent")]), none);
        assert_eq!(line(&[(&addresses[0], Ok("a".to_owned()))], "Trying on."), "127.0.0.1:1: a");
    }

    #[test]
    fn a_server_that_says_nothing_or_leaves_is_a_finding() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let http = crate::front::named("http").expect("HTTP");
        let address = Address::Socket(silent.local_addr().expect("an address"));
        assert_eq!(ask(http, &address, None), Err("no response within 2 s".to_owned()));
        drop(silent);
        let refused = ask(http, &address, None).expect_err("nobody listens");
        assert!(refused.contains("nothing listens there"), "{refused}");
        let nowhere = Address::Unix("/nowhere/redis.sock".into());
        assert_eq!(ask(http, &nowhere, None), Err("no such socket file".to_owned()));
        let unknown = "no-such-host.invalid:80".parse().expect("an address");
        assert!(ask(http, &unknown, None).is_err_and(|what| what.starts_with("cannot resolve the name")));
    }
}
