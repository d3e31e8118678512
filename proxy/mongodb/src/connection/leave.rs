//! The end of a session: a reply that its client will not see is read to its end, and the cursors and transactions of the client are given
//! back.

use std::{io, rc::Rc, time::Duration};

use weir_base::exchange::LossCause;
use weir_engine::timeout;
use weir_mongodb_codec::reply::Reply;
use weir_mongodb_session::{Leave, Session, pins::Cleanup};
use weir_upstream::pooled::Condition;

use super::{
    lease::Link,
    life::{Life, Stage},
    passthrough::OwnLine,
    replies::{Replies, Sink, Taken},
    surroundings::Scene,
};
use crate::{own_request, upstream::MongodbUpstream};

/// The time for the rest of such a reply. Default 10 s: a server that is still at work then works for no client, and its connection is
/// closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest silence within it. Default 250 ms: a server that works on for a client that is gone ends the operation when its connection
/// closes.
const SILENCE_MAX: Duration = Duration::from_millis(250);
/// Bytes of a compressed reply that is inflated without a client. Default 1 MiB: beyond, the connection is closed.
const INFLATED_BYTES_MAX: usize = 1024 * 1024;

/// The time for the cleanups of a client on its own connection to a server. Default 1 s: it has few, and the connection ends behind them.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(1);

/// A session without a client.
struct Remains {
    session: Session,
    scene: Scene,
    upstream: Rc<MongodbUpstream>,
    server: Link,
    replies: Replies,
}

impl Life<'_> {
    /// A request without a reply has gone, and no message of the server is here in part.
    fn is_settling(&self) -> bool {
        matches!(self.stage, Stage::Flushing) && self.lease.relay_reply.is_empty()
    }

    /// The client is gone, or its connection ends.
    pub(super) fn leave(self: Box<Self>) {
        let (is_sent, is_flushing) = (matches!(self.stage, Stage::Replying), self.is_settling());
        let Self { mut session, scene, upstream, mut lease, connection, .. } = *self;
        let entry = connection.handle.entry();
        entry.wait(None);
        entry.let_go();
        let leave = session.on_gone(is_sent, &scene.io(None));
        let server = lease.server.take();
        match (leave, server) {
            (Leave::Drain, Some(mut server)) => {
                server.stream().output.charge_to(None);
                let replies = std::mem::take(&mut lease.replies);
                let remains = Remains { session, scene, upstream, server, replies };
                weir_engine::spawn(remains.drain()).detach();
            }
            (_, server) => {
                scene.service.leave(&upstream);
                match server {
                    // A write without a reply is on its way: the pool waits until the server has done it.
                    Some(Link::Pooled(mut server)) if is_flushing => {
                        server.state().unsettled = [lease.request_id, lease.barrier_id()];
                        server.give_back(Condition::Dirty);
                    }
                    Some(server) => server.close(LossCause::Retired),
                    None => {}
                }
                let cleanups = session.cleanups();
                match lease.own.take().filter(|_| !cleanups.is_empty()) {
                    Some(line) => weir_engine::spawn(clean_up(line, cleanups)).detach(),
                    None => scene.service.clean(&upstream, cleanups),
                }
            }
        }
    }
}

/// Gives back the cursors and transactions that a client has left at the server at which it has logged in itself: no other connection may do that.
async fn clean_up(mut line: Box<OwnLine>, cleanups: Vec<Cleanup>) {
    let server = line.server;
    let all = async {
        for cleanup in cleanups.iter().filter(|cleanup| cleanup.server() == server) {
            own_request::clean(&mut line.stream, cleanup).await?;
        }
        io::Result::Ok(())
    };
    // The rest is left to the server, which ends it by its own time.
    let _ = timeout(CLEANUP_TIMEOUT, all).await;
}

impl Remains {
    async fn drain(mut self) {
        let is_whole = matches!(timeout(DRAIN_TIMEOUT, self.read()).await, Ok(true));
        let Self { mut session, scene, upstream, server, .. } = self;
        // A transaction that it has begun is at a server that its listener may have left.
        scene.service.leave(&upstream);
        match server {
            Link::Pooled(server) if is_whole => server.give_back(Condition::Clean),
            Link::Own(line) if is_whole => return clean_up(line, session.cleanups()).await,
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
            let received = timeout(SILENCE_MAX, self.server.stream().reader.receive()).await;
            let Ok(Ok(Some(chunk))) = received else { return false };
            match self.replies.take(&chunk, &mut self.session, &self.scene, &mut Nobody) {
                Ok(Taken::More) => {}
                Ok(Taken::Over { is_followed }) => return !is_followed,
                Err(_) => return false,
            }
        }
    }
}

/// The bytes are of no use.
struct Nobody;

impl Sink for Nobody {
    fn pass(&mut self, _: &[u8]) {}

    fn ended(&mut self, _: &Reply) {}

    fn has_room_for(&mut self, bytes: usize) -> bool {
        bytes <= INFLATED_BYTES_MAX
    }
}
