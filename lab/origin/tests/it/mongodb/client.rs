//! A raw client over TCP and the replies it reads.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weir_mongodb_codec::bson::{Document, Value, Writer};
use weir_mongodb_codec::compressed::Compressed;
use weir_mongodb_codec::legacy::LegacyReply;
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_mongodb_codec::{Header, OpCode};
use weir_origin::mongodb::{MongodbOriginSettings, Origin, start};

/// Nothing a test waits for takes longer on a healthy machine, however busy.
const DEADLINE: Duration = Duration::from_secs(30);

pub fn origin(settings: MongodbOriginSettings) -> Origin {
    start(settings).expect("an origin")
}

/// A reply of a server.
#[derive(Debug)]
pub struct Answer {
    pub header: Header,
    pub flags: Flags,
    body: Vec<u8>,
}

impl Answer {
    pub fn body(&self) -> Document<'_> {
        Document::read(&self.body).expect("a document")
    }

    /// The value at a path of names with dots between them.
    pub fn find(&self, path: &str) -> Option<Value<'_>> {
        let mut document = Some(self.body());
        let mut found = None;
        for name in path.split('.') {
            found = document?.get(name.as_bytes()).expect("elements");
            document = found.and_then(|value| value.as_document().expect("a document"));
        }
        found
    }

    pub fn number(&self, path: &str) -> Option<i64> {
        self.find(path).and_then(Value::as_integer)
    }

    pub fn text(&self, path: &str) -> Option<String> {
        self.find(path).and_then(Value::as_string).map(|text| String::from_utf8_lossy(text).into_owned())
    }

    pub fn is_ok(&self) -> bool {
        self.number("ok") == Some(1)
    }

    /// The code of an error; `None`: the command has succeeded.
    pub fn code(&self) -> Option<i64> {
        assert_eq!(self.is_ok(), self.find("code").is_none(), "{self:?}");
        self.number("code")
    }

    pub fn labels(&self) -> Vec<String> {
        let labels = self.find("errorLabels").and_then(|labels| labels.as_document().expect("an array"));
        let text = |value: Value<'_>| String::from_utf8_lossy(value.as_string().expect("a text")).into_owned();
        labels.into_iter().flat_map(Document::elements).map(|one| text(one.expect("an element").value)).collect()
    }

    /// `_id` of each document of the batch.
    pub fn ids(&self) -> Vec<i64> {
        let batch = self.find("cursor.firstBatch").or_else(|| self.find("cursor.nextBatch")).expect("a batch");
        let batch = batch.as_document().expect("an array").expect("an array");
        let id = |value: Value<'_>| {
            let document = value.as_document().expect("a document").expect("a document");
            document.get(b"_id").expect("elements").and_then(Value::as_integer).expect("a number")
        };
        batch.elements().map(|one| id(one.expect("an element").value)).collect()
    }
}

pub struct Client {
    socket: TcpStream,
    received: Vec<u8>,
    next: i32,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect_timeout(&address, DEADLINE).expect("connect");
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        socket.set_nodelay(true).expect("no delay");
        Self { socket, received: Vec::new(), next: 100 }
    }

    pub fn to(origin: &Origin) -> Self {
        Self::connect(origin.addresses()[0])
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("send");
    }

    /// Sends a command and gives its id.
    pub fn command(&mut self, flags: Flags, write: impl FnOnce(&mut Writer<'_>)) -> i32 {
        let bytes = self.bytes(flags, write);
        self.send(&bytes);
        self.next
    }

    /// The bytes of a command with the next id.
    pub fn bytes(&mut self, flags: Flags, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        self.next += 1;
        let mut out = Vec::new();
        message::write(&mut out, Ids { request: self.next, response_to: 0 }, flags, write);
        out
    }

    /// Sends a command for a database and reads its reply.
    pub fn run(&mut self, database: &str, write: impl FnOnce(&mut Writer<'_>)) -> Answer {
        let id = self.command(Flags::empty(), |body| {
            write(body);
            body.string("$db", database);
        });
        let answer = self.answer();
        assert_eq!((answer.header.response_to, answer.flags), (id, Flags::empty()));
        answer
    }

    /// A command with the number 1, for admin.
    pub fn ask(&mut self, name: &str) -> Answer {
        self.run("admin", |body| body.int32(name, 1))
    }

    /// The next reply, inflated.
    pub fn answer(&mut self) -> Answer {
        let whole = self.message().expect("a reply");
        let header = Header::read(&whole).expect("a header").expect("whole");
        match header.op_code {
            OpCode::Reply => {
                let body = LegacyReply::read(&whole).expect("a reply").body.bytes().to_vec();
                Answer { header, flags: Flags::empty(), body }
            }
            OpCode::Compressed => {
                let mut plain = Vec::new();
                Compressed::read(&whole).expect("a head").inflate(&mut plain).expect("inflated");
                Answer { header, ..Self::read(&plain) }
            }
            _ => Self::read(&whole),
        }
    }

    fn read(whole: &[u8]) -> Answer {
        let message = Message::read(whole).expect("an OP_MSG");
        Answer { header: message.header, flags: message.flags, body: message.body.bytes().to_vec() }
    }

    /// The next message; `None`: the server has closed.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        loop {
            let header = Header::read(&self.received).expect("a header");
            if let Some(header) = header.filter(|header| header.bytes <= self.received.len()) {
                return Some(self.received.drain(..header.bytes).collect());
            }
            let mut chunk = [0; 64 * 1024];
            match self.socket.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no message within the deadline: {error}"),
            }
        }
    }

    /// No more bytes are left and the server has closed.
    pub fn expect_end(&mut self) {
        assert_eq!(self.message(), None);
        assert!(self.received.is_empty());
    }
}

/// The session with this number.
pub fn lsid(body: &mut Writer<'_>, number: u8) {
    body.document("lsid", |lsid| lsid.binary("id", 4, &[number; 16]));
}

/// A part of a transaction of the session with this number.
pub fn part(body: &mut Writer<'_>, session: u8, number: i64, is_start: bool) {
    lsid(body, session);
    body.int64("txnNumber", number);
    if is_start {
        body.bool("startTransaction", true);
    }
    body.bool("autocommit", false);
}
