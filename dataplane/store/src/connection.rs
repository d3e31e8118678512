//! A connection to a server, and the commands on it.

use std::{
    fmt, io,
    time::{Duration, Instant},
};

use weir_base::Secret;
use weir_engine::settings::{Address, TlsClientSettings};
use weir_resp::{ProtocolError, Value, ValueLimits, encode};

use crate::socket::Wire;

/// Bytes that a reply takes besides its payload: the length in front of a text, and the line end behind it.
const FRAME_BYTES_MAX: usize = 64;

/// Bytes of an error of the server in a message. Those of Redis are shorter.
const REFUSAL_BYTES_MAX: usize = 256;

/// The error of a login without the words that a server without `AUTH` repeats: they are secrets.
fn without_arguments(mut error: StoreError) -> StoreError {
    if let Some(at) = error.what.find(", with args") {
        error.what.truncate(at);
    }
    error
}

/// Why a server has not responded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// One of a fixed set, for metrics.
    pub reason: &'static str,
    /// In words.
    pub what: String,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StoreError {
    /// An error of this reason.
    pub fn new(reason: &'static str, what: impl Into<String>) -> Self {
        Self { reason, what: what.into() }
    }

    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::new("timeout", "it does not respond in time"),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::new("closed", "it has closed the connection"),
            _ => Self::new("connect", error.to_string()),
        }
    }
}

/// An error of the server in words. It is a stranger's text.
fn said(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(REFUSAL_BYTES_MAX)]);
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// How a connection is protected and begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Login<'a> {
    /// `None`: clear text.
    pub tls: Option<&'a TlsClientSettings>,
    /// With a password; `None`: the default user.
    pub username: Option<&'a str>,
    /// `None`: there is no login.
    pub password: Option<&'a Secret>,
}

/// Bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// For the connection as a whole: name, socket, TLS and login. A TLS handshake has its own time within it.
    pub open: Duration,
    /// For each call.
    pub call: Duration,
    /// Bytes of the texts of a reply, with the lengths in front of them.
    pub reply_bytes_max: u32,
}

/// A connection that has logged in.
pub struct Connection {
    wire: Wire,
    received: Vec<u8>,
    limits: StoreLimits,
}

impl Connection {
    /// Connects and logs in. Commands that follow have what is left of the time, until the first [`Self::call`].
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn open(login: Login<'_>, address: &Address, limits: StoreLimits) -> Result<Self, StoreError> {
        let wire = Wire::connect(address, login.tls, Instant::now() + limits.open)?;
        let mut connection = Self { wire, received: Vec::new(), limits };
        if let Some(password) = login.password {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(login.username.map(str::as_bytes));
            words.push(password.expose());
            connection.command(&words).map_err(without_arguments)?;
        }
        Ok(connection)
    }

    /// Sends a command of the beginning and waits for its reply, within the time of [`StoreLimits::open`].
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn command(&mut self, words: &[&[u8]]) -> Result<Value, StoreError> {
        let mut bytes = Vec::new();
        encode::command(&mut bytes, words.iter().copied());
        self.exchange(&bytes)
    }

    /// Sends a command and waits for its reply, at most for [`StoreLimits::call`].
    ///
    /// # Errors
    /// There is none, or it is an error. The connection is of no use then.
    pub fn call(&mut self, command: &[u8]) -> Result<Value, StoreError> {
        self.wire.set_end(Instant::now() + self.limits.call);
        self.exchange(command)
    }

    fn exchange(&mut self, command: &[u8]) -> Result<Value, StoreError> {
        self.wire.write(command).map_err(|error| StoreError::of(&error))?;
        let mut chunk = [0; 16_384];
        let bytes_max = self.limits.reply_bytes_max;
        let limits = ValueLimits { bytes_max, ..ValueLimits::default() };
        loop {
            match Value::decode(&self.received, &limits) {
                Ok(Some((value, length))) => {
                    self.received.drain(..length);
                    let refusal = value.as_error().map(said);
                    return refusal
                        .map_or(Ok(value), |text| Err(StoreError::new("refused", format!("it says: {text}"))));
                }
                Ok(None) if self.received.len() <= bytes_max as usize + FRAME_BYTES_MAX => {}
                Ok(None) | Err(ProtocolError::ReplyTooBig) => {
                    let what = format!("its reply has more than {bytes_max} bytes");
                    return Err(StoreError::new("protocol", what));
                }
                Err(_) => return Err(StoreError::new("protocol", "it does not speak the protocol of Redis")),
            }
            match self.wire.read(&mut chunk) {
                Ok(0) => return Err(StoreError::of(&io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StoreError::of(&error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, net::TcpListener, thread};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    /// A server that sends a byte every 20 ms to one client, until the connection ends.
    fn dripping(bytes: &'static [u8]) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            for byte in bytes.iter().cycle() {
                thread::sleep(Duration::from_millis(20));
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
            }
        });
        Address::Socket(address)
    }

    fn limits() -> StoreLimits {
        StoreLimits { open: LIMIT, call: LIMIT, reply_bytes_max: 1_024 }
    }

    /// A login waits for its reply, so that the time of a server that drips is over before it.
    fn time_to_fail(tls: Option<&TlsClientSettings>, address: &Address) -> Duration {
        let begin = Instant::now();
        let password = Secret::new(b"secret".to_vec());
        let login = Login { tls, password: Some(&password), ..Login::default() };
        let error = Connection::open(login, address, limits()).err().expect("it does not open");
        assert_eq!(error.reason, "timeout", "{error}");
        begin.elapsed()
    }

    #[test]
    fn a_server_that_drips_holds_a_connection_no_longer_than_its_limit() {
        let plain = time_to_fail(None, &dripping(b"$9"));
        // Timeouts of the kernel are as exact as its ticks.
        assert!(plain >= LIMIT * 9 / 10 && plain < 2 * LIMIT, "{plain:?}");
        // A record of a handshake, of 16 KiB.
        let insecure = TlsClientSettings { insecure_skip_verify: true, ..TlsClientSettings::default() };
        let record = b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xf0";
        let whole = time_to_fail(Some(&insecure), &dripping(record));
        assert!(whole >= LIMIT && whole < 2 * LIMIT, "{whole:?}");
        let short = TlsClientSettings { handshake_timeout: Duration::from_millis(100), ..insecure };
        let short = time_to_fail(Some(&short), &dripping(record));
        assert!(short >= Duration::from_millis(100) && short < LIMIT, "{short:?}");
    }

    #[test]
    fn a_reply_that_is_too_long_is_refused_by_its_length() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = Address::Socket(listener.local_addr().expect("an address"));
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(b"$1020\r\n").and_then(|()| stream.write_all(&[b'a'; 1_020])).expect("sent");
            stream.write_all(b"\r\n$1021\r\n").expect("sent");
            stream
        });
        let mut connection = Connection::open(Login::default(), &address, limits()).expect("a connection");
        let value = connection.command(&[b"GET", b"key"]).expect("a reply");
        assert_eq!(value.as_bytes().map(<[u8]>::len), Some(1_020));
        let error = connection.command(&[b"GET", b"key"]).expect_err("no reply");
        assert_eq!((error.reason, &*error.what), ("protocol", "its reply has more than 1024 bytes"));
        drop(server.join());
    }

    #[test]
    fn an_error_of_a_server_is_short_and_one_line() {
        assert_eq!(said(b"ERR a\r\nb"), "ERR a  b");
        assert_eq!(said(&[b'a'; 10_000]).len(), REFUSAL_BYTES_MAX);
    }
}
