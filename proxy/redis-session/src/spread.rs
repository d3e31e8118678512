//! Where a command goes, if keys are spread over several shards: whole to one, in parts to some, or to all.

use std::collections::HashMap;

use weir_analysis::redis::{
    self, Args, Categories, Class, Command, FindKeys, Flags, KeyError, KeyFlags, Keys, RequestPolicy, ResponsePolicy,
};
use weir_placement::{KeyLocation, SLOTS};
use weir_resp::encode;

use crate::{
    gather::{Fold, Merge, split_cursor},
    io::Io,
    refusal,
    request::Request,
    request::parse_integer,
};

/// Where a command goes.
pub(crate) enum Destination {
    /// Whole, to the shard of these keys; without keys to a stable one.
    One(Option<KeyLocation>),
    /// To each of these shards its part of the command.
    Parts { parts: Vec<Wire>, merge: Merge },
}

/// A request for one shard.
pub(crate) struct Wire {
    pub(crate) shard: u16,
    /// The group of its keys, if it has any.
    pub(crate) group: Option<u16>,
    pub(crate) bytes: Vec<u8>,
}

/// It may be answered by a replica: it reads the values of its keys and nothing else. The cursors of SCAN and its kin mean
/// something to one server only, and a script is where SCRIPT LOAD put it: at the primary.
pub(crate) fn may_read_elsewhere(command: &Command) -> bool {
    command.flags.contains(Flags::READONLY)
        && !command.keys.is_empty()
        && !command.name.ends_with("scan")
        && !command.categories.contains(Categories::SCRIPTING)
}

/// The positions of keys that decide the shard. A shard channel is one in a cluster only: else PUBLISH and SUBSCRIBE of all
/// kinds meet on one shard.
pub(crate) fn placed(keys: &Keys, is_cluster: bool) -> impl Iterator<Item = usize> {
    keys.iter().filter(move |key| is_cluster || !key.flags.contains(KeyFlags::NOT_KEY)).map(|key| key.index)
}

/// Why a command has no shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// Its keys are not of one group.
    CrossSlot,
    /// SORT with BY or GET.
    ForeignKeys,
    /// It concerns all shards, and cannot be sent to all of them here.
    Everywhere,
    /// Its keys cannot be read: a shard would be a guess.
    Unreadable(KeyError),
    /// The table does not say where its keys stand (STRALGO of Redis 6).
    Unknown,
}

impl NoPlace {
    /// The error to reply with, in the words of a server where it has some.
    pub(crate) fn text(self, command: &Command) -> Vec<u8> {
        match self {
            Self::CrossSlot => refusal::CROSS_SLOT.into(),
            Self::ForeignKeys => refusal::FOREIGN_KEYS.into(),
            Self::Everywhere => refusal::NOT_OVER_SHARDS.into(),
            Self::Unreadable(error) => {
                let mut text = Vec::new();
                redis::text::invalid_keys(&mut text, command, error);
                text
            }
            Self::Unknown => refusal::unknown_keys(command.name).into(),
        }
    }

    /// Counts the command, and the refusal where the gateway cannot read what a server might.
    pub(crate) fn count(self, command: &'static Command, io: &impl Io) {
        match self {
            Self::Unreadable(_) | Self::Unknown => io.count_refused(Some(command), refusal::UNREADABLE_KEYS_REASON),
            Self::CrossSlot | Self::ForeignKeys | Self::Everywhere => io.count(Some(command), 1),
        }
    }
}

/// Where all keys are; `None` without keys.
///
/// # Errors
/// They are not of one group, not all of them are named, or they cannot be read.
pub(crate) fn one_place(
    command: &Command,
    request: &Request<'_>,
    io: &impl Io,
) -> Result<Option<KeyLocation>, NoPlace> {
    if let Some(slot) = slot_named(command, request).filter(|_| io.topology().is_some()) {
        return Ok(Some(KeyLocation { shard: io.shard_of(slot), group: slot }));
    }
    let mut keys = Keys::new();
    redis::keys(command, request, &mut keys).map_err(NoPlace::Unreadable)?;
    if keys.is_incomplete() && !command.flags.contains(Flags::TOUCHES_ARBITRARY_KEYS) {
        return Err(if command.name.starts_with("sort") { NoPlace::ForeignKeys } else { NoPlace::Unknown });
    }
    let mut places = placed(&keys, io.topology().is_some()).map(|index| io.place(request.text(index)));
    let Some(first) = places.next() else { return Ok(None) };
    if places.all(|place| place == first) { Ok(Some(first)) } else { Err(NoPlace::CrossSlot) }
}

/// The slot that a command names in the place of keys: only the node that has it knows what is in it. One that is none is for
/// a server to refuse.
fn slot_named(command: &Command, request: &Request<'_>) -> Option<u16> {
    let names_slot = matches!(command.name, "cluster|countkeysinslot" | "cluster|getkeysinslot");
    let slot = names_slot.then(|| parse_integer(request.text(2))).flatten()?;
    u16::try_from(slot).ok().filter(|slot| *slot < SLOTS)
}

/// The shard of a command whose keys are at `place`. Messages of one client keep their order between the nodes of a cluster
/// only if one node takes all of them, so PUBLISH does not follow the slots.
pub(crate) fn shard_of(command: &Command, place: Option<KeyLocation>, io: &impl Io) -> u16 {
    match place {
        Some(place) => place.shard,
        None if command.name == "publish" => io.home(),
        None => io.keyless(),
    }
}

/// How the replies of all shards are merged, if the command concerns all data, whatever shard it is on. MEMORY DOCTOR and the
/// like do too, and are answered by one.
fn everywhere(command: &Command) -> Option<Merge> {
    let is_told = matches!(command.request_policy, RequestPolicy::AllShards | RequestPolicy::AllNodes);
    let is_forwarded = is_told && !matches!(command.class, Class::Local(_));
    is_forwarded.then(|| Merge::over_all(command.response_policy, command.name)).flatten()
}

/// The command cannot be left to one shard. INFO can, in a transaction.
pub(crate) fn goes_everywhere(command: &Command) -> bool {
    everywhere(command).is_some_and(|merge| !matches!(merge, Merge::Info { .. })) || command.name == "scan"
}

/// Where the command goes.
///
/// # Errors
/// The text of the reply that takes its place. The command is counted then.
pub(crate) fn destination(
    command: &'static Command,
    request: &Request<'_>,
    io: &impl Io,
) -> Result<Destination, Vec<u8>> {
    let counted = |text| {
        io.count(Some(command), 1);
        text
    };
    if command.name == "scan" {
        return scan(request, io).map_err(counted);
    }
    if let Some(merge) = everywhere(command) {
        let shards = io.shards();
        if shards.is_empty() {
            // No server is known yet; an attempt at the first endpoint reports the problem.
            return Ok(Destination::One(None));
        }
        let part = |shard| Wire { shard, group: None, bytes: request.with_wire(<[u8]>::to_vec) };
        return Ok(Destination::Parts { parts: shards.into_iter().map(part).collect(), merge });
    }
    let no = match one_place(command, request, io) {
        Ok(place) => return Ok(Destination::One(place)),
        Err(no) => no,
    };
    let refused = || {
        no.count(command, io);
        no.text(command)
    };
    // A count of keys would have to be counted again.
    let is_splittable = command.keys.iter().all(|spec| matches!(spec.find, FindKeys::Range { .. }));
    let merge = match (command.request_policy, command.response_policy) {
        _ if !is_splittable || no != NoPlace::CrossSlot => return Err(refused()),
        (RequestPolicy::MultiShard, ResponsePolicy::Default) => Merge::InOrder(Vec::new()),
        (RequestPolicy::MultiShard, ResponsePolicy::AllSucceeded) => Merge::AllSucceeded,
        (RequestPolicy::MultiShard, ResponsePolicy::AggSum) => Merge::Fold(Fold::Sum),
        // MSETNX too: half of it done would be neither of its two outcomes.
        _ => return Err(refused()),
    };
    split(command, request, merge, io).map_err(counted)
}

/// To each shard the command with its own keys, and what belongs to each of them (the values of MSET).
///
/// # Errors
/// The text of the reply: the last key has no value.
fn split(
    command: &'static Command,
    request: &Request<'_>,
    mut merge: Merge,
    io: &impl Io,
) -> Result<Destination, Vec<u8>> {
    let mut keys = Keys::new();
    let found: Result<(), KeyError> = redis::keys(command, request, &mut keys);
    let positions: Vec<usize> = placed(&keys, io.topology().is_some()).collect();
    let (Ok(()), [first, second, ..], Some(last)) = (found, &positions[..], positions.last()) else {
        return Err(refusal::CROSS_SLOT.into());
    };
    let (first, step) = (*first, second - first);
    let behind = last + step;
    if behind > request.argc() {
        // MSET of a key without a value: in parts it would become an empty one.
        let mut text = Vec::new();
        redis::text::wrong_arity(&mut text, command);
        return Err(text);
    }
    // Part, and its arguments.
    let mut parts: Vec<(KeyLocation, Vec<&[u8]>)> = Vec::new();
    let mut part_of: HashMap<u16, usize> = HashMap::new();
    let mut order = Vec::with_capacity(positions.len());
    for position in positions {
        let place = io.place(request.text(position));
        let part = *part_of.entry(place.group).or_insert_with(|| {
            parts.push((place, (0..first).map(|index| request.text(index)).collect()));
            parts.len() - 1
        });
        parts[part].1.extend((position..position + step).map(|index| request.text(index)));
        order.push(part as u16);
    }
    if let Merge::InOrder(wanted) = &mut merge {
        *wanted = order;
    }
    let wire = |(place, mut args): (KeyLocation, Vec<&[u8]>)| {
        args.extend((behind..request.argc()).map(|index| request.text(index)));
        let mut bytes = Vec::new();
        encode::command(&mut bytes, args);
        Wire { shard: place.shard, group: Some(place.group), bytes }
    };
    Ok(Destination::Parts { parts: parts.into_iter().map(wire).collect(), merge })
}

/// One page of one shard: the cursor tells which. A cursor that is no number is for a server to refuse.
///
/// # Errors
/// The text of the reply: there are fewer shards than when the scan began.
fn scan(request: &Request<'_>, io: &impl Io) -> Result<Destination, Vec<u8>> {
    let cursor = std::str::from_utf8(request.text(1)).ok().and_then(|text| text.parse().ok());
    let shards = io.shards();
    let count = shards.len() as u16;
    let Some((at, cursor)) = cursor.map(split_cursor).filter(|_| count > 0) else { return Ok(Destination::One(None)) };
    let Some(&shard) = shards.get(usize::from(at)) else { return Err(refusal::SCAN_OF_LOST_SHARD.into()) };
    let cursor = cursor.to_string();
    let mut bytes = Vec::new();
    let args: Vec<&[u8]> =
        (0..request.argc()).map(|index| if index == 1 { cursor.as_bytes() } else { request.text(index) }).collect();
    encode::command(&mut bytes, args);
    let parts = vec![Wire { shard, group: None, bytes }];
    Ok(Destination::Parts { parts, merge: Merge::Page { place: at, shards: count } })
}
