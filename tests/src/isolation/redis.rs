//! Redis, in front of a real server.

use std::io::{Error, ErrorKind, Result};

use super::wire::beside;
use super::{Ask, Caller, Origin, Protocol, RawTransfer, Transfer, Wire};
use crate::gateway::Config;
use crate::server::{Kind, Server};
use crate::stream::{Address, Stream};
use crate::wire::{bulk, encode, shown};

/// RESP2 on both sides.
pub struct Redis;

/// Key of [`Ask::Small`].
pub const SMALL: &str = "isolation:small";
const PUT: &str = "isolation:put";

/// A command without what it uploads, and the line end behind that.
fn command(ask: &Ask) -> Vec<u8> {
    match ask {
        Ask::Small => encode(&["GET", SMALL]),
        Ask::Bytes(length) => encode(&["GET", &large(*length)]),
        Ask::Hold => encode(&["BLPOP", "isolation:nothing", "0"]),
        Ask::Put(value) => encode(&["SET", PUT, &value.to_string()]),
        Ask::Busy => encode(&["XADD", SMALL, "*", "a", "b"]),
        Ask::Sink(length) | Ask::Unread(length) | Ask::Echo(length) => {
            format!("*3\r\n$3\r\nSET\r\n$14\r\nisolation:sink\r\n${length}\r\n").into_bytes()
        }
    }
}

/// Key of a value of that length.
fn large(length: usize) -> String {
    format!("isolation:large:{length}")
}

impl Protocol for Redis {
    fn name(&self) -> &'static str {
        "Redis"
    }

    fn origin(&self) -> Box<dyn Origin> {
        let server = Server::start(Kind::Redis);
        server.connect().expect(&["SET", SMALL, "ok"], b"+OK\r\n");
        Box::new(Kept(server))
    }

    fn lone_origin(&self) -> std::result::Result<Box<dyn Origin>, &'static str> {
        Ok(self.origin())
    }

    fn config(&self, origins: &[Address]) -> Config {
        let config = Config::to_all(origins);
        match origins.len() {
            1 => config,
            _ => config.upstream("[upstream.sharding]\nhash = \"fnv1a_64\"\ndistribution = \"ketama\""),
        }
    }

    fn caller(&self, stream: Stream) -> Result<Box<dyn Caller>> {
        Ok(Box::new(Commands(Wire::over(stream)?)))
    }

    fn begin(&self, stream: Stream, ask: &Ask) -> Result<Box<dyn Transfer>> {
        RawTransfer::begin(stream, &command(ask))
    }

    fn upload(&self, ask: &Ask) -> Vec<u8> {
        let mut bytes = vec![b'x'; ask.upload()];
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    fn unread(&self, stream: Stream, ask: &Ask, count: usize) -> std::result::Result<Box<dyn Transfer>, &'static str> {
        RawTransfer::begin(stream, &command(ask).repeat(count)).map_err(|_| "the connection has ended")
    }

    fn is_ordered(&self) -> std::result::Result<(), &'static str> {
        Ok(())
    }

    fn shares_upstream(&self) -> std::result::Result<(), &'static str> {
        Ok(())
    }
}

struct Kept(Server);

impl Origin for Kept {
    fn address(&self) -> Address {
        self.0.address.clone()
    }

    fn prepare(&self, ask: &Ask) {
        if let Ask::Bytes(length) = ask {
            // SETRANGE makes a value without sending it.
            let last = (length - 1).to_string();
            let reply = self.0.connect().call(&["SETRANGE", &large(*length), &last, "x"]);
            assert!(reply.starts_with(b":"), "{}", shown(&reply));
        }
    }

    fn under_way(&self, ask: &Ask) -> std::result::Result<usize, &'static str> {
        match ask {
            Ask::Hold => Ok(self.0.info("clients", "blocked_clients").parse().expect("a number")),
            _ => Err("a server replies to a command in full, whoever has left"),
        }
    }

    fn value(&self) -> u64 {
        let reply = self.0.connect().call(&["GET", PUT]);
        String::from_utf8_lossy(&bulk(&reply)).parse().expect("a number")
    }
}

struct Commands(Wire);

impl Commands {
    fn reply(wire: &mut Wire) -> Result<Vec<u8>> {
        let line = wire.until(b"\r\n")?;
        match line[0] {
            b'$' => {
                let length = String::from_utf8_lossy(&line[1..line.len() - 2]).parse::<usize>();
                let length = length.map_err(|_| Error::other("a null"))?;
                let mut value = wire.exactly(length + 2)?;
                value.truncate(length);
                Ok(value)
            }
            b'-' => Err(Error::new(ErrorKind::ResourceBusy, shown(&line))),
            _ => Ok(line[1..line.len() - 2].to_vec()),
        }
    }
}

impl Caller for Commands {
    /// An echo is two commands, SET and GET of a key of its own; the GETs come behind all else, so that values of all sizes
    /// follow each other on their way to several shards.
    fn exchange(&mut self, asks: &[(Ask, Vec<u8>)]) -> Result<Vec<Vec<u8>>> {
        let key = |at: usize| format!("isolation:echo:{at}");
        let (mut sent, mut behind) = (Vec::new(), Vec::new());
        for (at, (ask, body)) in asks.iter().enumerate() {
            match ask {
                Ask::Echo(_) => {
                    sent.extend(encode(&[b"SET", key(at).as_bytes(), body]));
                    behind.extend(encode(&["GET", &key(at)]));
                }
                Ask::Sink(_) | Ask::Unread(_) => sent.extend(encode(&[b"SET", b"isolation:sink".as_slice(), body])),
                _ => sent.extend(command(ask)),
            }
        }
        sent.extend(behind);
        beside(&mut self.0, sent, |wire| {
            // All are read, so that what follows is in step.
            let first: Vec<_> = asks.iter().map(|_| Self::reply(wire)).collect();
            let one = |((ask, _), first): (&(Ask, Vec<u8>), Result<Vec<u8>>)| match ask {
                Ask::Echo(_) => {
                    let second = Self::reply(wire);
                    first.and(second)
                }
                _ => first.map(|reply| if reply == b"OK" { b"ok".to_vec() } else { reply }),
            };
            let replies: Vec<_> = asks.iter().zip(first).map(one).collect();
            replies.into_iter().collect()
        })
    }
}
