//! LISTEN and NOTIFY of a client whose server changes with each transaction.
//!
//! One connection listens for all clients (`notify`, and the shell's hub). LISTEN goes to no other server. Outside of a transaction the
//! gateway replies itself. Elsewhere the server gets UNLISTEN of a channel that does not exist instead: so it decides whether the
//! statement works, and at its place. The hub has the channel before that, and the client gets its notifications from the commit on.
//!
//! A client with channels that notifies may be its own audience. PostgreSQL delivers such notifications before ReadyForQuery, with the
//! client's own process number. Two fences of the hub bring this about: behind the first, what comes from the process of the client's server is
//! the client's own; ReadyForQuery waits for the second.

use std::borrow::Cow;
use std::collections::HashSet;

use weir_analysis::postgres::Effect;
use weir_postgres_codec::{
    TransactionStatus,
    backend::{self, ErrorReport, Severity},
    frame::Head,
    sqlstate,
};

use crate::client::Turn;
use crate::facts::Facts;
use crate::io::{Channel, Event, Io, News};
use crate::server::ServerState;
use crate::session::{Next, Session};
use crate::statements::Statement;
use crate::variables::Value;

/// The command tag of the statement.
pub(crate) const LISTEN: &[u8] = b"LISTEN";

/// A change that its transaction decides about.
#[derive(Debug)]
pub(crate) enum Change {
    Listen(Box<[u8]>),
    Unlisten(Box<[u8]>),
    UnlistenAll,
}

/// A fence of the hub that the session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// In front of a statement that notifies.
    Before,
    /// Behind the transaction: so many ReadyForQuery wait for it.
    After(u32),
}

/// Changes of a transaction below which none is looked for that is void: most transactions have one.
const CHANGES_MIN: usize = 64;

/// The channels of one client.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    channels: HashSet<Box<[u8]>>,
    /// Changes of the open transaction, each with the number of savepoints before it.
    changes: Vec<(usize, Change)>,
    /// So many of them are left behind the last look for those that later ones make void.
    needed: usize,
    /// Channels that the hub keeps for statements whose transaction is not over.
    reserved: Vec<Box<[u8]>>,
    /// The open transaction notifies.
    notifies: bool,
    /// News from this number on are the client's own if they come from the process of its server.
    own_from: Option<u64>,
    fence: Option<Fence>,
}

impl Listening {
    fn reserve(&mut self, channel: &[u8]) {
        if !self.reserved.iter().any(|reserved| **reserved == *channel) {
            self.reserved.push(channel.into());
        }
    }

    /// The transaction has committed.
    pub(crate) fn commit(&mut self, io: &impl Io) {
        let mut gone = Vec::new();
        for (_, change) in self.changes.drain(..) {
            match change {
                Change::Listen(channel) => drop(self.channels.insert(channel)),
                Change::Unlisten(channel) => gone.extend(self.channels.take(&channel)),
                Change::UnlistenAll => gone.extend(self.channels.drain()),
            }
        }
        let is_kept =
            |channel: &[u8]| self.channels.contains(channel) || self.reserved.iter().any(|kept| **kept == *channel);
        gone.iter().filter(|channel| !is_kept(channel)).for_each(|channel| io.unlisten(channel));
    }

    fn note(&mut self, savepoints: usize, change: Change) {
        self.changes.push((savepoints, change));
        if self.changes.len() < CHANGES_MIN.max(2 * self.needed) {
            return;
        }
        // The last one of a channel counts, and none before the end of all, as far as they are rolled back together.
        let mut seen: HashSet<(usize, Option<Box<[u8]>>)> = HashSet::new();
        let mut kept = Vec::new();
        for (depth, change) in std::mem::take(&mut self.changes).into_iter().rev() {
            let channel = match &change {
                Change::Listen(channel) | Change::Unlisten(channel) => Some(channel.clone()),
                Change::UnlistenAll => None,
            };
            if !seen.contains(&(depth, None)) && seen.insert((depth, channel)) {
                kept.push((depth, change));
            }
        }
        kept.reverse();
        self.needed = kept.len();
        self.changes = kept;
    }

    /// The transaction was rolled back.
    pub(crate) fn roll_back(&mut self) {
        self.changes.clear();
    }

    /// ROLLBACK TO: so many savepoints are left, the last of them included.
    pub(crate) fn roll_back_to(&mut self, savepoints: usize) {
        self.changes.retain(|(depth, _)| *depth < savepoints);
    }

    /// RELEASE: so many savepoints are left.
    pub(crate) fn release_to(&mut self, savepoints: usize) {
        self.changes.iter_mut().for_each(|(depth, _)| *depth = savepoints.min(*depth));
    }

    /// No statement under way needs a channel.
    fn give_up_reserved(&mut self, io: &impl Io) {
        for channel in std::mem::take(&mut self.reserved) {
            if !self.channels.contains(&channel) {
                io.unlisten(&channel);
            }
        }
    }

    /// Messages behind a transaction that notifies wait for its end.
    #[inline]
    pub(crate) fn is_notifying(&self) -> bool {
        self.notifies
    }

    #[inline]
    pub(crate) fn waits_for_fence(&self) -> bool {
        self.fence.is_some()
    }
}

impl Session {
    /// Channels that the client listens to.
    pub fn channels(&self) -> usize {
        self.listening.as_ref().map_or(0, |listening| listening.channels.len())
    }

    /// The client would get its own notifications.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        self.channels() > 0
    }

    /// LISTEN of this client goes to the hub.
    #[inline]
    pub(crate) fn shares_listen(&self) -> bool {
        self.settings.shares_listen && self.is_multiplexed()
    }

    fn listening(&mut self) -> &mut Listening {
        self.listening.get_or_insert_default()
    }

    /// The encoding of the client; `None`: that of the server.
    fn encoding(&self, server: Option<&ServerState>) -> Option<Box<[u8]>> {
        let variables = server.map_or(&*self.variables, ServerState::variables);
        variables.get(b"client_encoding").map(|value| match value {
            Value::Literal(text) | Value::Expression(text) | Value::Config(text) => text.clone(),
        })
    }

    /// LISTEN and UNLISTEN alone in their text, outside of a transaction: they need no server.
    pub(crate) fn on_listen_statement<I: Io>(
        &mut self,
        facts: &Facts,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
    ) -> Option<Option<Next>> {
        if !self.shares_listen() {
            return None;
        }
        let command: &[u8] = match facts.only()? {
            Effect::Listen(channel) => {
                match turn.io.listen(channel, self.encoding(None).as_deref()) {
                    Channel::There => self.listening().channels.insert(channel.clone()),
                    Channel::Awaited => return Some(Some(Next::Wait)),
                    Channel::Refused(refusal) => {
                        self.refuse(&refusal, head, turn, None);
                        return Some(None);
                    }
                };
                LISTEN
            }
            Effect::Unlisten(channel) => {
                if self.listening.as_mut().is_some_and(|listening| listening.channels.remove(channel)) {
                    turn.io.unlisten(channel);
                }
                b"UNLISTEN"
            }
            Effect::UnlistenAll => {
                self.unlisten_all(turn.io);
                b"UNLISTEN"
            }
            _ => return None,
        };
        turn.feed.skip(head.whole(), &mut self.retry, turn.io);
        self.unnamed = None;
        turn.io.encode_to_client(|out| {
            backend::command_complete(out, command);
            backend::ready_for_query(out, TransactionStatus::Idle);
        });
        Some(None)
    }

    /// Nothing is listened to any more, whatever becomes of a transaction.
    pub(crate) fn unlisten_all(&mut self, io: &impl Io) {
        if let Some(listening) = &mut self.listening {
            listening.changes.clear();
            listening.channels.drain().for_each(|channel| io.unlisten(&channel));
        }
    }

    /// The hub has all channels to which a text listens. `Err`: it has not, and what to do.
    pub(crate) fn reserve<I: Io>(
        &mut self,
        facts: &Facts,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        mut server: Option<&mut ServerState>,
    ) -> Result<(), Option<Next>> {
        if facts.server_text.is_none() || !self.shares_listen() {
            return Ok(());
        }
        // The end of an earlier transaction would end the reservation.
        if let Some(server) = server.as_deref_mut().filter(|server| !server.queue.is_empty()) {
            return Err(Some(self.wait_for_replies(turn, server)));
        }
        let encoding = self.encoding(server.as_deref());
        for effect in facts.all() {
            let Effect::Listen(channel) = effect else { continue };
            let channel_state = turn.io.listen(channel, encoding.as_deref());
            if let Channel::Refused(refusal) = &channel_state {
                self.refuse(refusal, head, turn, server);
                return Err(None);
            }
            self.listening().reserve(channel);
            if channel_state == Channel::Awaited {
                self.is_waiting = true;
                return Err(Some(Next::Wait));
            }
        }
        Ok(())
    }

    /// A statement that notifies is about to be sent. False: a fence comes first.
    pub(crate) fn may_notify(&mut self, facts: &Facts, io: &impl Io) -> bool {
        if !facts.notifies || !self.listens() || !self.shares_listen() {
            return true;
        }
        let listening = self.listening();
        if listening.own_from.is_some() {
            listening.notifies = true;
            return true;
        }
        if listening.fence.is_none() {
            listening.fence = Some(Fence::Before);
            io.fence();
        }
        self.is_waiting = true;
        false
    }

    /// A statement has done what its text says; the end of its transaction decides.
    pub(crate) fn note_change(&mut self, change: Change, server: &ServerState) {
        let depth = server.variables.savepoints();
        if self.listening.is_some() {
            self.listening().note(depth, change);
        }
    }

    /// The server is outside of a transaction, and says so to the client. False: the client does not get to know yet.
    pub(crate) fn end_transaction(&mut self, server: &ServerState, io: &impl Io) -> bool {
        let Some(listening) = &mut self.listening else { return true };
        match server.has_failed {
            true => listening.roll_back(),
            false => listening.commit(io),
        }
        listening.give_up_reserved(io);
        self.tell(Some(server), io);
        let listens = self.listens();
        let listening = self.listening();
        let notifies = std::mem::take(&mut listening.notifies) && listens;
        match &mut listening.fence {
            Some(Fence::After(readies)) => *readies += 1,
            None if notifies => {
                listening.fence = Some(Fence::After(1));
                io.fence();
            }
            _ => return true,
        }
        false
    }

    /// The server is lost, and its transaction with it.
    pub(crate) fn lose_transaction(&mut self, io: &impl Io) {
        if let Some(listening) = &mut self.listening {
            listening.roll_back();
            listening.give_up_reserved(io);
            listening.notifies = false;
            listening.own_from = None;
        }
    }

    /// The server serves others from now on.
    pub(crate) fn end_own_news(&mut self) {
        if let Some(listening) = &mut self.listening {
            listening.own_from = None;
        }
    }

    /// The client sends something. News that came for a LISTEN which has not committed are of the time before it.
    pub(crate) fn forget_early_news(&self, server: Option<&ServerState>, io: &impl Io) {
        if let Some(listening) = &self.listening
            && !listening.changes.is_empty()
            && server.is_some_and(|server| server.queue.is_quiet())
        {
            io.forget_news(|channel| listening.channels.contains(channel));
        }
    }

    /// News have come. As at PostgreSQL, a client gets them between its transactions.
    pub fn on_news(&mut self, server: Option<&ServerState>, io: &impl Io) {
        let is_between = |server: &ServerState| {
            server.queue.is_quiet() && server.status == TransactionStatus::Idle && server.body_left == 0
        };
        if server.is_none_or(is_between) {
            self.tell(server, io);
        }
    }

    /// All notifications of the time before [`Feeds::fence`](crate::io::Feeds::fence) have come. With a server, call
    /// [`Session::on_server`] without bytes then: the client may need it no longer.
    pub fn on_fence(&mut self, server: Option<&ServerState>, io: &impl Io) {
        let Some(listening) = &mut self.listening else { return };
        match listening.fence.take() {
            Some(Fence::Before) => {
                listening.own_from = server.map(|_| io.mark());
                // The statement is the next message, whatever has been looked at since: the server is not free.
                self.is_waiting = true;
            }
            Some(Fence::After(readies)) => {
                self.tell(server, io);
                for _ in 0..readies {
                    io.encode_to_client(|out| backend::ready_for_query(out, TransactionStatus::Idle));
                }
            }
            None => {}
        }
    }

    /// Passes on all news of channels that the client listens to.
    fn tell(&mut self, server: Option<&ServerState>, io: &impl Io) {
        let Some(listening) = &self.listening else { return };
        let process = server.and_then(ServerState::cancel_target).map(|target| target.pid);
        while let Some(news) = io.next_news() {
            match news {
                News::Gap => {
                    let text = "notifications may have been lost: the connection that listens was without its server";
                    let report = ErrorReport::new(Severity::Warning, sqlstate::CONNECTION_FAILURE, text);
                    io.encode_to_client(|out| backend::notice(out, &report));
                }
                News::Notification { number, notification } => {
                    if !listening.channels.contains(&notification.channel) {
                        continue;
                    }
                    let is_own = listening.own_from.is_some_and(|from| number >= from);
                    let pid = match self.process {
                        Some(own) if is_own && Some(notification.pid) == process => own,
                        // By chance the process of another session has the number that this client knows as its own.
                        Some(own) if notification.pid == own => 0,
                        _ => notification.pid,
                    };
                    io.count(Event::Notification);
                    io.encode_to_client(|out| {
                        backend::notification(out, pid, &notification.channel, &notification.payload);
                    });
                }
            }
        }
    }
}

impl Statement {
    /// Text, NUL and types as a server gets them.
    pub(crate) fn at_server(&self, shares_listen: bool) -> Cow<'_, [u8]> {
        match self.facts().and_then(|facts| facts.server_text.as_ref()).filter(|_| shares_listen) {
            None => Cow::Borrowed(self.rest()),
            Some(text) => {
                let end = memchr::memchr(0, self.rest()).unwrap_or(self.rest().len());
                Cow::Owned([text, &self.rest()[end..]].concat())
            }
        }
    }
}
