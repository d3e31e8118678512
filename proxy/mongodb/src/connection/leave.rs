//! The end of a session: a reply that its client will not see is read to its end, and what the client has left behind is given back.

use std::time::Duration;

use weir_base::{error::Culprit, exchange::LossCause, violation::Violation};
use weir_engine::timeout;
use weir_mongodb_codec::{frame::Framer, header::HEADER_BYTES, reply::ReplyFollower};
use weir_mongodb_session::{AfterReply, Leave, Session};
use weir_upstream::pooled::Condition;

use super::{lease::Link, life::Life, surroundings::Scene};
use crate::upstream::MongodbUpstream;
use std::rc::Rc;

/// The time for the rest of such a reply. Default 10 s: a server that is still at work then works for nobody, and its connection is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A session without a client.
struct Remains {
    session: Session,
    scene: Scene,
    upstream: Rc<MongodbUpstream>,
    server: Link,
    framer: Framer,
    follower: Option<ReplyFollower>,
    head: Vec<u8>,
}

impl Life<'_> {
    /// The client is gone, or its connection ends.
    pub(super) fn leave(self: Box<Self>) {
        let is_sent = matches!(self.stage, super::life::Stage::Replying);
        let Self { mut session, scene, upstream, mut lease, connection, .. } = *self;
        let entry = connection.handle.entry();
        entry.wait(None);
        entry.let_go();
        let leave = session.on_gone(is_sent, &scene.io(None));
        let server = lease.server.take();
        match (leave, server) {
            (Leave::Drain, Some(mut server)) => {
                server.stream().output.charge_to(None);
                let (framer, follower, head) = (lease.framer, lease.follower.take(), std::mem::take(&mut lease.head));
                let remains = Remains { session, scene, upstream, server, framer, follower, head };
                weir_engine::spawn(remains.drain()).detach();
            }
            (_, server) => {
                if let Some(server) = server {
                    server.close(LossCause::Retired);
                }
                scene.service.clean(&upstream, session.cleanups());
            }
        }
    }
}

impl Remains {
    async fn drain(mut self) {
        let is_whole = matches!(timeout(DRAIN_TIMEOUT, self.read()).await, Ok(true));
        let Self { mut session, scene, upstream, server, .. } = self;
        match server {
            Link::Pooled(server) if is_whole => server.give_back(Condition::Clean),
            server => {
                session.on_server_lost(true, &scene.io(None), &mut Vec::new());
                server.close(LossCause::Retired);
            }
        }
        scene.service.clean(&upstream, session.cleanups());
    }

    /// Reads to the end of the exchange; true: the connection may serve another client.
    async fn read(&mut self) -> bool {
        loop {
            let Ok(Some(chunk)) = self.server.stream().reader.receive().await else { return false };
            let mut bytes = std::mem::take(&mut self.head);
            bytes.extend_from_slice(&chunk);
            match self.take(&bytes) {
                Ok(None) => {}
                Ok(Some(rest)) => return rest == 0,
                Err(violation) => {
                    debug_assert_eq!(violation.culprit, Culprit::Upstream);
                    return false;
                }
            }
        }
    }

    /// Takes pieces of replies. `Some`: the exchange is over, and so many bytes are behind it.
    fn take(&mut self, mut bytes: &[u8]) -> Result<Option<usize>, Violation> {
        while !bytes.is_empty() {
            let next = self.framer.next(bytes).map_err(|error| error.violation(Culprit::Upstream))?;
            let Some(piece) = next else {
                debug_assert!(bytes.len() < HEADER_BYTES, "only a header waits");
                self.head.extend_from_slice(bytes);
                return Ok(None);
            };
            let (part, rest) = bytes.split_at(piece.bytes);
            if piece.is_start {
                self.session.on_reply_head(&piece.header)?;
                self.follower = Some(ReplyFollower::new(&piece.header));
            }
            let Some(follower) = &mut self.follower else { return Ok(Some(usize::MAX)) };
            follower.take(part).map_err(|error| error.violation(Culprit::Upstream))?;
            if piece.is_end() {
                let text = "the reply ends inside of its body";
                let short = || Violation::rule("mongodb_reply_short", Culprit::Upstream, text);
                let (flags, reply) = follower.reply().ok_or_else(short)?;
                let after = self.session.on_reply(&piece.header, flags, &reply, &self.scene.io(None))?;
                if after == AfterReply::Return {
                    return Ok(Some(rest.len()));
                }
            }
            bytes = rest;
        }
        Ok(None)
    }
}
