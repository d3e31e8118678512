//! The rows of the table of Redis: what is asked, how large, over how many connections, how deep the pipeline.

use crate::bench::row::{Row, long_size, short_size};

/// What redis-benchmark asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Reads one key.
    Get,
    /// Writes one key.
    Set,
    /// Writes ten keys.
    Mset,
}

impl Verb {
    /// The name as redis-benchmark's `-t` takes it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Mset => "mset",
        }
    }

    /// For people.
    fn title(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
            Self::Mset => "MSET of 10 keys",
        }
    }
}

/// Keys of the rows in front of several servers: so many that each server has its part.
const SPREAD_KEYS: u32 = 1_000;

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

impl RedisRow {
    /// Every row of the table, in its order.
    pub(crate) fn all() -> Vec<Self> {
        let mut rows = Vec::new();
        for verb in [Verb::Get, Verb::Set] {
            for pipeline in [1, 16] {
                for connections in [50, 400] {
                    rows.push(Self { verb, bytes: 64, connections, pipeline, keys: 1 });
                }
            }
        }
        rows.push(Self { verb: Verb::Get, bytes: 64 << 10, connections: 50, pipeline: 1, keys: 1 });
        rows
    }

    /// Every row in front of several servers.
    pub(crate) fn all_over_shards() -> Vec<Self> {
        let row = |verb, connections, pipeline| Self { verb, bytes: 64, connections, pipeline, keys: SPREAD_KEYS };
        let mut rows =
            vec![row(Verb::Get, 50, 1), row(Verb::Get, 400, 1), row(Verb::Get, 50, 16), row(Verb::Get, 400, 16)];
        rows.extend([row(Verb::Mset, 50, 1), row(Verb::Mset, 50, 16)]);
        rows
    }

    /// Requests of the first, short run from which the length of the others is derived.
    pub(crate) fn calibration_requests(&self) -> u64 {
        match (self.bytes, self.pipeline) {
            (bytes, _) if bytes > 4_096 => 3_000,
            (_, 1) => 20_000,
            _ => 100_000,
        }
    }
}

impl Row for RedisRow {
    fn id(&self) -> String {
        format!("{}-{}-c{}-p{}", self.verb.word(), short_size(self.bytes), self.connections, self.pipeline)
    }

    fn title(&self) -> String {
        let depth = if self.pipeline == 1 { "no pipeline".to_owned() } else { format!("pipeline {}", self.pipeline) };
        format!("{} {}, {} connections, {depth}", self.verb.title(), long_size(self.bytes), self.connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::named;

    #[test]
    fn the_table_has_each_row_once() {
        for (all, count) in [(RedisRow::all(), 9), (RedisRow::all_over_shards(), 6)] {
            let mut ids: Vec<String> = all.iter().map(Row::id).collect();
            assert_eq!(ids.len(), count);
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), count);
        }
    }

    #[test]
    fn rows_are_chosen_by_parts_of_their_id() {
        let chosen = |words: &str| named(words, &RedisRow::all()).unwrap().iter().map(Row::id).collect::<Vec<_>>();
        assert_eq!(chosen("get-64-c50, 64k"), ["get-64-c50-p1", "get-64-c50-p16", "get-64k-c50-p1"]);
        assert_eq!(chosen("get-64-c50-p1"), ["get-64-c50-p1"], "a whole id names one row only");
        assert!(named("get,hset", &RedisRow::all()).unwrap_err().to_string().contains("`hset`"));
    }
}
