//! Looks at the servers of an upstream: their roles, the members of their set, the successor of a primary that is gone.
//!
//! One worker has a connection of its own to each server and says hello there every [`heartbeat_interval`]; a session that lost a
//! connection, or whose server refused as no primary, makes the next look come at once. A server that gives no reply is looked at
//! once more on a fresh connection before it counts as gone.
//!
//! Source: "Server Discovery and Monitoring" of the driver specifications.
//!
//! [`heartbeat_interval`]: crate::settings::MongodbUpstreamSettings::heartbeat_interval

use std::{
    cell::RefCell,
    io,
    rc::{Rc, Weak},
    time::Duration,
};

use weir_base::time::turn;
use weir_engine::{Stream, settings::Address, timeout};
use weir_mongodb_session::server_hello::ServerHello;
use weir_sasl::KeyCache;
use weir_upstream::pooled::Fitness;

use crate::{
    own_request,
    server::{log_in, stranger},
    topology::Role,
    upstream::{MongodbUpstream, Servers},
    watch::Look,
};

/// The time of one look. Default 5 s: a primary that is so slow has lost its set, which elects another one after 10 s.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time between two looks, however often sessions have a reason for one. Default 100 ms.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// The time between two looks while a set has no primary. Default 500 ms, as drivers have it.
const ELECTION_INTERVAL: Duration = Duration::from_millis(500);

/// Gives each server of the upstream a monitor, if it has none.
pub(crate) fn begin(upstream: &Rc<MongodbUpstream>) {
    for address in upstream.addresses() {
        let mut monitored = upstream.monitored.borrow_mut();
        if !monitored.contains(&address) {
            monitored.push(address.clone());
            weir_engine::spawn(watch(Rc::downgrade(upstream), address)).detach();
        }
    }
}

/// The connection of a monitor.
#[derive(Default)]
struct Line {
    stream: Option<Stream>,
    /// The server knows isMaster alone.
    is_legacy: bool,
}

async fn watch(upstream: Weak<MongodbUpstream>, address: Address) {
    let mut line = Line::default();
    loop {
        let Some(held) = upstream.upgrade().filter(|upstream| !upstream.is_retired()) else { return };
        let servers = held.servers();
        let Some(number) = servers.settings().endpoints.iter().position(|own| *own == address) else {
            held.monitored.borrow_mut().retain(|own| *own != address);
            return;
        };
        drop(held);
        let mut look = servers.watch_ref(number).begin_look();
        let hello = line.look(&servers, number, &mut look).await;
        let Some(held) = upstream.upgrade().filter(|upstream| !upstream.is_retired()) else { return };
        if servers.watch_ref(number).note(look, hello, turn::now()) {
            // Behind a balancer they would go on.
            servers.reconsider(number, true);
        }
        settle(&held);
        let interval = held.own_settings().heartbeat_interval;
        let interval = if held.topology().lacks_primary() { interval.min(ELECTION_INTERVAL) } else { interval };
        let watch = servers.watch(number);
        drop((held, servers));
        weir_engine::sleep(LOOK_PAUSE.min(interval)).await;
        let _ = timeout(interval.saturating_sub(LOOK_PAUSE), watch.called()).await;
    }
}

impl Line {
    /// The reply of the server; `None`: there was none.
    async fn look(&mut self, servers: &Rc<Servers>, number: usize, look: &mut Look) -> Option<ServerHello> {
        let was_open = self.stream.is_some();
        look.is_fresh = !was_open;
        let first = self.attempt(servers, number).await;
        if first.is_none() && was_open {
            look.is_fresh = true;
            return self.attempt(servers, number).await;
        }
        first
    }

    async fn attempt(&mut self, servers: &Rc<Servers>, number: usize) -> Option<ServerHello> {
        let stream = self.stream.take();
        match timeout(LOOK_TIMEOUT, self.ask(stream, servers, number)).await {
            Ok(Ok((stream, hello))) => {
                self.stream = Some(stream);
                Some(hello)
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }

    async fn ask(
        &mut self,
        stream: Option<Stream>,
        servers: &Rc<Servers>,
        number: usize,
    ) -> io::Result<(Stream, ServerHello)> {
        match stream {
            Some(mut stream) => {
                let hello = own_request::hello(&mut stream, &mut self.is_legacy).await?;
                Ok((stream, hello))
            }
            None => {
                let connected = servers.connect_aside(number).await;
                let (mut stream, target) = connected.map_err(|refusal| io::Error::other(refusal.text()))?;
                // It derives no keys.
                let keys = RefCell::new(KeyCache::new(1, [0; 32]));
                let hello = log_in(&mut stream, stranger(target.has_tls()), &keys).await;
                let hello = hello.map_err(|_| io::Error::other("the server refused the hello"))?;
                self.is_legacy = false;
                Ok((stream, hello))
            }
        }
    }
}

/// Judges all servers, follows the members of the set, and lets those that wait know of changes.
fn settle(upstream: &Rc<MongodbUpstream>) {
    if upstream.own_settings().replica_set.is_some() {
        follow_set(upstream);
    }
    let (servers, topology) = (upstream.servers(), upstream.topology());
    let had_primary = upstream.has_primary.replace(!topology.lacks_primary());
    if had_primary && topology.lacks_primary() {
        // The others may know of a successor.
        (0..topology.roles().len()).for_each(|number| servers.watch_ref(number).suspect());
    }
    for (number, role) in topology.roles().iter().enumerate() {
        let fitness = if *role == Role::None { Fitness::Unfit } else { Fitness::Fit };
        if servers.watch_ref(number).set_fitness(fitness) {
            servers.reconsider(number, fitness == Fitness::Unfit);
        }
        if servers.watch_ref(number).set_primary(*role == Role::Primary) {
            servers.role_changed(number, *role == Role::Primary);
        }
    }
}

/// The primary names the members. Without one, the seeds and the members that its secondaries name are looked at as well, and no server is
/// given up.
fn follow_set(upstream: &Rc<MongodbUpstream>) {
    let topology = upstream.topology();
    let members = topology.members().unwrap_or_else(|| {
        let mut all = upstream.addresses();
        for other in topology.hearsay().into_iter().chain(upstream.seeds()) {
            if !all.contains(&other) && all.len() < crate::settings::MEMBERS_MAX {
                all.push(other);
            }
        }
        all
    });
    upstream.set_members(&members);
}
