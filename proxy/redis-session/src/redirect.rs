//! Redirections of a cluster's nodes: where the key is, or that the node will know later.
//!
//! Requests to a cluster are kept until they are answered. A redirected one is sent again under its own number, so its reply
//! takes its place among the others. While one is under way, or after the map of slots changed, no further command is taken
//! before all are answered: it could overtake an earlier one of the same client on another node.

use std::{borrow::Cow, collections::VecDeque, time::Duration};

use weir_base::exchange::{FrameKind, Refusal};
use weir_placement::Node;
use weir_resp::encode;

use crate::{
    io::{Io, Ticket},
    refusal,
    spares::Spare,
    state::State,
};

/// Redirections of one request; after that its last error is the reply.
const HOPS_MAX: u8 = 3;
/// Before a request is tried again whose slot is being moved, or whose node is not known yet.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// Such tries of one request: a slot with large keys takes long.
const TRIES_MAX: u8 = 30;
/// The same of a transaction that was aborted, for whatever reason: the map is new after one or two.
const ABORTED_TRIES_MAX: u8 = 3;

const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// A request to a cluster that is not answered yet.
#[derive(Debug)]
pub(crate) struct Attempt {
    exchange: u64,
    /// The slot of its keys; `None` without keys.
    slot: Option<u16>,
    /// Replies to swallow before its own, as in its ticket.
    skip: u32,
    wire: Vec<u8>,
    shard: u16,
    hops: u8,
    tries: u8,
    /// Between two tries.
    is_waiting: bool,
    /// It went by the client's own lane: it is not sent again, and nothing of it is kept.
    is_bound: bool,
    /// A transaction whose keys are watched.
    is_watching: bool,
    /// It runs a script, which may say such words of itself, after it has done something.
    is_script: bool,
    /// The error that is arriving.
    line: Vec<u8>,
    /// Its reply has begun, and is no redirection.
    has_reply: bool,
}

impl Attempt {
    pub(crate) fn new(ticket: Ticket, slot: Option<u16>, shard: u16, wire: &[u8]) -> Self {
        Self {
            exchange: ticket.number,
            slot,
            skip: ticket.skip,
            wire: wire.to_vec(),
            shard,
            hops: 0,
            tries: 0,
            is_waiting: false,
            is_bound: false,
            is_watching: false,
            is_script: false,
            line: Vec::new(),
            has_reply: false,
        }
    }

    fn was_redirected(&self) -> bool {
        self.hops > 0 || self.tries > 0
    }
}

/// The requests of a session to a cluster that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// By number.
    under_way: VecDeque<Attempt>,
    /// The latest of them that went another way than it was sent first.
    last_redirected: Option<u64>,
}

impl Spare for Attempts {
    fn room(&self) -> usize {
        self.under_way.capacity() * size_of::<Attempt>()
    }

    fn is_bare(&self) -> bool {
        self.under_way.is_empty() && self.last_redirected.is_none()
    }
}

/// The redirection that an error of a node demands.
#[derive(Debug, PartialEq, Eq)]
enum Redirection {
    /// The slot is there now.
    Moved(u16, Node),
    /// This key may be there already: ask once.
    Ask(Node),
    /// Later.
    Later,
    /// The transaction was not executed; the reason was in the reply to an inner command, and may have been a redirection.
    Aborted,
    /// The error is the reply, and the map may be old.
    Down,
    /// The error is the reply.
    None,
}

/// The result of an advice.
enum RedirectResult {
    /// The request is on its way again, or will be.
    Yes,
    /// The error is the reply after all.
    No,
    /// The node that it leads to takes nothing.
    Refused(Refusal),
}

/// Reads an error line, without its `-`.
fn advice(line: &[u8], is_unit: bool) -> Redirection {
    let text = String::from_utf8_lossy(line);
    let mut words = text.trim_end().splitn(3, ' ');
    let (word, slot, address) = (words.next().unwrap_or_default(), words.next(), words.next());
    let target = || {
        let (host, port) = address?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = (!host.is_empty()).then(|| host.to_owned());
        Some((slot?.parse().ok()?, Node { host, port: port.parse().ok()? }))
    };
    match word {
        "MOVED" => target().map_or(Redirection::None, |(slot, node)| Redirection::Moved(slot, node)),
        "ASK" => target().map_or(Redirection::None, |(_, node)| Redirection::Ask(node)),
        // Nothing of it was executed. A replica says READONLY that was the primary a moment ago.
        "TRYAGAIN" | "READONLY" => Redirection::Later,
        "EXECABORT" if is_unit => Redirection::Aborted,
        "CLUSTERDOWN" => Redirection::Down,
        _ => Redirection::None,
    }
}

/// Where `line`, an error, says that a slot is now.
pub fn moved(line: &[u8]) -> Option<(u16, Node)> {
    match advice(line.strip_prefix(b"-")?, false) {
        Redirection::Moved(slot, node) => Some((slot, node)),
        _ => None,
    }
}

impl State {
    /// Keeps a request to a cluster until it is answered.
    pub(crate) fn keep_attempt(&mut self, attempt: Attempt) {
        self.order.attempts_bytes += attempt.wire.len();
        let attempts = self.attempts.get_or_insert_with(|| self.order.spares.attempts.take());
        attempts.under_way.push_back(attempt);
    }

    /// Keeps where a request on the client's own lane went, in front of a cluster: what its node says may be news.
    pub(crate) fn keep_bound(&mut self, ticket: Ticket, slot: Option<u16>, shard: u16, io: &impl Io) {
        if io.topology().is_some() {
            self.keep_attempt(Attempt { is_bound: true, ..Attempt::new(ticket, slot, shard, &[]) });
        }
    }

    /// The request of this exchange, if it was kept, runs a script.
    pub(crate) fn note_script(&mut self, exchange: u64) {
        if let Some(last) = self.last_attempt(exchange) {
            last.is_script = true;
        }
    }

    /// The request of this exchange, if it was kept, is a transaction whose keys are watched.
    pub(crate) fn note_watching(&mut self, exchange: u64) {
        if let Some(last) = self.last_attempt(exchange) {
            last.is_watching = true;
        }
    }

    /// The request that was kept last, if it is the one of this exchange.
    fn last_attempt(&mut self, exchange: u64) -> Option<&mut Attempt> {
        self.attempts.as_mut()?.under_way.back_mut().filter(|last| last.exchange == exchange)
    }

    /// The exchange has been answered.
    #[inline]
    pub(crate) fn forget_attempt(&mut self, exchange: u64) {
        let Some(attempts) = &mut self.attempts else { return };
        if let Some(attempt) = attempts.under_way.pop_front_if(|attempt| attempt.exchange == exchange) {
            self.order.attempts_bytes -= attempt.wire.len();
        }
        if let Some(mut attempts) = self.attempts.take_if(|attempts| attempts.under_way.is_empty()) {
            // It is below the numbers of all that is under way.
            attempts.last_redirected = None;
            self.order.spares.attempts.give(attempts);
        }
    }

    /// Its reply is lost: what comes in its place is the reply for the client.
    pub(crate) fn give_up_attempt(&mut self, exchange: u64) {
        if let Some(attempt) = self.attempt(exchange) {
            attempt.line.clear();
            attempt.is_waiting = false;
            attempt.has_reply = true;
        }
    }

    /// A request is on its way by another path than the one it was given first.
    pub(crate) fn is_redirecting(&self) -> bool {
        let last = self.attempts.as_ref().and_then(|attempts| attempts.last_redirected);
        last.is_some_and(|last| last >= self.order.oldest())
    }

    /// The request of this exchange goes another way than it was sent first.
    fn note_detour(&mut self, exchange: u64) {
        if let Some(attempts) = &mut self.attempts {
            attempts.last_redirected = attempts.last_redirected.max(Some(exchange));
        }
    }

    fn attempt(&mut self, exchange: u64) -> Option<&mut Attempt> {
        let under_way = &mut self.attempts.as_mut()?.under_way;
        let at = under_way.binary_search_by_key(&exchange, |attempt| attempt.exchange).ok()?;
        under_way.get_mut(at)
    }

    /// The requests that are not answered yet, by number.
    fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().flat_map(|attempts| &attempts.under_way)
    }

    /// A piece of a reply of a node: `None` if it is a redirection, or may become one, and is handled; else the bytes for the
    /// client.
    pub(crate) fn unless_redirected<'a>(
        &mut self,
        exchange: u64,
        bytes: &'a [u8],
        end: Option<FrameKind>,
        io: &impl Io,
    ) -> Option<Cow<'a, [u8]>> {
        let Some(attempt) = self.attempt(exchange) else { return Some(self.unless_moved(bytes, end, io)) };
        let is_error = !attempt.line.is_empty() || (!attempt.has_reply && bytes.first() == Some(&b'-'));
        if !is_error {
            attempt.has_reply = true;
            return Some(bytes.into());
        }
        attempt.line.extend_from_slice(bytes);
        end?;
        let line = std::mem::take(&mut attempt.line);
        let advice = advice(&line[1..], attempt.skip > 0);
        if attempt.is_bound {
            return self.learn(exchange, advice, line, io).map(Cow::from);
        }
        let is_redirection = matches!(advice, Redirection::Moved(..) | Redirection::Ask(_));
        let reply = match self.follow(exchange, advice, io) {
            RedirectResult::Yes => return None,
            RedirectResult::No if is_redirection => refusal::line(refusal::NOT_FOLLOWED),
            RedirectResult::No => line,
            RedirectResult::Refused(refusal) => {
                io.count_shed(refusal.name());
                refusal::line(refusal::refused(refusal))
            }
        };
        self.give_up_attempt(exchange);
        Some(reply.into())
    }

    /// A node's redirection of a request on the client's own lane. The client may retry at once, so the map is updated before the
    /// client gets the error: `None` while that takes a moment.
    fn learn(&mut self, exchange: u64, advice: Redirection, line: Vec<u8>, io: &impl Io) -> Option<Vec<u8>> {
        let (from, slot) =
            self.attempt(exchange).map(|attempt| (attempt.shard, attempt.slot.filter(|_| !attempt.is_script)))?;
        let (line, is_known) = match advice {
            Redirection::None => return Some(line),
            Redirection::Moved(of, node) => {
                let is_known = slot == Some(of) && io.redirected(slot, &node, from).is_some();
                (refusal::line(refusal::NOT_FOLLOWED), is_known)
            }
            Redirection::Ask(_) => (refusal::line(refusal::NOT_FOLLOWED), true),
            // The error does not say why a transaction was aborted: its slot may have moved.
            Redirection::Aborted => (line, false),
            Redirection::Later | Redirection::Down => (line, true),
        };
        io.refresh();
        if is_known || slot.is_none() {
            return Some(line);
        }
        self.delay_reply(exchange, line, io);
        None
    }

    /// Keeps the reply to a request on the client's own lane until the map is new, for a moment at most.
    fn delay_reply(&mut self, exchange: u64, line: Vec<u8>, io: &impl Io) {
        let Some(attempt) = self.attempt(exchange) else { return };
        attempt.line = line;
        attempt.tries += 1;
        attempt.is_waiting = true;
        self.note_detour(exchange);
        io.retry_later(exchange, PAUSE);
    }

    /// The pause of a delayed reply is over: it is delivered if the slot is elsewhere now, or if it has waited long enough.
    fn deliver_delayed_reply(&mut self, exchange: u64, io: &impl Io) -> bool {
        let Some(attempt) = self.attempt(exchange) else { return false };
        let (mut line, is_watching) = (std::mem::take(&mut attempt.line), attempt.is_watching);
        let is_new = attempt.slot.is_none_or(|slot| io.shard_of(slot) != attempt.shard);
        if !is_new && attempt.tries < ABORTED_TRIES_MAX {
            self.delay_reply(exchange, line, io);
            return false;
        }
        self.give_up_attempt(exchange);
        if is_new && is_watching {
            // As if the watched keys had changed: that is what clients try again for.
            line.clear();
            encode::null_array(&mut line, self.version);
            return self.on_reply(exchange, &line, Some(FrameKind::Reply), io);
        }
        self.on_reply(exchange, &line, Some(FrameKind::Error), io)
    }

    /// As [`State::unless_redirected`], of a request that is not kept: one of the gateway's own.
    pub(crate) fn unless_moved<'a>(&self, bytes: &'a [u8], end: Option<FrameKind>, io: &impl Io) -> Cow<'a, [u8]> {
        let is_told = end == Some(FrameKind::Error) && io.topology().is_some() && bytes.first() == Some(&b'-');
        if !is_told {
            return bytes.into();
        }
        match advice(&bytes[1..], false) {
            Redirection::None => bytes.into(),
            Redirection::Moved(..) | Redirection::Ask(_) => {
                io.refresh();
                refusal::line(refusal::NOT_FOLLOWED).into()
            }
            Redirection::Later | Redirection::Aborted | Redirection::Down => {
                io.refresh();
                bytes.into()
            }
        }
    }

    /// Does what a node advises.
    fn follow(&mut self, exchange: u64, advice: Redirection, io: &impl Io) -> RedirectResult {
        let Some(attempt) = self.attempt(exchange) else { return RedirectResult::No };
        let (from, hops, is_script) = (attempt.shard, attempt.hops, attempt.is_script);
        if advice == Redirection::None {
            return RedirectResult::No;
        }
        // A script may say such words of itself, so they count for the keys of its own command only.
        let Some(slot) = attempt.slot else {
            io.refresh();
            return RedirectResult::No;
        };
        let is_asking = matches!(advice, Redirection::Ask(_));
        let (node, moved) = match advice {
            Redirection::None => return RedirectResult::No,
            Redirection::Down => {
                io.refresh();
                return RedirectResult::No;
            }
            Redirection::Later | Redirection::Aborted if is_script => return RedirectResult::No,
            Redirection::Later if self.is_followed(exchange, slot) => return RedirectResult::No,
            Redirection::Later => return self.try_later(exchange, TRIES_MAX, io),
            Redirection::Aborted if self.is_followed(exchange, slot) => return RedirectResult::No,
            Redirection::Aborted => return self.try_later(exchange, ABORTED_TRIES_MAX, io),
            Redirection::Moved(of, _) if of != slot => return RedirectResult::No,
            // A MOVED raised by a script must not move the slot for others; the refreshed map shows whether it is true.
            Redirection::Moved(_, node) if is_script => {
                io.refresh();
                (node, None)
            }
            Redirection::Moved(_, node) => (node, Some(slot)),
            Redirection::Ask(node) => (node, None),
        };
        if hops >= HOPS_MAX {
            return RedirectResult::No;
        }
        let target = io.redirected(moved, &node, from);
        let Some(target) = target.filter(|&target| !self.must_wait(exchange, slot, target, io)) else {
            return self.try_later(exchange, TRIES_MAX, io);
        };
        if let Some(attempt) = self.attempt(exchange) {
            attempt.hops += 1;
        }
        self.note_detour(exchange);
        io.count_redirect(if is_asking { "ask" } else { "moved" });
        match self.send_again(exchange, target, is_asking, io) {
            Ok(()) => RedirectResult::Yes,
            Err(refusal) => RedirectResult::Refused(refusal),
        }
    }

    /// A later request for the same slot is under way: a second try would come behind it.
    fn is_followed(&self, exchange: u64, slot: u16) -> bool {
        self.attempts().any(|other| other.exchange > exchange && other.slot == Some(slot))
    }

    /// Sent to `target` now it could overtake an earlier request of this client: one for the same slot that waits for its next
    /// try or went elsewhere, or one on a connection to there that takes no more.
    fn must_wait(&self, exchange: u64, slot: u16, target: u16, io: &impl Io) -> bool {
        let is_ahead = |other: &Attempt| {
            let is_elsewhere = other.is_waiting || (other.was_redirected() && other.shard != target);
            other.exchange < exchange && other.slot == Some(slot) && !other.has_reply && is_elsewhere
        };
        self.attempts().any(is_ahead) || io.must_settle(self.key_at(target))
    }

    fn try_later(&mut self, exchange: u64, most: u8, io: &impl Io) -> RedirectResult {
        io.refresh();
        let Some(attempt) = self.attempt(exchange).filter(|attempt| attempt.tries < most) else {
            return RedirectResult::No;
        };
        attempt.tries += 1;
        attempt.is_waiting = true;
        self.note_detour(exchange);
        io.count_redirect("later");
        io.retry_later(exchange, PAUSE);
        RedirectResult::Yes
    }

    /// The pause of a request is over; true if the session should be woken.
    pub(crate) fn retry(&mut self, exchange: u64, io: &impl Io) -> bool {
        // Its lane may have been lost meanwhile: it has its reply then.
        let Some(attempt) = self.attempt(exchange).filter(|attempt| attempt.is_waiting) else { return false };
        if attempt.is_bound {
            return self.deliver_delayed_reply(exchange, io);
        }
        let Some(slot) = attempt.slot else { return false };
        let target = io.shard_of(slot);
        let must_wait = self.must_wait(exchange, slot, target, io);
        let line = if must_wait {
            match self.try_later(exchange, TRIES_MAX, io) {
                RedirectResult::Yes => return false,
                _ => refusal::line(refusal::NOT_FOLLOWED),
            }
        } else {
            let Err(refusal) = self.send_again(exchange, target, false, io) else { return false };
            io.count_shed(refusal.name());
            refusal::line(refusal::refused(refusal))
        };
        self.give_up_attempt(exchange);
        self.on_reply(exchange, &line, Some(FrameKind::Error), io)
    }

    /// Sends a kept request to `target`.
    fn send_again(&mut self, exchange: u64, target: u16, is_asking: bool, io: &impl Io) -> Result<(), Refusal> {
        let key = self.key_at(target);
        let is_own = self.is_pinned_at(target);
        self.note_redirected(exchange);
        if let Some(caching) = &mut self.caching {
            caching.redirected(exchange);
        }
        let Some(attempt) = self.attempt(exchange) else { return Ok(()) };
        attempt.shard = target;
        attempt.is_waiting = false;
        let skip = attempt.skip + u32::from(is_asking);
        let ticket = Ticket { skip, ..Ticket::new(exchange) };
        let wire: Cow<'_, [u8]> = match is_asking {
            true => [ASKING, &attempt.wire].concat().into(),
            false => attempt.wire.as_slice().into(),
        };
        if is_own {
            // Behind what the client has there already.
            io.forward_pinned(&wire, ticket);
            return Ok(());
        }
        io.forward(key, &wire, ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Option<&str>, port: u16) -> Node {
        Node { host: host.map(str::to_owned), port }
    }

    #[test]
    fn node_errors_are_parsed() {
        let cases = [
            ("MOVED 3999 127.0.0.1:6381\r\n", Redirection::Moved(3999, node(Some("127.0.0.1"), 6381))),
            ("MOVED 3999 :6381\r\n", Redirection::Moved(3999, node(None, 6381))),
            ("MOVED 3999 ::1:6381\r\n", Redirection::Moved(3999, node(Some("::1"), 6381))),
            ("ASK 1 redis-2.internal:7000\r\n", Redirection::Ask(node(Some("redis-2.internal"), 7000))),
            ("MOVED 70000 127.0.0.1:6381\r\n", Redirection::None),
            ("MOVED 1 127.0.0.1:0x50\r\n", Redirection::None),
            ("MOVED\r\n", Redirection::None),
            ("TRYAGAIN Multiple keys request during rehashing of slot\r\n", Redirection::Later),
            ("READONLY You can't write against a read only replica.\r\n", Redirection::Later),
            ("CLUSTERDOWN Hash slot not served\r\n", Redirection::Down),
            ("EXECABORT Transaction discarded because of previous errors.\r\n", Redirection::None),
            ("ERR unknown\r\n", Redirection::None),
        ];
        for (line, wanted) in cases {
            assert_eq!(advice(line.as_bytes(), false), wanted, "{line}");
        }
        assert_eq!(advice(b"EXECABORT x", true), Redirection::Aborted);
    }
}
