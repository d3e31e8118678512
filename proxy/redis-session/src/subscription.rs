//! SUBSCRIBE and its kin: what the client is subscribed to, its confirmations, and messages between its replies.
//!
//! A subscriber has no lane of its own: subscriptions are shared ([`crate::pubsub`]), and its other commands ride shared
//! lanes like everybody's. An (UN)SUBSCRIBE is an exchange of the session like any other, numbered in
//! [`crate::ordering`]; it is sent in a quiet moment, and what follows waits for it, because it changes what may be said.

use std::collections::BTreeSet;

use weir_analysis::redis::{Args, Class, Command};
use weir_base::exchange::{FrameKind, LossCause};
use weir_resp::Version;

use crate::{
    io::{Io, NoSubscription},
    pubsub::{
        Kind, Name,
        frame::{write_confirmation, write_push},
    },
    refusal,
    request::Request,
    state::{CommandStatus, Hold, State},
};

/// Bytes kept for messages that come in the middle of a reply, when there are none.
const KEPT_CAPACITY_MAX: usize = 4 * 1024;

/// A command that waits for the server.
#[derive(Debug)]
struct PendingCommand {
    kind: Kind,
    is_beginning: bool,
    /// As the client gave them.
    names: Vec<Name>,
    /// How many of them are confirmed.
    confirmed: usize,
}

/// The subscriptions of a client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    held: [BTreeSet<Name>; 3],
    pending: Option<PendingCommand>,
    /// Messages that came in the middle of a reply.
    kept: Vec<u8>,
}

impl Subscriptions {
    fn holds(&self, kind: Kind, name: &[u8]) -> bool {
        self.held[kind as usize].contains(name)
    }

    /// As the server counts for a confirmation: shard channels apart.
    fn count(&self, kind: Kind) -> u64 {
        let [channels, patterns, shards] = &self.held;
        (if kind == Kind::Shard { shards.len() } else { channels.len() + patterns.len() }) as u64
    }

    fn total(&self) -> usize {
        self.held.iter().map(BTreeSet::len).sum()
    }

    pub(crate) fn names(&self) -> Vec<(Kind, Name)> {
        let each = Kind::ALL.into_iter().zip(&self.held);
        each.flat_map(|(kind, names)| names.iter().map(move |name| (kind, name.clone()))).collect()
    }

    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// Says what came in the middle of a reply, now that it is over. True if there was anything.
    fn release(&mut self, io: &impl Io) -> bool {
        let is_any = !self.kept.is_empty();
        if is_any {
            io.reply(|out| out.extend_from_slice(&self.kept));
            self.kept.clear();
            self.kept.shrink_to(KEPT_CAPACITY_MAX);
        }
        is_any
    }

    /// Each of `names` once, if the client has it or if it does not.
    fn distinct(&self, kind: Kind, names: &[Name], is_held: bool) -> Vec<Name> {
        let mut seen = BTreeSet::new();
        names.iter().filter(|name| self.holds(kind, name) == is_held && seen.insert(*name)).cloned().collect()
    }

    fn confirm(&self, pending: &PendingCommand, name: Option<&[u8]>, version: Version, io: &impl Io) {
        let word = if pending.is_beginning { pending.kind.subscribe() } else { pending.kind.unsubscribe() };
        let count = self.count(pending.kind);
        io.reply(|out| write_confirmation(out, word, name, count, version));
    }

    /// Confirms what needs the server no more: up to the first name that is not subscribed yet, and that one too if
    /// `is_next` says that it is. True if all are confirmed.
    fn confirm_subscribed(&mut self, mut is_next: bool, version: Version, io: &impl Io) -> bool {
        let Some(mut pending) = self.pending.take() else { return false };
        while let Some(name) = pending.names.get(pending.confirmed) {
            if !self.holds(pending.kind, name) {
                if !std::mem::take(&mut is_next) {
                    break;
                }
                self.held[pending.kind as usize].insert(name.clone());
            }
            self.confirm(&pending, Some(name), version, io);
            pending.confirmed += 1;
        }
        let is_over = pending.confirmed == pending.names.len();
        if !is_over {
            self.pending = Some(pending);
        }
        is_over
    }

    fn confirm_unsubscribed(&mut self, version: Version, io: &impl Io) {
        let Some(pending) = self.pending.take() else { return };
        for name in &pending.names {
            self.held[pending.kind as usize].remove(name);
            self.confirm(&pending, Some(name), version, io);
        }
        if pending.names.is_empty() {
            self.confirm(&pending, None, version, io);
        }
    }
}

impl State {
    /// The client is subscribed to something.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.total() > 0)
    }

    /// A subscriber of RESP2 may do little else (Redis `processCommand`).
    pub(crate) fn is_modal(&self) -> bool {
        self.version == Version::Resp2 && self.is_subscriber()
    }

    /// SUBSCRIBE and UNSUBSCRIBE in their three forms.
    pub(crate) fn subscribe(
        &mut self,
        command: &'static Command,
        class: Class,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        if !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return CommandStatus::Held;
        }
        if self.is_ended {
            self.is_closing = true;
            return CommandStatus::Done;
        }
        let Some((kind, is_beginning)) = Kind::of(command.name) else { return self.error(io, refusal::SYNTAX) };
        debug_assert_eq!(is_beginning, class == Class::Subscribe);
        // In a cluster the names of one command for shard channels must be of one slot.
        if let Err(no) = self.lane_key(command, request, io) {
            no.count(command, io);
            return self.error_line(io, &no.text(command));
        }
        let total = self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.total());
        if is_beginning && (total + request.argc() - 1) as u64 > u64::from(self.settings.subscriptions_max) {
            io.count_refused(Some(command), "subscriptions");
            return self.error(io, refusal::SUBSCRIPTIONS);
        }
        io.count(Some(command), 1);
        let names: Vec<Name> = (1..request.argc()).map(|index| request.text(index).into()).collect();
        match is_beginning {
            true => self.begin_subscriptions(kind, names, io),
            false => self.end_subscriptions(kind, names, io),
        }
    }

    /// A client that has left everything is one like any other.
    fn forget_subscriptions(&mut self) {
        self.subscriptions.take_if(|subscriptions| subscriptions.total() == 0 && subscriptions.pending.is_none());
    }

    fn begin_subscriptions(&mut self, kind: Kind, names: Vec<Name>, io: &impl Io) -> CommandStatus {
        let subscriptions = self.subscriptions.get_or_insert_default();
        let fresh = subscriptions.distinct(kind, &names, false);
        let pending = PendingCommand { kind, is_beginning: true, names, confirmed: 0 };
        if fresh.is_empty() {
            subscriptions.pending = Some(pending);
            subscriptions.confirm_subscribed(false, self.version, io);
            self.order.unskip();
            return CommandStatus::Done;
        }
        match io.subscribe(self.login, kind, &fresh) {
            Ok(()) => {
                subscriptions.pending = Some(pending);
                self.wait_for_subscription()
            }
            Err(NoSubscription::TooMany) => {
                self.forget_subscriptions();
                io.count_shed("subscriptions_of_worker");
                self.error(io, refusal::SUBSCRIPTIONS_OF_WORKER)
            }
            Err(NoSubscription::Refused(refusal)) => {
                self.forget_subscriptions();
                self.refuse(refusal, io)
            }
        }
    }

    fn end_subscriptions(&mut self, kind: Kind, mut names: Vec<Name>, io: &impl Io) -> CommandStatus {
        let subscriptions = self.subscriptions.get_or_insert_default();
        if names.is_empty() {
            names = subscriptions.held[kind as usize].iter().cloned().collect();
        }
        let leaving = subscriptions.distinct(kind, &names, true);
        subscriptions.pending = Some(PendingCommand { kind, is_beginning: false, names, confirmed: 0 });
        if !leaving.is_empty() && !io.unsubscribe(kind, &leaving) {
            return self.wait_for_subscription();
        }
        subscriptions.confirm_unsubscribed(self.version, io);
        io.note_subscriptions(subscriptions.total());
        self.forget_subscriptions();
        self.order.unskip();
        CommandStatus::Done
    }

    /// The command is an exchange; what follows must know what it changed.
    pub(crate) fn wait_for_subscription(&mut self) -> CommandStatus {
        self.order.sent();
        self.hold = Some(Hold::Quiet);
        CommandStatus::Done
    }

    /// RESET: no subscription is left, and none is confirmed to be (Redis `resetCommand`).
    pub(crate) fn drop_subscriptions(&mut self, io: &impl Io) {
        if self.subscriptions.take().is_some() {
            io.unsubscribe_all();
            io.note_subscriptions(0);
        }
    }

    pub(crate) fn on_subscribed(&mut self, io: &impl Io) -> bool {
        let version = self.version;
        let Some(subscriptions) = self.subscriptions.as_mut().filter(|_| !self.is_cut) else { return false };
        let is_over = subscriptions.confirm_subscribed(true, version, io);
        io.note_subscriptions(subscriptions.total());
        is_over && self.complete(FrameKind::Push, io)
    }

    pub(crate) fn on_unsubscribed(&mut self, io: &impl Io) -> bool {
        let version = self.version;
        let Some(subscriptions) = self.subscriptions.as_mut().filter(|_| !self.is_cut) else { return false };
        subscriptions.confirm_unsubscribed(version, io);
        io.note_subscriptions(subscriptions.total());
        self.forget_subscriptions();
        self.complete(FrameKind::Push, io)
    }

    /// A message. It stands between replies, never inside one.
    #[inline]
    pub(crate) fn on_push(&mut self, frame: &[u8], io: &impl Io) {
        if self.is_closing || self.is_cut {
            return;
        }
        let version = self.version;
        if !self.is_mid_frame {
            return io.reply(|out| write_push(out, frame, version));
        }
        // A client without subscriptions may get changed keys.
        write_push(&mut self.subscriptions.get_or_insert_default().kept, frame, version);
    }

    /// A reply is over: what came in the middle of it is said.
    pub(crate) fn release_pushes(&mut self, io: &impl Io) {
        if self.subscriptions.as_mut().is_some_and(|subscriptions| subscriptions.release(io)) {
            self.forget_subscriptions();
        }
    }

    /// PUBLISH of a subscriber, who may be one of those who hear it: it goes where its messages come from, in a moment in
    /// which nothing can be overtaken. `None`: it goes the usual way.
    pub(crate) fn publish(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Option<CommandStatus> {
        let subscriptions = self.subscriptions.as_ref()?;
        let name = request.text(1);
        let kind = match command.name {
            "publish" if subscriptions.count(Kind::Channel) > 0 => Kind::Channel,
            "spublish" if subscriptions.holds(Kind::Shard, name) => Kind::Shard,
            _ => return None,
        };
        if !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return Some(CommandStatus::Held);
        }
        if !request.with_wire(|wire| io.publish(self.login, kind, name, wire)) {
            return None;
        }
        io.count(Some(command), 1);
        Some(self.wait_for_subscription())
    }

    pub(crate) fn on_published(&mut self, reply: Option<&[u8]>, io: &impl Io) -> bool {
        match reply {
            Some(reply) if !matches!(reply.first(), Some(b'-' | b'!')) => {
                self.complete_with(reply, FrameKind::Reply, io)
            }
            Some(line) => self.complete_with(line, FrameKind::Error, io),
            None => self.complete_with(&refusal::line(refusal::lost(LossCause::Closed)), FrameKind::Error, io),
        }
    }

    /// The one reply to the command under way.
    pub(crate) fn complete_with(&mut self, reply: &[u8], kind: FrameKind, io: &impl Io) -> bool {
        if self.is_cut {
            return false;
        }
        if let Some(subscriptions) = &mut self.subscriptions {
            subscriptions.pending = None;
        }
        self.forget_subscriptions();
        let reply = self.unless_moved(reply, Some(kind), io);
        if !self.order.is_muted(self.order.oldest()) {
            self.pass(&reply, true, io);
        }
        if kind == FrameKind::Error {
            io.count_error(&reply);
        }
        self.complete(kind, io)
    }

    /// The client would wait for messages that never come.
    pub(crate) fn on_subscription_lost(&mut self, io: &impl Io) {
        if self.is_mid_frame {
            self.cut();
        }
        self.lose_state(io);
    }
}
