//! The rules of the store, as a value in memory: for simulations, and for a comparison with the script that a real store runs.

use std::collections::{BTreeMap, HashMap};

use super::{AMOUNT_MAX, ClaimReply, ClaimRequest, HUNGER_MS, HUNGERS_MAX, Hunger, Item, PARTS};

/// The claim of one gateway, as the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    allowed: u64,
    used: u64,
    /// From this time on, in milliseconds, what is not used is no longer claimed.
    until: u64,
}

impl Field {
    fn allowed_at(&self, now: u64) -> u64 {
        if self.is_over(now) { self.used } else { self.allowed }
    }

    fn is_over(&self, now: u64) -> bool {
        self.until < now
    }
}

/// A gateway, as a call names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller<'a> {
    /// The name of the gateway, the same after a restart.
    pub gateway: &'a str,
    /// That of its connection.
    pub session: &'a str,
    /// The epoch that it knows; empty: none.
    pub epoch: &'a str,
    /// The highest revision that this process has seen.
    pub revision: u64,
}

/// The result of an opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The epoch of the data.
    pub epoch: String,
    /// The revision.
    pub revision: u64,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A reply for each request, in their order.
    Claims {
        /// The replies.
        replies: Vec<ClaimReply>,
        /// Needs of other gateways, if the call looks for them.
        hungers: Vec<Hunger>,
        /// The revision.
        revision: u64,
    },
    /// The data are of another epoch, or older than the gateway has seen them: it opens again.
    Stale,
    /// Another connection has opened in the name of this gateway.
    Superseded {
        /// Its session; empty: it is not known any more.
        by: String,
    },
}

/// A store.
#[derive(Clone, Debug, Default)]
pub struct Store {
    epoch: String,
    revision: u64,
    /// The server that began the epoch.
    run: String,
    grace_end: u64,
    sessions: HashMap<String, String>,
    items: HashMap<Item, BTreeMap<String, Field>>,
    hungers: BTreeMap<(Item, String), (u64, u64)>,
}

impl Store {
    /// A connection of a gateway begins, at `now` in milliseconds, to the process `run` of a server. Data that are lost, or may be older
    /// than gateways have seen them, begin an epoch.
    pub fn open(&mut self, caller: &Caller<'_>, has_used: bool, run: &str, grace_ms: u64, now: u64) -> Opened {
        if self.epoch.is_empty() || self.revision < caller.revision || self.run != run {
            let is_loss = has_used || !caller.epoch.is_empty() || !self.epoch.is_empty();
            self.epoch = caller.session.to_owned();
            self.run = run.to_owned();
            self.grace_end = if is_loss { now + grace_ms } else { now };
            self.revision = self.revision.max(caller.revision);
        }
        self.sessions.insert(caller.gateway.to_owned(), caller.session.to_owned());
        self.revision += 1;
        Opened { epoch: self.epoch.clone(), revision: self.revision }
    }

    /// One call, at `now` in milliseconds. `looks`: it asks for the needs of other gateways, and removes those that are over.
    pub fn claim(
        &mut self,
        caller: &Caller<'_>,
        (ttl_ms, looks): (u64, bool),
        requests: &[ClaimRequest],
        now: u64,
    ) -> Reply {
        if self.epoch != caller.epoch || self.revision < caller.revision {
            return Reply::Stale;
        }
        let session = self.sessions.get(caller.gateway);
        if session.is_none_or(|session| session != caller.session) {
            return Reply::Superseded { by: session.cloned().unwrap_or_default() };
        }
        self.revision += 1;
        let replies = requests.iter().map(|request| self.reply(caller.gateway, ttl_ms, request, now)).collect();
        let mut hungers = Vec::new();
        if looks {
            self.hungers.retain(|_, (_, until)| *until >= now);
            let others = self.hungers.iter().filter(|((_, gateway), _)| gateway != caller.gateway);
            hungers.extend(others.map(|((item, _), (need, _))| Hunger { item: *item, need: *need }));
        }
        Reply::Claims { replies, hungers, revision: self.revision }
    }

    fn reply(&mut self, gateway: &str, ttl_ms: u64, request: &ClaimRequest, now: u64) -> ClaimReply {
        let &ClaimRequest { item, limit, used, held, need, comfort, is_wanting, .. } = request;
        let limit = limit.min(AMOUNT_MAX);
        let fields = self.items.entry(item).or_default();
        let (mut elsewhere, mut idle_elsewhere, mut used_elsewhere) = (0, 0, 0);
        for (_, field) in fields.iter().filter(|(other, _)| *other != gateway) {
            elsewhere += field.allowed_at(now);
            idle_elsewhere += field.allowed_at(now) - field.used;
            used_elsewhere += field.used;
        }
        let most = limit.saturating_sub(elsewhere);
        let held = match (held, fields.get(gateway)) {
            // It spends nothing of that yet.
            (None, own) => own.map_or(0, |own| own.allowed_at(now)).min(most),
            // Others may have what it gave up by its silence.
            (Some(held), Some(own)) if own.is_over(now) => held.min(most),
            (Some(held), _) => held,
        };
        let mut noted = held.max(used);
        // All claims are above a budget that was lowered: the gateway lowers its own, and the next call notes that. Until it has the reply
        // it may spend what is noted.
        let mut allowed = noted.min(most).max(used);
        let mut rest = limit.saturating_sub(elsewhere + noted);
        if is_wanting {
            let idle = allowed - used;
            let lack = need.saturating_sub(idle);
            if now >= self.grace_end && lack <= rest {
                let grant = lack.max(rest / PARTS).max(comfort.saturating_sub(idle)).min(rest);
                (noted, allowed, rest) = (noted + grant, allowed + grant, rest - grant);
                self.hungers.remove(&(item, gateway.to_owned()));
            } else if lack > rest && lack <= rest + idle_elsewhere && self.hungers.len() < HUNGERS_MAX {
                // Others can help. A request that is too large for all makes none of them give anything back.
                self.hungers.insert((item, gateway.to_owned()), (need, now + HUNGER_MS));
            }
        }
        fields.insert(gateway.to_owned(), Field { allowed: noted, used, until: now + ttl_ms });
        ClaimReply { allowed, rest, idle_elsewhere, used_elsewhere }
    }

    /// The claim of one gateway on an item, at `now`.
    pub fn claimed_by(&self, gateway: &str, item: &Item, now: u64) -> u64 {
        self.items.get(item).and_then(|fields| fields.get(gateway)).map_or(0, |field| field.allowed_at(now))
    }

    /// The sum of all claims of an item, at `now`.
    pub fn claimed(&self, item: &Item, now: u64) -> u64 {
        self.items.get(item).map_or(0, |fields| fields.values().map(|field| field.allowed_at(now)).sum())
    }
}
