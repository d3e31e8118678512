//! A client that tracks: CLIENT TRACKING and its kin, its reads in flight, and its invalidations.

use weir_analysis::redis::{
    self, Args, Categories, Class, ClientCommand, Command, Flags, KeyFlags, Keys, LocalCommand, Resolved,
};
use weir_base::exchange::FrameKind;
use weir_resp::{Version, encode};

use super::{
    in_flight::{InFlight, KeyAccess, TouchedKey},
    notice,
    terms::TrackingMode,
};
use crate::{
    io::{Io, Track},
    pin_reason::PinReason,
    pubsub::Name,
    refusal,
    request::Request,
    spread::may_read_elsewhere,
    state::{CommandStatus, State},
};

const CACHING_OFF: &str =
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled";
const CACHING_YES: &str = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
const CACHING_NO: &str = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";

/// A write of the client's own, with NOLOOP.
#[derive(Debug)]
struct OwnWrite {
    exchange: u64,
    key: Name,
    /// An invalidation was passed over for it.
    is_passed_over: bool,
    /// Another one came while it is under way: perhaps of a later change, whose invalidation must come behind the reply.
    is_due: bool,
}

/// Own writes under way that are looked for in each change; those beyond cause an invalidation.
const OWN_MAX: usize = 64;

/// State of a client that tracks.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    pub(crate) terms: TrackingMode,
    /// As whom its reads are remembered.
    login: Option<u64>,
    /// CLIENT CACHING was said for the next command, or for the transaction that begins with it.
    is_caching: bool,
    is_redirect_broken: bool,
    under_way: InFlight,
    /// In the order in which they were sent.
    own: Vec<OwnWrite>,
    /// Keys of the transaction being queued.
    queued: Vec<(Name, KeyAccess)>,
}

impl Tracking {
    /// CLIENT CACHING was said.
    #[cfg(test)]
    pub(super) fn is_caching(&self) -> bool {
        self.is_caching
    }

    /// Whether the client may keep the keys it reads now.
    fn wants(&self) -> bool {
        let TrackingMode { is_opt_in, is_opt_out, .. } = self.terms;
        if is_opt_in || is_opt_out { is_opt_in == self.is_caching } else { true }
    }

    /// An invalidation of `key` is of nothing but a change of the client's own.
    fn is_own(&mut self, key: &[u8]) -> bool {
        for write in self.own.iter_mut().filter(|write| *write.key == *key) {
            if !std::mem::replace(&mut write.is_passed_over, true) {
                return true;
            }
            write.is_due = true;
        }
        false
    }

    /// Writes of its own that are answered with `exchange`: invalidations that the client must get after all.
    fn settle_own(&mut self, exchange: u64, is_error: bool, io: &impl Io) -> Vec<Name> {
        let (mut due, mut unread, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for write in self.own.extract_if(.., |write| write.exchange == exchange) {
            // If it has failed, what was passed over was somebody else's.
            failed.extend((is_error && write.is_passed_over).then(|| write.key.clone()));
            match write.is_due || (is_error && write.is_passed_over) {
                true => due.push(write.key),
                false if !is_error => unread.push(write.key),
                false => {}
            }
        }
        // Perhaps that of a later write of its own, which must not take the next one for its own then.
        for write in self.own.iter_mut().filter(|write| failed.contains(&write.key)) {
            write.is_due |= write.is_passed_over;
            write.is_passed_over = true;
        }
        // As a server has it: what the client wrote it has not read.
        unread.iter().filter(|key| !self.under_way.is_read(key)).for_each(|key| io.forget_key(key));
        due
    }
}

/// Whether a client that reads the keys may keep them. All keys named by a script count as read.
fn is_tracked(command: &Command) -> bool {
    command.flags.contains(Flags::READONLY) || command.categories.contains(Categories::SCRIPTING)
}

/// The access of a command to its keys, if that matters.
fn touched(command: &Command, class: Class, is_bcast: bool, is_behind_others: bool) -> Option<KeyAccess> {
    let is_write = command.flags.contains(Flags::WRITE) && class != Class::Blocking && !is_behind_others;
    match is_tracked(command) {
        true => Some(KeyAccess::Read),
        false if is_write => Some(KeyAccess::Written),
        false => is_bcast.then_some(KeyAccess::Read),
    }
}

/// Whenever it succeeds it has changed its keys, and its server says so.
fn surely_writes(command: &Command, request: &Request<'_>) -> bool {
    match command.name {
        // With other options it may do nothing.
        "set" => match request.argc() {
            3 => true,
            4 => request.text(3).eq_ignore_ascii_case(b"keepttl"),
            5 => request.text(3).eq_ignore_ascii_case(b"ex") || request.text(3).eq_ignore_ascii_case(b"px"),
            _ => false,
        },
        "mset" | "setex" | "psetex" | "getset" | "incr" | "incrby" | "incrbyfloat" | "decr" | "decrby" | "append"
        | "lpush" | "rpush" | "hset" | "hmset" | "hincrby" | "hincrbyfloat" => true,
        _ => false,
    }
}

/// The keys of a command; none if they cannot be found, which its server will refuse.
fn names(command: &Command, request: &Request<'_>) -> Vec<Name> {
    let mut keys = Keys::new();
    if redis::keys(command, request, &mut keys).is_err() {
        return Vec::new();
    }
    keys.iter().filter(|key| !key.flags.contains(KeyFlags::NOT_KEY)).map(|key| request.text(key.index).into()).collect()
}

impl State {
    /// CLIENT TRACKING: when it is answered everything is heard of that is changed from then on.
    pub(crate) fn client_tracking(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let terms = match TrackingMode::parse(request, self.tracking.as_deref().map(|tracking| &tracking.terms), io) {
            Ok(Some(terms)) => terms,
            Ok(None) => {
                self.drop_tracking(io);
                return self.ok(io);
            }
            Err(text) => return self.error_line(io, &text),
        };
        match io.track(self.login, &terms.scope()) {
            Track::Live => {
                self.begin_tracking(terms, io);
                self.ok(io)
            }
            Track::Later => {
                self.begin_tracking(terms, io);
                self.wait_for_subscription()
            }
            Track::Refused(refusal) => self.refuse(refusal, io),
        }
    }

    fn begin_tracking(&mut self, terms: TrackingMode, io: &impl Io) {
        let tracking = self.tracking.get_or_insert_default();
        let is_another = tracking.login.replace(self.login).is_some_and(|login| login != self.login);
        if is_another {
            // The keys that it has kept are in the table of its previous login.
            self.send_invalidation(None, io);
        }
        let tracking = self.tracking.get_or_insert_default();
        tracking.terms = terms;
        tracking.is_redirect_broken = false;
        io.note_tracking(true);
    }

    /// The result of [`Feeds::track`](crate::io::Feeds::track) has arrived.
    pub(crate) fn on_tracked(&mut self, refused: Option<&[u8]>, io: &impl Io) -> bool {
        if self.is_cut {
            return false;
        }
        match refused {
            None => self.complete_with(b"+OK\r\n", FrameKind::Reply, io),
            Some(line) => {
                self.drop_tracking(io);
                self.complete_with(line, FrameKind::Error, io)
            }
        }
    }

    /// CLIENT TRACKING OFF, RESET.
    pub(crate) fn drop_tracking(&mut self, io: &impl Io) {
        if self.tracking.take().is_some() {
            io.untrack();
            io.note_tracking(false);
        }
    }

    /// CLIENT CACHING.
    pub(crate) fn client_caching(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let Some(tracking) = &mut self.tracking else { return self.error(io, CACHING_OFF) };
        let word = request.text(2);
        let (is_yes, is_no) = (word.eq_ignore_ascii_case(b"yes"), word.eq_ignore_ascii_case(b"no"));
        if is_yes && !tracking.terms.is_opt_in {
            return self.error(io, CACHING_YES);
        }
        if is_no && !tracking.terms.is_opt_out {
            return self.error(io, CACHING_NO);
        }
        if !is_yes && !is_no {
            return self.error(io, refusal::SYNTAX);
        }
        tracking.is_caching = true;
        self.ok(io)
    }

    /// CLIENT GETREDIR.
    pub(crate) fn client_redirection(&mut self, io: &impl Io) -> CommandStatus {
        let redirection = self.redirection();
        self.local(io, |out| encode::integer(out, redirection));
        CommandStatus::Done
    }

    fn redirection(&self) -> i64 {
        let Some(tracking) = &self.tracking else { return -1 };
        tracking.terms.redirect.as_ref().map_or(0, |redirect| redirect.id as i64)
    }

    /// CLIENT TRACKINGINFO.
    pub(crate) fn client_tracking_info(&mut self, io: &impl Io) -> CommandStatus {
        let (redirection, version) = (self.redirection(), self.version);
        let mut flags = vec![if self.tracking.is_some() { "on" } else { "off" }];
        let mut prefixes: Vec<Name> = Vec::new();
        if let Some(Tracking { terms, is_caching, is_redirect_broken, .. }) = self.tracking.as_deref() {
            let all = [
                (terms.is_bcast, "bcast"),
                (terms.is_opt_in, "optin"),
                (terms.is_opt_in && *is_caching, "caching-yes"),
                (terms.is_opt_out, "optout"),
                (terms.is_opt_out && *is_caching, "caching-no"),
                (terms.is_no_loop, "noloop"),
                (*is_redirect_broken, "broken_redirect"),
            ];
            flags.extend(all.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name));
            prefixes.extend(terms.prefixes.iter().cloned());
        }
        self.local(io, |out| {
            encode::map(out, 3, version);
            encode::bulk(out, b"flags");
            encode::set(out, flags.len(), version);
            flags.iter().for_each(|flag| encode::bulk(out, flag.as_bytes()));
            encode::bulk(out, b"redirect");
            encode::integer(out, redirection);
            encode::bulk(out, b"prefixes");
            encode::array(out, prefixes.len());
            prefixes.iter().for_each(|prefix| encode::bulk(out, prefix));
        });
        CommandStatus::Done
    }

    /// A large command is held whole if what it reads has to be known.
    pub(crate) fn must_know_keys(&self, command: &Command) -> bool {
        let Some(tracking) = &self.tracking else { return false };
        (tracking.terms.is_bcast || is_tracked(command)) && !command.keys.is_empty()
    }

    /// Sends a command of a client that tracks, and notes what it reads.
    pub(crate) fn send_tracked(
        &mut self,
        command: &'static Command,
        class: Class,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        let first = self.order.next_number();
        let taken = self.send(command, class, request, io);
        if taken == CommandStatus::Held {
            return taken;
        }
        let sent = self.order.next_number().checked_sub(1).filter(|&last| last >= first);
        let is_queued = self.transaction.is_some() && class != Class::Multi;
        let is_spoiled = self.transaction.as_ref().is_some_and(|transaction| transaction.is_spoiled());
        // Behind a command that waits for others the reply may come late.
        let is_behind_others =
            self.pins.is_some_and(|(_, pins)| pins.has(PinReason::Blocking) || pins.has(PinReason::Wait));
        let Some(tracking) = &mut self.tracking else { return taken };
        let access = touched(command, class, tracking.terms.is_bcast, is_behind_others);
        match class {
            Class::Multi | Class::Discard => tracking.queued.clear(),
            Class::Exec => {
                let keys = std::mem::take(&mut tracking.queued);
                if let Some(exchange) = sent {
                    self.note_touched(keys, exchange, false, io);
                }
            }
            // EXEC does not read the keys of commands that it will not execute.
            _ if is_spoiled => tracking.queued = Vec::new(),
            _ if is_queued => {
                if let Some(access) = access {
                    tracking.queued.extend(names(command, request).into_iter().map(|key| (key, access)));
                }
            }
            _ => {
                if let Some(exchange) = sent {
                    self.note_sent((command, access), request, exchange, io);
                }
            }
        }
        taken
    }

    /// A command is done with: what CLIENT CACHING said was for it, unless it was CLIENT itself, or for the transaction that it
    /// is in.
    #[inline]
    pub(crate) fn end_caching(&mut self, command: Option<Resolved>) {
        let is_client = || {
            let Some(Resolved::Known(command)) = command else { return false };
            matches!(command.class, Class::Local(LocalCommand::Client(_)))
        };
        if let Some(tracking) = &mut self.tracking
            && self.transaction.is_none()
            && !is_client()
        {
            tracking.is_caching = false;
        }
    }

    fn note_sent(
        &mut self,
        (command, access): (&'static Command, Option<KeyAccess>),
        request: &Request<'_>,
        exchange: u64,
        io: &impl Io,
    ) {
        let (Some(tracking), Some(access)) = (self.tracking.as_deref(), access) else { return };
        let is_partial = self.is_sharded && command.name == "mset";
        // With BCAST a server tells one invalidation for all changes of a turn, so whose it is cannot be known.
        let passes_over = tracking.terms.is_no_loop && !tracking.terms.is_bcast;
        if !passes_over || is_partial || !surely_writes(command, request) {
            let keys = names(command, request).into_iter().map(|key| (key, access)).collect();
            return self.note_touched(keys, exchange, may_read_elsewhere(command), io);
        }
        if self.order.oldest() > exchange {
            return;
        }
        let keys = names(command, request).into_iter();
        let places: Vec<(Name, u16)> = keys.map(|key| (key.clone(), self.reads_at(&key, false, io))).collect();
        let own = self.tracking.as_deref().map_or(0, |tracking| tracking.own.len());
        if own + places.len() > OWN_MAX || !io.watch_keys(&places, false) {
            // Its own invalidation may never come, and another one would be passed over.
            let keys = places.into_iter().map(|(key, _)| (key, KeyAccess::Read)).collect();
            return self.note_touched(keys, exchange, false, io);
        }
        let Some(tracking) = &mut self.tracking else { return };
        tracking.own.extend(places.into_iter().map(|(key, _)| OwnWrite {
            exchange,
            key,
            is_passed_over: false,
            is_due: false,
        }));
    }

    /// The server that this client reads `key` at.
    fn reads_at(&self, key: &[u8], may_go_elsewhere: bool, io: &impl Io) -> u16 {
        if !self.is_sharded {
            return self.pins.as_ref().map_or(self.primary, |(pinned, _)| pinned.shard);
        }
        self.route(io.place(key).shard, may_go_elsewhere, io).shard
    }

    /// `exchange` reads and writes these keys.
    fn note_touched(&mut self, mut keys: Vec<(Name, KeyAccess)>, exchange: u64, may_go_elsewhere: bool, io: &impl Io) {
        let Some(tracking) = self.tracking.as_deref() else { return };
        let (terms, wants, is_bcast) = (&tracking.terms, tracking.wants(), tracking.terms.is_bcast);
        keys.retain(|(key, access)| terms.covers(key) && (wants || *access == KeyAccess::Written));
        if keys.is_empty() {
            return;
        }
        // A client may keep keys that it has written only with BCAST.
        let is_kept = |access: KeyAccess| is_bcast || access == KeyAccess::Read;
        let kept = keys.iter().filter(|(_, access)| is_kept(*access));
        let places: Vec<(Name, u16)> =
            kept.map(|(key, _)| (key.clone(), self.reads_at(key, may_go_elsewhere, io))).collect();
        let is_heard = places.is_empty() || io.watch_keys(&places, !is_bcast);
        let touched = |(name, access)| TouchedKey { name, access, is_due: !is_heard && is_kept(access) };
        if let Some(tracking) = &mut self.tracking {
            tracking.under_way.add(exchange, keys.into_iter().map(touched).collect());
        }
        if self.order.oldest() > exchange {
            // It was refused on the spot.
            self.on_tracked_reply(exchange, false, io);
        }
    }

    /// The request went to another server than was looked at.
    pub(crate) fn note_redirected(&mut self, exchange: u64) {
        if let Some(tracking) = &mut self.tracking {
            tracking.under_way.redirected(exchange);
            let mut keys = Vec::new();
            tracking.own.retain(|write| {
                let is_meant = write.exchange == exchange;
                let key = || TouchedKey { name: write.key.clone(), access: KeyAccess::Read, is_due: true };
                keys.extend(is_meant.then(key));
                !is_meant
            });
            if !keys.is_empty() {
                tracking.under_way.add(exchange, keys);
            }
        }
    }

    /// The reply to `exchange` is with the client: what has changed meanwhile it has to forget.
    pub(crate) fn on_tracked_reply(&mut self, exchange: u64, is_error: bool, io: &impl Io) {
        let Some(tracking) = &mut self.tracking else { return };
        let mut due = tracking.under_way.take_due(exchange);
        if !tracking.own.is_empty() {
            due.extend(tracking.settle_own(exchange, is_error, io));
        }
        if due.is_empty() {
            return;
        }
        // A message for each prefix, as the server has it.
        let prefixes: Vec<Name> = tracking.terms.prefixes.iter().cloned().collect();
        for prefix in if prefixes.is_empty() { vec![Name::default()] } else { prefixes } {
            let keys: Vec<&[u8]> = due.iter().map(|key| &**key).filter(|key| key.starts_with(&prefix)).collect();
            if !keys.is_empty() {
                self.send_invalidation(Some(&keys), io);
            }
        }
    }

    /// These keys have changed, and the client may have kept them.
    pub(crate) fn on_changed(&mut self, keys: &[&[u8]], io: &impl Io) {
        let Some(tracking) = &mut self.tracking else { return };
        if tracking.under_way.is_empty() && tracking.own.is_empty() {
            return self.send_invalidation(Some(keys), io);
        }
        let mut now = keys.to_vec();
        now.retain(|key| !tracking.under_way.changed(key) && !tracking.is_own(key));
        if !now.is_empty() {
            self.send_invalidation(Some(&now), io);
        }
    }

    /// Everything may have changed.
    pub(crate) fn on_all_changed(&mut self, io: &impl Io) {
        let Some(tracking) = &mut self.tracking else { return };
        tracking.under_way.all_changed();
        // Nothing is passed over for what it is writing any more: the invalidation comes behind its reply.
        tracking.own.iter_mut().for_each(|write| (write.is_passed_over, write.is_due) = (true, true));
        self.send_invalidation(None, io);
    }

    /// Tells the client, or the one in its place, that it must forget `keys`, `None`: all.
    fn send_invalidation(&mut self, keys: Option<&[&[u8]]>, io: &impl Io) {
        let version = self.version;
        let Some(tracking) = &mut self.tracking else { return };
        let count = keys.map_or(1, |keys| keys.len());
        // A message for each key, or one for all, as the server has it.
        let each = keys.map_or(1, |keys| if tracking.terms.is_bcast { keys.len().max(1) } else { 1 });
        let Some(redirect) = &tracking.terms.redirect else {
            // RESP2 has no push where replies are expected.
            if version == Version::Resp3 {
                io.count_invalidations(count);
                let mut frames = Vec::new();
                match keys {
                    Some(keys) => keys.chunks(each).for_each(|keys| notice::write(&mut frames, Some(keys), version)),
                    None => notice::write(&mut frames, None, version),
                }
                self.on_push(&frames, io);
            }
            return;
        };
        if let Some(target) = redirect.target() {
            io.count_invalidations(count);
            match keys {
                Some(keys) => keys.chunks(each).for_each(|keys| io.post(&target, Some(keys))),
                None => io.post(&target, None),
            }
            return;
        }
        let id = redirect.id;
        tracking.is_redirect_broken = true;
        if version == Version::Resp3 {
            let mut frame = Vec::new();
            encode::push(&mut frame, 2, version);
            encode::bulk(&mut frame, b"tracking-redir-broken");
            encode::integer(&mut frame, id as i64);
            self.on_push(&frame, io);
        }
    }

    /// Keys have changed that another client has read, who sends its invalidations here.
    pub(crate) fn on_others_changed(&mut self, keys: Option<&[&[u8]]>, io: &impl Io) {
        if self.version == Version::Resp3 || self.is_subscriber() {
            let mut frame = Vec::new();
            notice::write(&mut frame, keys, self.version);
            self.on_push(&frame, io);
        }
    }

    pub(crate) fn client_tracks(
        &mut self,
        client: ClientCommand,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        match client {
            ClientCommand::Tracking => self.client_tracking(request, io),
            ClientCommand::Caching => self.client_caching(request, io),
            ClientCommand::GetRedir => self.client_redirection(io),
            _ => self.client_tracking_info(io),
        }
    }
}
