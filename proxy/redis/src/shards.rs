//! Which shard a command goes to, where the upstream has several; and commands that go to more than one.

use weir_analysis::redis::{self, Args, Class, Command, FindKeys, KeyFlags, Keys, RequestPolicy, ResponsePolicy};
use weir_resp::encode;
use weir_upstream::FrameKind;

use crate::{
    gather::{Fold, Gather, Merge, split_cursor},
    io::{Io, Ticket},
    lane::LaneKey,
    refusal,
    session::{Hold, Request, State, Taken},
};

/// Where commands go that name no key: a stable choice, so that what one leaves there another finds.
pub(crate) const KEYLESS: u16 = 0;

/// Where a command goes.
enum Destination {
    /// Whole, to this shard.
    One(u16),
    /// To each of these shards its part of the command.
    Parts { parts: Vec<Wire>, merge: Merge },
}

/// A request for one shard.
struct Wire {
    shard: u16,
    bytes: Vec<u8>,
}

impl State {
    /// The lane key of the shard that holds all keys of the command. Without keys, or where they cannot be found because the
    /// command is malformed (its server will say how), a stable one.
    ///
    /// # Errors
    /// The text to answer: the keys are on several shards, or it concerns all of them (WAIT, SCRIPT KILL).
    pub(crate) fn lane_key(
        &self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Result<LaneKey, &'static str> {
        if !io.is_sharded() {
            return Ok(self.key());
        }
        if goes_everywhere(command) {
            return Err(refusal::NOT_OVER_SHARDS);
        }
        one_shard(command, request, io).map(|shard| self.key_at(shard)).ok_or(refusal::CROSS_SLOT)
    }

    /// As [`State::lane_key`], for a command of which only the beginning is here; `None` if that does not tell.
    pub(crate) fn lane_key_of_head(
        &self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Option<LaneKey> {
        if !io.is_sharded() {
            return Some(self.key());
        }
        let mut keys = Keys::new();
        let is_found = redis::keys(command, request, &mut keys) != Err(redis::KeyError::NotBuffered);
        let is_here = is_found && placed(&keys).all(|index| request.arg(index).is_some());
        let is_whole = !goes_everywhere(command);
        (is_here && is_whole).then(|| self.lane_key(command, request, io).ok())?
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
    ) -> Taken {
        let destination = match destination(command, request, io) {
            Ok(destination) => destination,
            Err(text) => {
                io.count(Some(command), 1);
                return self.error(io, text);
            }
        };
        if self.tunnel.is_some() {
            return match destination {
                Destination::One(shard) if self.is_pinned_at(shard) => self.forward_in_tunnel(command, request, io),
                _ => {
                    io.count_refused(Some(command), "subscribed_elsewhere");
                    self.error(io, refusal::SUBSCRIBED_ELSEWHERE)
                }
            };
        }
        let must_settle = |shard: u16| !self.is_pinned_at(shard) && io.must_settle(self.key_at(shard));
        let is_held = match &destination {
            Destination::One(shard) => must_settle(*shard),
            Destination::Parts { parts, .. } => parts.iter().any(|part| must_settle(part.shard)),
        };
        if is_held {
            self.hold = Some(Hold::Quiet);
            return Taken::Held;
        }
        io.count(Some(command), 1);
        match destination {
            Destination::One(shard) => {
                let ticket = Ticket::new(self.order.next_number());
                match request.with_wire(|wire| self.send_at(shard, wire, ticket, io)) {
                    Ok(()) => {
                        self.order.sent();
                        Taken::Yes
                    }
                    Err(refusal) => self.refuse(refusal, io),
                }
            }
            Destination::Parts { parts, merge } => self.send_parts(&parts, merge, io),
        }
    }

    fn send_parts(&mut self, parts: &[Wire], merge: Merge, io: &impl Io) -> Taken {
        let first = self.order.next_number();
        self.order.sent_parts(Gather::new(first, parts.len(), merge));
        for (part, number) in parts.iter().zip(first..) {
            if let Err(refusal) = self.send_at(part.shard, &part.bytes, Ticket::new(number), io) {
                io.count_shed(refusal.name());
                let mut line = Vec::new();
                encode::error(&mut line, refusal::refused(refusal).as_bytes());
                self.on_reply(number, &line, Some(FrameKind::Error), io);
            }
        }
        Taken::Yes
    }

    fn send_at(
        &self,
        shard: u16,
        wire: &[u8],
        ticket: Ticket,
        io: &impl Io,
    ) -> Result<(), weir_upstream::Refusal> {
        if self.is_pinned_at(shard) {
            io.forward_pinned(wire, ticket);
            return Ok(());
        }
        io.forward(self.key_at(shard), wire, ticket)
    }

    /// The client's own lane leads to `shard`.
    fn is_pinned_at(&self, shard: u16) -> bool {
        self.pins.as_ref().is_some_and(|(key, _)| key.shard == shard)
    }

    /// Binds the transaction being queued to the shard of `command`.
    ///
    /// # Errors
    /// The text to answer: it would need another one than the commands before it, or than the watched keys.
    pub(crate) fn bind_transaction(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Result<(), &'static str> {
        if !io.is_sharded() {
            return Ok(());
        }
        if goes_everywhere(command) {
            return Err(refusal::ALL_SHARDS_IN_MULTI);
        }
        let mut keys = Keys::new();
        if !find_keys(command, request, &mut keys) {
            return Ok(());
        }
        let shard = one_shard(command, request, io).ok_or(refusal::CROSS_SLOT)?;
        let pinned = self.pins.as_ref().map(|(key, _)| key.shard);
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        match transaction.shard.or(pinned) {
            Some(bound) if bound != shard => Err(refusal::CROSS_SLOT),
            _ => {
                transaction.shard = Some(shard);
                Ok(())
            }
        }
    }
}

/// Finds the keys that decide the shard; false if there are none or the command is malformed.
fn find_keys(command: &Command, request: &Request<'_>, keys: &mut Keys) -> bool {
    redis::keys(command, request, keys).is_ok() && placed(keys).next().is_some()
}

/// The positions of keys. A shard channel is none: without a cluster PUBLISH and SUBSCRIBE of all kinds meet on one shard.
fn placed(keys: &Keys) -> impl Iterator<Item = usize> {
    keys.iter().filter(|key| !key.flags.contains(KeyFlags::NOT_KEY)).map(|key| key.index)
}

/// The shard of all keys; `None` if they are on several.
fn one_shard(command: &Command, request: &Request<'_>, io: &impl Io) -> Option<u16> {
    let mut keys = Keys::new();
    if !find_keys(command, request, &mut keys) {
        return Some(KEYLESS);
    }
    let mut shards = placed(&keys).map(|index| io.place(request.text(index)));
    let first = shards.next()?;
    shards.all(|shard| shard == first).then_some(first)
}

/// The command concerns all data, whatever shard it is on.
fn goes_everywhere(command: &Command) -> bool {
    let is_told = matches!(command.request_policy, RequestPolicy::AllShards | RequestPolicy::AllNodes);
    (is_told && !matches!(command.class, Class::Local(_))) || command.name == "scan"
}

fn destination(command: &'static Command, request: &Request<'_>, io: &impl Io) -> Result<Destination, &'static str> {
    if command.name == "scan" {
        return Ok(scan(request, io));
    }
    if goes_everywhere(command) {
        let Some(merge) = Merge::over_all(command.response_policy, command.name) else {
            return Ok(Destination::One(KEYLESS));
        };
        let part = |shard| Wire { shard, bytes: request.with_wire(<[u8]>::to_vec) };
        return Ok(Destination::Parts { parts: (0..io.shards()).map(part).collect(), merge });
    }
    if let Some(shard) = one_shard(command, request, io) {
        return Ok(Destination::One(shard));
    }
    // A count of keys would have to be counted anew.
    let is_splittable = command.keys.iter().all(|spec| matches!(spec.find, FindKeys::Range { .. }));
    let merge = match (command.request_policy, command.response_policy) {
        _ if !is_splittable => return Err(refusal::CROSS_SLOT),
        (RequestPolicy::MultiShard, ResponsePolicy::Default) => Merge::InOrder(Vec::new()),
        (RequestPolicy::MultiShard, ResponsePolicy::AllSucceeded) => Merge::AllSucceeded,
        (RequestPolicy::MultiShard, ResponsePolicy::AggSum) => Merge::Fold(Fold::Sum),
        // MSETNX too: half of it done would be neither of its two outcomes.
        _ => return Err(refusal::CROSS_SLOT),
    };
    Ok(split(command, request, merge, io))
}

/// To each shard the command with its own keys, and what belongs to each of them (the values of MSET).
fn split(command: &'static Command, request: &Request<'_>, mut merge: Merge, io: &impl Io) -> Destination {
    let mut keys = Keys::new();
    // They were found a moment ago.
    let _ = redis::keys(command, request, &mut keys);
    let positions: Vec<usize> = placed(&keys).collect();
    let first = positions[0];
    let step = positions[1] - first;
    let behind = positions[positions.len() - 1] + step;
    // Part, and its arguments.
    let mut parts: Vec<(u16, Vec<&[u8]>)> = Vec::new();
    let mut order = Vec::with_capacity(positions.len());
    for position in positions {
        let shard = io.place(request.text(position));
        let part = parts.iter().position(|(of, _)| *of == shard).unwrap_or_else(|| {
            parts.push((shard, (0..first).map(|index| request.text(index)).collect()));
            parts.len() - 1
        });
        parts[part].1.extend((position..position + step).map(|index| request.text(index)));
        order.push(part as u16);
    }
    if let Merge::InOrder(wanted) = &mut merge {
        *wanted = order;
    }
    let wire = |(shard, mut args): (u16, Vec<&[u8]>)| {
        args.extend((behind..request.argc()).map(|index| request.text(index)));
        let mut bytes = Vec::new();
        encode::command(&mut bytes, args);
        Wire { shard, bytes }
    };
    Destination::Parts { parts: parts.into_iter().map(wire).collect(), merge }
}

/// One page of one shard: the cursor tells which. A cursor that is no number is for a server to refuse.
fn scan(request: &Request<'_>, io: &impl Io) -> Destination {
    let cursor = std::str::from_utf8(request.text(1)).ok().and_then(|text| text.parse().ok());
    let Some(cursor) = cursor else { return Destination::One(KEYLESS) };
    let shards = io.shards();
    let (shard, cursor) = split_cursor(cursor, shards);
    let cursor = cursor.to_string();
    let mut bytes = Vec::new();
    let args: Vec<&[u8]> = (0..request.argc())
        .map(|index| if index == 1 { cursor.as_bytes() } else { request.text(index) })
        .collect();
    encode::command(&mut bytes, args);
    Destination::Parts { parts: vec![Wire { shard, bytes }], merge: Merge::Page { shard, shards } }
}
