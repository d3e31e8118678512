//! TCP: lines with a word and a length.

use std::io::Result;

use super::origin::{Scripted, Speech};
use super::{Ask, Caller, Origin, Protocol, RawTransfer, Transfer, Wire};
use crate::gateway::Config;
use crate::stream::{Address, Stream};

/// Bytes as they come.
pub struct Tcp;

fn line(ask: &Ask) -> Vec<u8> {
    format!("{} {}\n", ask.word(), ask.upload()).into_bytes()
}

impl Protocol for Tcp {
    fn name(&self) -> &'static str {
        "TCP"
    }

    fn origin(&self) -> Box<dyn Origin> {
        Box::new(Scripted::start(Speech::Lines))
    }

    fn lone_origin(&self) -> std::result::Result<Box<dyn Origin>, &'static str> {
        Err("a TCP connection is its client's own")
    }

    fn config(&self, origins: &[Address]) -> Config {
        Config { protocol: "tcp", ..Config::to_all(origins) }
    }

    fn caller(&self, stream: Stream) -> Result<Box<dyn Caller>> {
        Ok(Box::new(Lines(Wire::over(stream)?)))
    }

    fn begin(&self, stream: Stream, ask: &Ask) -> Result<Box<dyn Transfer>> {
        RawTransfer::begin(stream, &line(ask))
    }

    fn unread(&self, stream: Stream, ask: &Ask, count: usize) -> std::result::Result<Box<dyn Transfer>, &'static str> {
        RawTransfer::begin(stream, &line(ask).repeat(count)).map_err(|_| "the connection has ended")
    }

    fn shares_upstream(&self) -> std::result::Result<(), &'static str> {
        Err("each client has an upstream connection of its own")
    }
}

struct Lines(Wire);

impl Caller for Lines {
    fn exchange(&mut self, asks: &[(Ask, Vec<u8>)]) -> Result<Vec<Vec<u8>>> {
        let sent = asks.iter().flat_map(|(ask, body)| [line(ask), body.clone()].concat()).collect();
        super::wire::beside(&mut self.0, sent, |wire| {
            asks.iter().map(|(ask, _)| wire.exactly(ask.response_bytes())).collect()
        })
    }
}
