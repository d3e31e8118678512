//! The cache of a process: stored responses, and the requests that wait for one.

use std::{fmt, sync::Arc};

use weir_base::{Permit, Time};

use super::{
    entry::Entry,
    fingerprint::Fingerprint,
    flight::{FlightLead, Flights, Follower, Landing, Way},
    settings::CacheSettings,
    store::{Evictions, Freshness, Store},
};

/// The exact cache of a process. Stored responses and recordings together have at most [`CacheSettings::bytes_max`] of memory.
pub struct ResponseCache {
    settings: CacheSettings,
    store: Store,
    flights: Arc<Flights<Arc<Entry>>>,
}

/// The way of a request.
pub(crate) enum Turn {
    /// It has a response.
    Hit(Arc<Entry>),
    /// It goes to a provider, and others wait for it.
    Lead(Lead),
    /// It waits for another one.
    Follow(Wait),
    /// It goes to a provider, and its response is not stored.
    Pass,
}

impl ResponseCache {
    /// An empty one.
    pub fn new(settings: CacheSettings) -> Arc<Self> {
        let (store, flights) = (Store::new(settings.bytes_max), Flights::new(settings.followers_max));
        Arc::new(Self { settings, store, flights })
    }

    /// Memory in use: stored responses, those that leave while they are replayed, and recordings.
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// Responses that have left.
    pub fn evictions(&self) -> Evictions {
        self.store.evictions()
    }

    /// Looks for a response. Without one the request leads, or follows an equal one.
    pub(crate) fn look(self: &Arc<Self>, key: Fingerprint, freshness: Freshness, now: Time) -> Turn {
        if let Some(entry) = self.store.find(&key, freshness, now) {
            return Turn::Hit(entry);
        }
        match self.flights.enter(key) {
            // A leader stores its response before it lands: it may have done both since the first look.
            Way::Lead(lead) => match self.store.find(&key, freshness, now) {
                Some(entry) => {
                    lead.land(entry.clone());
                    Turn::Hit(entry)
                }
                None => Turn::Lead(Lead { cache: self.clone(), key, flight: Some(lead) }),
            },
            Way::Follow(follower) => Turn::Follow(Wait { cache: self.clone(), key, follower }),
            Way::Full => Turn::Pass,
        }
    }

    /// The lead of a request that must not be served from the cache, and whose response may be stored.
    pub(crate) fn lead_alone(self: &Arc<Self>, key: Fingerprint) -> Lead {
        Lead { cache: self.clone(), key, flight: None }
    }
}

impl fmt::Debug for ResponseCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseCache").field("settings", &self.settings).field("bytes", &self.bytes()).finish()
    }
}

/// The lead of a request whose response may be stored. Dropped, the request has failed.
pub(crate) struct Lead {
    cache: Arc<ResponseCache>,
    key: Fingerprint,
    /// `None`: no request waits for this one.
    flight: Option<FlightLead<Arc<Entry>>>,
}

impl Lead {
    /// The longest body that is stored.
    pub(super) fn body_bytes_max(&self) -> u64 {
        self.cache.settings.response_bytes_max
    }

    /// A permit without memory.
    pub(super) fn no_memory(&self) -> Option<Permit> {
        self.cache.store.no_memory()
    }

    /// Gives a permit so much memory. False: there is none.
    pub(super) fn make_room(&self, permit: &mut Permit, bytes: u64) -> bool {
        self.cache.store.make_room(permit, bytes, &self.key)
    }

    /// Stores the response, and serves those that wait.
    pub(super) fn store(self, entry: Entry) {
        let entry = Arc::new(entry);
        self.cache.store.insert(self.key, entry.clone());
        if let Some(flight) = self.flight {
            flight.land(entry);
        }
    }

    /// The response is good and is not stored: those that wait go on themselves.
    pub(crate) fn release(self) {
        if let Some(flight) = self.flight {
            flight.release();
        }
    }
}

/// A request that waits for an equal one. Dropped, it gives up its place.
pub(crate) struct Wait {
    cache: Arc<ResponseCache>,
    key: Fingerprint,
    follower: Follower<Arc<Entry>>,
}

impl Wait {
    /// Waits, for [`CacheSettings::wait_max`] at most.
    pub(crate) async fn end(self) -> Turn {
        let Self { cache, key, follower } = self;
        match weir_engine::timeout(cache.settings.wait_max, follower).await {
            Ok(Landing::Value(entry)) => Turn::Hit(entry),
            Ok(Landing::Lead(lead)) => Turn::Lead(Lead { cache, key, flight: Some(lead) }),
            Ok(Landing::Alone) | Err(_) => Turn::Pass,
        }
    }
}

#[cfg(test)]
mod tests;
