//! Which shard a command goes to, where the upstream has several; and commands that go to more than one.

use weir_analysis::redis::{self, Args, Categories, Command, KeyError, Keys, RequestPolicy, Resolved};
use weir_base::exchange::FrameKind;
use weir_placement::{KeyLocation, NOBODY};
use weir_policy::redis::NoPermission;

use crate::{
    gather::{Gather, Merge},
    io::{Full, Io, Ticket},
    lane::{LaneKey, Purpose},
    pin::Pins,
    pin_reason::PinReason,
    redirect::Attempt,
    refusal,
    request::Request,
    spread::{
        Destination, NoPlace, Wire, destination, goes_everywhere, may_read_elsewhere, one_place, placed, shard_of,
    },
    state::{CommandStatus, Hold, State},
};

impl State {
    /// The lane key of the shard that holds all keys of the command. Without keys a stable one.
    ///
    /// # Errors
    /// The keys are on several shards or cannot be read, or the command concerns all shards (WAIT, SCRIPT KILL).
    pub(crate) fn lane_key(
        &self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Result<LaneKey, NoPlace> {
        if !io.is_sharded() {
            return Ok(self.key());
        }
        if goes_everywhere(command) {
            return Err(NoPlace::Everywhere);
        }
        let shard = match one_place(command, request, io)? {
            Some(place) => place.shard,
            // Where the state is that it may speak of.
            None => self.pins.filter(|(_, pins)| pins.last()).map_or_else(|| io.keyless(), |(key, _)| key.shard),
        };
        Ok(self.key_at(shard))
    }

    /// As [`State::lane_key`], and the group of the keys, for a command of which only the beginning is here; `None` if that does
    /// not tell. It goes where a small one would: what the client's own lane is for has no part in it.
    ///
    /// # Errors
    /// As for a small one.
    pub(crate) fn lane_key_of_head(
        &self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Result<Option<(LaneKey, Option<u16>)>, NoPlace> {
        if !io.is_sharded() {
            return Ok(Some((self.key(), None)));
        }
        let mut keys = Keys::new();
        let is_found = redis::keys(command, request, &mut keys) != Err(redis::KeyError::NotBuffered);
        let is_here = is_found && placed(&keys, io.topology().is_some()).all(|index| request.arg(index).is_some());
        if !is_here || goes_everywhere(command) {
            return Ok(None);
        }
        let place = match one_place(command, request, io) {
            // A small one would be split.
            Err(_) if command.request_policy == RequestPolicy::MultiShard => return Ok(None),
            place => place?,
        };
        Ok(Some((self.key_at(shard_of(command, place, io)), place.map(|place| place.group))))
    }

    /// A large command must be whole before it can be split, or before all its keys can be found or judged: it is held, as large as
    /// a transaction may be.
    pub(crate) fn must_be_whole(&mut self, request: &Request<'_>, io: &impl Io) -> bool {
        let Resolved::Known(command) = redis::resolve(request.text(0), request.arg(1)) else { return false };
        let is_split = self.is_sharded && command.request_policy == RequestPolicy::MultiShard;
        // Keys further back decide whether its user may run it.
        let is_unjudged =
            self.is_watched && matches!(self.verdict(command, request), Err(NoPermission::Keys(KeyError::NotBuffered)));
        // Keys further back decide where it goes: those of a large script, say.
        let is_unplaced =
            self.is_sharded && !goes_everywhere(command) && self.lane_key_of_head(command, request, io) == Ok(None);
        if !(is_split || is_unplaced || is_unjudged || self.must_know_keys(command))
            || self.is_held_whole
            || self.transaction.is_some()
            || !self.is_authenticated
            || io.full() == Some(Full::Buffered)
        {
            return false;
        }
        self.is_held_whole = true;
        self.limits.stream_bytes = self.settings.transaction_bytes_max.min(u32::MAX.into()) as u32;
        true
    }

    /// The command that was held is done with.
    #[inline]
    pub(crate) fn stream_again(&mut self) {
        if std::mem::take(&mut self.is_held_whole) && self.transaction.is_none() {
            self.limits.stream_bytes = self.settings.stream_bytes.min(u32::MAX.into()) as u32;
        }
    }

    /// The key of the lanes to `shard` that this client's stateless commands ride.
    pub(crate) fn key_at(&self, shard: u16) -> LaneKey {
        LaneKey { shard, ..self.key() }
    }

    /// Sends a stateless command where its keys are.
    #[cold]
    pub(crate) fn forward_over_shards(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        let destination = match destination(command, request, io) {
            Ok(destination) => destination,
            Err(text) => return self.error_line(io, &text),
        };
        let must_wait = self.must_wait_for_cluster(io);
        let is_read = may_read_elsewhere(command);
        match destination {
            Destination::One(place) => {
                let key = self.route(shard_of(command, place, io), is_read, io);
                if must_wait || self.must_settle(key, io) {
                    self.hold = Some(Hold::Quiet);
                    return CommandStatus::Held;
                }
                io.count(Some(command), 1);
                let ticket = Ticket::new(self.order.next_number());
                let group = place.map(|place| place.group);
                match request.with_wire(|wire| self.send_at((key, group), wire, ticket, io)) {
                    Ok(()) => {
                        self.order.sent();
                        if command.categories.contains(Categories::SCRIPTING) {
                            self.note_script(ticket.number);
                        }
                        CommandStatus::Done
                    }
                    Err(refusal) => self.refuse(refusal, io),
                }
            }
            Destination::Parts { parts, merge } => {
                let keys: Vec<LaneKey> = parts.iter().map(|part| self.route(part.shard, is_read, io)).collect();
                if must_wait || keys.iter().any(|&key| self.must_settle(key, io)) {
                    self.hold = Some(Hold::Quiet);
                    return CommandStatus::Held;
                }
                if parts.len() as u64 > io.room() {
                    // Half of them refused would be half a command.
                    return match self.waits_in_vain() {
                        true => {
                            io.count_refused(Some(command), Full::InFlight.name());
                            self.error(io, Full::InFlight.text())
                        }
                        false => CommandStatus::Held,
                    };
                }
                io.count(Some(command), 1);
                self.send_parts(&parts, &keys, merge, io)
            }
        }
    }

    fn must_settle(&self, key: LaneKey, io: &impl Io) -> bool {
        !self.is_pinned_at(key.shard) && io.must_settle(key)
    }

    /// Sends each part on the lanes of its key.
    fn send_parts(&mut self, parts: &[Wire], keys: &[LaneKey], merge: Merge, io: &impl Io) -> CommandStatus {
        let first = self.order.next_number();
        self.order.sent_parts(Gather::new(first, parts.len(), merge));
        for ((part, &key), number) in parts.iter().zip(keys).zip(first..) {
            if let Err(refusal) = self.send_at((key, part.group), &part.bytes, Ticket::new(number), io) {
                io.count_shed(refusal.name());
                let line = refusal::line(refusal::refused(refusal));
                self.on_reply(number, &line, Some(FrameKind::Error), io);
            }
        }
        CommandStatus::Done
    }

    /// The map of slots has changed, or a request goes another way: what is under way comes first.
    pub(crate) fn must_wait_for_cluster(&mut self, io: &impl Io) -> bool {
        let Some(version) = io.topology() else { return false };
        let must_wait = !self.order.is_quiet() && (version != self.topology || self.is_redirecting());
        if !must_wait {
            self.topology = version;
        }
        must_wait
    }

    /// The lanes for what `shard` has: to itself, or where it may be read.
    pub(crate) fn route(&self, shard: u16, is_read: bool, io: &impl Io) -> LaneKey {
        let own = self.key_at(shard);
        if !is_read || self.is_pinned_at(shard) {
            return own;
        }
        match io.read_from(shard) {
            reads if reads == shard => own,
            reads => LaneKey { shard: reads, purpose: Purpose::Reads, ..own },
        }
    }

    /// Sends a request on the lanes of `key`, for the keys of a group.
    pub(crate) fn send_at(
        &mut self,
        (key, group): (LaneKey, Option<u16>),
        wire: &[u8],
        ticket: Ticket,
        io: &impl Io,
    ) -> Result<(), weir_base::exchange::Refusal> {
        if key.shard == NOBODY {
            return Err(weir_base::exchange::Refusal::Unreachable);
        }
        if self.is_pinned_at(key.shard) {
            io.forward_pinned(wire, ticket);
            self.keep_bound(ticket, group, key.shard, io);
            return Ok(());
        }
        io.forward(key, wire, ticket)?;
        if io.topology().is_some() {
            self.keep_attempt(Attempt::new(ticket, group, key.shard, wire));
        }
        Ok(())
    }

    /// The client's own lane leads to `shard`.
    pub(crate) fn is_pinned_at(&self, shard: u16) -> bool {
        self.pins.as_ref().is_some_and(|(key, _)| key.shard == shard)
    }

    /// Watched keys are of this place's slot, which was on another node when they were.
    pub(crate) fn watch_has_moved(&self, place: KeyLocation) -> bool {
        let is_left = |(key, pins): &(LaneKey, Pins)| pins.has(PinReason::Watch) && key.shard != place.shard;
        self.pins.as_ref().is_some_and(is_left) && self.watches_slot(place.group)
    }

    /// Binds the transaction being queued to the shard of `command`.
    ///
    /// # Errors
    /// It would need another one than the commands before it, or than the watched keys, and was rejected; or it must wait.
    pub(crate) fn bind_transaction(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Result<(), CommandStatus> {
        if !io.is_sharded() {
            return Ok(());
        }
        if goes_everywhere(command) {
            return Err(self.reject(io, refusal::ALL_SHARDS_IN_MULTI));
        }
        let place = match one_place(command, request, io) {
            Ok(Some(place)) => place,
            Ok(None) => {
                if let Some(transaction) = self.transaction.as_mut().filter(|_| command.name == "publish") {
                    transaction.publishes = true;
                }
                return Ok(());
            }
            Err(no) => {
                no.count(command, io);
                return Err(self.reject_with(io, |out| out.extend_from_slice(&no.text(command))));
            }
        };
        let is_elsewhere = self.pins.as_ref().is_some_and(|(key, _)| key.shard != place.shard);
        if is_elsewhere && !self.is_quiet() {
            // Pins that end with a reply are gone once all commands are answered.
            self.hold = Some(Hold::Quiet);
            return Err(CommandStatus::Held);
        }
        if is_elsewhere && !self.watch_has_moved(place) {
            return Err(self.reject(io, refusal::CROSS_SLOT));
        }
        // The slot of the watched keys has moved: EXEC answers as if they had changed.
        self.is_watch_broken |= is_elsewhere;
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        if transaction.group.is_some_and(|bound| bound != place.group) {
            return Err(self.reject(io, refusal::CROSS_SLOT));
        }
        transaction.group = Some(place.group);
        Ok(())
    }
}
