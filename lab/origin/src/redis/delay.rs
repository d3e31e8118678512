//! A connection whose replies are held back.

use std::io;

use weir_base::Time;
use weir_engine::Stream;

use super::{
    connection::HIGH_WATER_BYTES,
    core::Core,
    requests::{Progress, Requests},
    session::Session,
};
use crate::delayed_replies::{DelayedReplies, Event};

/// As the exchange of an undelayed connection.
pub async fn exchange(core: &Core, session: &mut Session, stream: &mut Stream) -> io::Result<()> {
    let mut requests = Requests::new(core.memory.clone());
    let mut held = DelayedReplies::default();
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
        if !reads && held.is_empty() {
            return Ok(());
        }
        match held.next(&mut stream.reader, reads).await {
            Event::Due => {
                while let Some(reply) = held.pop(Time::now()) {
                    stream.output.append(&reply);
                }
            }
            Event::Input(chunk) => match chunk? {
                None => has_input = false,
                Some(chunk) => {
                    let mut reply = Vec::new();
                    progress = requests.execute(&chunk, core, session, &mut reply);
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
