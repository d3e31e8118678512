//! A client in front of the reply cache: what it may be answered from there, and what it makes known to it.

use std::{collections::VecDeque, rc::Rc};

use weir_analysis::redis::{self, Access, Categories, Class, Command, KeyFlags, Keys};
use weir_base::exchange::FrameKind;

use super::{Cache, Filling};
use crate::{
    io::Io,
    lane::LaneKey,
    pubsub::Name,
    request::Request,
    spread::may_read_elsewhere,
    state::{CommandStatus, State},
};

/// Reads of one key whose reply follows from its value alone: no chance, no clock, no server state in it.
const CACHEABLE: [&str; 42] = [
    "get",
    "strlen",
    "getrange",
    "substr",
    "getbit",
    "bitcount",
    "bitpos",
    "exists",
    "type",
    "hget",
    "hmget",
    "hgetall",
    "hkeys",
    "hvals",
    "hlen",
    "hexists",
    "hstrlen",
    "lrange",
    "llen",
    "lindex",
    "lpos",
    "scard",
    "smembers",
    "sismember",
    "smismember",
    "zrange",
    "zrangebyscore",
    "zrangebylex",
    "zrevrange",
    "zrevrangebyscore",
    "zrevrangebylex",
    "zcard",
    "zcount",
    "zlexcount",
    "zscore",
    "zmscore",
    "zrank",
    "zrevrank",
    "geopos",
    "geosearch",
    "xrange",
    "xlen",
];

/// An exchange that is not a read that may be kept.
struct OtherExchange {
    exchange: u64,
    /// The keys that it writes; `None`: its effects and its reads are unknown.
    writes: Option<Vec<Name>>,
}

/// The requests of a client in flight that matter to the cache.
#[derive(Default)]
pub(crate) struct Caching {
    fillings: VecDeque<(u64, Filling)>,
    others: VecDeque<OtherExchange>,
    /// It gets nothing that was read before.
    since: u64,
}

impl Caching {
    /// Something is under way that what is kept of `key` may be older than.
    fn is_ahead(&self, key: &Name) -> bool {
        !self.others.is_empty() || self.fillings.iter().any(|(_, filling)| filling.key == *key)
    }

    /// A piece of the reply to `exchange`.
    pub(crate) fn take(&mut self, exchange: u64, bytes: &[u8]) {
        if let Some((of, filling)) = self.fillings.front_mut()
            && *of == exchange
        {
            filling.take(bytes);
        }
    }

    /// The request goes to another server than was looked at.
    pub(crate) fn redirected(&mut self, exchange: u64) {
        let meant = self.fillings.iter_mut().filter(|(of, _)| *of == exchange);
        meant.for_each(|(_, filling)| filling.void());
    }

    fn on_reply(&mut self, exchange: u64, kind: FrameKind, cache: Option<&Rc<Cache>>, io: &impl Io) {
        while let Some((of, mut filling)) = self.fillings.pop_front_if(|(of, _)| *of <= exchange) {
            if of != exchange || kind != FrameKind::Reply {
                filling.void();
            }
            filling.finish(io.now());
        }
        while let Some(other) = self.others.pop_front_if(|other| other.exchange <= exchange) {
            let Some(cache) = cache else { continue };
            match other.writes {
                Some(keys) => cache.changed(&keys.iter().map(|key| &**key).collect::<Vec<_>>()),
                None => self.since = cache.next_moment(),
            }
        }
    }
}

/// The key of a command whose reply may be kept.
fn cacheable(command: &Command, request: &Request<'_>) -> Option<Name> {
    if !CACHEABLE.contains(&command.name) {
        return None;
    }
    let mut keys = Keys::new();
    redis::keys(command, request, &mut keys).ok()?;
    (keys.len() == 1).then(|| keys.first()).flatten().map(|key| request.text(key.index).into())
}

/// The keys that a command writes; `None`: not all of them are known.
fn written(command: &Command, class: Class, request: &Request<'_>) -> Option<Vec<Name>> {
    let is_plain = matches!(class, Class::Shared | Class::Blocking) && command.access == Access::Write;
    if !is_plain || command.categories.contains(Categories::SCRIPTING) {
        return None;
    }
    let mut keys = Keys::new();
    redis::keys(command, request, &mut keys).ok()?;
    if keys.is_empty() || keys.is_incomplete() {
        return None;
    }
    let names = keys.iter().filter(|key| !key.flags.contains(KeyFlags::NOT_KEY));
    Some(names.map(|key| request.text(key.index).into()).collect())
}

impl State {
    /// Replies to a command from the cache, or sends it and makes known what it does.
    pub(crate) fn send_cached(
        &mut self,
        cache: &Rc<Cache>,
        command: &'static Command,
        class: Class,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        let is_free = self.transaction.is_none()
            && self.pins.is_none()
            && self.tunnel.is_none()
            && self.tracking.is_none()
            && !self.is_modal();
        if is_free
            && class == Class::Shared
            && let Some(key) = cacheable(command, request).filter(|key| cache.holds_prefix(key))
        {
            return request.with_wire(|wire| self.send_cacheable(cache, (key, wire), command, request, io));
        }
        let writes = written(command, class, request);
        let first = self.order.next_number();
        let taken = self.send_noted(command, class, request, io);
        if taken == CommandStatus::Held {
            return taken;
        }
        if let Some(exchange) = self.order.next_number().checked_sub(1).filter(|&last| last >= first) {
            if let Some(keys) = &writes {
                cache.changed(&keys.iter().map(|key| &**key).collect::<Vec<_>>());
            }
            self.note_uncached(OtherExchange { exchange, writes }, cache, io);
        }
        taken
    }

    fn note_uncached(&mut self, other: OtherExchange, cache: &Rc<Cache>, io: &impl Io) {
        let exchange = other.exchange;
        let caching = self.caching.get_or_insert_default();
        caching.others.push_back(other);
        if self.order.oldest() > exchange {
            // It was refused on the spot.
            caching.on_reply(exchange, FrameKind::Error, Some(cache), io);
        }
    }

    /// A command with unknown keys is on its way as `exchange`.
    pub(crate) fn note_unseen(&mut self, exchange: u64, io: &impl Io) {
        if let Some(cache) = io.cache() {
            self.note_uncached(OtherExchange { exchange, writes: None }, &cache, io);
        }
    }

    fn send_cacheable(
        &mut self,
        cache: &Rc<Cache>,
        (key, wire): (Name, &[u8]),
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        let lane = self.lane_of(&key, command, io);
        let (is_behind, since) =
            self.caching.as_ref().map_or((false, 0), |caching| (caching.is_ahead(&key), caching.since));
        if !is_behind && let Some(reply) = cache.get(lane, &key, wire, since, io.now()) {
            io.count(Some(command), 1);
            self.local(io, |out| out.extend_from_slice(&reply));
            return CommandStatus::Done;
        }
        let filling = cache.begin(lane, key, wire);
        let exchange = self.order.next_number();
        let taken = self.send(command, Class::Shared, request, io);
        // A command that was sent in several pieces, or answered locally, has no reply to cache.
        let is_sent = self.order.next_number() == exchange + 1 && self.order.oldest() <= exchange;
        if taken == CommandStatus::Done && is_sent {
            match filling {
                Some(filling) => self.caching.get_or_insert_default().fillings.push_back((exchange, filling)),
                // It may show what is newer than what is kept.
                None => self.note_uncached(OtherExchange { exchange, writes: None }, cache, io),
            }
        }
        taken
    }

    /// The lane that a read of `key` rides.
    fn lane_of(&self, key: &[u8], command: &Command, io: &impl Io) -> LaneKey {
        match self.is_sharded {
            true => self.route(io.place(key).shard, may_read_elsewhere(command), io),
            false => self.key(),
        }
    }

    /// Its client reads at another upstream from now on, and has perhaps written there by another way: it gets nothing that
    /// was read before.
    pub(crate) fn restart_caching(&mut self, io: &impl Io) {
        if let Some(cache) = io.cache() {
            self.caching.get_or_insert_default().since = cache.next_moment();
        }
    }

    /// The reply to `exchange` is complete.
    pub(crate) fn on_cached_reply(&mut self, exchange: u64, kind: FrameKind, io: &impl Io) {
        let cache = io.cache();
        if let Some(caching) = &mut self.caching {
            caching.on_reply(exchange, kind, cache.as_ref(), io);
            if cache.is_none() && caching.fillings.is_empty() && caching.others.is_empty() {
                // It was switched off. Nothing is counted meanwhile, so that counting starts afresh when it is on again.
                self.caching = None;
            }
        }
    }
}

#[cfg(test)]
mod unit {
    use weir_analysis::redis::{COMMANDS, Flags};

    use super::*;

    #[test]
    fn cached_commands_only_read_and_name_their_key() {
        for name in CACHEABLE {
            let command = COMMANDS.iter().find(|command| command.name == name).expect(name);
            assert!(command.flags.contains(Flags::READONLY), "{name} only reads");
            assert!(command.class == Class::Shared && command.access == Access::Read, "{name} is plain");
            assert!(!command.flags.intersects(Flags::RANDOM | Flags::TOUCHES_ARBITRARY_KEYS), "{name} knows no chance");
            assert!(!command.keys.is_empty(), "{name} names its key");
        }
    }
}
