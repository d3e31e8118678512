//! A blocking connection with the protocol in its plainest form: no pool, no retries, no monitor.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use socket2::SockRef;
use weir_base::secret::Secret;
use weir_mongodb_codec::bson::{self, Document, Value, Writer};
use weir_mongodb_codec::compressed::Compressed;
use weir_mongodb_codec::header::Header;
use weir_mongodb_codec::legacy::LegacyReply;
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_mongodb_codec::{OpCode, legacy};
use weir_sasl::{ChannelBinding, Derivation, Mechanism, Nonce, ScramClient, mongodb};

use crate::stream::{Address, Stream};

/// For a reply; longer is a finding. A gateway may let its clients wait.
const PATIENCE: Duration = Duration::from_secs(25);
/// The database of these tests.
const DATABASE: &str = "test";

/// A document of its own.
#[must_use]
pub fn document(body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    bson::document(&mut out, body);
    out
}

/// An OP_MSG with this id and flags.
#[must_use]
pub fn message(id: i32, flags: Flags, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    message::write(&mut out, Ids { request: id, response_to: 0 }, flags, body);
    out
}

/// A find of all documents of `collection`, or of some in each batch.
pub fn find(body: &mut Writer<'_>, collection: &str, batch: i32) {
    body.string("find", collection);
    body.int32("batchSize", batch);
    body.string("$db", DATABASE);
}

/// A getMore of that cursor.
pub fn get_more(body: &mut Writer<'_>, cursor: i64, collection: &str) {
    body.int64("getMore", cursor);
    body.string("collection", collection);
    body.string("$db", DATABASE);
}

/// A command without arguments.
pub fn plain(body: &mut Writer<'_>, command: &str) {
    body.int32(command, 1);
    body.string("$db", "admin");
}

/// Connects and logs in with SCRAM-SHA-256.
///
/// # Panics
/// If the login is refused.
#[must_use]
pub fn login(port: u16, user: &str, password: &str) -> Wire {
    static LOGINS: AtomicU64 = AtomicU64::new(0);
    let mechanism = Mechanism::ScramSha256;
    let mut wire = Wire::connect(port);
    // Each login has a nonce of its own, which must not be secret.
    let number = LOGINS.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    let nonce = std::array::from_fn(|at| number[at % 8] ^ at as u8);
    let client = ScramClient::new(mechanism, user.as_bytes(), ChannelBinding::None, Nonce::from_random(&nonce));
    let challenge = wire.call(|body| {
        body.int32("saslStart", 1);
        body.string("mechanism", "SCRAM-SHA-256");
        body.binary("payload", 0, client.first_message());
        body.document("options", |options| options.bool("skipEmptyExchange", true));
        body.string("$db", "admin");
    });
    let payload = |reply: &Reply| {
        let payload = reply.value(&["payload"]).and_then(Value::as_binary).map(|(_, payload)| payload.to_vec());
        payload.unwrap_or_else(|| panic!("no payload: {reply:?}"))
    };
    let (waiting, challenged) = client.on_challenge(&payload(&challenge)).expect("a challenge");
    let password = mongodb::password(mechanism, user.as_bytes(), &Secret::from(password));
    let (proven, proof) = waiting.prove(&Derivation::new(mechanism, &password, challenged).run());
    let conversation = challenge.number(&["conversationId"]).unwrap_or(1);
    let done = wire.call(|body| {
        body.int32("saslContinue", 1);
        body.int32("conversationId", conversation as i32);
        body.binary("payload", 0, &proof);
        body.string("$db", "admin");
    });
    assert!(done.is_ok(), "the login of {user}: {done:?}");
    proven.finish(&payload(&done)).expect("the server has the verifier");
    wire
}

/// The fields of a session.
pub fn session(body: &mut Writer<'_>, id: [u8; 16]) {
    body.document("lsid", |lsid| lsid.binary("id", 4, &id));
}

/// The fields of a session and of a part of its transaction.
pub fn transaction(body: &mut Writer<'_>, id: [u8; 16], number: i64, is_first: bool) {
    session(body, id);
    body.int64("txnNumber", number);
    if is_first {
        body.bool("startTransaction", true);
    }
    body.bool("autocommit", false);
}

/// An insert in a transaction.
pub fn part(body: &mut Writer<'_>, id: [u8; 16], number: i64, is_first: bool) {
    body.string("insert", "notes");
    body.array("documents", [1], |array, name, id| array.document(name, |one| one.int32("_id", id)));
    transaction(body, id, number, is_first);
    body.string("$db", DATABASE);
}

/// The end of a transaction.
pub fn end(body: &mut Writer<'_>, command: &str, id: [u8; 16], number: i64) {
    body.int32(command, 1);
    transaction(body, id, number, false);
    body.string("$db", "admin");
}

/// A whole reply.
#[derive(Clone)]
pub struct Reply {
    /// Its own id.
    pub id: i32,
    /// The id of the request, or of the reply in front of it in a stream.
    pub response_to: i32,
    /// Its flags; none in an OP_REPLY.
    pub flags: Flags,
    /// It came as an OP_REPLY.
    pub is_legacy: bool,
    /// It came compressed.
    pub is_compressed: bool,
    body: Vec<u8>,
}

/// The error if it is one, and the names of its fields.
impl fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |one: bson::Element<'_>| String::from_utf8_lossy(one.name).into_owned();
        let fields: Vec<String> = self.body().elements().flatten().map(name).collect();
        let error = (self.code(), self.text(&["errmsg"]), self.labels());
        let mut shown = formatter.debug_struct("Reply");
        shown.field("id", &self.id).field("response_to", &self.response_to).field("flags", &self.flags);
        shown.field("error", &error).field("fields", &fields).finish_non_exhaustive()
    }
}

impl Reply {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("a reply that cannot be read: {error}");
        let header = Header::read(bytes).map_err(|error| wrong(&error))?.ok_or("a short reply")?;
        let reply = |id, response_to, flags, body: Document<'_>| Self {
            id,
            response_to,
            flags,
            is_legacy: header.op_code == OpCode::Reply,
            is_compressed: false,
            body: body.bytes().to_vec(),
        };
        match header.op_code {
            OpCode::Msg => {
                let read = Message::read(bytes).map_err(|error| wrong(&error))?;
                Ok(reply(header.request, header.response_to, read.flags, read.body))
            }
            OpCode::Reply => {
                let read = LegacyReply::read(bytes).map_err(|error| wrong(&error))?;
                Ok(reply(header.request, header.response_to, Flags::empty(), read.body))
            }
            OpCode::Compressed => {
                let compressed = Compressed::read(bytes).map_err(|error| wrong(&error))?;
                let mut inflated = Vec::new();
                compressed.inflate(&mut inflated).map_err(|error| wrong(&error))?;
                Ok(Self { is_compressed: true, ..Self::read(&inflated)? })
            }
            other => Err(format!("a reply with opcode {}", other.number())),
        }
    }

    /// Its document.
    ///
    /// # Panics
    /// It was read before.
    #[must_use]
    pub fn body(&self) -> Document<'_> {
        Document::read(&self.body).expect("a document that was read before")
    }

    /// A value by the names on the way to it.
    #[must_use]
    pub fn value(&self, path: &[&str]) -> Option<Value<'_>> {
        let (last, way) = path.split_last()?;
        let mut document = self.body();
        for name in way {
            document = document.get(name.as_bytes()).ok()??.as_document().ok()??;
        }
        document.get(last.as_bytes()).ok()?
    }

    /// An integer by the names on the way to it.
    #[must_use]
    pub fn number(&self, path: &[&str]) -> Option<i64> {
        self.value(path)?.as_integer()
    }

    /// A text by the names on the way to it; empty if there is none.
    #[must_use]
    pub fn text(&self, path: &[&str]) -> String {
        self.value(path)
            .and_then(Value::as_string)
            .map_or_else(String::new, |text| String::from_utf8_lossy(text).into())
    }

    /// `ok` is 1.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.value(&["ok"]).is_some_and(Value::is_true)
    }

    /// The code of an error; 0 without one.
    #[must_use]
    pub fn code(&self) -> i64 {
        self.number(&["code"]).unwrap_or(0)
    }

    /// `errorLabels`.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        let list = self.value(&["errorLabels"]).and_then(|value| value.as_document().ok()?);
        let texts = list.into_iter().flat_map(Document::elements).flatten();
        texts.filter_map(|one| Some(String::from_utf8_lossy(one.value.as_string()?).into())).collect()
    }

    /// The id of its cursor; 0 without one.
    #[must_use]
    pub fn cursor(&self) -> i64 {
        self.number(&["cursor", "id"]).unwrap_or(0)
    }

    /// The documents of its batch.
    pub fn documents(&self) -> impl Iterator<Item = Document<'_>> {
        let batch = self.value(&["cursor", "firstBatch"]).or_else(|| self.value(&["cursor", "nextBatch"]));
        let documents = batch.and_then(|batch| batch.as_document().ok()?).into_iter().flat_map(Document::elements);
        documents.flatten().filter_map(|one| one.value.as_document().ok()?)
    }

    /// `_id` of each document in its batch.
    #[must_use]
    pub fn batch(&self) -> Vec<i64> {
        self.documents().filter_map(|one| one.get(b"_id").ok()??.as_integer()).collect()
    }
}

/// A connection, over TCP, a Unix socket or TLS.
pub struct Wire {
    stream: Stream,
    input: Vec<u8>,
    last: i32,
    /// Bytes sent so far.
    pub sent: usize,
    /// Bytes received so far.
    pub received: usize,
}

impl Wire {
    /// Connects and says nothing.
    ///
    /// # Panics
    /// If no server listens.
    #[must_use]
    pub fn open(port: u16) -> Self {
        Self::over(Stream::connect(&Address::port(port)).expect("connected"))
    }

    /// Connects with TLS and says hello with further fields; its reply comes along.
    ///
    /// # Panics
    /// If the handshake fails, or hello is refused.
    #[must_use]
    pub fn connect_tls(port: u16, config: Arc<ClientConfig>, further: impl FnOnce(&mut Writer<'_>)) -> (Self, Reply) {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Self::over(Stream::connect_tls(address, config).expect("a handshake")).greet(further)
    }

    /// A connection that stands.
    ///
    /// # Panics
    /// If it takes no time limit.
    #[must_use]
    pub fn over(stream: Stream) -> Self {
        stream.set_read_timeout(PATIENCE).expect("a time limit");
        Self { stream, input: Vec::new(), last: 0, sent: 0, received: 0 }
    }

    /// Connects and says hello.
    ///
    /// # Panics
    /// If hello is refused.
    #[must_use]
    pub fn connect(port: u16) -> Self {
        Self::connect_with(port, |_| {}).0
    }

    /// The same with further fields of hello; its reply comes along.
    ///
    /// # Panics
    /// As [`Wire::connect`].
    #[must_use]
    pub fn connect_with(port: u16, further: impl FnOnce(&mut Writer<'_>)) -> (Self, Reply) {
        Self::open(port).greet(further)
    }

    /// Says hello with further fields; its reply comes along.
    ///
    /// # Panics
    /// If it is refused.
    #[must_use]
    pub fn greet(mut self, further: impl FnOnce(&mut Writer<'_>)) -> (Self, Reply) {
        let reply = self.call(|body| {
            body.int32("hello", 1);
            body.bool("helloOk", true);
            further(body);
            body.string("$db", "admin");
        });
        assert!(reply.is_ok(), "hello: {reply:?}");
        (self, reply)
    }

    /// The socket, for other uses.
    #[must_use]
    pub fn socket(&self) -> &Stream {
        &self.stream
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.sent += bytes.len();
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).map_err(|error| format!("send: {error}"))
    }

    /// Sends a command; its id comes back.
    ///
    /// # Panics
    /// If the connection has ended.
    pub fn ask(&mut self, flags: Flags, body: impl FnOnce(&mut Writer<'_>)) -> i32 {
        self.last += 1;
        let bytes = message(self.last, flags, body);
        self.send(&bytes).expect("sent");
        self.last
    }

    /// Sends a command as an OP_QUERY; its id comes back.
    ///
    /// # Panics
    /// If the connection has ended.
    pub fn ask_legacy(&mut self, body: impl FnOnce(&mut Writer<'_>)) -> i32 {
        self.last += 1;
        let mut bytes = Vec::new();
        legacy::write_query(&mut bytes, self.last, "admin", body);
        self.send(&bytes).expect("sent");
        self.last
    }

    /// Sends a command and waits for its reply, which must name it.
    ///
    /// # Panics
    /// If there is no such reply.
    pub fn call(&mut self, body: impl FnOnce(&mut Writer<'_>)) -> Reply {
        let id = self.ask(Flags::empty(), body);
        let reply = self.reply().unwrap_or_else(|error| panic!("no reply: {error}"));
        assert_eq!(reply.response_to, id, "the reply names its request: {reply:?}");
        reply
    }

    /// The next reply.
    ///
    /// # Errors
    /// The connection ends (`closed`), nothing comes, or it is no reply.
    pub fn reply(&mut self) -> Result<Reply, String> {
        let bytes = self.next_message()?;
        Reply::read(&bytes)
    }

    fn next_message(&mut self) -> Result<Vec<u8>, String> {
        let mut piece = vec![0; 64 * 1024];
        loop {
            if let Some(header) = Header::read(&self.input).map_err(|error| format!("a reply: {error}"))?
                && self.input.len() >= header.bytes
            {
                let rest = self.input.split_off(header.bytes);
                return Ok(std::mem::replace(&mut self.input, rest));
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err("closed".into()),
                Ok(count) => {
                    self.received += count;
                    self.input.extend_from_slice(&piece[..count]);
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err("closed".into()),
                Err(error) => return Err(format!("no reply: {error}")),
            }
        }
    }

    /// Everything until the connection ends, as replies.
    ///
    /// # Errors
    /// It stays open, or something else than replies comes.
    pub fn until_closed(&mut self) -> Result<Vec<Reply>, String> {
        let mut all = Vec::new();
        loop {
            match self.reply() {
                Ok(reply) => all.push(reply),
                Err(error) if error == "closed" && self.input.is_empty() => return Ok(all),
                Err(error) => return Err(error),
            }
        }
    }

    /// Nothing comes for a while.
    ///
    /// # Panics
    /// If something comes, or the connection ends.
    pub fn expect_silence(&mut self, time: Duration) {
        self.stream.set_read_timeout(time).expect("a time limit");
        let came = self.reply();
        self.stream.set_read_timeout(PATIENCE).expect("a time limit");
        let error = came.err().unwrap_or_else(|| "a reply".into());
        assert!(error.starts_with("no reply"), "{error}");
    }

    /// Ends the connection: with a FIN, or, over TCP, with a reset.
    ///
    /// # Panics
    /// If the socket cannot be set.
    pub fn leave(self, with_reset: bool) {
        if let (true, Stream::Tcp(stream)) = (with_reset, &self.stream) {
            SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("a reset at the end");
        }
    }
}
