//! A PostgreSQL connection of the demo: the SELECT of an account that only this request names.

use std::{
    io::{self, BufReader, Read, Write},
    net::TcpStream,
};

use super::traffic::{Connection, Reply, ReplyError};

/// Accounts of the server.
const ACCOUNTS: u64 = 100_000;
/// Bytes of a message; what is longer is no reply to these requests.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Protocol 3.0, the user `demo`, and its database of the same name.
const STARTUP: &[u8] = b"\0\0\0\x13\0\x03\0\0user\0demo\0\0";
/// The SQLSTATE with which a gateway that is replaced ends its connections, between transactions.
const ADMIN_SHUTDOWN: &[u8] = b"C57P01\0";

/// See [`Connection`].
pub struct PostgresConnection {
    socket: TcpStream,
    replies: BufReader<TcpStream>,
    /// It has carried a reply: its end may then meet a request on its way.
    is_used: bool,
}

impl Connection for PostgresConnection {
    fn over(mut socket: TcpStream) -> io::Result<Self> {
        socket.write_all(STARTUP)?;
        let mut connection = Self { replies: BufReader::new(socket.try_clone()?), socket, is_used: false };
        loop {
            match connection.message()? {
                (b'Z', _) => return Ok(connection),
                (b'E', body) => return Err(io::Error::other(String::from_utf8_lossy(&body).into_owned())),
                _ => {}
            }
        }
    }

    fn exchange(&mut self, key: &str, round: u64) -> Result<Reply, ReplyError> {
        let client: u64 = key.parse().map_err(io::Error::other)?;
        let account = (client * 10_007 + round) % ACCOUNTS + 1;
        // If the connection has ended meanwhile, its last words are still there to be read.
        let sent = self.socket.write_all(&query(account));
        let (mut row, mut error) = (None, None);
        loop {
            let (tag, body) = match (self.message(), &sent) {
                (Ok(message), _) => message,
                (Err(_), Err(error)) => return Err(io::Error::from(error.kind()).into()),
                (Err(error), Ok(())) => return Err(error.into()),
            };
            match tag {
                b'E' if self.is_used && is_end(&body) => return Err(ReplyError::BetweenRequests),
                b'E' => error = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                b'D' => row = first_value(&body),
                b'Z' => break,
                _ => {}
            }
        }
        self.is_used = true;
        Ok(match (error, row) {
            (Some(error), _) => Reply::Wrong(error),
            (None, Some(value)) if value == account.to_string().as_bytes() => Reply::Right,
            (None, row) => Reply::Wrong(format!("account {account} has the row {row:?}")),
        })
    }
}

impl PostgresConnection {
    /// Tag and body of a whole message.
    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.replies.read_exact(&mut head)?;
        let [tag, length @ ..] = head;
        let length = (u32::from_be_bytes(length) as usize).checked_sub(4).filter(|length| *length <= MESSAGE_BYTES_MAX);
        let mut body = vec![0; length.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?];
        self.replies.read_exact(&mut body)?;
        Ok((tag, body))
    }
}

fn query(account: u64) -> Vec<u8> {
    let text = format!("SELECT aid, abalance FROM pgbench_accounts WHERE aid = {account}\0");
    let length = (text.len() + 4) as u32;
    [b"Q", &length.to_be_bytes()[..], text.as_bytes()].concat()
}

/// The first value of a row.
fn first_value(body: &[u8]) -> Option<Vec<u8>> {
    let length = i32::from_be_bytes(body.get(2..6)?.try_into().ok()?);
    body.get(6..6 + usize::try_from(length).ok()?).map(<[u8]>::to_vec)
}

/// An error that ends the connection in order.
fn is_end(body: &[u8]) -> bool {
    body.windows(ADMIN_SHUTDOWN.len()).any(|field| field == ADMIN_SHUTDOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_long_as_they_say() {
        assert_eq!(STARTUP.len(), usize::from(STARTUP[3]));
        let query = query(7);
        assert_eq!(u32::from_be_bytes(query[1..5].try_into().expect("four")) as usize, query.len() - 1);
        assert_eq!(first_value(b"\0\x02\0\0\0\x0217\0\0\0\x010"), Some(b"17".to_vec()));
        assert_eq!(first_value(b"\0\x01\0\0\0\x09"), None);
        assert!(is_end(b"SFATAL\0C57P01\0Mshutdown\0\0") && !is_end(b"SERROR\0C42601\0\0"));
    }
}
