//! RESP on an upstream connection.

use std::{cell::RefCell, collections::HashMap, io, rc::Rc};

use weir_base::{secret::Secret, violation::Violation};
use weir_engine::{Chunk, Stream};
use weir_resp::{ReplyFramer, Value, ValueLimits, Version, encode};
use weir_upstream::{Directory, Handshake, LaneProtocol, Range, Scan, View};

use weir_redis_session::{
    lane::{LaneKey, Purpose, ServerInfo, scan},
    settings::{RedisTopology, RedisUpstreamSettings, SentinelSettings},
    users::{DEFAULT_USER, OWN_LOGIN},
};

use crate::{discovery, hub::Hub, tracker::Tracker};

/// Bytes of a greeting's replies; HELLO with many modules is about 2 KiB.
const GREETING_BYTES_MAX: usize = 64 * 1024;

/// Bytes of CLUSTER SLOTS; a node in it takes about 100 bytes, and each of its ranges names it and its replicas.
const VIEW_BYTES_MAX: usize = 4 << 20;

/// RESP with the gateway's own credentials, or those of a user.
pub struct RespLane {
    settings: RedisUpstreamSettings,
    servers: RefCell<HashMap<Version, Rc<ServerInfo>>>,
    /// The subscriptions at this upstream, from the first on.
    pub(crate) hubs: RefCell<HashMap<u64, Rc<Hub>>>,
    /// The keys that its clients have read, from the first client that tracks on.
    pub(crate) trackers: RefCell<HashMap<u64, Rc<Tracker>>>,
}

impl RespLane {
    /// A protocol that logs in as `settings` say.
    pub fn new(settings: RedisUpstreamSettings) -> Self {
        Self { settings, servers: RefCell::default(), hubs: RefCell::default(), trackers: RefCell::default() }
    }

    /// The server's description of itself in the last greeting of `version`.
    pub fn server(&self, version: Version) -> Option<Rc<ServerInfo>> {
        self.servers.borrow().get(&version).cloned()
    }

    /// User and password of the gateway on such a lane; no password: no AUTH.
    ///
    /// # Errors
    /// This upstream does not know such a login. Another one must not stand in for it.
    fn credentials(&self, key: LaneKey) -> io::Result<(Option<&str>, Option<&Secret>)> {
        if let (RedisTopology::Sentinel(sentinel), Purpose::Sentinel) = (&self.settings.topology, key.purpose) {
            return Ok((sentinel.user.as_deref(), sentinel.password.as_ref()));
        }
        if key.login == OWN_LOGIN {
            return Ok((self.settings.user.as_deref(), self.settings.password.as_ref()));
        }
        let own = self.settings.logins.iter().find(|own| own.key() == key.login);
        own.map(|own| (Some(own.user.as_str()), Some(&own.password)))
            .ok_or_else(|| refused(b"the upstream does not know the login of this user"))
    }

    /// `HELLO <version> [AUTH user password] [SETNAME name]`.
    fn hello(&self, key: LaneKey) -> io::Result<Vec<u8>> {
        let version = [b'0' + key.version.number()];
        let mut args: Vec<&[u8]> = vec![b"HELLO", &version];
        let (user, password) = self.credentials(key)?;
        if let Some(password) = password {
            args.extend([b"AUTH", user.unwrap_or(DEFAULT_USER).as_bytes(), password.expose()]);
        }
        if !self.settings.client_name.is_empty() {
            args.extend([b"SETNAME".as_slice(), self.settings.client_name.as_bytes()]);
        }
        let mut out = Vec::new();
        encode::command(&mut out, args);
        Ok(out)
    }

    /// The greeting of a server that does not know HELLO.
    async fn greet_old(&self, key: LaneKey, exchange: &mut Exchange<'_>) -> io::Result<()> {
        let (user, Some(password)) = self.credentials(key)? else { return Ok(()) };
        let mut args: Vec<&[u8]> = vec![b"AUTH"];
        args.extend(user.map(str::as_bytes));
        args.push(password.expose());
        exchange.expect_ok(args).await
    }
}

impl Handshake for RespLane {
    type Key = LaneKey;
    type Greeting = Rc<ServerInfo>;

    async fn greet(&self, stream: &mut Stream, key: LaneKey) -> io::Result<Rc<ServerInfo>> {
        let mut exchange = Exchange::new(stream);
        let reply = exchange.call(&self.hello(key)?).await?;
        let info = match &reply {
            Value::Error(text) if is_unknown_command(text) && key.version == Version::Resp2 => {
                self.greet_old(key, &mut exchange).await?;
                ServerInfo::default()
            }
            Value::Error(text) => return Err(refused(text)),
            reply => server_info(reply),
        };
        if key.db != 0 {
            exchange.expect_ok([b"SELECT".as_slice(), key.db.to_string().as_bytes()]).await?;
        }
        if key.purpose == Purpose::Sentinel {
            // It is no server for a client.
            return Ok(Rc::new(info));
        }
        if key.purpose == Purpose::Reads && self.settings.topology == RedisTopology::Cluster {
            exchange.expect_ok([b"READONLY".as_slice()]).await?;
        }
        let info = Rc::new(info);
        self.servers.borrow_mut().insert(key.version, info.clone());
        Ok(info)
    }

    fn has_own_greeting(key: LaneKey) -> bool {
        key.login != OWN_LOGIN || key.db != 0
    }
}

impl Directory for RespLane {
    fn probe_key(&self, endpoint: u16) -> LaneKey {
        let purpose = match &self.settings.topology {
            RedisTopology::Sentinel(sentinel) if endpoint < sentinel.count => Purpose::Sentinel,
            _ => Purpose::Data,
        };
        LaneKey { purpose, ..LaneKey::new(endpoint, Version::Resp2) }
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

    async fn discover(&self, stream: &mut Stream) -> io::Result<View> {
        let mut exchange = Exchange { bytes_max: VIEW_BYTES_MAX, ..Exchange::new(stream) };
        match &self.settings.topology {
            RedisTopology::Fixed => Ok(View::default()),
            RedisTopology::Cluster => cluster(&mut exchange).await,
            RedisTopology::Replicated => Ok(discovery::role(&exchange.command([b"ROLE".as_slice()]).await?)),
            RedisTopology::Sentinel(sentinel) => watched(sentinel, &mut exchange).await,
        }
    }

    async fn zone(&self, stream: &mut Stream) -> io::Result<Option<String>> {
        let info = Exchange::new(stream).command([b"INFO".as_slice(), b"server"]).await?;
        Ok(discovery::zone(info.as_bytes().unwrap_or_default()))
    }
}

impl LaneProtocol for RespLane {
    type Framer = ReplyFramer;

    #[inline]
    fn scan(framer: &mut ReplyFramer, input: &[u8]) -> Result<Scan, Violation> {
        scan(framer, input)
    }

    #[inline]
    fn endpoint(key: LaneKey) -> u16 {
        key.shard
    }
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
    let id = hello.field(b"id").and_then(Value::as_integer);
    info.id = id.and_then(|id| u64::try_from(id).ok()).unwrap_or(0);
    info
}

async fn cluster(exchange: &mut Exchange<'_>) -> io::Result<View> {
    let ranges = discovery::ranges(&exchange.command([b"CLUSTER".as_slice(), b"SLOTS"]).await?);
    // Without it redirections to nodes that have no slot yet have to wait.
    let nodes = match exchange.call(b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nNODES\r\n").await? {
        Value::Error(_) => Vec::new(),
        reply => discovery::nodes(reply.as_bytes().unwrap_or_default()),
    };
    Ok(View { ranges, nodes })
}

/// The sentinel's view of the primary and the replicas that it watches over.
async fn watched(sentinel: &SentinelSettings, exchange: &mut Exchange<'_>) -> io::Result<View> {
    let service = sentinel.service.as_bytes();
    let primary = exchange.command([b"SENTINEL".as_slice(), b"GET-MASTER-ADDR-BY-NAME", service]).await?;
    let Some(primary) = discovery::address(&primary) else {
        return Err(invalid(format!("it watches over no primary called `{}`", sentinel.service)));
    };
    let replicas = exchange.command([b"SENTINEL".as_slice(), b"REPLICAS", service]).await?;
    Ok(View { ranges: vec![Range::all(primary, discovery::replicas(&replicas))], nodes: Vec::new() })
}

/// One request at a time on a connection that has no other user yet.
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
            return Err(invalid("the server sent more than its replies"));
        }
        self.received.clear();
        Ok(value)
    }

    /// The reply, if it is not an error.
    async fn command<'b>(
        &mut self,
        args: impl IntoIterator<Item = &'b [u8], IntoIter: ExactSizeIterator>,
    ) -> io::Result<Value> {
        let mut request = Vec::new();
        encode::command(&mut request, args);
        match self.call(&request).await? {
            Value::Error(text) => Err(refused(&text)),
            reply => Ok(reply),
        }
    }

    async fn expect_ok<'b>(
        &mut self,
        args: impl IntoIterator<Item = &'b [u8], IntoIter: ExactSizeIterator>,
    ) -> io::Result<()> {
        self.command(args).await.map(drop)
    }
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
