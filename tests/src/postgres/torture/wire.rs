//! A blocking connection with the protocol in its plainest form.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::SockRef;

/// For a response; longer is a finding. A pool may let its clients wait.
const PATIENCE: Duration = Duration::from_secs(25);

/// The protocol of all clients before PostgreSQL 18.
pub const V3_0: u32 = 196_608;

/// A response up to its ReadyForQuery, or up to the request for copied data.
#[derive(Debug, Default)]
pub struct Reply {
    /// Rows of all results, as text.
    pub rows: Vec<Vec<String>>,
    /// SQLSTATE and message of the errors.
    pub errors: Vec<(String, String)>,
    /// Tags of the commands that ended.
    pub tags: Vec<String>,
    /// Copied data.
    pub copied: Vec<u8>,
    /// The server waits for copied data.
    pub wants_copy: bool,
}

impl Reply {
    /// The SQLSTATE of the first error; empty without one.
    pub fn state(&self) -> &str {
        self.errors.first().map_or("", |(state, _)| state)
    }
}

/// A connection after its login.
pub struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
    /// Process id and secret, as a cancel request has them.
    pub key: Vec<u8>,
    /// Status byte of the last ReadyForQuery.
    pub status: u8,
    /// Channel and payload of notifications that arrived.
    pub heard: Vec<(String, String)>,
    /// Bytes sent so far.
    pub sent: usize,
    /// Bytes received so far.
    pub received: usize,
}

impl Wire {
    /// Connects and logs in by trust.
    ///
    /// # Errors
    /// The connection ends, or the login is refused.
    pub fn connect(port: u16, user: &str, database: &str, application: &str) -> Result<Self, String> {
        Self::connect_with(port, V3_0, &["user", user, "database", database, "application_name", application])
    }

    /// The same with a version, and the words of a startup packet: names and values.
    ///
    /// # Errors
    /// As [`Wire::connect`].
    pub fn connect_with(port: u16, version: u32, words: &[&str]) -> Result<Self, String> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect(address).map_err(|error| format!("connect: {error}"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut wire =
            Self { stream, input: Vec::new(), key: Vec::new(), status: 0, heard: Vec::new(), sent: 0, received: 0 };
        let mut body = version.to_be_bytes().to_vec();
        for word in words {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        body.push(0);
        let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
        packet.extend(body);
        wire.send(&packet)?;
        let reply = wire.reply()?;
        match reply.errors.first() {
            None => Ok(wire),
            Some((state, text)) => Err(format!("login: {state} {text}")),
        }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| format!("send: {error}"))?;
        self.sent += bytes.len();
        Ok(())
    }

    /// A simple query and its response.
    ///
    /// # Errors
    /// As [`Wire::reply`].
    pub fn query(&mut self, text: &str) -> Result<Reply, String> {
        self.send(&query(text))?;
        self.reply()
    }

    /// Reads a response.
    ///
    /// # Errors
    /// The connection ended, or nothing came in time.
    pub fn reply(&mut self) -> Result<Reply, String> {
        let mut reply = Reply::default();
        loop {
            let (tag, body) = self.message()?;
            match tag {
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(0);
                    return Ok(reply);
                }
                b'G' => {
                    reply.wants_copy = true;
                    return Ok(reply);
                }
                b'R' if body != [0, 0, 0, 0] => return Err(format!("login: authentication {body:?} instead of trust")),
                b'K' => self.key = body,
                b'D' => reply.rows.push(row(&body)),
                b'C' => reply.tags.push(text(&body)),
                b'd' => reply.copied.extend_from_slice(&body),
                b'E' => {
                    let (state, message) = error(&body);
                    let is_fatal = body.windows(5).any(|window| window == b"FATAL");
                    reply.errors.push((state, message));
                    // After a fatal error comes the end.
                    if is_fatal {
                        let (state, message) = &reply.errors[reply.errors.len() - 1];
                        return Err(format!("fatal: {state} {message}"));
                    }
                }
                b'A' => self.heard.push(notification(&body)),
                _ => {}
            }
        }
    }

    /// Reads what arrived while no response was due. Only notifications, notices and reported settings may.
    ///
    /// # Errors
    /// Something else arrived, or the connection has ended.
    pub fn idle_messages(&mut self) -> Result<(), String> {
        self.stream.set_nonblocking(true).map_err(|error| error.to_string())?;
        let mut piece = [0; 4096];
        let end = loop {
            match self.stream.read(&mut piece) {
                Ok(0) => break Err("the idle connection was closed".to_owned()),
                Ok(count) => self.arrived(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(format!("idle: {error}")),
            }
        };
        self.stream.set_nonblocking(false).map_err(|error| error.to_string())?;
        end?;
        while let Some((tag, body)) = self.buffered() {
            match tag {
                b'A' => self.heard.push(notification(&body)),
                b'N' | b'S' => {}
                _ => return Err(format!("message `{}` while nothing was due", char::from(tag))),
            }
        }
        Ok(())
    }

    /// The socket, for a client that reads at its own pace.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Leaves: without a word, by a reset, or in order.
    pub fn leave(self, way: u64) {
        match way {
            0 => drop(self.stream.shutdown(std::net::Shutdown::Both)),
            1 => drop(SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))),
            _ => drop((&self.stream).write_all(b"X\0\0\0\x04")),
        }
    }

    /// Reads one message: its tag and its body.
    ///
    /// # Errors
    /// As [`Wire::reply`].
    pub fn message(&mut self) -> Result<(u8, Vec<u8>), String> {
        let mut piece = [0; 16 * 1024];
        loop {
            if let Some(message) = self.buffered() {
                return Ok(message);
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err("the connection was closed".to_owned()),
                Ok(count) => self.arrived(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("no response: {error}")),
            }
        }
    }

    fn arrived(&mut self, bytes: &[u8]) {
        self.received += bytes.len();
        self.input.extend_from_slice(bytes);
    }

    fn buffered(&mut self) -> Option<(u8, Vec<u8>)> {
        let head = self.input.get(..5)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let body = self.input.get(5..1 + length)?.to_vec();
        let tag = self.input[0];
        self.input.drain(..1 + length);
        Some((tag, body))
    }
}

/// Cancels by a connection of its own, and waits until that is closed.
///
/// # Errors
/// It cannot connect.
pub fn cancel(port: u16, key: &[u8]) -> Result<(), String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect(address).map_err(|error| format!("cancel: {error}"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    let mut packet = (8 + key.len() as u32).to_be_bytes().to_vec();
    packet.extend(80_877_102_u32.to_be_bytes());
    packet.extend(key);
    stream.write_all(&packet).map_err(|error| format!("cancel: {error}"))?;
    // The other side may reset: there is no response.
    let _ = stream.read(&mut [0; 16]);
    Ok(())
}

/// A message: tag, length, body.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Query.
pub fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

/// Parse.
pub fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{text}\0\0\0").as_bytes())
}

/// Bind of the unnamed portal with values as text, and its Execute.
pub fn run(statement: &str, values: &[&str]) -> Vec<u8> {
    let mut body = format!("\0{statement}\0\0\0").into_bytes();
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        body.extend((value.len() as u32).to_be_bytes());
        body.extend_from_slice(value.as_bytes());
    }
    body.extend([0, 0]);
    [message(b'B', &body), message(b'E', b"\0\0\0\0\0")].concat()
}

/// Close of a statement.
pub fn close(name: &str) -> Vec<u8> {
    message(b'C', format!("S{name}\0").as_bytes())
}

/// Sync.
pub const SYNC: &[u8] = b"S\0\0\0\x04";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(bytes)).into_owned()
}

/// Values as text; NULL is empty.
fn row(body: &[u8]) -> Vec<String> {
    let (mut values, mut rest) = (Vec::new(), body.get(2..).unwrap_or_default());
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        let (value, next) = after.split_at_checked(usize::try_from(length).unwrap_or(0)).unwrap_or((after, b""));
        values.push(String::from_utf8_lossy(value).into_owned());
        rest = next;
    }
    values
}

fn error(body: &[u8]) -> (String, String) {
    let fields = body.split(|byte| *byte == 0).filter_map(|field| field.split_first());
    let (mut state, mut message) = (String::new(), String::new());
    for (kind, value) in fields {
        match kind {
            b'C' => state = text(value),
            b'M' => message = text(value),
            _ => {}
        }
    }
    (state, message)
}

fn notification(body: &[u8]) -> (String, String) {
    let mut words = body.get(4..).unwrap_or_default().split(|byte| *byte == 0).map(text);
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}
