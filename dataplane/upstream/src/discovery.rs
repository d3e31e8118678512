//! Who is in the cluster: asked of its nodes, on a connection made for it.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use weir_base::time::{Time, turn};
use weir_engine::{settings::Address, timeout};

use crate::{
    protocol::{LaneProtocol, Waiter},
    upstream::Upstream,
};

/// Between two looks at whether a discovery is due, and so between two discoveries at least: a cluster that changes must not
/// be asked by everybody at once.
const LOOK: Duration = Duration::from_millis(100);
/// A discovery without a cause, for what no redirection tells. Default 15 s.
const INTERVAL: Duration = Duration::from_secs(15);
/// Between two attempts while nobody answers.
const RETRY: Duration = Duration::from_secs(1);

/// A node as another one names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `None`: the host that was asked.
    pub host: Option<String>,
    /// Its port.
    pub port: u16,
}

impl Node {
    /// Its address; `asked` is the one that named it.
    pub fn address(&self, asked: &Address) -> Option<Address> {
        let host = self.host.clone().or_else(|| asked.host())?;
        let text = if host.contains(':') { format!("[{host}]:{}", self.port) } else { format!("{host}:{}", self.port) };
        text.parse().ok()
    }
}

/// A cluster as one of its nodes sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Ranges of slots, first and last, and the node that has them.
    pub ranges: Vec<(u16, u16, Node)>,
    /// Nodes, also those that have no slot, or none yet.
    pub nodes: Vec<Node>,
}

/// When to ask.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    is_wanted: Cell<bool>,
    /// Nobody answered the last time: wishes do not make it come earlier.
    has_failed: Cell<bool>,
    due: Cell<Time>,
}

impl Schedule {
    /// Asks at the next look.
    pub(crate) fn want(&self) {
        self.is_wanted.set(true);
    }

    fn is_due(&self, now: Time) -> bool {
        (self.is_wanted.get() && !self.has_failed.get()) || now >= self.due.get()
    }

    fn done(&self, now: Time, is_good: bool) {
        self.has_failed.set(!is_good);
        self.due.set(now.saturating_add(if is_good { INTERVAL } else { RETRY }));
    }
}

/// Keeps the slot map of `upstream` until the task is dropped.
pub(crate) async fn discovery_loop<P: LaneProtocol, W: Waiter<P>>(
    upstream: Rc<Upstream<P, W>>,
    schedule: Rc<Schedule>,
) {
    let mut next = 0;
    loop {
        if schedule.is_due(turn::now()) {
            // What is wanted while it runs is wanted again: the answer may be older than the wish.
            schedule.is_wanted.set(false);
            let is_good = discover(&upstream, &mut next).await;
            schedule.done(turn::now(), is_good);
        }
        weir_engine::sleep(LOOK).await;
    }
}

/// Asks one node after the other until one answers, each time another one first: one that was cut off from the others goes on
/// saying what it knew.
async fn discover<P: LaneProtocol, W: Waiter<P>>(upstream: &Upstream<P, W>, next: &mut usize) -> bool {
    let members = upstream.members();
    for attempt in 0..members.len() {
        let at = (*next + attempt) % members.len();
        let number = members[at];
        let answered = ask(upstream, number).await.and_then(|(asked, topology)| {
            // A node that has been thrown out knows nothing, and what it says would cut off everybody.
            match upstream.take_topology(&asked, &topology) {
                true => Ok(()),
                false => Err(io::Error::other("it knows of no slots: is it a node of a cluster?")),
            }
        });
        match answered {
            Ok(()) => {
                *next = at + 1;
                return true;
            }
            Err(error) => upstream.discovery_failed(number, &error),
        }
    }
    false
}

async fn ask<P: LaneProtocol, W: Waiter<P>>(upstream: &Upstream<P, W>, number: u16) -> io::Result<(Address, Topology)> {
    let protocol = upstream.protocol();
    let key = protocol.probe_key(number);
    let endpoint = upstream.endpoint(key);
    let asked = endpoint.connector().endpoint.clone();
    let question = async {
        let opened = endpoint.connector().open(protocol, key).await;
        let (mut stream, _) = opened.map_err(|error| io::Error::other(error.text))?;
        protocol.discover(&mut stream).await
    };
    let limit = upstream.settings().connect_timeout;
    let topology = timeout(limit, question).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok((asked, topology))
}
