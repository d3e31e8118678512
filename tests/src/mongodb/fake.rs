//! A server whose replies are a test's own. It answers the handshake as a mongos does, and leaves everything else to a script. It notes
//! the commands that reach it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use socket2::SockRef;
use weir_mongodb_codec::OpCode;
use weir_mongodb_codec::bson::{Document, Writer};
use weir_mongodb_codec::header::Header;
use weir_mongodb_codec::legacy::{self, Query};
use weir_mongodb_codec::message::{self, Flags, Ids, Message};

use crate::certificate::Certificates;
use crate::mongodb::raw::MSG;
use crate::mongodb::tls::server_config;
use crate::port;
use crate::stream::Address;

/// Bytes that the kernel holds of a connection of [`Fake::start_narrow`].
const NARROW_BYTES: usize = 64 * 1024;

/// A command that reached the server.
pub struct Asked<'a> {
    /// The connection, from 1 on.
    pub connection: u64,
    /// The id of its message.
    pub id: i32,
    /// Its flags.
    pub flags: Flags,
    /// Its name.
    pub name: &'a str,
    /// Its body.
    pub body: Document<'a>,
    /// The whole message.
    pub bytes: &'a [u8],
}

/// The reaction to a command.
pub enum Act {
    /// A reply with this document.
    Reply(Vec<u8>),
    /// These bytes, whatever they are.
    Raw(Vec<u8>),
    /// A reply whose bytes behind the header are those of many replies: none has a copy.
    Shared(Arc<[u8]>),
    /// These bytes, and then the end of the connection.
    Last(Vec<u8>),
    /// Nothing.
    Silence,
    /// The end of the connection.
    Close,
}

impl Act {
    /// A reply with these elements, and `ok`.
    #[must_use]
    pub fn reply(body: impl FnOnce(&mut Writer<'_>)) -> Self {
        Self::Reply(super::wire::document(|writer| {
            body(writer);
            writer.double("ok", 1.0);
        }))
    }

    /// A reply with a batch of these documents, and the id of a cursor.
    #[must_use]
    pub fn batch(asked: &Asked<'_>, cursor: i64, ids: impl IntoIterator<Item = i64>) -> Self {
        let batch = if asked.name == "getMore" { "nextBatch" } else { "firstBatch" };
        Self::reply(|body| {
            body.document("cursor", |inside| {
                inside.array(batch, ids, |array, name, id| array.document(name, |one| one.int64("_id", id)));
                inside.int64("id", cursor);
                inside.string("ns", "test.notes");
            });
        })
    }
}

/// Decides on a command.
pub type Script = dyn Fn(&Asked<'_>) -> Act + Send + Sync;

struct Shared {
    script: Box<Script>,
    tls: Option<Arc<ServerConfig>>,
    stop: AtomicBool,
    connections: AtomicU64,
    /// Commands by name, without those of the handshake.
    commands: Mutex<BTreeMap<String, u64>>,
    open: Mutex<BTreeMap<u64, TcpStream>>,
}

/// A running server. It ends with this value.
pub struct Fake {
    /// Where it listens.
    pub address: Address,
    shared: Arc<Shared>,
}

impl Fake {
    /// Starts one.
    ///
    /// # Panics
    /// If the port cannot be bound.
    #[must_use]
    pub fn start(script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static) -> Self {
        Self::run(script, None, None)
    }

    /// The same over TLS. A client may have to show a certificate.
    ///
    /// # Panics
    /// As [`Fake::start`], or if the files are not what [`Certificates::create`] wrote.
    #[must_use]
    pub fn start_tls(
        (files, needs_certificate): (&Certificates, bool),
        script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::run(script, None, Some(server_config(files, needs_certificate)))
    }

    /// As [`Fake::start`], and the kernel holds few bytes of each connection: for many at a time that are not read.
    ///
    /// # Panics
    /// As [`Fake::start`].
    #[must_use]
    pub fn start_narrow(script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static) -> Self {
        Self::run(script, Some(NARROW_BYTES), None)
    }

    fn run(
        script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
        send_buffer: Option<usize>,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let address = Address::port(port::free());
        let listener = TcpListener::bind(address.tcp()).expect("a free port");
        if let Some(bytes) = send_buffer {
            // Connections have it from the socket that accepts them.
            SockRef::from(&listener).set_send_buffer_size(bytes).expect("a smaller buffer");
        }
        let shared = Arc::new(Shared {
            script: Box::new(script),
            tls,
            stop: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            commands: Mutex::default(),
            open: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if served.stop.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&served);
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// A server that has the documents 1 to 5 in every collection, in batches of two, and confirms everything else.
    ///
    /// # Panics
    /// As [`Fake::start`].
    #[must_use]
    pub fn honest() -> Self {
        Self::start(honest)
    }

    /// How often this command came.
    ///
    /// # Panics
    /// If a thread of the server has panicked.
    #[must_use]
    pub fn count(&self, command: &str) -> u64 {
        self.shared.commands.lock().expect("the commands").get(command).copied().unwrap_or(0)
    }

    /// All commands that came, without those of the handshake.
    ///
    /// # Panics
    /// As [`Fake::count`].
    #[must_use]
    pub fn commands(&self) -> BTreeMap<String, u64> {
        self.shared.commands.lock().expect("the commands").clone()
    }

    /// Open connections.
    ///
    /// # Panics
    /// As [`Fake::count`].
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.open.lock().expect("the connections").len()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address.tcp());
        if let Ok(open) = self.shared.open.lock() {
            open.values().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
    }
}

/// The script of [`Fake::honest`], for scripts that misbehave now and then.
#[must_use]
pub fn honest(asked: &Asked<'_>) -> Act {
    match asked.name {
        "find" => Act::batch(asked, 7_000 + asked.connection as i64, [1, 2]),
        "getMore" => Act::batch(asked, 0, [3, 4, 5]),
        _ => Act::reply(|body| body.int32("n", 1)),
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    let connection = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
    if let Ok(clone) = stream.try_clone() {
        shared.open.lock().expect("the connections").insert(connection, clone);
    }
    // The end of the connection, and whatever breaks it off.
    let _ = match &shared.tls {
        None => talk(&mut stream, connection, shared),
        Some(config) => {
            let session = ServerConnection::new(config.clone()).expect("a configuration");
            talk(&mut StreamOwned::new(session, stream), connection, shared)
        }
    };
    shared.open.lock().expect("the connections").remove(&connection);
}

fn talk(stream: &mut (impl Read + Write), connection: u64, shared: &Shared) -> Option<()> {
    let (mut input, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        while let Some(header) = Header::read(&input).ok()? {
            if input.len() < header.bytes {
                break;
            }
            let rest = input.split_off(header.bytes);
            let message = std::mem::replace(&mut input, rest);
            answer(stream, connection, &header, &message, shared)?;
        }
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        input.extend_from_slice(&piece[..count]);
    }
}

/// Answers a message; `None`: the connection ends.
fn answer(
    stream: &mut (impl Read + Write),
    connection: u64,
    header: &Header,
    bytes: &[u8],
    shared: &Shared,
) -> Option<()> {
    let (flags, body) = match header.op_code {
        OpCode::Query => (Flags::empty(), Query::read(bytes).ok()?.body),
        _ => Message::read(bytes).ok().map(|read| (read.flags, read.body))?,
    };
    let name = String::from_utf8_lossy(body.first_element().ok()??.name).into_owned();
    let ids = Ids { request: header.request.wrapping_add(1_000_000), response_to: header.request };
    let mut out = Vec::new();
    if matches!(name.as_str(), "hello" | "isMaster" | "ismaster") {
        match header.op_code {
            OpCode::Query => legacy::write_reply(&mut out, ids, false, hello),
            _ => message::write(&mut out, ids, Flags::empty(), hello),
        }
        return stream.write_all(&out).ok();
    }
    *shared.commands.lock().expect("the commands").entry(name.clone()).or_default() += 1;
    let asked = Asked { connection, id: header.request, flags, name: &name, body, bytes };
    match (shared.script)(&asked) {
        Act::Close => return None,
        Act::Silence => {}
        Act::Raw(raw) => out = raw,
        Act::Shared(rest) => {
            let head = [16 + rest.len() as i32, ids.request, ids.response_to, MSG].map(i32::to_le_bytes).concat();
            return stream.write_all(&head).and_then(|()| stream.write_all(&rest)).ok();
        }
        Act::Last(raw) => {
            let _ = stream.write_all(&raw);
            return None;
        }
        Act::Reply(_) if flags.contains(Flags::MORE_TO_COME) => {}
        Act::Reply(document) => {
            let body = Document::read(&document).expect("a document of the test's own");
            message::write(&mut out, ids, Flags::empty(), |writer| {
                body.elements().flatten().for_each(|one| writer.value(one.name, one.value));
            });
        }
    }
    stream.write_all(&out).ok()
}

fn hello(body: &mut Writer<'_>) {
    body.bool("helloOk", true);
    body.bool("ismaster", true);
    body.bool("isWritablePrimary", true);
    body.string("msg", "isdbgrid");
    body.int32("maxBsonObjectSize", 16 * 1024 * 1024);
    body.int32("maxMessageSizeBytes", 48_000_000);
    body.int32("maxWriteBatchSize", 100_000);
    body.int32("logicalSessionTimeoutMinutes", 30);
    body.int32("minWireVersion", 0);
    body.int32("maxWireVersion", 25);
    body.bool("readOnly", false);
    body.double("ok", 1.0);
}
