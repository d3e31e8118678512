//! Upstreams that misbehave: a small scripted server. It speaks enough RESP or HTTP for a gateway to connect
//! and stay healthy, then does what the test's script says.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::stream::Address;

/// The reply of a script to one command.
pub enum Act {
    /// These bytes.
    Reply(Vec<u8>),
    /// Nothing, and go on.
    Silence,
    /// These bytes, then close.
    ReplyThenClose(Vec<u8>),
    /// Close with a reset: what was sent may be lost on the way.
    Reset,
    /// Do not read any more until the test ends.
    Hang,
}

/// A request in words.
pub type Words = Vec<Vec<u8>>;

/// Parts of a protocol that a scripted server understands.
#[derive(Clone, Copy)]
struct Dialect {
    /// The first complete request of a buffer, in words, and its length. No words: nothing to reply to.
    next: fn(&[u8]) -> Option<(Words, usize)>,
    /// Responses that do not depend on the script.
    own: fn(&[Vec<u8>]) -> Option<Act>,
}

/// Set-up commands and health probes are answered as Redis 7.0 does.
const RESP: Dialect = Dialect { next: next_command, own: own_reply };
/// A request is two words: its head with the empty line, and what follows it up to its end.
const HTTP: Dialect = Dialect { next: crate::http::next_request, own: |_| None };

/// Decides on a command; words are as the gateway sent them.
pub type Script = dyn Fn(&[Vec<u8>]) -> Act + Send + Sync;

/// A scripted server on a free port.
pub struct Faulty {
    /// Where it listens.
    pub address: Address,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    dialect: Dialect,
    script: Box<Script>,
    stop: AtomicBool,
    connections: AtomicU64,
    seen: Mutex<Vec<Vec<Vec<u8>>>>,
}

impl Faulty {
    /// Starts; `script` sees every command that is not connection set-up or a health probe.
    ///
    /// # Panics
    /// If no port can be bound.
    pub fn start(script: impl Fn(&[Vec<u8>]) -> Act + Send + Sync + 'static) -> Self {
        Self::speaking(RESP, script)
    }

    /// Starts an HTTP origin; `script` sees head and body of every request, as the gateway sent them.
    ///
    /// # Panics
    /// If no port can be bound.
    pub fn http(script: impl Fn(&[Vec<u8>]) -> Act + Send + Sync + 'static) -> Self {
        Self::speaking(HTTP, script)
    }

    fn speaking(dialect: Dialect, script: impl Fn(&[Vec<u8>]) -> Act + Send + Sync + 'static) -> Self {
        let listener = listening().expect("the scripted server binds");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            dialect,
            script: Box::new(script),
            stop: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            seen: Mutex::new(Vec::new()),
        });
        let for_thread = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, &for_thread));
        Self { address: Address::Tcp(address), shared, acceptor: Some(acceptor) }
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Every command that the script saw, in order.
    pub fn seen(&self) -> Vec<Vec<Vec<u8>>> {
        self.shared.seen.lock().map(|seen| seen.clone()).unwrap_or_default()
    }

    /// How often a command of that name was seen.
    pub fn count(&self, name: &str) -> usize {
        self.seen().iter().filter(|words| words[0].eq_ignore_ascii_case(name.as_bytes())).count()
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes the blocking accept.
        let address: SocketAddr = self.address.tcp();
        drop(TcpStream::connect(address));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Connections that may wait to be accepted. With the 128 of the standard library a gateway that opens 200 at once, on a busy
/// machine, loses some for the second until they are tried again.
const BACKLOG: i32 = 1_024;

fn listening() -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    // A child of another test that has not come to its `exec` yet holds the look at a port for a moment.
    let bound = |_| socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, crate::port::free())).into());
    (0..5).map(bound).find(Result::is_ok).unwrap_or_else(|| bound(5))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut sessions = Vec::new();
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        let Ok(stream) = stream else { continue };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(shared);
        sessions.push(std::thread::spawn(move || {
            // The peer may be gone at any time: that ends the session and nothing else.
            let _ = serve(stream, &shared);
        }));
    }
    for session in sessions {
        let _ = session.join();
    }
}

/// How often a waiting session looks whether the test has ended.
const STOP_LOOK: Duration = Duration::from_millis(50);

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STOP_LOOK))?;
    let mut buffer = Vec::new();
    let mut chunk = [0; 64 * 1024];
    loop {
        while let Some((words, length)) = (shared.dialect.next)(&buffer) {
            buffer.drain(..length);
            if words.is_empty() {
                continue;
            }
            match respond(&words, shared) {
                Act::Reply(bytes) => stream.write_all(&bytes)?,
                Act::Silence => {}
                Act::ReplyThenClose(bytes) => {
                    stream.write_all(&bytes)?;
                    return Ok(());
                }
                Act::Reset => {
                    // Closing with unread input makes the kernel send a reset.
                    return Ok(());
                }
                Act::Hang => {
                    while !shared.stop.load(Ordering::Relaxed) {
                        std::thread::sleep(STOP_LOOK);
                    }
                    return Ok(());
                }
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => buffer.extend_from_slice(&chunk[..length]),
            // A read with a time limit may be interrupted without a signal: see `Stream::read`.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) =>
            {
                if shared.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// The act for a request: of the dialect, otherwise of the script.
fn respond(words: &[Vec<u8>], shared: &Shared) -> Act {
    (shared.dialect.own)(words).unwrap_or_else(|| {
        if let Ok(mut seen) = shared.seen.lock() {
            seen.push(words.to_vec());
        }
        (shared.script)(words)
    })
}

fn own_reply(words: &[Vec<u8>]) -> Option<Act> {
    match words[0].to_ascii_uppercase().as_slice() {
        b"HELLO" => Some(Act::Reply(hello(words.get(1).map(Vec::as_slice)))),
        b"PING" if words.len() == 1 => Some(Act::Reply(b"+PONG\r\n".to_vec())),
        b"CLIENT" | b"SELECT" | b"AUTH" | b"RESET" => Some(Act::Reply(b"+OK\r\n".to_vec())),
        _ => None,
    }
}

fn hello(version: Option<&[u8]>) -> Vec<u8> {
    let (start, proto) = match version {
        Some(b"3") => ("%7", 3),
        _ => ("*14", 2),
    };
    let pairs = [
        ("server", "$5\r\nredis\r\n".to_owned()),
        ("version", "$6\r\n7.0.15\r\n".to_owned()),
        ("proto", format!(":{proto}\r\n")),
        ("id", ":7\r\n".to_owned()),
        ("mode", "$10\r\nstandalone\r\n".to_owned()),
        ("role", "$6\r\nmaster\r\n".to_owned()),
        ("modules", "*0\r\n".to_owned()),
    ];
    let mut bytes = format!("{start}\r\n");
    for (key, value) in pairs {
        bytes += &format!("${}\r\n{key}\r\n{value}", key.len());
    }
    bytes.into_bytes()
}

/// The first complete command of a buffer and its length. A gateway only sends arrays of bulks.
fn next_command(buffer: &[u8]) -> Option<(Words, usize)> {
    let length = crate::wire::reply_length(buffer)?;
    Some((crate::wire::bulk_array(&buffer[..length]), length))
}
