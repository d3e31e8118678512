//! A raw client over TCP and the messages it reads.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weir_postgres_codec::backend::{ErrorFields, RowDescription, tag};
use weir_postgres_codec::frame::{HEAD_BYTES, head};
use weir_postgres_codec::{Version, frontend};

/// Nothing a test waits for takes longer on a healthy machine, however busy.
const DEADLINE: Duration = Duration::from_secs(30);

/// A message of a server: its type and its body.
pub type Message = (char, Vec<u8>);

pub struct Client {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Client {
    /// Connected, and nothing was said.
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect_timeout(&address, DEADLINE).expect("connect");
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        socket.set_nodelay(true).expect("no delay");
        Self { socket, received: Vec::new() }
    }

    /// Logged in.
    pub fn log_in(address: SocketAddr) -> Self {
        let mut client = Self::connect(address);
        client.send(&startup(&[("user", "postgres"), ("database", "postgres")]));
        client.until_ready(1);
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("send");
    }

    pub fn read_byte(&mut self) -> u8 {
        let mut byte = [0];
        self.socket.read_exact(&mut byte).expect("a byte");
        byte[0]
    }

    /// The next message; `None`: the server has closed.
    pub fn next(&mut self) -> Option<Message> {
        loop {
            if let Some(head) =
                head(&self.received).expect("a message").filter(|head| head.whole() <= self.received.len())
            {
                let message: Vec<u8> = self.received.drain(..head.whole()).collect();
                return Some((head.tag.into(), message[HEAD_BYTES..].to_vec()));
            }
            let mut chunk = [0; 16 * 1024];
            match self.socket.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no message within the deadline: {error}"),
            }
        }
    }

    /// Messages up to the given ReadyForQuery, or to the end of the connection.
    pub fn until_ready(&mut self, count: usize) -> Vec<Message> {
        let (mut messages, mut left) = (Vec::new(), count);
        while left > 0 {
            let Some(message) = self.next() else { return messages };
            left -= usize::from(message.0 == 'Z');
            messages.push(message);
        }
        messages
    }

    /// Sends bytes with as many Query and Sync as `ready`, and shows the reply.
    pub fn ask(&mut self, bytes: &[u8], ready: usize) -> Vec<String> {
        self.send(bytes);
        self.until_ready(ready).iter().map(shown).collect()
    }

    /// A text in the simple protocol.
    pub fn query(&mut self, text: &str) -> Vec<String> {
        self.ask(&written(|out| frontend::query(out, text.as_bytes())), 1)
    }

    /// No more bytes are left and the server has closed.
    pub fn expect_end(&mut self) {
        assert_eq!(self.next(), None);
    }
}

/// The bytes of an encoder.
pub fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

pub fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let pairs = parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    written(|out| frontend::startup(out, Version::V3_0, pairs))
}

/// A message without what differs between servers and places: positions and files of errors, OIDs of tables, keys.
pub fn shown((tag, body): &Message) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', "|");
    let body = match *tag as u8 {
        tag::ERROR | tag::NOTICE => {
            let fields = ErrorFields::read(body).expect("fields");
            let of = |letter| text(fields.get(letter).unwrap_or_default());
            format!("{} {} {}", of(b'V'), of(b'C'), of(b'M'))
        }
        tag::ROW_DESCRIPTION => {
            let columns = RowDescription::read(body).expect("columns");
            let column = |column: weir_postgres_codec::backend::Column<'_>| {
                let table = if column.table_oid == 0 { "" } else { "table " };
                format!(
                    "{} {table}{} {} {} {} {}",
                    text(column.name),
                    column.attribute,
                    column.type_oid,
                    column.type_size,
                    column.type_modifier,
                    column.format
                )
            };
            columns.iter().map(column).collect::<Vec<_>>().join(", ")
        }
        tag::BACKEND_KEY_DATA => format!("{} bytes", body.len()),
        tag::DATA_ROW => format!("{body:x?}"),
        _ => text(body),
    };
    format!("{tag} {body}")
}
