//! Discovery of servers and their slots: by queries to them, or to their sentinels, on a connection of its own.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use weir_base::time::{Time, turn};
use weir_engine::{settings::Address, timeout};
use weir_placement::{Node, SLOTS};

use crate::{endpoints::Endpoints, protocol::Directory, settings::Topology};

/// Interval of the checks whether a discovery is due, and so the least time between two discoveries: not every gateway
/// may query a changing cluster at once.
const LOOK: Duration = Duration::from_millis(100);
/// Interval of the discoveries of a cluster without a cause, for changes that no redirection reports. Default 15 s.
const SLOTS_INTERVAL: Duration = Duration::from_secs(15);
/// The same for a primary: no redirection names its successor. Default 2 s: one query, far below the time that a
/// failover takes to be agreed on.
const PRIMARY_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of the attempts while no server responds.
const RETRY: Duration = Duration::from_secs(1);

/// The address of `node`; `asked` is the server that named it.
pub(crate) fn address(node: &Node, asked: &Address) -> Option<Address> {
    if *node == Node::ASKED {
        return Some(asked.clone());
    }
    let host = node.host.clone().or_else(|| asked.host())?;
    let text = if host.contains(':') { format!("[{host}]:{}", node.port) } else { format!("{host}:{}", node.port) };
    text.parse().ok()
}

/// A range of slots and the servers that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
    /// Their primary.
    pub primary: Node,
    /// Its replicas.
    pub replicas: Vec<Node>,
}

impl Range {
    /// Everything is at `primary`.
    pub fn all(primary: Node, replicas: Vec<Node>) -> Self {
        Self { first: 0, last: SLOTS - 1, primary, replicas }
    }
}

/// The servers as one of them, or one that watches over them, sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The owners of slots. Empty: this server does not know them.
    pub ranges: Vec<Range>,
    /// Nodes, also those that have no slot, or none yet, and those that may know more.
    pub nodes: Vec<Node>,
}

/// The time of the next discovery.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    is_wanted: Cell<bool>,
    /// The last discovery got no reply: [`Schedule::want`] does not make the next one come earlier.
    has_failed: Cell<bool>,
    due: Cell<Time>,
}

impl Schedule {
    /// Makes a discovery due at the next check.
    pub(crate) fn want(&self) {
        self.is_wanted.set(true);
    }

    fn is_due(&self, now: Time) -> bool {
        (self.is_wanted.get() && !self.has_failed.get()) || now >= self.due.get()
    }

    fn done(&self, now: Time, is_good: bool, interval: Duration) {
        self.has_failed.set(!is_good);
        self.due.set(now.saturating_add(if is_good { interval } else { RETRY }));
    }
}

/// Keeps the topology of `endpoints` until the task is dropped.
pub(crate) async fn discovery_loop<D: Directory>(endpoints: Rc<Endpoints>, directory: Rc<D>) {
    let schedule = &endpoints.schedule;
    let interval = if endpoints.slots().is_some() { SLOTS_INTERVAL } else { PRIMARY_INTERVAL };
    let mut next = 0;
    loop {
        if schedule.is_due(turn::now()) {
            // A refresh requested meanwhile causes another one: the reply may be older than the request.
            let is_wanted = schedule.is_wanted.replace(false);
            let is_good = discover(&endpoints, &*directory, &mut next, is_wanted).await;
            schedule.done(turn::now(), is_good, interval);
        }
        weir_engine::sleep(LOOK).await;
    }
}

/// Queries one server after the other until one knows the owners of slots.
///
/// For a cluster it begins with another server each time: one that was cut off from the others keeps reporting its old
/// view. For a primary and its replicas it begins with the primary: a server that comes back and claims to be primary may have
/// been replaced. A sentinel is queried again, unless its last reply no longer seems to hold (`is_wanted`).
async fn discover<D: Directory>(endpoints: &Endpoints, directory: &D, next: &mut usize, is_wanted: bool) -> bool {
    let topology = endpoints.settings().topology;
    if topology == Topology::Slots || is_wanted {
        *next += 1;
    }
    let mut asked: Vec<u16> = Vec::new();
    loop {
        let members = endpoints.members();
        let first = match topology {
            Topology::Primary => members.iter().position(|number| endpoints.primary() == Some(*number)),
            Topology::Fixed | Topology::Slots | Topology::Watched => None,
        };
        let begin = first.unwrap_or(*next % members.len().max(1));
        let mut rest = members.iter().cycle().skip(begin).take(members.len());
        let Some(&number) = rest.find(|number| !asked.contains(number)) else { return false };
        asked.push(number);
        let found = query_directory(endpoints, directory, number).await.and_then(|(address, view)| {
            // A node that has been thrown out knows nothing, and what it says would cut off everybody.
            match endpoints.take_view(&address, &view) {
                true => Ok(true),
                // It has named somebody who may know.
                false if !view.nodes.is_empty() => Ok(false),
                false => Err(io::Error::other("it does not know who has the keys")),
            }
        });
        match found {
            Ok(true) => {
                *next = members.iter().position(|member| *member == number).unwrap_or(0);
                return true;
            }
            Ok(false) => {}
            Err(error) => endpoints.discovery_failed(number, &error),
        }
    }
}

async fn query_directory<D: Directory>(
    endpoints: &Endpoints,
    directory: &D,
    number: u16,
) -> io::Result<(Address, View)> {
    let key = directory.probe_key(number);
    let endpoint = endpoints.get(usize::from(number));
    let asked = endpoint.connector().endpoint.clone();
    let question = async {
        let opened = endpoint.connector().open(directory, key).await;
        let (mut stream, _) = opened.map_err(|error| io::Error::other(error.text))?;
        directory.discover(&mut stream).await
    };
    let limit = endpoints.settings().connect_timeout;
    let view = timeout(limit, question).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok((asked, view))
}
