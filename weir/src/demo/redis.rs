//! A Redis connection of the demo: SET, then GET of what was set.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use super::traffic::{Connection, Reply, ReplyError};

/// Bytes of a value; what is longer is no reply to these requests.
const VALUE_BYTES_MAX: usize = 64;

/// See [`Connection`].
pub struct RedisConnection {
    socket: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Connection for RedisConnection {
    fn over(socket: TcpStream) -> io::Result<Self> {
        Ok(Self { replies: BufReader::new(socket.try_clone()?), socket })
    }

    fn exchange(&mut self, key: &str, round: u64) -> Result<Reply, ReplyError> {
        // A pair of rounds has one value.
        let value = format!("{key}/{}", round / 2);
        let (words, expected): (&[&str], &str) = match round % 2 {
            0 => (&["SET", key, &value], "OK"),
            _ => (&["GET", key], &value),
        };
        self.socket.write_all(&command(words))?;
        let got = self.reply()?;
        Ok(if got == expected { Reply::Right } else { Reply::Wrong(got) })
    }
}

impl RedisConnection {
    /// The text of a reply; of an error with its dash.
    fn reply(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.replies.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+", text)) => Ok(text.to_owned()),
            Some(("-", _)) => Ok(line.to_owned()),
            Some(("$", "-1")) => Ok("no value".to_owned()),
            Some(("$", length)) => {
                let length: Option<usize> = length.parse().ok().filter(|length| *length <= VALUE_BYTES_MAX);
                let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
                let mut value = vec![0; length + 2];
                self.replies.read_exact(&mut value)?;
                value.truncate(value.len() - 2);
                String::from_utf8(value).map_err(io::Error::other)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
