//! What redis-benchmark is asked for: command, size, connections, pipeline.

use crate::bench::row::Row;

/// What redis-benchmark asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Reads one key.
    Get,
    /// Writes one key.
    Set,
}

impl Verb {
    /// The name as redis-benchmark's `-t` takes it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
        }
    }
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RedisRow {
    /// Command.
    pub(crate) verb: Verb,
    /// Bytes of the value.
    pub(crate) bytes: usize,
    /// Client connections.
    pub(crate) connections: u32,
    /// Commands per write of the client; 1 is no pipeline.
    pub(crate) pipeline: u32,
    /// Keys that are asked for at random; 1: always the same.
    pub(crate) keys: u32,
}

impl Row for RedisRow {
    fn id(&self) -> String {
        format!("{}-{}-c{}-p{}", self.verb.word(), self.bytes, self.connections, self.pipeline)
    }
}
