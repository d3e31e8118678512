//! The results of the calls of a session, with the rules of a session asserted.

use std::{net::IpAddr, rc::Rc, sync::Arc, time::Duration};

use weir_analysis::redis::Command;
use weir_base::{connection::ConnectionEntry, exchange::Refusal, time::Time, violation::Violation};
use weir_placement::{KeyLocation, Node};
use weir_redis_session::{
    PinReason,
    cache::Cache,
    io::{
        Admission, Clients, Clock, Feeds, Full, Lanes, NoSubscription, Pinning, Replies, Sample, Tally, Ticket,
        Topology, Track,
    },
    lane::{LaneKey, ServerInfo},
    pubsub::{Kind, Name},
    tracking::Scope,
    users::ListenerShare,
};

use super::{BATCH_MAX, OUTPUT_HIGH, World};
use crate::{lane::Lane, server::group_of};

impl Clock for World {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn retry_later(&self, exchange: u64, _pause: Duration) {
        self.retries.borrow_mut().push_back(exchange);
    }
}

impl Replies for World {
    fn reply(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut output = self.output.borrow_mut();
        encode(&mut output);
        if output.len() > OUTPUT_HIGH {
            self.is_congested.set(true);
        }
    }

    fn is_congested(&self) -> bool {
        self.is_congested.get()
    }
}

impl Admission for World {
    fn full(&self) -> Option<Full> {
        self.policy.get().full
    }

    fn room(&self) -> u64 {
        u64::MAX
    }

    fn admit(&self, count: u64) -> bool {
        let left = self.policy.get().admits.checked_sub(count);
        if let Some(left) = left {
            self.set(|policy| policy.admits = left);
        }
        left.is_some()
    }
}

impl Lanes for World {
    fn server(&self, key: LaneKey) -> Option<Rc<ServerInfo>> {
        self.greeted.borrow().contains(&key.version).then(Rc::default)
    }

    fn batch_room(&self, _key: LaneKey) -> u64 {
        let policy = self.policy.get();
        if policy.full.is_some() || self.is_sharded() || self.is_changing(|_| true) {
            0
        } else {
            BATCH_MAX.min(policy.admits)
        }
    }

    fn must_settle(&self, key: LaneKey) -> bool {
        self.is_changing(|lane| lane.shard == key.shard)
    }

    fn forward(&self, key: LaneKey, request: &[u8], ticket: Ticket) -> Result<(), Refusal> {
        let pinned = self.pinned.borrow().as_ref().map(|lane| lane.key.shard);
        assert_ne!(pinned, Some(key.shard), "a request on a shared lane beside the pinned one");
        self.carry(ticket);
        if let Some(refusal) = self.policy.get().refusal {
            return Err(refusal);
        }
        let mut lanes = self.shared_lanes.borrow_mut();
        lanes.retain(|lane| !lane.is_retired || lane.in_flight() > 0);
        // Replies of several shards may come in any order.
        let is_other = |lane: &&Lane| lane.key.shard == key.shard && (lane.key != key || lane.is_retired);
        let others = lanes.iter().filter(is_other).map(Lane::in_flight).sum::<usize>();
        assert_eq!(others, 0, "replies of two lanes could overtake each other");
        self.next_number.set(self.next_number.get().max(ticket.number + ticket.count));
        match lanes.iter_mut().find(|lane| lane.key == key) {
            Some(lane) => lane.send(request, ticket),
            None => {
                let mut lane = Lane::new(key);
                lane.send(request, ticket);
                lanes.push(lane);
            }
        }
        Ok(())
    }

    fn request_complete(&self) {}

    fn pin(&self, key: LaneKey, _reason: PinReason) -> Pinning {
        assert!(self.policy.get().is_trusted, "a lane before authentication");
        assert!(self.requested_pin.get().is_none(), "a lane was asked for already");
        let flying = self.shared_lanes.borrow().iter().map(Lane::in_flight).sum::<usize>();
        assert_eq!(flying, 0, "replies of two lanes could overtake each other");
        if let Some(lane) = &*self.pinned.borrow() {
            assert_eq!(lane.key, key, "the lane that came is the one asked for");
            return Pinning::Ready;
        }
        let pinning = self.policy.get().pinning;
        match pinning {
            Pinning::Ready => self.place_pin(key),
            Pinning::Later => self.requested_pin.set(Some(key)),
            Pinning::TooManyBlocked | Pinning::Refused(_) => {}
        }
        pinning
    }

    fn forward_pinned(&self, request: &[u8], ticket: Ticket) {
        self.carry(ticket);
        self.next_number.set(self.next_number.get().max(ticket.number + ticket.count));
        self.pinned.borrow_mut().as_mut().expect("a lane of the client's own").send(request, ticket);
    }

    fn write_pinned(&self, bytes: &[u8]) {
        assert!(self.policy.get().is_trusted, "a request before authentication");
        self.pinned.borrow_mut().as_mut().expect("a lane of the client's own").write(bytes);
    }

    fn is_pin_congested(&self) -> bool {
        self.pinned.borrow().as_ref().is_some_and(Lane::is_congested)
    }

    fn set_tunnel(&self, is_tunnel: bool) {
        let mut pinned = self.pinned.borrow_mut();
        let lane = pinned.as_mut().expect("a lane of the client's own");
        assert_eq!(lane.in_flight(), 0, "a tunnel is entered and left between exchanges");
        assert_ne!(lane.is_tunnel, is_tunnel);
        lane.is_tunnel = is_tunnel;
    }

    fn park(&self) {
        let lane = self.pinned.borrow_mut().take().expect("a lane of the client's own");
        assert_eq!((lane.in_flight(), lane.is_tunnel), (0, false), "a lane is set aside between exchanges");
        let before = self.parked.borrow_mut().replace(lane);
        assert!(before.is_none(), "one lane is set aside at a time");
    }

    fn unpark(&self) {
        let lane = self.parked.borrow_mut().take().expect("a lane was set aside");
        let before = self.pinned.borrow_mut().replace(lane);
        assert!(before.is_none(), "one pinned lane at a time");
    }

    fn unpin(&self, is_clean: bool) {
        let lane = self.pinned.borrow_mut().take().expect("a lane is given back once");
        self.count_pins(|pins| pins[if is_clean { 1 } else { 2 }] += 1);
        if is_clean && !lane.is_ruin {
            assert_eq!(lane.dirt(), None, "a lane given back as clean");
            self.idle.borrow_mut().push(lane);
        }
    }
}

impl Topology for World {
    fn primary(&self) -> Option<u16> {
        Some(0)
    }

    fn read_from(&self, shard: u16) -> u16 {
        shard
    }

    fn is_sharded(&self) -> bool {
        self.shards.get() > 1
    }

    fn shards(&self) -> Vec<u16> {
        (0..self.shards.get()).collect()
    }

    fn place(&self, key: &[u8]) -> KeyLocation {
        let group = group_of(key, self.shards.get());
        KeyLocation { shard: self.shard_of(group), group }
    }

    fn shard_of(&self, group: u16) -> u16 {
        self.known.borrow().get(&group).copied().unwrap_or(group)
    }

    fn keyless(&self) -> u16 {
        0
    }

    fn home(&self) -> u16 {
        self.keyless()
    }

    fn topology(&self) -> Option<u64> {
        self.topology.get()
    }

    fn redirected(&self, slot: Option<u16>, node: &Node, _from: u16) -> Option<u16> {
        let target = Some(node.port).filter(|&port| port < self.shards.get())?;
        if let Some(slot) = slot {
            self.known.borrow_mut().insert(slot, target);
            self.topology.set(self.topology.get().map(|version| version + 1));
        }
        Some(target)
    }

    fn refresh(&self) {
        self.refreshes.set(self.refreshes.get() + 1);
    }

    fn advertised(&self) -> (String, u16) {
        (String::new(), 0)
    }
}

impl Feeds for World {
    fn subscribe(&self, _login: u64, kind: Kind, names: &[Name]) -> Result<(), NoSubscription> {
        let policy = self.policy.get();
        assert!(policy.is_trusted, "a request before authentication");
        match policy.refusal {
            Some(refusal) => Err(NoSubscription::Refused(refusal)),
            None => {
                self.feeds.subscribe(kind, names, self);
                Ok(())
            }
        }
    }

    fn unsubscribe(&self, kind: Kind, names: &[Name]) -> bool {
        self.feeds.unsubscribe(kind, names, self)
    }

    fn unsubscribe_all(&self) {
        self.feeds.leave(self);
    }

    fn note_subscriptions(&self, count: usize) {
        self.entry.subscriptions.store(count as u32, std::sync::atomic::Ordering::Relaxed);
    }

    fn publish(&self, _login: u64, kind: Kind, name: &[u8], request: &[u8]) -> bool {
        self.feeds.publish(kind, name, request, self)
    }

    fn track(&self, _login: u64, _scope: &Scope) -> Track {
        Track::Refused(Refusal::Unreachable)
    }

    fn untrack(&self) {}

    fn note_tracking(&self, _tracks: bool) {}

    fn watch_keys(&self, _keys: &[(Name, u16)], _remembers: bool) -> bool {
        false
    }

    fn forget_key(&self, _key: &[u8]) {}

    fn cache(&self) -> Option<Rc<Cache>> {
        None
    }
}

impl Clients for World {
    fn entry(&self) -> &ConnectionEntry {
        &self.entry
    }

    fn source(&self) -> Option<IpAddr> {
        None
    }

    fn share(&self) -> Option<&ListenerShare> {
        None
    }

    fn find_client(&self, _id: u64) -> Option<Arc<ConnectionEntry>> {
        None
    }

    fn post(&self, _client: &ConnectionEntry, _keys: Option<&[&[u8]]>) {}

    fn list_clients(&self, filter: &dyn Fn(&ConnectionEntry) -> bool, out: &mut Vec<u8>) {
        if filter(&self.entry) {
            weir_redis_session::client::write_line(out, &self.entry, self.now());
        }
    }

    fn kill_clients(&self, filter: &dyn Fn(&ConnectionEntry) -> bool) -> u64 {
        u64::from(filter(&self.entry))
    }

    fn blocked_as(&self, _id: u64) -> Option<(u16, u64)> {
        None
    }
}

impl Tally for World {
    fn draw_sample(&self) -> Sample {
        self.drawn.set(self.drawn.get() + 1);
        let every = self.policy.get().logs_every;
        Sample { is_timed: false, is_logged: every > 0 && self.drawn.get().is_multiple_of(every) }
    }

    fn begin_command(&self, sample: Sample) {
        self.is_logged.set(sample.is_logged);
    }

    fn count(&self, command: Option<&'static Command>, times: u64) {
        if self.is_logged.take() {
            self.logged.borrow_mut().push((command.map_or("unknown", |command| command.name), times));
        }
    }

    fn count_shed(&self, reason: &'static str) {
        self.shed.borrow_mut().push(reason);
    }

    fn count_refused(&self, _command: Option<&'static Command>, reason: &'static str) {
        self.count_shed(reason);
    }

    fn count_auth_failure(&self) {}

    fn count_error(&self, reply: &[u8]) {
        assert!(!reply.is_empty());
    }

    fn count_redirect(&self, _kind: &'static str) {}

    fn count_invalidations(&self, _count: usize) {}

    fn count_denied(&self, _user: &str, _reason: &'static str) {}

    fn count_login(&self, _user: &str) {}

    fn write_info(&self, _out: &mut String, _with_keys: bool) {}

    fn report(&self, violation: &Violation) {
        self.violations.borrow_mut().push(violation.reason);
    }
}
