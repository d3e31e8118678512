//! The arguments of CLIENT TRACKING, refused in Redis's words (Redis 7.0 `networking.c`, `tracking.c`).

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use weir_analysis::redis::Args;
use weir_base::connection::ConnectionEntry;

use crate::{io::Io, pubsub::Name, refusal, request::Request, request::parse_integer};

const ONE_REDIRECT: &str = "ERR A client can only redirect to a single other client";
const NO_SUCH_CLIENT: &str = "ERR The client ID you want redirect to does not exist";
const PREFIX_NEEDS_BCAST: &str = "ERR PREFIX option requires BCAST mode to be enabled";
const SWITCH_BCAST: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.";
const OPT_WITH_BCAST: &str = "ERR OPTIN and OPTOUT are not compatible with BCAST";
const OPT_BOTH: &str = "ERR You can't specify both OPTIN mode and OPTOUT mode";
const SWITCH_OPT: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.";

/// Prefixes of one client. Each change at a server is held against all of them, for the other clients of the worker too.
const PREFIXES_MAX: usize = 256;
const TOO_MANY_PREFIXES: &str = "ERR weir: too many prefixes";

/// The changes that a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Changes of keys that it has read.
    Read,
    /// Changes of keys with one of these prefixes, whether the client has read them or not.
    Prefixes(BTreeSet<Name>),
}

/// The client that gets invalidations in place of the one that tracks.
#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    pub(crate) id: u64,
    entry: Weak<ConnectionEntry>,
}

impl Redirect {
    /// It, if it is still connected.
    pub(crate) fn target(&self) -> Option<Arc<ConnectionEntry>> {
        self.entry.upgrade().filter(|entry| !entry.has_left())
    }
}

/// How a client tracks.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrackingMode {
    pub(crate) is_bcast: bool,
    /// Not empty only with BCAST.
    pub(crate) prefixes: BTreeSet<Name>,
    /// Only what is read behind CLIENT CACHING YES.
    pub(crate) is_opt_in: bool,
    /// Not what is read behind CLIENT CACHING NO.
    pub(crate) is_opt_out: bool,
    /// Not of changes of its own.
    pub(crate) is_no_loop: bool,
    pub(crate) redirect: Option<Redirect>,
}

impl TrackingMode {
    /// The scope that the tracker needs for this mode.
    pub(crate) fn scope(&self) -> Scope {
        if self.is_bcast { Scope::Prefixes(self.prefixes.clone()) } else { Scope::Read }
    }

    /// Sends the invalidations for a change of `key`.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        !self.is_bcast || self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    /// The mode that `request` sets, `None` if it ends tracking. `now` is the mode that holds until then.
    ///
    /// # Errors
    /// The error, without its mark.
    pub(crate) fn parse(
        request: &Request<'_>,
        now: Option<&TrackingMode>,
        io: &impl Io,
    ) -> Result<Option<TrackingMode>, Vec<u8>> {
        let mut terms = Self::default();
        let mut prefixes: Vec<Name> = Vec::new();
        let mut at = 3;
        while at < request.argc() {
            let word = request.text(at);
            let has_more = at + 1 < request.argc();
            if word.eq_ignore_ascii_case(b"redirect") && has_more {
                at += 1;
                terms.set_redirect(request.text(at), io)?;
            } else if word.eq_ignore_ascii_case(b"bcast") {
                terms.is_bcast = true;
            } else if word.eq_ignore_ascii_case(b"optin") {
                terms.is_opt_in = true;
            } else if word.eq_ignore_ascii_case(b"optout") {
                terms.is_opt_out = true;
            } else if word.eq_ignore_ascii_case(b"noloop") {
                terms.is_no_loop = true;
            } else if word.eq_ignore_ascii_case(b"prefix") && has_more {
                at += 1;
                prefixes.push(request.text(at).into());
            } else {
                return Err(refusal::SYNTAX.into());
            }
            at += 1;
        }
        let word = request.text(2);
        if word.eq_ignore_ascii_case(b"off") {
            return Ok(None);
        }
        if !word.eq_ignore_ascii_case(b"on") {
            return Err(refusal::SYNTAX.into());
        }
        terms.check(&prefixes, now)?;
        if terms.is_bcast {
            terms.prefixes = now.map(|now| now.prefixes.clone()).unwrap_or_default();
            if prefixes.is_empty() {
                prefixes.push([].into());
            }
            terms.prefixes.extend(prefixes);
        }
        Ok(Some(terms))
    }

    fn set_redirect(&mut self, number: &[u8], io: &impl Io) -> Result<(), &'static str> {
        if self.redirect.is_some() {
            return Err(ONE_REDIRECT);
        }
        let number = parse_integer(number).ok_or(refusal::NOT_INTEGER)?;
        let entry = u64::try_from(number).ok().and_then(|id| io.find_client(id)).ok_or(NO_SUCH_CLIENT)?;
        self.redirect = Some(Redirect { id: entry.id, entry: Arc::downgrade(&entry) });
        Ok(())
    }

    /// Whether they go together, and with those that hold now.
    fn check(&self, prefixes: &[Name], now: Option<&TrackingMode>) -> Result<(), Vec<u8>> {
        if !self.is_bcast && !prefixes.is_empty() {
            return Err(PREFIX_NEEDS_BCAST.into());
        }
        if now.is_some_and(|now| now.is_bcast != self.is_bcast) {
            return Err(SWITCH_BCAST.into());
        }
        if self.is_bcast && (self.is_opt_in || self.is_opt_out) {
            return Err(OPT_WITH_BCAST.into());
        }
        if self.is_opt_in && self.is_opt_out {
            return Err(OPT_BOTH.into());
        }
        if now.is_some_and(|now| (self.is_opt_in && now.is_opt_out) || (self.is_opt_out && now.is_opt_in)) {
            return Err(SWITCH_OPT.into());
        }
        if now.map_or(0, |now| now.prefixes.len()) + prefixes.len() > PREFIXES_MAX {
            return Err(TOO_MANY_PREFIXES.into());
        }
        let overlap = |prefix: &Name, what: &str, other: &Name| {
            let parts: [&[u8]; 5] = [b"ERR Prefix '", prefix, what.as_bytes(), other, b"'. "];
            [&parts.concat()[..], b"Prefixes for a single client must not overlap."].concat()
        };
        let overlaps = |one: &Name, other: &Name| one.starts_with(other) || other.starts_with(one);
        for (at, prefix) in prefixes.iter().enumerate() {
            if let Some(other) = now.and_then(|now| now.prefixes.iter().find(|other| overlaps(prefix, other))) {
                return Err(overlap(prefix, "' overlaps with an existing prefix '", other));
            }
            if let Some(other) = prefixes[at + 1..].iter().find(|other| overlaps(prefix, other)) {
                return Err(overlap(prefix, "' overlaps with another provided prefix '", other));
            }
        }
        Ok(())
    }
}
