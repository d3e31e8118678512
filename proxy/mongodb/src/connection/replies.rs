//! The replies of one exchange, from the bytes of a server: whole ones, long ones in pieces, compressed ones.
//!
//! The session hears of a reply's header before the client gets its first byte, and of its end before the client gets its last one. A long
//! reply is never held; a compressed one is, as its facts are inside, and passes as it came where the client has its compressor.

use weir_base::{error::Culprit, violation::Violation};
use weir_mongodb_codec::{
    MessageError,
    compressed::{Compressed, Compressor},
    frame::{Framer, Piece},
    header::{HEADER_BYTES, Header, OpCode},
    message::{Flags, Message},
    reply::{Reply, ReplyFollower},
};
use weir_mongodb_session::{AfterReply, Session};

use super::surroundings::Scene;

/// The other end of replies.
pub(super) trait Sink {
    /// The next bytes for the client.
    fn pass(&mut self, bytes: &[u8]);
    /// A reply is whole. Its last bytes follow.
    fn ended(&mut self, reply: &Reply);
    /// The byte budget has room for a compressed reply of this size, or for one that is inflated.
    fn has_room_for(&mut self, bytes: usize) -> bool;
}

/// The result of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The exchange goes on.
    More,
    /// It is over. `is_followed`: the server speaks on, unasked.
    Over { is_followed: bool },
}

/// See above.
#[derive(Default)]
pub(super) struct Replies {
    framer: Framer,
    follower: Option<ReplyFollower>,
    /// The beginning of a header, or of a compressed reply.
    held: Vec<u8>,
    /// The compressor of the request: the client has it.
    compressor: Option<Compressor>,
    /// A part of the present reply has gone to the client.
    is_begun: bool,
}

fn broken(error: MessageError) -> Violation {
    error.violation(Culprit::Upstream)
}

/// A compressed reply, or the message in it, may have this size.
fn check_room(sink: &mut impl Sink, bytes: usize) -> Result<(), Violation> {
    if sink.has_room_for(bytes) {
        return Ok(());
    }
    let text = "the byte budget has no room for a compressed reply";
    let bytes = bytes as u64;
    Err(Violation::limit("buffered_bytes", Culprit::Upstream, text, bytes, bytes))
}

impl Replies {
    /// Another exchange begins, with a request that was compressed so.
    pub(super) fn begin(&mut self, compressor: Option<Compressor>) {
        (self.framer, self.follower, self.compressor) = (Framer::default(), None, compressor);
        self.is_begun = false;
        self.held.clear();
    }

    /// A part of a reply has gone to the client, and not its end.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Bytes of the present reply that are still to come; `None`: none has begun, or its length is not known yet.
    pub(super) fn left(&self) -> Option<usize> {
        (!self.framer.is_between_messages()).then(|| self.framer.left())
    }

    /// Bytes that are held.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// The next bytes of the server.
    ///
    /// # Errors
    /// The server broke a rule, or the budget has no room.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        session: &mut Session,
        scene: &Scene,
        sink: &mut impl Sink,
    ) -> Result<Taken, Violation> {
        if self.framer.is_between_messages() && !self.held.is_empty() {
            let mut head = std::mem::take(&mut self.held);
            let missing = HEADER_BYTES.saturating_sub(head.len()).min(bytes.len());
            head.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            // No message ends with its header.
            self.take_from(&head, session, scene, sink)?;
        }
        self.take_from(bytes, session, scene, sink)
    }

    #[inline]
    fn take_from(
        &mut self,
        mut bytes: &[u8],
        session: &mut Session,
        scene: &Scene,
        sink: &mut impl Sink,
    ) -> Result<Taken, Violation> {
        while !bytes.is_empty() {
            let Some(piece) = self.framer.next(bytes).map_err(broken)? else {
                self.held.extend_from_slice(bytes);
                return Ok(Taken::More);
            };
            let (part, rest) = bytes.split_at(piece.bytes);
            let is_over = match piece.header.op_code {
                OpCode::Compressed => self.take_packed(&piece, part, session, scene, sink)?,
                _ if piece.is_whole() => take_whole(part, session, scene, sink)?,
                _ => self.take_piece(&piece, part, session, scene, sink)?,
            };
            if is_over {
                return Ok(Taken::Over { is_followed: !rest.is_empty() });
            }
            bytes = rest;
        }
        Ok(Taken::More)
    }

    /// A piece of a long reply.
    fn take_piece(
        &mut self,
        piece: &Piece,
        part: &[u8],
        session: &mut Session,
        scene: &Scene,
        sink: &mut impl Sink,
    ) -> Result<bool, Violation> {
        if piece.is_start {
            session.on_reply_head(&piece.header)?;
            self.follower = Some(ReplyFollower::new(&piece.header));
        }
        let Some(follower) = &mut self.follower else { return Err(broken(MessageError::Short)) };
        follower.take(part).map_err(broken)?;
        let mut is_over = false;
        if piece.is_end() {
            let (flags, reply) = follower.reply().ok_or_else(|| broken(MessageError::Short))?;
            self.follower = None;
            is_over = end(&piece.header, flags, &reply, session, scene, sink)?;
        }
        self.is_begun = !piece.is_end();
        sink.pass(part);
        Ok(is_over)
    }

    /// A piece of a compressed reply.
    fn take_packed(
        &mut self,
        piece: &Piece,
        part: &[u8],
        session: &mut Session,
        scene: &Scene,
        sink: &mut impl Sink,
    ) -> Result<bool, Violation> {
        if self.compressor.is_none() {
            return Err(broken(MessageError::OpCode(piece.header.op_code.number())));
        }
        if !piece.is_whole() {
            // A reply that finds no room in the end is not held as far as it comes.
            if piece.is_start {
                check_room(sink, piece.header.bytes)?;
            }
            self.held.extend_from_slice(part);
            if !piece.is_end() {
                return Ok(false);
            }
        }
        let whole = std::mem::take(&mut self.held);
        let packed = if piece.is_whole() { part } else { &whole };
        let compressed = Compressed::read(packed).map_err(broken)?;
        check_room(sink, compressed.inflated)?;
        let mut message = Vec::new();
        compressed.inflate(&mut message).map_err(|error| error.violation(Culprit::Upstream))?;
        if self.compressor != Some(compressed.compressor) {
            return take_whole(&message, session, scene, sink);
        }
        // The client inflates the reply itself.
        let is_over = look_at(&message, session, scene, sink)?;
        sink.pass(packed);
        Ok(is_over)
    }
}

/// A reply that is here whole.
#[inline]
fn take_whole(message: &[u8], session: &mut Session, scene: &Scene, sink: &mut impl Sink) -> Result<bool, Violation> {
    let is_over = look_at(message, session, scene, sink)?;
    sink.pass(message);
    Ok(is_over)
}

#[inline]
fn look_at(message: &[u8], session: &mut Session, scene: &Scene, sink: &mut impl Sink) -> Result<bool, Violation> {
    let header = Header::read(message).map_err(broken)?.ok_or_else(|| broken(MessageError::Short))?;
    session.on_reply_head(&header)?;
    let Message { header, flags, body, .. } = Message::read(message).map_err(broken)?;
    let reply = Reply::read(body).map_err(|error| error.violation(Culprit::Upstream))?;
    end(&header, flags, &reply, session, scene, sink)
}

/// A reply is whole; true: no other one follows.
#[inline]
fn end(
    header: &Header,
    flags: Flags,
    reply: &Reply,
    session: &mut Session,
    scene: &Scene,
    sink: &mut impl Sink,
) -> Result<bool, Violation> {
    let after = session.on_reply(header, flags, reply, &scene.io(None))?;
    sink.ended(reply);
    Ok(after == AfterReply::Return)
}
