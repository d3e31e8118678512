//! RESP on an upstream connection.

use std::{cell::RefCell, collections::HashMap, io, rc::Rc};

use weir_base::{error::Culprit, violation::Violation};
use weir_engine::{Chunk, Stream};
use weir_resp::{ReplyFramer, Value, ValueLimits, Version, encode};
use weir_upstream::{FrameKind, LaneProtocol, Scan};

use crate::settings::RedisUpstreamSettings;

/// Bytes of a greeting's replies; HELLO with many modules is about 2 KiB.
const GREETING_BYTES_MAX: usize = 64 * 1024;

/// What makes two lanes to one server different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneKey {
    /// The endpoint, counted as in the settings of the upstream.
    pub shard: u16,
    /// The selected database.
    pub db: u32,
    /// The protocol version; replies pass through unchanged, so it is the client's.
    pub version: Version,
}

/// What a server told of itself when greeted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// `redis`, `valkey`, …
    pub server: Vec<u8>,
    /// Its version.
    pub version: Vec<u8>,
    /// `master` or `replica`.
    pub role: Vec<u8>,
}

impl Default for ServerInfo {
    /// What a server is taken for that does not know HELLO (Redis before 6).
    fn default() -> Self {
        Self { server: b"redis".to_vec(), version: b"5.0.0".to_vec(), role: b"master".to_vec() }
    }
}

/// RESP with the gateway's own credentials.
pub struct RespLane {
    settings: RedisUpstreamSettings,
    servers: RefCell<HashMap<Version, Rc<ServerInfo>>>,
}

impl RespLane {
    /// A protocol that logs in as `settings` say.
    pub fn new(settings: RedisUpstreamSettings) -> Self {
        Self { settings, servers: RefCell::default() }
    }

    /// What the server said in the last greeting of `version`.
    pub fn server(&self, version: Version) -> Option<Rc<ServerInfo>> {
        self.servers.borrow().get(&version).cloned()
    }

    /// `HELLO <version> [AUTH user password] [SETNAME name]`.
    fn hello(&self, version: Version) -> Vec<u8> {
        let version = [b'0' + version.number()];
        let mut args: Vec<&[u8]> = vec![b"HELLO", &version];
        let user = self.settings.user.as_deref().unwrap_or("default");
        if let Some(password) = &self.settings.password {
            args.extend([b"AUTH", user.as_bytes(), password.expose()]);
        }
        if !self.settings.client_name.is_empty() {
            args.extend([b"SETNAME".as_slice(), self.settings.client_name.as_bytes()]);
        }
        let mut out = Vec::new();
        encode::command(&mut out, args);
        out
    }

    /// The greeting of a server that does not know HELLO.
    async fn greet_old(&self, exchange: &mut Exchange<'_>) -> io::Result<()> {
        let Some(password) = &self.settings.password else { return Ok(()) };
        let mut args: Vec<&[u8]> = vec![b"AUTH"];
        args.extend(self.settings.user.as_ref().map(|user| user.as_bytes()));
        args.push(password.expose());
        exchange.expect_ok(args).await
    }
}

impl LaneProtocol for RespLane {
    type Key = LaneKey;
    type Framer = ReplyFramer;
    type Greeting = Rc<ServerInfo>;

    #[inline]
    fn scan(framer: &mut ReplyFramer, input: &[u8]) -> Result<Scan, Violation> {
        let weir_resp::Scan { taken, end } = framer.advance(input).map_err(upstream_violation)?;
        let (is_push, end) = match end {
            Some(kind) if kind.is_push() => (true, Some(FrameKind::Push)),
            Some(kind) if kind.is_error() => (false, Some(FrameKind::Error)),
            Some(_) => (false, Some(FrameKind::Reply)),
            None => (framer.first_byte() == Some(b'>'), None),
        };
        Ok(Scan { taken, is_push, end })
    }

    async fn greet(&self, stream: &mut Stream, key: LaneKey) -> io::Result<Rc<ServerInfo>> {
        let mut exchange = Exchange::new(stream);
        let reply = exchange.call(&self.hello(key.version)).await?;
        let info = match &reply {
            Value::Error(text) if is_unknown_command(text) && key.version == Version::Resp2 => {
                self.greet_old(&mut exchange).await?;
                ServerInfo::default()
            }
            Value::Error(text) => return Err(refused(text)),
            reply => server_info(reply),
        };
        if key.db != 0 {
            exchange.expect_ok([b"SELECT".as_slice(), key.db.to_string().as_bytes()]).await?;
        }
        let info = Rc::new(info);
        self.servers.borrow_mut().insert(key.version, info.clone());
        Ok(info)
    }

    async fn probe(&self, stream: &mut Stream) -> io::Result<()> {
        match Exchange::new(stream).call(b"*1\r\n$4\r\nPING\r\n").await? {
            // A server that loads its data, or a replica without its primary, is not ready for traffic.
            Value::Error(text) if text.starts_with(b"LOADING") || text.starts_with(b"MASTERDOWN") => {
                Err(refused(&text))
            }
            _ => Ok(()),
        }
    }

    fn probe_key(&self, endpoint: u16) -> LaneKey {
        LaneKey { shard: endpoint, db: 0, version: Version::Resp2 }
    }

    #[inline]
    fn endpoint(key: LaneKey) -> u16 {
        key.shard
    }
}

fn upstream_violation(error: weir_resp::ProtocolError) -> Violation {
    Violation::rule(error.reason(), Culprit::Upstream, error.to_string())
}

fn is_unknown_command(text: &[u8]) -> bool {
    text.starts_with(b"ERR unknown command")
}

/// The server says no: trying again at once will not help.
fn refused(text: &[u8]) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, String::from_utf8_lossy(text).into_owned())
}

fn server_info(hello: &Value) -> ServerInfo {
    let mut info = ServerInfo::default();
    for (name, field) in [("server", &mut info.server), ("version", &mut info.version), ("role", &mut info.role)] {
        if let Some(text) = hello.field(name.as_bytes()).and_then(Value::as_bytes) {
            *field = text.to_vec();
        }
    }
    info
}

/// One question at a time on a connection that nobody else uses yet.
struct Exchange<'a> {
    stream: &'a mut Stream,
    received: Vec<u8>,
}

impl<'a> Exchange<'a> {
    fn new(stream: &'a mut Stream) -> Self {
        Self { stream, received: Vec::new() }
    }

    async fn call(&mut self, request: &[u8]) -> io::Result<Value> {
        self.stream.output.append(request);
        let mut framer = ReplyFramer::default();
        let mut scanned = 0;
        loop {
            let scan = framer.advance(&self.received[scanned..]).map_err(invalid)?;
            scanned += scan.taken;
            match scan.end {
                Some(kind) if !kind.is_push() => break,
                Some(_) => continue,
                None if self.received.len() > GREETING_BYTES_MAX => return Err(invalid("the greeting is too long")),
                None => {
                    let chunk: Option<Chunk> = self.stream.reader.receive().await?;
                    let chunk = chunk.ok_or(io::ErrorKind::UnexpectedEof)?;
                    self.received.extend_from_slice(&chunk);
                }
            }
        }
        let decoded = Value::decode(&self.received, &ValueLimits::default()).map_err(invalid)?;
        let (value, taken) = decoded.ok_or_else(|| invalid("half a reply"))?;
        if taken != self.received.len() {
            return Err(invalid("the server said more than it was asked"));
        }
        self.received.clear();
        Ok(value)
    }

    async fn expect_ok<'b>(
        &mut self,
        args: impl IntoIterator<Item = &'b [u8], IntoIter: ExactSizeIterator>,
    ) -> io::Result<()> {
        let mut request = Vec::new();
        encode::command(&mut request, args);
        match self.call(&request).await? {
            Value::Error(text) => Err(refused(&text)),
            _ => Ok(()),
        }
    }
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
