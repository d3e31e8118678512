//! A server that follows a script: hello is its own, the rest is the test's.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use weir_mongodb_codec::{
    bson::Writer,
    command::Command,
    compressed::{self, Compressed, Compressor},
    frame::Framer,
    message::{self, Flags, Ids, Message},
};

/// The act of a server upon a request.
pub enum Act {
    /// Replies with this body.
    Reply(Box<dyn FnOnce(&mut Writer<'_>)>),
    /// Replies with these bytes, except the id of the request.
    Raw(Vec<u8>),
    /// Replies with these bytes as they are.
    Exact(Vec<u8>),
    /// Nothing at all.
    Silence,
    /// Closes the connection.
    Close,
}

impl Act {
    pub fn reply(body: impl FnOnce(&mut Writer<'_>) + 'static) -> Self {
        Self::Reply(Box::new(body))
    }

    /// A success without anything.
    pub fn ok() -> Self {
        Self::reply(|body| body.double("ok", 1.0))
    }

    /// An error.
    pub fn error(code: i32) -> Self {
        Self::reply(move |body| {
            body.double("ok", 0.0);
            body.string("errmsg", "as scripted");
            body.int32("code", code);
        })
    }

    /// A batch of a cursor; its id is 0 if it is the last one.
    pub fn batch(name: &'static str, id: i64) -> Self {
        Self::reply(move |body| {
            body.document("cursor", |cursor| {
                cursor.array(name, [1], |writer, name, value| writer.int32(name, value));
                cursor.int64("id", id);
                cursor.string("ns", "shop.orders");
            });
            body.double("ok", 1.0);
        })
    }
}

/// A request that has come.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    pub bytes: Vec<u8>,
    /// The number of its connection, in the order in which they came.
    pub connection: usize,
}

/// The replies to hello.
#[derive(Clone, Debug)]
pub struct Says {
    pub set_name: Option<&'static str>,
    pub is_primary: bool,
    pub hosts: Vec<String>,
    pub wire: i32,
    pub compressors: Vec<Compressor>,
    /// Bytes behind the reply.
    pub behind: &'static [u8],
    /// The processes that answer, one connection after the other; empty: none is named.
    pub processes: Vec<[u8; 12]>,
}

impl Default for Says {
    fn default() -> Self {
        Self {
            set_name: None,
            is_primary: true,
            hosts: Vec::new(),
            wire: 21,
            compressors: Vec::new(),
            behind: &[],
            processes: Vec::new(),
        }
    }
}

struct Inner {
    says: Mutex<Says>,
    seen: Mutex<Vec<Seen>>,
    open: AtomicUsize,
    packed: AtomicUsize,
    broken: AtomicUsize,
    is_deaf: AtomicBool,
    looks: AtomicUsize,
    act: Box<dyn Fn(&Seen) -> Act + Send + Sync>,
}

/// See above. It lives as long as the test.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
    pub address: SocketAddr,
}

impl Server {
    pub fn new(says: Says, act: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let inner = Arc::new(Inner {
            says: Mutex::new(says),
            seen: Mutex::default(),
            open: AtomicUsize::new(0),
            packed: AtomicUsize::new(0),
            broken: AtomicUsize::new(0),
            is_deaf: AtomicBool::new(false),
            looks: AtomicUsize::new(0),
            act: Box::new(act),
        });
        let server = Self { inner, address };
        let accepting = server.clone();
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().flatten().enumerate() {
                let own = accepting.clone();
                thread::spawn(move || {
                    own.inner.open.fetch_add(1, Ordering::SeqCst);
                    own.serve(connection, stream);
                    own.inner.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// A server without a set.
    pub fn standalone(act: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Self::new(Says::default(), act)
    }

    /// A member of the set rs0.
    pub fn member(is_primary: bool, act: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Self::new(Says { set_name: Some("rs0"), is_primary, ..Says::default() }, act)
    }

    /// Changes its replies to hello.
    pub fn change(&self, change: impl FnOnce(&mut Says)) {
        change(&mut self.inner.says.lock().unwrap());
    }

    /// The requests so far, without hello.
    pub fn seen(&self) -> Vec<Seen> {
        self.inner.seen.lock().unwrap().clone()
    }

    /// Requests of that name so far.
    pub fn count(&self, name: &str) -> usize {
        self.inner.seen.lock().unwrap().iter().filter(|seen| seen.name == name).count()
    }

    /// Open connections.
    pub fn open(&self) -> usize {
        self.inner.open.load(Ordering::SeqCst)
    }

    /// Replies whose end the gateway did not take.
    pub fn broken(&self) -> usize {
        self.inner.broken.load(Ordering::SeqCst)
    }

    /// Hellos so far: those of looks, and of logins.
    pub fn looks(&self) -> usize {
        self.inner.looks.load(Ordering::SeqCst)
    }

    /// Reads nothing any more, or reads again.
    pub fn be_deaf(&self, is_deaf: bool) {
        self.inner.is_deaf.store(is_deaf, Ordering::SeqCst);
    }

    fn serve(&self, connection: usize, mut stream: TcpStream) {
        let (mut received, mut buffer, mut id) = (Vec::new(), vec![0; 64 << 10], 0);
        loop {
            while let Ok(Some(piece)) = Framer::default().next(&received) {
                if !piece.is_whole() {
                    break;
                }
                let request: Vec<u8> = received.drain(..piece.bytes).collect();
                id += 1;
                let Some(reply) = self.unpack((connection, id), &request) else { return };
                if stream.write_all(&reply).is_err() {
                    self.inner.broken.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
            while self.inner.is_deaf.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => received.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// A compressed request gets a compressed reply.
    fn unpack(&self, at: (usize, i32), request: &[u8]) -> Option<Vec<u8>> {
        let Ok(packed) = Compressed::read(request) else { return self.answer(at, request) };
        self.inner.packed.fetch_add(1, Ordering::SeqCst);
        let mut plain = Vec::new();
        packed.inflate(&mut plain).expect("a message that inflates");
        let reply = self.answer(at, &plain)?;
        let mut out = Vec::new();
        compressed::write(&mut out, &reply, packed.compressor).expect("a message");
        Some(out)
    }

    /// Compressed requests so far.
    pub fn packed(&self) -> usize {
        self.inner.packed.load(Ordering::SeqCst)
    }

    /// `None`: close. The numbers of the connection, and of the request on it.
    fn answer(&self, (connection, id): (usize, i32), request: &[u8]) -> Option<Vec<u8>> {
        let message = Message::read(request).expect("the gateway sends whole messages");
        let name = String::from_utf8_lossy(Command::read(message.body).expect("a command").name).into_owned();
        let mut out = Vec::new();
        let ids = Ids { request: id, response_to: message.header.request };
        if matches!(&*name, "hello" | "isMaster") {
            self.inner.looks.fetch_add(1, Ordering::SeqCst);
            let says = self.inner.says.lock().unwrap().clone();
            message::write(&mut out, ids, Flags::empty(), |body| write_hello(&says, connection, body));
            out.extend_from_slice(says.behind);
            return Some(out);
        }
        let seen = Seen { name, bytes: request.to_vec(), connection };
        self.inner.seen.lock().unwrap().push(seen.clone());
        match (self.inner.act)(&seen) {
            Act::Reply(body) => message::write(&mut out, ids, Flags::empty(), body),
            Act::Raw(mut bytes) => {
                bytes[8..12].copy_from_slice(&message.header.request.to_le_bytes());
                out = bytes;
            }
            Act::Exact(bytes) => out = bytes,
            Act::Silence => {}
            Act::Close => return None,
        }
        Some(out)
    }
}

fn write_hello(says: &Says, connection: usize, body: &mut Writer<'_>) {
    if let Some(process) = says.processes.get(connection % says.processes.len().max(1)) {
        body.document("topologyVersion", |version| {
            version.object_id("processId", *process);
            version.int64("counter", 0);
        });
    }
    body.bool("isWritablePrimary", says.is_primary);
    if let Some(name) = says.set_name {
        body.string("setName", name);
        body.bool("secondary", !says.is_primary);
        body.array("hosts", &says.hosts, |writer, name, host| writer.string(name, host));
    }
    body.int32("minWireVersion", 0);
    body.int32("maxWireVersion", says.wire);
    body.int32("logicalSessionTimeoutMinutes", 30);
    if !says.compressors.is_empty() {
        let names = says.compressors.iter().map(|compressor| compressor.name());
        body.array("compression", names, |writer, name, compressor| writer.string(name, compressor));
    }
    body.double("ok", 1.0);
}
