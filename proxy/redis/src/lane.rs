//! RESP on an upstream connection.

use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
    io,
    rc::Rc,
};

use weir_base::{error::Culprit, violation::Violation};
use weir_engine::{Chunk, Stream};
use weir_resp::{ReplyFramer, Value, ValueLimits, Version, encode};
use weir_upstream::{FrameKind, LaneProtocol, Node, Scan, Topology};

use crate::{pubsub::Hub, settings::RedisUpstreamSettings};

/// Bytes of a greeting's replies; HELLO with many modules is about 2 KiB.
const GREETING_BYTES_MAX: usize = 64 * 1024;

/// Bytes of CLUSTER SLOTS; a node in it takes about 100 bytes, and each of its ranges names it and its replicas.
const TOPOLOGY_BYTES_MAX: usize = 4 << 20;

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
    /// The subscriptions at this upstream, from the first on.
    pub(crate) hub: OnceCell<Rc<Hub>>,
}

impl RespLane {
    /// A protocol that logs in as `settings` say.
    pub fn new(settings: RedisUpstreamSettings) -> Self {
        Self { settings, servers: RefCell::default(), hub: OnceCell::new() }
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

    async fn discover(&self, stream: &mut Stream) -> io::Result<Topology> {
        let mut exchange = Exchange { bytes_max: TOPOLOGY_BYTES_MAX, ..Exchange::new(stream) };
        let ranges = match exchange.call(b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n").await? {
            Value::Error(text) => return Err(refused(&text)),
            reply => ranges(&reply),
        };
        // Without it redirections to nodes that have no slot yet have to wait.
        let nodes = match exchange.call(b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n").await? {
            Value::Error(_) => Vec::new(),
            reply => nodes(reply.as_bytes().unwrap_or_default()),
        };
        Ok(Topology { ranges, nodes })
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

/// Reads CLUSTER SLOTS (Redis 7.0 `cluster.c`, `clusterReplyMultiBulkSlots`): first and last slot, the primary, its replicas.
/// What does not look so is left out; a node of which the server does not know the address too.
fn ranges(slots: &Value) -> Vec<(u16, u16, Node)> {
    let range = |range: &Value| {
        let fields = range.as_elements()?;
        let number = |at: usize| u16::try_from(fields.get(at)?.as_integer()?).ok();
        let primary = fields.get(2)?.as_elements()?;
        let host = match primary.first()? {
            Value::Null => None,
            host => Some(String::from_utf8(host.as_bytes()?.to_vec()).ok()?).filter(|host| !host.is_empty()),
        };
        let port = u16::try_from(primary.get(1)?.as_integer()?).ok()?;
        (host.as_deref() != Some("?")).then_some((number(0)?, number(1)?, Node { host, port }))
    };
    slots.as_elements().unwrap_or_default().iter().filter_map(range).collect()
}

/// Reads CLUSTER NODES (Redis 7.0 `cluster.c`, `clusterGenNodeDescription`): id, `host:port@bus,name`, flags, … Nodes that
/// cannot be reached are left out, and so is the one that speaks: it is known.
fn nodes(text: &[u8]) -> Vec<Node> {
    let node = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (address, flags) = (words.next()?, words.next()?);
        let is_gone =
            ["noaddr", "handshake", "fail", "myself"].iter().any(|flag| flags.split(',').any(|one| one == *flag));
        let (host, port) = address.split(['@', ',']).next()?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!is_gone && !host.is_empty()).then_some(Node { host: Some(host.to_owned()), port: port.parse().ok()? })
    };
    String::from_utf8_lossy(text).lines().filter_map(node).collect()
}

/// One question at a time on a connection that nobody else uses yet.
struct Exchange<'a> {
    stream: &'a mut Stream,
    received: Vec<u8>,
    /// The most that a reply may have.
    bytes_max: usize,
}

impl<'a> Exchange<'a> {
    fn new(stream: &'a mut Stream) -> Self {
        Self { stream, received: Vec::new(), bytes_max: GREETING_BYTES_MAX }
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
                None if self.received.len() > self.bytes_max => return Err(invalid("the greeting is too long")),
                None => {
                    let chunk: Option<Chunk> = self.stream.reader.receive().await?;
                    let chunk = chunk.ok_or(io::ErrorKind::UnexpectedEof)?;
                    self.received.extend_from_slice(&chunk);
                }
            }
        }
        // Each element takes some bytes, of which there are not too many.
        let limits = ValueLimits { nodes_max: self.bytes_max as u32, ..ValueLimits::default() };
        let decoded = Value::decode(&self.received, &limits).map_err(invalid)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Value {
        Value::decode(text.as_bytes(), &ValueLimits::default()).expect("well-formed").expect("whole").0
    }

    fn node(host: Option<&str>, port: u16) -> Node {
        Node { host: host.map(str::to_owned), port }
    }

    #[test]
    fn ranges_are_read_and_what_is_no_range_is_left_out() {
        let good = "*4\r\n:0\r\n:99\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n*3\r\n$9\r\n127.0.0.1\r\n:7003\r\n$2\r\nir\r\n";
        let same_host = "*3\r\n:100\r\n:16383\r\n*2\r\n$-1\r\n:7001\r\n";
        let unknown_host = "*3\r\n:1\r\n:2\r\n*2\r\n$1\r\n?\r\n:7001\r\n";
        let too_far = "*3\r\n:1\r\n:70000\r\n*2\r\n$1\r\na\r\n:7001\r\n";
        let reply = format!("*6\r\n{good}{same_host}{unknown_host}{too_far}:7\r\n*0\r\n");
        let wanted = [(0, 99, node(Some("127.0.0.1"), 7000)), (100, 16_383, node(None, 7001))];
        assert_eq!(ranges(&decoded(&reply)), wanted);
        assert_eq!(ranges(&decoded("+OK\r\n")), []);
    }

    #[test]
    fn nodes_that_can_be_reached_are_read() {
        let text = "a 127.0.0.1:7000@17000,host myself,master - 0 0 1 connected 0-99\n\
                    b 127.0.0.1:7001@17001 master - 0 1 2 connected\n\
                    c [::1]:7002@17002 slave b 0 1 2 connected\n\
                    d :0@0 master,noaddr - 0 1 2 disconnected\n\
                    e 127.0.0.1:7004@17004 master,fail - 0 1 2 disconnected\nnonsense\n";
        assert_eq!(nodes(text.as_bytes()), [node(Some("127.0.0.1"), 7001), node(Some("::1"), 7002)]);
    }
}
