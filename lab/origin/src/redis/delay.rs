//! A connection whose replies are held back. Requests go on being read and carried out when they arrive; a reply leaves
//! when it is due, so that a delay is a delay and not a lower rate.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    task::Poll,
};

use weir_base::Time;
use weir_engine::{Chunk, Reader, Stream, sleep};

use super::{
    connection::HIGH_WATER_BYTES,
    core::Core,
    requests::{Progress, Requests},
    session::Session,
};

/// Replies that are not due yet, in order.
#[derive(Default)]
struct Held {
    replies: VecDeque<(Time, Vec<u8>)>,
    bytes: usize,
    timer: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Held {
    fn push(&mut self, due: Time, reply: Vec<u8>) {
        if !reply.is_empty() {
            self.bytes += reply.len();
            self.replies.push_back((due, reply));
        }
    }

    /// The first reply, if it is due.
    fn pop(&mut self, now: Time) -> Option<Vec<u8>> {
        let (due, _) = self.replies.front()?;
        if *due > now {
            return None;
        }
        let (_, reply) = self.replies.pop_front()?;
        self.bytes -= reply.len();
        Some(reply)
    }
}

enum Event {
    Input(io::Result<Option<Chunk>>),
    Due,
}

/// As the exchange of an undelayed connection.
pub async fn exchange(core: &Core, session: &mut Session, stream: &mut Stream) -> io::Result<()> {
    let mut requests = Requests::new(core.memory.clone());
    let mut held = Held::default();
    let mut progress = Progress::Done;
    let mut has_input = true;
    while !stream.output.is_closed() {
        if stream.output.is_congested() {
            stream.output.relieved().await;
            continue;
        }
        let has_room = held.bytes < HIGH_WATER_BYTES;
        if progress == Progress::Congested && has_room {
            let mut reply = Vec::new();
            progress = requests.resume(core, session, &mut reply);
            held.push(due(core), reply);
            continue;
        }
        let reads = has_room && has_input && progress == Progress::Done && !session.is_closing;
        if !reads && held.replies.is_empty() {
            return Ok(());
        }
        match next(&mut stream.reader, reads, &mut held).await {
            Event::Due => {
                while let Some(reply) = held.pop(Time::now()) {
                    stream.output.append(&reply);
                }
            }
            Event::Input(chunk) => match chunk? {
                None => has_input = false,
                Some(chunk) => {
                    let mut reply = Vec::new();
                    progress = requests.answer(&chunk, core, session, &mut reply);
                    held.push(due(core), reply);
                }
            },
        }
    }
    Ok(())
}

fn due(core: &Core) -> Time {
    core.settings.faults.due(core.start, Time::now())
}

/// The next chunk, if `reads`, or the time of the first held reply.
async fn next(reader: &mut Reader, reads: bool, held: &mut Held) -> Event {
    poll_fn(|context| {
        if let Some((due, _)) = held.replies.front() {
            let due = *due;
            let timer = held.timer.get_or_insert_with(|| Box::pin(sleep(due.since(Time::now()))));
            if timer.as_mut().poll(context).is_ready() {
                held.timer = None;
                return Poll::Ready(Event::Due);
            }
        }
        match reads {
            true => reader.poll_receive(context).map(Event::Input),
            false => Poll::Pending,
        }
    })
    .await
}
