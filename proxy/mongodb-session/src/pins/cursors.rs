//! Cursors by owner, session and id.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use weir_base::time::Time;

use super::cleanup::Cleanup;
use super::{Counts, ServerId, is_over};
use crate::users::Owner;

/// The name of a cursor. A getMore must have the session of the command that has opened it: servers demand the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CursorKey {
    /// Its owner.
    pub owner: Owner,
    /// Its logical session, if it has one.
    pub session: Option<[u8; 16]>,
    /// Its id.
    pub id: i64,
}

/// Where a cursor lives, and its namespace for killCursors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorPlace {
    /// Its server.
    pub server: ServerId,
    /// Its database.
    pub db: Box<[u8]>,
    /// Its collection.
    pub collection: Box<[u8]>,
}

impl CursorPlace {
    /// The command that kills the cursor with this id.
    pub(super) fn kill(self, id: i64) -> Cleanup {
        let CursorPlace { server, db, collection } = self;
        Cleanup::KillCursor { server, db, collection, id }
    }
}

#[derive(Debug)]
pub(super) struct Cursor {
    /// `None`: several servers have, or did have, one of this key, and none of them can be meant.
    place: Option<CursorPlace>,
    expires: Time,
    /// Requests that use it now.
    uses: u32,
}

impl Cursor {
    pub(super) fn is_over(&self, now: Time) -> bool {
        is_over(self.expires, self.uses, now)
    }
}

#[derive(Debug)]
pub(super) struct Cursors {
    all: HashMap<CursorKey, Cursor, RandomState>,
    counts: Counts,
}

impl Cursors {
    pub(super) fn new(counts: Counts) -> Cursors {
        Cursors { all: HashMap::default(), counts }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn count(&self, owner: &Owner) -> usize {
        self.counts.of(owner)
    }

    pub(super) fn set_bound(&mut self, bound: usize) {
        self.counts.set_bound(bound);
    }

    pub(super) fn has_full_owner(&self) -> bool {
        self.counts.full > 0
    }

    pub(super) fn has(&self, key: &CursorKey) -> bool {
        self.all.contains_key(key)
    }

    pub(super) fn get(&self, key: &CursorKey) -> Option<ServerId> {
        self.all.get(key)?.place.as_ref().map(|place| place.server)
    }

    pub(super) fn use_one(&mut self, key: &CursorKey) -> bool {
        let known = self.all.get_mut(key);
        known.map(|known| known.uses += 1).is_some()
    }

    pub(super) fn release(&mut self, key: &CursorKey, expires: Time) {
        if let Some(known) = self.all.get_mut(key) {
            known.uses = known.uses.saturating_sub(1);
            known.expires = expires;
        }
    }

    pub(super) fn note(&mut self, key: CursorKey, place: CursorPlace, expires: Time) -> Vec<Cleanup> {
        let Some(known) = self.all.get_mut(&key) else {
            self.counts.add(&key.owner, key.session.as_ref());
            self.all.insert(key, Cursor { place: Some(place), expires, uses: 0 });
            return Vec::new();
        };
        known.expires = expires;
        match &known.place {
            Some(before) if before.server == place.server => Vec::new(),
            _ => {
                let both = known.place.take().into_iter().chain([place]);
                both.map(|place| place.kill(key.id)).collect()
            }
        }
    }

    /// The one at this server. Another server may have one of the same key meanwhile, and a mark stays.
    pub(super) fn take(&mut self, key: &CursorKey, server: ServerId) -> Option<Cleanup> {
        if self.get(key) != Some(server) {
            return None;
        }
        self.counts.sub(&key.owner, key.session.as_ref());
        self.all.remove(key)?.place.map(|place| place.kill(key.id))
    }

    /// The commands that kill those at this server.
    pub(super) fn kills_at(&self, server: ServerId) -> Vec<Cleanup> {
        let kill = |(key, cursor): (&CursorKey, &Cursor)| {
            let place = cursor.place.as_ref().filter(|place| place.server == server)?;
            Some(place.clone().kill(key.id))
        };
        self.all.iter().filter_map(kill).collect()
    }

    /// Those that a test takes for over. Each is taken out.
    pub(super) fn take_if(&mut self, is_over: impl Fn(&CursorKey, &Cursor) -> bool) -> Vec<Cleanup> {
        let (counts, mut cleanups) = (&mut self.counts, Vec::new());
        self.all.retain(|key, cursor| {
            let over = is_over(key, cursor);
            if over {
                counts.sub(&key.owner, key.session.as_ref());
                cleanups.extend(cursor.place.take().map(|place| place.kill(key.id)));
            }
            !over
        });
        cleanups
    }

    /// Those of these sessions of one owner. It looks at each cursor once, however many sessions there are.
    pub(super) fn take_sessions(&mut self, owner: &Owner, sessions: &HashSet<[u8; 16]>) -> Vec<Cleanup> {
        let is_named = |key: &CursorKey| key.session.is_some_and(|session| sessions.contains(&session));
        self.take_if(|key, _| is_named(key) && key.owner == *owner)
    }

    /// Without a session the key may come again: a server that has started again may count its cursors from 1. The old cursor's client
    /// must not get the new one, so that its mark stays.
    pub(super) fn lose(&mut self, server: ServerId) {
        let is_at = |cursor: &Cursor| cursor.place.as_ref().is_some_and(|place| place.server == server);
        self.take_if(|key, cursor| key.session.is_some() && is_at(cursor));
        self.all.values_mut().filter(|cursor| is_at(cursor)).for_each(|cursor| cursor.place = None);
    }
}
