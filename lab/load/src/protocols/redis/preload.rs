//! The keys of the key space, written before the run.

use std::ops::Range;
use std::time::Duration;

use weir_engine::{Stream, timeout};
use weir_resp::encode;

use super::names::{Names, Space};
use super::wire;
use crate::protocols;
use crate::scenario::Scenario;
use crate::shard::Shard;
use crate::values::{Generation, Values};
use crate::wire::{Pending, StreamError};

/// SETs under way at a time, and their bytes: one round trip for each batch.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 1 << 20;
/// For the replies to one batch. Default 10 s.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The SETs that fill the key space before the run. Every shard writes the keys that it is given.
#[derive(Debug)]
pub(crate) struct Preload {
    names: Names,
    values: Values,
    next: Range<u64>,
    step: u64,
    /// The longest reply that is kept whole.
    bytes_max: usize,
}

impl Preload {
    /// The keys of `shard`; none if the scenario does not preload. All shards together write each key once.
    pub(crate) fn new(scenario: &Scenario, shard: Shard) -> Self {
        let end = if scenario.keys.preload { scenario.keys.count } else { 0 };
        Self {
            names: Names::new(scenario),
            values: Values::new(scenario.seed, &scenario.payload),
            next: u64::from(shard.index())..end,
            step: u64::from(shard.of()),
            bytes_max: wire::Replies::bytes_max(scenario),
        }
    }

    /// Appends the next SET; false if there is none. Its reply is `+OK`.
    pub(crate) fn write_next(&mut self, out: &mut Vec<u8>) -> bool {
        if self.next.is_empty() {
            return false;
        }
        let key = self.next.start;
        self.next.start += self.step;
        let (mut name, mut value) = (Vec::new(), Vec::new());
        self.names.write(Space::Strings, key, &mut name);
        self.values.write(key, Generation::PRELOADED, &mut value);
        encode::command(out, [b"SET", &name[..], &value]);
        true
    }

    async fn write_all(&mut self, stream: &mut Stream) -> Result<(), String> {
        let mut replies = wire::Replies::new(self.bytes_max);
        loop {
            let mut wanted = 0;
            stream.output.with(|out| {
                while wanted < BATCH && out.len() < BATCH_BYTES && self.write_next(out) {
                    wanted += 1;
                }
            });
            if wanted == 0 {
                return Ok(());
            }
            let mut refusal = None;
            while wanted > 0 {
                let chunk = timeout(TIMEOUT, stream.reader.receive()).await;
                let chunk = chunk.map_err(|_| format!("no reply within {TIMEOUT:?}"))?;
                let chunk = chunk.map_err(|error| error.to_string())?.ok_or("it closed the connection")?;
                let each = |reply: &[u8]| {
                    if reply != b"+OK\r\n" {
                        refusal = Some(String::from_utf8_lossy(reply).trim_end().to_owned());
                    }
                    wanted = usize::checked_sub(wanted, 1).ok_or(StreamError)?;
                    Ok(())
                };
                replies.each(&chunk, each).map_err(|StreamError| "its reply is not RESP".to_owned())?;
            }
            if let Some(reply) = refusal {
                return Err(format!("it replied {reply:?} to a SET"));
            }
        }
    }
}

impl protocols::Preload for Preload {
    fn left(&self) -> u64 {
        self.next.end.saturating_sub(self.next.start).div_ceil(self.step)
    }

    fn write<'a>(&'a mut self, stream: &'a mut Stream) -> Pending<'a> {
        Box::pin(self.write_all(stream))
    }
}
