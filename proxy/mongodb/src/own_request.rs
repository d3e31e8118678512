//! Requests of the gateway's own to a server: one at a time, each with a whole reply.

use std::io;

use weir_engine::Stream;
use weir_mongodb_codec::{
    MessageError,
    bson::Writer,
    frame::Framer,
    message::{self, Flags, Ids, Message},
    reply::Reply,
};
use weir_mongodb_session::{pins::Cleanup, server_hello::ServerHello};

/// Bytes of a reply. Default 64 KiB: hello of a set with 50 members has about 5 KiB, all others less.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// The id of each request: it is alone on its connection.
const ID: i32 = 1;
/// Code of a server that does not have the command.
const COMMAND_NOT_FOUND: i32 = 59;

/// The id of a ping behind a request that wants no reply: none of these, the ids of such requests whose replies may come all the same. A
/// client chooses the id of its request, and the reply to it must not pass for the reply to the ping.
pub(crate) fn ping_id(taken: &[i32]) -> i32 {
    // Drivers count from 1.
    (i32::MIN + 1..=i32::MAX).find(|id| !taken.contains(id)).unwrap_or(i32::MIN)
}

/// Says hello without a word about the gateway, which a server takes once at most. `is_legacy` becomes true if the server knows isMaster
/// alone.
///
/// # Errors
/// The connection broke, or the server refused or broke a rule.
pub(crate) async fn hello(stream: &mut Stream, is_legacy: &mut bool) -> io::Result<ServerHello> {
    loop {
        let name = if *is_legacy { "isMaster" } else { "hello" };
        send(stream, |body| body.int32(name, 1));
        let bytes = whole_reply(stream).await?;
        let body = Message::read(&bytes).map_err(io::Error::other)?.body;
        let reply = Reply::read(body).map_err(io::Error::other)?;
        match reply.code {
            _ if reply.is_ok => return ServerHello::read(body).map_err(io::Error::other),
            Some(COMMAND_NOT_FOUND) if !*is_legacy => *is_legacy = true,
            _ => return Err(io::Error::other("the server refused the hello")),
        }
    }
}

/// A ping, which every user may send.
///
/// # Errors
/// As [`hello`].
pub(crate) async fn ping(stream: &mut Stream) -> io::Result<()> {
    send(stream, |body| body.int32("ping", 1));
    let bytes = whole_reply(stream).await?;
    let body = Message::read(&bytes).map_err(io::Error::other)?.body;
    let reply = Reply::read(body).map_err(io::Error::other)?;
    if reply.is_ok { Ok(()) } else { Err(io::Error::other("the server refused the ping")) }
}

/// Appends a ping with this id.
pub(crate) fn write_ping(out: &mut Vec<u8>, id: i32) {
    message::write(out, Ids { request: id, response_to: 0 }, Flags::empty(), |body| {
        body.int32("ping", 1);
        body.string("$db", "admin");
    });
}

/// Looks for the reply to the ping with this id, and takes it and all messages in front of it away: some servers answer requests that want no
/// reply. `true`: it was there.
///
/// # Errors
/// The server broke a rule, or such a message is too long.
pub(crate) fn take_ping_reply(received: &mut Vec<u8>, id: i32) -> Result<bool, MessageError> {
    while let Some(piece) = Framer::default().next(received)? {
        if piece.header.bytes > REPLY_BYTES_MAX {
            return Err(MessageError::Length { claimed: piece.header.bytes as i32 });
        }
        if !piece.is_whole() {
            return Ok(false);
        }
        received.drain(..piece.bytes);
        if piece.header.response_to == id {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits until a server has done all that was sent to it, and nothing of it is left on the connection. `taken`: ids of requests to which
/// replies may come.
///
/// # Errors
/// As [`hello`].
pub(crate) async fn settle(stream: &mut Stream, taken: &[i32]) -> io::Result<()> {
    let id = ping_id(taken);
    stream.output.with(|out| write_ping(out, id));
    let mut received = Vec::new();
    loop {
        match stream.reader.receive().await? {
            Some(chunk) => received.extend_from_slice(&chunk),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        if take_ping_reply(&mut received, id).map_err(io::Error::other)? {
            let text = "the server speaks behind its reply";
            return if received.is_empty() { Ok(()) } else { Err(io::Error::other(text)) };
        }
    }
}

/// Ends a cursor or a transaction. Whether the server still had it is of no interest.
///
/// # Errors
/// The connection broke, or the server broke a rule.
pub(crate) async fn clean(stream: &mut Stream, cleanup: &Cleanup) -> io::Result<()> {
    stream.output.with(|out| cleanup.write(out, ID));
    whole_reply(stream).await.map(drop)
}

fn send(stream: &Stream, body: impl FnOnce(&mut Writer<'_>)) {
    stream.output.with(|out| {
        message::write(out, Ids { request: ID, response_to: 0 }, Flags::empty(), |writer| {
            body(writer);
            writer.string("$db", "admin");
        });
    });
}

/// One whole message and nothing behind it.
async fn whole_reply(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    loop {
        match stream.reader.receive().await? {
            Some(chunk) => received.extend_from_slice(&chunk),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let Some(piece) = Framer::default().next(&received).map_err(io::Error::other)? else { continue };
        let is_reply = piece.header.response_to == ID && piece.header.bytes <= REPLY_BYTES_MAX;
        if !is_reply || received.len() > piece.header.bytes {
            return Err(io::Error::other("the server broke a rule of the protocol"));
        }
        if piece.is_whole() {
            return Ok(received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_chooses_the_id_of_a_ping() {
        for request in [0, 1, -1, i32::MIN, i32::MIN + 1, i32::MIN + 2, i32::MAX] {
            let barrier = ping_id(&[request]);
            let reset = ping_id(&[request, barrier]);
            assert!(barrier != request && reset != request && reset != barrier, "{request}");
        }
    }
}
