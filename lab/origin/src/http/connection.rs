//! One connection: which protocol it speaks, then chunks in and replies out.

use std::{io, rc::Rc, time::Duration};

use socket2::Socket;
use weir_base::{Time, limits};
use weir_engine::{Stream, StreamOptions, Watermarks, spawn};
use weir_http2_codec::PREFACE;

use super::{
    http2,
    session::{Progress, Replies, Session},
};
use crate::{
    delayed_replies::{DelayedReplies, Event},
    server::{Open, add},
};

/// Unsent bytes of replies at which a client stops being read.
pub const HIGH_WATER_BYTES: usize = limits::WRITE_HIGH_WATER_BYTES as usize;

/// How long the last replies may take to leave a connection that ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves an accepted socket on this worker.
pub fn admit(replies: &Rc<Replies>, socket: Socket) {
    let marks = Watermarks { high: HIGH_WATER_BYTES, low: limits::WRITE_LOW_WATER_BYTES as usize };
    // A socket that refuses its options has lost its peer.
    let Ok(stream) = Stream::new(socket, StreamOptions { marks }) else { return };
    add(&replies.stats.accepted, 1);
    spawn(serve(replies.clone(), stream)).detach();
}

async fn serve(replies: Rc<Replies>, mut stream: Stream) {
    let open = Open::new(&replies.stats, replies.connections_max);
    if open.is_none() {
        stream.output.with(|out| Replies::refuse(503, out));
        return stream.close(CLOSE_TIMEOUT).await;
    }
    match first(&mut stream).await {
        Ok(First { is_http2: true, received }) => {
            http2::serve(&replies, &mut stream, &received).await;
            stream.close(CLOSE_TIMEOUT).await;
        }
        Ok(First { received, .. }) => {
            // An error means that the client is gone: no one is left to report it to.
            drop(match replies.delay.is_zero() {
                true => exchange(&replies, &mut stream, &received).await,
                false => delayed(&replies, &mut stream, &received).await,
            });
            stream.close(CLOSE_TIMEOUT).await;
        }
        Err(_) => stream.close(CLOSE_TIMEOUT).await,
    }
}

/// The first bytes of a client.
struct First {
    is_http2: bool,
    received: Vec<u8>,
}

/// Reads until it is known which version of HTTP the client speaks.
async fn first(stream: &mut Stream) -> io::Result<First> {
    let mut received = Vec::new();
    while let Some(chunk) = stream.reader.receive().await? {
        received.extend_from_slice(&chunk);
        let is_http2 = received.starts_with(PREFACE);
        if is_http2 || !PREFACE.starts_with(&received) {
            return Ok(First { is_http2, received });
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Responds until either side ends the connection. All requests of a chunk are answered in one run of appends, which leave in
/// one send at the end of the loop turn.
async fn exchange(replies: &Replies, stream: &mut Stream, received: &[u8]) -> io::Result<()> {
    let mut session = Session::default();
    let mut progress = stream.output.with(|out| session.respond(received, replies, out));
    loop {
        while stream.output.is_congested() {
            stream.output.relieved().await;
            if stream.output.is_closed() {
                return Ok(());
            }
            if progress == Progress::Congested {
                progress = stream.output.with(|out| session.respond(&[], replies, out));
            }
        }
        if progress == Progress::Ended {
            return Ok(());
        }
        let Some(chunk) = stream.reader.receive().await? else { return Ok(()) };
        progress = stream.output.with(|out| session.respond(&chunk, replies, out));
    }
}

/// The same, where what a chunk is answered with leaves after the delay.
async fn delayed(replies: &Replies, stream: &mut Stream, received: &[u8]) -> io::Result<()> {
    let due = || Time::now().saturating_add(replies.delay);
    let (mut session, mut held, mut reply) = (Session::default(), DelayedReplies::default(), Vec::new());
    let mut progress = session.respond(received, replies, &mut reply);
    held.push(due(), reply);
    let mut has_input = true;
    while !stream.output.is_closed() {
        if stream.output.is_congested() {
            stream.output.relieved().await;
            continue;
        }
        let has_room = held.bytes < HIGH_WATER_BYTES;
        if progress == Progress::Congested && has_room {
            let mut reply = Vec::new();
            progress = session.respond(&[], replies, &mut reply);
            held.push(due(), reply);
            continue;
        }
        let reads = has_room && has_input && progress == Progress::Done;
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
                    progress = session.respond(&chunk, replies, &mut reply);
                    held.push(due(), reply);
                }
            },
        }
    }
    Ok(())
}
