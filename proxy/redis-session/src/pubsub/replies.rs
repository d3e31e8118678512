//! Frames of the servers: messages go to subscribers, confirmations and errors to the requesting client.

use weir_base::{error::Culprit, violation::Violation};

use super::{
    feed::{Expect, FRAME_BYTES_MAX, FrameProgress, Name, Requester, unsolicited},
    frame::{Kind, ServerFrame, parse_frame},
    recovery::is_passing,
    registry::{PendingNames, Registry, RegistryIo},
};

impl Registry {
    /// Takes bytes of the server of `shard`.
    ///
    /// # Errors
    /// It broke the protocol: the connection must be closed.
    pub fn receive(&mut self, shard: u16, input: &[u8], io: &impl RegistryIo) -> Result<(), Violation> {
        let mut at = 0;
        while at < input.len() {
            let Some(feed) = self.feeds.get_mut(&shard) else { return Ok(()) };
            feed.heard_at = io.now();
            let (taken, what) = feed.take(&input[at..])?;
            let bytes = &input[at..at + taken];
            at += taken;
            match what {
                FrameProgress::Piece => {}
                FrameProgress::Frame => self.on_frame(shard, bytes, io)?,
                FrameProgress::Held(held) => {
                    self.on_frame(shard, &held, io)?;
                    if let Some(feed) = self.feeds.get_mut(&shard) {
                        feed.give_back(held);
                    }
                }
                FrameProgress::TooLarge(head) => self.on_too_large(&head, io)?,
            }
        }
        Ok(())
    }

    fn on_frame(&mut self, shard: u16, frame: &[u8], io: &impl RegistryIo) -> Result<(), Violation> {
        match parse_frame(frame) {
            ServerFrame::Message { kind, name } => {
                // A server that the name has left may still hear the same messages by replication.
                if let Some(entry) = self.names[kind as usize].get(name)
                    && entry.at.shards().contains(&shard)
                {
                    entry.listeners.iter().for_each(|&client| io.message(client, frame));
                }
                Ok(())
            }
            ServerFrame::Subscribed { kind, name } => self.on_subscribed(shard, kind, name, io),
            ServerFrame::Unsubscribed { kind, name } => {
                self.on_unsubscribed(shard, kind, name, io);
                Ok(())
            }
            ServerFrame::Error => self.on_error(shard, frame, io),
            ServerFrame::Reply => self.on_reply(shard, frame, io),
            ServerFrame::Notice => Ok(()),
        }
    }

    /// Those who would get it may not have so much unread.
    fn on_too_large(&self, head: &[u8], io: &impl RegistryIo) -> Result<(), Violation> {
        let ServerFrame::Message { kind, name } = parse_frame(head) else {
            let text = "a frame that is no message";
            let (count, limit) = (head.len() as u64, FRAME_BYTES_MAX as u64);
            return Err(Violation::limit("frame_too_large", Culprit::Upstream, text, count, limit));
        };
        if let Some(entry) = self.names[kind as usize].get(name) {
            entry.listeners.iter().for_each(|&client| io.message_too_large(client));
        }
        Ok(())
    }

    fn on_subscribed(&mut self, shard: u16, kind: Kind, name: &[u8], io: &impl RegistryIo) -> Result<(), Violation> {
        let text = "a confirmation without a request";
        let Some(feed) = self.feeds.get_mut(&shard) else { return Ok(()) };
        let (of, left) = match feed.expected.front_mut() {
            Some((Expect::Subscribe { kind, left, .. } | Expect::Resubscribe { kind, left, .. }, _)) => (*kind, left),
            _ => return Err(unsolicited(text)),
        };
        if of != kind {
            return Err(unsolicited(text));
        }
        *left -= 1;
        let is_over = *left == 0;
        let who = match feed.expected.front() {
            Some((Expect::Subscribe { who, .. }, _)) => Some(*who),
            _ => None,
        };
        if is_over {
            feed.expected.pop_front();
        }
        match who {
            Some(who) => self.confirm(who, name, io),
            None if is_over => self.resubscribe_more(shard, io),
            None => {}
        }
        Ok(())
    }

    /// The end of a subscription: requested, or because its slot went to another node.
    fn on_unsubscribed(&mut self, shard: u16, kind: Kind, name: &[u8], io: &impl RegistryIo) {
        let Some(feed) = self.feeds.get_mut(&shard) else { return };
        if let Some((Expect::Unsubscribe { kind: of, names, who }, _)) = feed.expected.front_mut()
            && *of == kind
            && names.front().is_some_and(|first| **first == *name)
        {
            names.pop_front();
            if names.is_empty() {
                let who = *who;
                feed.expected.pop_front();
                self.note_left(who, io);
            }
            return;
        }
        let found = self.names[kind as usize].get_key_value(name);
        if let Some((name, _)) = found.filter(|(_, entry)| entry.wanted > 0) {
            self.adrift.push((kind, name.clone()));
            *self.dropped.entry(shard).or_default() += 1;
        }
    }

    fn on_error(&mut self, shard: u16, line: &[u8], io: &impl RegistryIo) -> Result<(), Violation> {
        let Some(feed) = self.feeds.get_mut(&shard) else { return Ok(()) };
        let Some((expect, _)) = feed.expected.pop_front() else {
            return Err(unsolicited("an error without a request"));
        };
        match expect {
            Expect::Subscribe { who, .. } => self.on_refused(shard, who, line, io),
            Expect::Resubscribe { kind, names, .. } => self.on_not_resubscribed(shard, kind, names, line, io),
            Expect::Unsubscribe { who, .. } | Expect::Fence { who } => self.note_left(who, io),
            Expect::Publish { who } => self.published(who, Some(line), io),
        }
        Ok(())
    }

    fn on_refused(&mut self, shard: u16, who: Requester, line: &[u8], io: &impl RegistryIo) {
        let is_redirection = io.is_redirection(shard, line);
        let Some(op) = self.op(who) else { return };
        if is_redirection && let PendingNames::Subscribe { is_waiting, names } = &mut op.what {
            // It is placed again at the next look, and has its time.
            *is_waiting = true;
            let (kind, names): (Kind, Vec<Name>) = (op.kind, names.iter().map(|(name, _)| name.clone()).collect());
            self.adrift.extend(names.into_iter().map(|name| (kind, name)));
            return;
        }
        self.give_up(who.client, io);
        io.refused(who.client, line);
    }

    fn on_not_resubscribed(&mut self, shard: u16, kind: Kind, names: Vec<Name>, line: &[u8], io: &impl RegistryIo) {
        if io.is_redirection(shard, line) || is_passing(line) {
            self.adrift.extend(names.into_iter().map(|name| (kind, name)));
        } else if names.len() > 1 {
            // One of them is refused; which one, only itself will tell.
            if let Some(feed) = self.feeds.get_mut(&shard) {
                names.into_iter().rev().for_each(|name| feed.again.push_front((kind, vec![name])));
            }
        } else {
            for name in names {
                let Some(entry) = self.names[kind as usize].get(&name) else { continue };
                entry.listeners.iter().for_each(|&client| io.lost(client));
            }
        }
        self.resubscribe_more(shard, io);
    }

    fn on_reply(&mut self, shard: u16, reply: &[u8], io: &impl RegistryIo) -> Result<(), Violation> {
        let Some(feed) = self.feeds.get_mut(&shard) else { return Ok(()) };
        match feed.expected.pop_front() {
            Some((Expect::Fence { who }, _)) => self.note_left(who, io),
            Some((Expect::Publish { who }, _)) => self.published(who, Some(reply), io),
            _ => return Err(unsolicited("a reply without a request")),
        }
        Ok(())
    }

    /// The reply to a PUBLISH, or none.
    pub(super) fn published(&mut self, who: Requester, reply: Option<&[u8]>, io: &impl RegistryIo) {
        if self.op(who).is_some() {
            self.members[who.client].op = None;
            io.published(who.client, reply);
        }
    }
}
