//! Settings of the engine: workers, addresses, TLS. Plain data, checked before it is built.
//!
//! Every number has a named default with its unit, its reason and its worst case. The configuration crate
//! reads these constants too, so a default stands in exactly one place.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use weir_base::limits;

/// The latency that a busy worker may add to the median request so that requests gather, about: it pauses for half of it in front of a look,
/// and one turn and one write to the upstream then carry several requests. Default 150 us; zero turns all pauses off. ARCHITECTURE.md,
/// "Coalescing", has figures.
pub const LATENCY_BUDGET: Duration = Duration::from_micros(150);

/// From the accepted connection to the finished TLS handshake. Default 5 s, see [`limits::TLS_HANDSHAKE_DEADLINE`].
pub const TLS_HANDSHAKE_TIMEOUT: Duration = limits::TLS_HANDSHAKE_DEADLINE;

/// Where the usual distributions keep the bundle of public certificate authorities, in the order of trial.
/// Debian and Alpine, Fedora and RHEL, openSUSE, the OpenSSL default of a BSD.
pub const PLATFORM_CA_FILES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Which kernel interface the workers use for I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DriverChoice {
    /// io_uring where the kernel allows it, else polling; decided once at start and shown in log and readiness.
    #[default]
    Auto,
    /// io_uring, or fail to start.
    IoUring,
    /// Readiness polling (epoll), also where io_uring would work.
    Polling,
}

/// The workers. A change needs a restart: threads are laid out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeSettings {
    /// Worker threads. `None`: as many as the cores this process may use (affinity mask and CPU quota).
    pub workers: Option<usize>,
    /// Kernel interface. Default [`DriverChoice::Auto`].
    pub driver: DriverChoice,
    /// Bind each worker to one core. Default true; false where another scheduler owns the cores.
    pub pin: bool,
    /// See [`LATENCY_BUDGET`].
    pub latency_budget: Duration,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        Self { workers: None, driver: DriverChoice::Auto, pin: true, latency_budget: LATENCY_BUDGET }
    }
}

impl RuntimeSettings {
    /// For workers that add no latency of their own: generators and origins.
    #[must_use]
    pub fn without_pauses() -> Self {
        Self { latency_budget: Duration::ZERO, ..Self::default() }
    }
}

/// Whether a TLS listener asks clients for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ClientAuth {
    /// No certificate is requested.
    #[default]
    Off,
    /// Requested; a client without one is let in, one with a certificate that does not verify is not.
    Optional,
    /// No valid certificate, no connection.
    Required,
}

/// TLS towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsServerSettings {
    /// PEM: the certificate of this listener, then its chain.
    pub cert_file: PathBuf,
    /// PEM: the private key that belongs to it (PKCS#8, PKCS#1 or SEC1).
    pub key_file: PathBuf,
    /// PEM: authorities that client certificates must chain to. Always set when `client_auth` is not `Off`.
    pub client_ca_file: Option<PathBuf>,
    /// Ask clients for a certificate. Default [`ClientAuth::Off`].
    pub client_auth: ClientAuth,
    /// See [`TLS_HANDSHAKE_TIMEOUT`].
    pub handshake_timeout: Duration,
    /// Certificates of clients that ask for one of their names (SNI); others get that of `cert_file`.
    pub certificates: Vec<NamedCertificate>,
    /// Application protocols offered, most wanted first. Empty: no ALPN, which is what Redis clients expect.
    pub alpn: Vec<String>,
    /// Digest of the files' contents when the settings were made. It differs when a certificate was renewed
    /// under the same name, so comparing two settings is enough to know that a new TLS context is due.
    pub files_digest: u64,
}

/// A certificate for some names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCertificate {
    /// `a.example`, or `*.example`. Empty: the names in the certificate.
    pub names: Vec<String>,
    /// PEM: the certificate, then its chain.
    pub cert_file: PathBuf,
    /// PEM: the private key that belongs to it.
    pub key_file: PathBuf,
}

/// TLS towards an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsClientSettings {
    /// PEM: authorities that the server must chain to. `None`: the first of [`PLATFORM_CA_FILES`] that exists.
    pub ca_file: Option<PathBuf>,
    /// PEM: our own certificate and chain, for mutual TLS. Set together with `key_file`.
    pub cert_file: Option<PathBuf>,
    /// PEM: the private key of `cert_file`.
    pub key_file: Option<PathBuf>,
    /// Name to verify and to send as SNI. `None`: the host of the endpoint (a name, or its IP address).
    pub server_name: Option<String>,
    /// Accept whatever certificate the server shows. For tests only: anyone on the path can read the traffic.
    pub insecure_skip_verify: bool,
    /// From the connected socket to the finished handshake. See [`TLS_HANDSHAKE_TIMEOUT`].
    pub handshake_timeout: Duration,
    /// Protocols to agree on (RFC 7301), the most wanted first. Empty: none is named.
    pub alpn: Vec<String>,
    /// As [`TlsServerSettings::files_digest`].
    pub files_digest: u64,
}

impl Default for TlsClientSettings {
    fn default() -> Self {
        Self {
            ca_file: None,
            cert_file: None,
            key_file: None,
            server_name: None,
            insecure_skip_verify: false,
            handshake_timeout: TLS_HANDSHAKE_TIMEOUT,
            alpn: Vec::new(),
            files_digest: 0,
        }
    }
}

/// Where to listen or to connect.
///
/// Text forms: `127.0.0.1:6379`, `[::1]:6379`, `redis.internal:6379`, `unix:/run/redis.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An IP address and port.
    Socket(SocketAddr),
    /// A host name, resolved when it is connected to.
    Host {
        /// The name, lower case, without a trailing dot.
        name: Arc<str>,
        /// The port.
        port: u16,
    },
    /// A Unix stream socket.
    Unix(PathBuf),
}

/// Why a text is not an [`Address`]. The display text says what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressError {
    /// Nothing there.
    Empty,
    /// `redis://...`: a URL, not an address.
    Url,
    /// `/run/x.sock` without `unix:`.
    BarePath,
    /// `unix:` and then no absolute path, or one past the kernel's limit.
    UnixPath,
    /// No `:port` at the end.
    NoPort,
    /// The port is no number from 0 to 65535.
    Port,
    /// An IPv6 address without brackets.
    Brackets,
    /// `:6379` or `*:6379`.
    NoHost,
    /// Not an IP address, and not a host name after RFC 1123 section 2.1 either.
    Host,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the address is empty; write host:port or unix:/path",
            Self::Url => "this is a URL; write host:port (TLS is configured in the [..tls] table)",
            Self::BarePath => "a socket path is written with its scheme: unix:/path",
            Self::UnixPath => "unix: is followed by an absolute path of at most 107 bytes",
            Self::NoPort => "the port is missing; write host:port",
            Self::Port => "the port is a number from 0 to 65535",
            Self::Brackets => "an IPv6 address stands in brackets: [::1]:6379",
            Self::NoHost => "the host is missing; 0.0.0.0:port or [::]:port means every interface",
            Self::Host => "the host is neither an IP address nor a host name",
        })
    }
}

impl std::error::Error for AddressError {}

/// Longest path of a Unix socket: `sun_path` has 108 bytes on Linux, one is the terminator (unix(7)).
pub const UNIX_PATH_BYTES_MAX: usize = 107;

/// Longest host name (RFC 1123 section 2.1: "SHOULD handle host names of up to 255 characters"; 253 in text form).
const HOST_BYTES_MAX: usize = 253;
/// Longest label of a host name (RFC 1035 section 2.3.4).
const LABEL_BYTES_MAX: usize = 63;

impl Address {
    /// The port, or `None` for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Socket(address) => Some(address.port()),
            Self::Host { port, .. } => Some(*port),
            Self::Unix(_) => None,
        }
    }

    /// True if a socket at one of them is in the way of one at the other: the same path, or the same port at the same IP
    /// address or at every one of that family. The kernel would take both with `SO_REUSEPORT`, and then half of the
    /// connections would reach the wrong one.
    pub fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Socket(a), Self::Socket(b)) => {
                let overlaps = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
                a.port() != 0 && a.port() == b.port() && a.is_ipv4() == b.is_ipv4() && overlaps
            }
            (a, b) => a == b,
        }
    }

    /// True when only this machine can reach it: a loopback IP address or a Unix socket.
    /// A host name is never taken for loopback, it may resolve to anything.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Socket(address) => address.ip().is_loopback(),
            Self::Host { .. } => false,
            Self::Unix(_) => true,
        }
    }

    /// The host as text, for SNI and for labels: no port, no brackets. `None` for a Unix socket.
    pub fn host(&self) -> Option<String> {
        match self {
            Self::Socket(address) => Some(address.ip().to_string()),
            Self::Host { name, .. } => Some(name.to_string()),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(address) => write!(f, "{address}"),
            Self::Host { name, port } => write!(f, "{name}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Socket(address)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return unix_address(path);
        }
        if text.contains("://") {
            return Err(AddressError::Url);
        }
        if text.starts_with('/') || text.starts_with("./") {
            return Err(AddressError::BarePath);
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Socket(address));
        }
        if text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4()) {
            return Err(AddressError::NoPort);
        }
        if text.starts_with('[') {
            return Err(bracket_error(text));
        }
        host_address(text)
    }
}

/// The part after `unix:`; `unix:///run/x` is taken as well, since other tools write it so.
fn unix_address(path: &str) -> Result<Address, AddressError> {
    let path = match path.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    };
    let usable = path.starts_with('/') && path.len() > 1 && path.len() <= UNIX_PATH_BYTES_MAX;
    if !usable || path.contains('\0') {
        return Err(AddressError::UnixPath);
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

/// Why a text that starts with `[` is no socket address.
fn bracket_error(text: &str) -> AddressError {
    match text[1..].split_once(']') {
        Some((host, rest)) if host.parse::<std::net::Ipv6Addr>().is_ok() => match rest.strip_prefix(':') {
            Some(_) => AddressError::Port,
            None => AddressError::NoPort,
        },
        _ => AddressError::Host,
    }
}

/// `name:port`.
fn host_address(text: &str) -> Result<Address, AddressError> {
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(AddressError::NoPort);
    };
    if host.contains(':') {
        return Err(AddressError::Brackets);
    }
    if host.is_empty() || host == "*" {
        return Err(AddressError::NoHost);
    }
    // `u16::from_str` takes a leading plus sign; an address does not.
    let port = match port.bytes().all(|b| b.is_ascii_digit()) {
        true => port.parse::<u16>().map_err(|_| AddressError::Port)?,
        false => return Err(AddressError::Port),
    };
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if !is_host_name(&name) {
        return Err(AddressError::Host);
    }
    Ok(Address::Host { name: name.into(), port })
}

/// Host name after RFC 1123 section 2.1; `_` is let through because service names in containers use it.
/// A name whose last label is all digits is a mistyped IPv4 address and is refused (WHATWG URL does the same).
fn is_host_name(name: &str) -> bool {
    if name.is_empty() || name.len() > HOST_BYTES_MAX {
        return false;
    }
    let labels_fit = name.split('.').all(|label| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    });
    let last = name.rsplit('.').next().unwrap_or_default();
    labels_fit && !last.bytes().all(|b| b.is_ascii_digit())
}

/// When the other side of an exchange stops being read, in bytes of this output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// At or above this many bytes the output is congested.
    pub high: usize,
    /// Below this many bytes it is no longer.
    pub low: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_every_form_survive_a_round_trip() {
        for text in ["127.0.0.1:6379", "[::1]:6379", "redis.internal:6379", "my_redis:1", "unix:/run/redis.sock"] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("unix:///run/r.sock".parse(), Ok(Address::Unix(PathBuf::from("/run/r.sock"))));
        assert_eq!("Redis.Internal.:7".parse(), Ok(Address::Host { name: "redis.internal".into(), port: 7 }));
    }

    #[test]
    fn each_wrong_address_names_its_own_mistake() {
        let long = format!("unix:/{}", "a".repeat(UNIX_PATH_BYTES_MAX));
        let cases = [
            ("", AddressError::Empty),
            ("redis://h:1", AddressError::Url),
            ("/run/x.sock", AddressError::BarePath),
            ("unix:x.sock", AddressError::UnixPath),
            ("unix:/", AddressError::UnixPath),
            (long.as_str(), AddressError::UnixPath),
            ("localhost", AddressError::NoPort),
            ("10.0.0.1", AddressError::NoPort),
            ("[::1]", AddressError::NoPort),
            ("[::1]:99999", AddressError::Port),
            ("h:70000", AddressError::Port),
            ("h:+1", AddressError::Port),
            ("h:", AddressError::Port),
            ("::1:6379", AddressError::Brackets),
            (":6379", AddressError::NoHost),
            ("*:6379", AddressError::NoHost),
            ("10.0.0.256:1", AddressError::Host),
            ("a b:1", AddressError::Host),
            ("-a:1", AddressError::Host),
            ("[zz]:1", AddressError::Host),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }

    #[test]
    fn only_loopback_and_unix_count_as_local() {
        let local = |text: &str| text.parse::<Address>().expect(text).is_local();
        assert!(local("127.0.0.1:1") && local("[::1]:1") && local("unix:/x"));
        assert!(!local("0.0.0.0:1") && !local("localhost:1") && !local("10.0.0.1:1"));
    }
}
