//! One request on a connection of its own: made, used and ended.

use std::rc::Rc;
use std::time::Duration;

use super::connection::{self, Line, Refusal};
use super::generator::{Generator, Slot};
use super::tally::End;
use crate::protocols::Seat;
use crate::reply::{Reply, ReplyKind};

/// For the last bytes of a connection to leave. Default 1 s: they are few, and the kernel has room for them.
const FAREWELL: Duration = Duration::from_secs(1);

/// Sends request `index`, which begins now with its connection.
pub(super) async fn visit(generator: Rc<Generator>, slot: Slot, index: u64) {
    let visit = Visit { at: slot.link, index, generator: &generator };
    let seat = Seat { shard: generator.shard, at: visit.at };
    match connection::connect(&generator.target, &generator.scenario, seat).await {
        Ok(line) => visit.exchange(line).await,
        Err(Refusal::Connect(_)) => visit.end(End::Lost),
        Err(Refusal::Protocol(why)) => {
            let kind = ReplyKind::Error(why.as_bytes());
            visit.end(End::Reply(Reply { kind, body: None }));
        }
    }
    generator.bell.ring();
}

struct Visit<'a> {
    generator: &'a Generator,
    at: usize,
    index: u64,
}

impl Visit<'_> {
    /// Only the first end counts.
    fn end(&self, end: End<'_>) {
        self.generator.end_visit(self.at, self.index, end);
    }

    async fn exchange(&self, line: Line) {
        let Line { mut stream, mut wire } = line;
        let (mut out, mut is_complete) = (self.generator.requests.bytes(self.index).to_vec(), false);
        while !is_complete {
            self.generator.sent(out.len());
            stream.output.append(&out);
            out.clear();
            let Ok(Some(chunk)) = stream.reader.receive().await else {
                let finished = wire.finish(&mut |_, reply| {
                    self.end(End::Reply(reply));
                    Ok(())
                });
                return self.end(if finished.is_ok() { End::Lost } else { End::Protocol });
            };
            self.generator.received(chunk.len());
            let taken = wire.take(&chunk, &mut out, &mut |_, reply| {
                if reply.kind == ReplyKind::Event {
                    self.generator.note_visit_event(self.at, self.index);
                    return Ok(());
                }
                self.end(End::Reply(reply));
                is_complete = true;
                Ok(())
            });
            if taken.is_err() {
                return self.end(End::Protocol);
            }
        }
        stream.output.append(wire.farewell());
        self.generator.bell.ring();
        stream.close(FAREWELL).await;
    }
}
