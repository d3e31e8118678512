//! When a client needs an upstream lane of its own, and when no longer.

use std::{collections::VecDeque, fmt};

use weir_analysis::redis::Command;
use weir_base::exchange::{LossCause, Refusal};

use crate::{
    io::{Io, Pinning},
    lane::LaneKey,
    ordering::ReplyMode,
    pin_reason::PinReason,
    refusal,
    spares::Spare,
    state::{CommandStatus, Hold, State},
    stream::Streaming,
};

/// Why a session has no lane of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPin {
    /// Something must be waited for first; the session holds.
    Yet,
    TooManyBlocked,
    /// The session has one, to another shard.
    Elsewhere,
    Refused(Refusal),
}

/// The reasons for which a session holds its lane, and whether the lane may be lent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pins {
    reasons: u16,
    is_dirty: bool,
    /// WATCHes that were sent and not refused: with none, no key is watched.
    watches: u16,
}

impl Pins {
    pub(crate) fn add(&mut self, reason: PinReason) {
        self.reasons |= reason as u16;
        self.is_dirty |= reason.leaves_state();
        self.watches = self.watches.saturating_add(u16::from(reason == PinReason::Watch));
    }

    pub(crate) fn remove(&mut self, reason: PinReason) {
        self.reasons &= !(reason as u16);
        if reason == PinReason::Watch {
            self.watches = 0;
        }
    }

    /// The server refused a WATCH: only what others of them named is watched.
    fn watch_refused(&mut self) {
        self.watches = self.watches.saturating_sub(1);
        if self.watches == 0 {
            self.remove(PinReason::Watch);
        }
    }

    /// A reason is there that does not pass with a reply.
    pub(crate) fn last(mut self) -> bool {
        !self.settle()
    }

    pub(crate) fn has(&self, reason: PinReason) -> bool {
        self.reasons & reason as u16 != 0
    }

    /// The lane holds state of the client that cannot be had again on another one.
    fn hold_state(self) -> bool {
        self.has(PinReason::ConnectionState) || self.has(PinReason::Wait)
    }

    /// The last reply is here: passing reasons are over. True if none is left.
    pub(crate) fn settle(&mut self) -> bool {
        for reason in PinReason::ALL {
            if reason.is_passing() {
                self.remove(reason);
            }
        }
        self.reasons == 0
    }

    /// The lane's state is no longer what its key says.
    pub(crate) fn soil(&mut self) {
        self.is_dirty = true;
    }

    pub(crate) fn is_clean(&self) -> bool {
        !self.is_dirty
    }
}

impl fmt::Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for reason in PinReason::ALL {
            if self.has(reason) {
                write!(f, "{separator}{}", reason.name())?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// The keys that a client watches, as far as they matter before EXEC.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The slots of the keys, in front of a cluster.
    slots: Vec<u16>,
    /// WATCHes without a reply.
    sent: VecDeque<u64>,
}

impl Spare for Watched {
    fn room(&self) -> usize {
        self.slots.capacity() * size_of::<u16>() + self.sent.capacity() * size_of::<u64>()
    }

    fn is_bare(&self) -> bool {
        self.slots.is_empty() && self.sent.is_empty()
    }
}

impl State {
    /// Makes sure that the client has a lane of its own, for `reason`; a refusal is the reply to `command`.
    pub(crate) fn need_pin(
        &mut self,
        reason: PinReason,
        key: LaneKey,
        command: Option<&'static Command>,
        io: &impl Io,
    ) -> Result<(), CommandStatus> {
        self.request_pin(reason, key, io).map_err(|none| match none {
            NoPin::Yet => CommandStatus::Held,
            NoPin::TooManyBlocked => {
                io.count_refused(command, "blocked_clients");
                self.error(io, refusal::BLOCKED_CLIENTS)
            }
            NoPin::Elsewhere => {
                io.count_refused(command, "pinned_elsewhere");
                self.error(io, refusal::PINNED_ELSEWHERE)
            }
            NoPin::Refused(refusal) => {
                io.count_refused(command, refusal.name());
                self.error(io, &refusal::refused(refusal))
            }
        })
    }

    /// As [`State::need_pin`], without a reply. Before the client gets a lane, all it sent must be answered: a command on
    /// another connection could overtake it.
    pub(crate) fn request_pin(&mut self, reason: PinReason, key: LaneKey, io: &impl Io) -> Result<(), NoPin> {
        if let Some((_, pins)) = self.pins.as_mut().filter(|(held, _)| held.shard == key.shard) {
            pins.add(reason);
            self.publish_pins(io);
            return Ok(());
        }
        if self.pins.is_some() {
            if !self.is_quiet() {
                // Pins that end with a reply are gone once all commands are answered.
                self.hold = Some(Hold::Quiet);
                return Err(NoPin::Yet);
            }
            if reason != PinReason::Large || self.tunnel.is_some() {
                return Err(NoPin::Elsewhere);
            }
            self.park(io);
        }
        match self.pin_result.take() {
            Some(Err(refusal)) => return Err(NoPin::Refused(refusal)),
            // While it was on its way the slot has moved.
            Some(Ok(())) if self.pin_asked != Some(key) => io.unpin(true),
            Some(Ok(())) | None => {}
        }
        if !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return Err(NoPin::Yet);
        }
        match io.pin(key, reason) {
            Pinning::Ready => {
                let mut pins = Pins::default();
                pins.add(reason);
                self.pins = Some((key, pins));
                self.publish_pins(io);
                Ok(())
            }
            Pinning::TooManyBlocked => Err(NoPin::TooManyBlocked),
            Pinning::Refused(refusal) => Err(NoPin::Refused(refusal)),
            Pinning::Later => {
                self.pin_asked = Some(key);
                self.hold = Some(Hold::Pin);
                Err(NoPin::Yet)
            }
        }
    }

    /// Gives the lane back once nothing needs it.
    pub(crate) fn settle_pin(&mut self, io: &impl Io) {
        if !self.is_quiet() || self.tunnel.is_some() || self.streams_on_pin() {
            return;
        }
        let Some((_, pins)) = &mut self.pins else { return };
        let before = *pins;
        if pins.settle() {
            self.pins = None;
            io.unpin(before.is_clean());
            self.unpark(io);
        } else if *pins == before {
            return;
        }
        self.publish_pins(io);
    }

    /// A large command is on its way on the lane of the client's own, or is the next one there.
    fn streams_on_pin(&self) -> bool {
        match (self.streaming.as_deref(), &self.pins) {
            (Some(Streaming::Flowing), _) => true,
            (Some(Streaming::Waiting(waiting)), Some((held, _))) => held.shard == waiting.key.shard,
            _ => false,
        }
    }

    /// Sets the lane with the client's state aside: a large command for another shard needs one too. Until its reply is here
    /// no other command is taken, so nothing has to choose between the two.
    fn park(&mut self, io: &impl Io) {
        self.parked = self.pins.take().map(Box::new);
        io.park();
    }

    /// The lane with the client's state is its own again.
    pub(crate) fn unpark(&mut self, io: &impl Io) {
        if let Some(parked) = self.parked.take() {
            self.pins = Some(*parked);
            io.unpark();
            self.publish_pins(io);
        }
    }

    /// A WATCH was sent as `exchange`; in front of a cluster its keys are of `slot`.
    pub(crate) fn watch_sent(&mut self, exchange: u64, slot: Option<u16>) {
        let watched = self.watched.get_or_insert_with(|| self.order.spares.watched.take());
        watched.sent.push_back(exchange);
        if let Some(slot) = slot.filter(|slot| !watched.slots.contains(slot)) {
            watched.slots.push(slot);
        }
    }

    /// A key of this slot is watched.
    pub(crate) fn watches_slot(&self, slot: u16) -> bool {
        self.watched.as_ref().is_some_and(|watched| watched.slots.contains(&slot))
    }

    /// A WATCH has been answered. One that was refused is no state: its lane goes back with the reply.
    pub(crate) fn note_watch(&mut self, exchange: u64, is_refused: bool) {
        if self.take_watch_sent(exchange)
            && is_refused
            && let Some((_, pins)) = &mut self.pins
        {
            pins.watch_refused();
            if !pins.has(PinReason::Watch) {
                self.forget_watched_slots();
            }
        }
    }

    /// The next reply is no longer waited for, if it is the one to this WATCH; false if it is not.
    pub(crate) fn take_watch_sent(&mut self, exchange: u64) -> bool {
        let Some(watched) = &mut self.watched else { return false };
        let is_next = watched.sent.pop_front_if(|sent| *sent == exchange).is_some();
        self.settle_watched();
        is_next
    }

    fn forget_watched_slots(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.slots.clear();
            self.settle_watched();
        }
    }

    fn forget_watched_keys(&mut self) {
        if let Some(watched) = &mut self.watched {
            watched.sent.clear();
            self.forget_watched_slots();
        }
    }

    /// Gives the memory back once nothing is in it.
    fn settle_watched(&mut self) {
        if let Some(watched) = self.watched.take_if(|watched| watched.is_bare()) {
            self.order.spares.watched.give(watched);
        }
    }

    /// Nothing is watched any more; false if nothing was.
    pub(crate) fn end_watch(&mut self) -> bool {
        self.forget_watched_keys();
        let Some((_, pins)) = self.pins.as_mut().filter(|(_, pins)| pins.has(PinReason::Watch)) else { return false };
        pins.remove(PinReason::Watch);
        true
    }

    /// Drops the lane and the state on it, whatever it is needed for.
    pub(crate) fn drop_pin(&mut self, io: &impl Io) {
        if self.tunnel.take().is_some() {
            io.set_tunnel(false);
        }
        if let Some((_, pins)) = self.pins.take() {
            self.forget_watched(pins);
            io.unpin(false);
        }
        self.publish_pins(io);
    }

    /// The lane of `pins` is no longer the client's. Keys watched on another lane stay watched.
    fn forget_watched(&mut self, pins: Pins) {
        if pins.has(PinReason::Watch) {
            self.forget_watched_keys();
        }
    }

    pub(crate) fn publish_pins(&self, io: &impl Io) {
        let own = self.pins.as_ref().into_iter().chain(self.parked.as_deref());
        let pinned: Vec<String> = own.map(|(_, pins)| pins.to_string()).collect();
        io.entry().details().pinned = pinned.join(", ");
    }

    /// The lane is gone; what was paired with it has been answered.
    pub(crate) fn on_pin_loss(&mut self, _cause: LossCause, io: &impl Io) {
        let Some((_, pins)) = self.pins.take() else {
            // The lane had arrived, but the command that requested it has not been processed again yet.
            self.pin_result = None;
            return;
        };
        self.forget_watched(pins);
        self.is_watch_broken |= pins.has(PinReason::Watch);
        // Over shards the half frame may be another one's; if it was this lane's, its loss has been reported already.
        if self.is_mid_frame && (self.tunnel.is_some() || !self.is_sharded) {
            self.cut();
        }
        if self.tunnel.take().is_some() || pins.hold_state() {
            // MONITOR would wait for ever, and other state would be missed in silence: the client must connect again.
            self.lose_state(io);
        }
        if matches!(self.streaming.as_deref(), Some(Streaming::Flowing)) {
            // Half a command cannot be taken back. Its error was its reply.
            self.is_closing = true;
        }
        self.unpark(io);
        self.publish_pins(io);
    }

    /// The lane with the client's state is gone, while a large command had another.
    pub(crate) fn on_parked_loss(&mut self, io: &impl Io) {
        let Some(parked) = self.parked.take() else { return };
        self.forget_watched(parked.1);
        self.is_watch_broken |= parked.1.has(PinReason::Watch);
        if parked.1.hold_state() {
            self.lose_state(io);
        }
        self.publish_pins(io);
    }

    /// Tells the client that state it relies on is gone, as the last thing it hears.
    pub(crate) fn lose_state(&mut self, io: &impl Io) {
        if self.is_mid_frame {
            // It would be read as a part of that frame.
            return self.cut();
        }
        let is_heard = match self.order.is_quiet() {
            true => self.order.mode == ReplyMode::On,
            false => !self.order.is_muted(self.order.oldest()),
        };
        if is_heard {
            self.pass(&refusal::line(refusal::STATE_LOST), true, io);
        }
        self.cut();
    }
}
