//! The listening sockets: bound, taken over from another process, dealt to the workers.
//!
//! With `SO_REUSEPORT` every socket has an accept queue of its own, and the kernel chooses the queue when a connection
//! arrives. So a socket that was taken over is kept for good, also when there are more of them than workers: closing one
//! would reset the connections on their way into it.

use std::{collections::HashMap, io, sync::Arc};

use socket2::Socket;
use weir_config::{Listener, Snapshot};
use weir_engine::{
    net::{self, SocketFile},
    occupant,
    settings::Address,
};

/// The sockets of one worker, by listener.
pub type OwnSockets = Vec<(Arc<str>, Queues)>;

/// The sockets of a listener as one worker sees them.
#[derive(Default)]
pub struct Queues {
    /// It accepts from these.
    pub own: Vec<Arc<Socket>>,
    /// Other workers accept from these.
    pub others: Vec<Arc<Socket>>,
}

/// Listening sockets of another process and where its configuration bound them.
pub type Inherited = Vec<(Address, Vec<Socket>)>;

/// The sockets of one listener.
#[derive(Clone)]
pub struct ListenerSockets {
    /// As the configuration has it.
    pub bind: Address,
    /// TCP: at least one per worker. Unix: one queue, which all workers share.
    pub sockets: Vec<Arc<Socket>>,
    backlog: u32,
    /// No other process may listen there.
    is_sole: bool,
    /// Where it is bound, if that is a file.
    file: Option<SocketFile>,
}

/// The sockets of listeners, by name.
pub type Sockets = HashMap<Arc<str>, ListenerSockets>;

impl ListenerSockets {
    /// Sockets that are bound.
    fn new(bind: Address, sockets: Vec<Arc<Socket>>, backlog: u32, is_sole: bool) -> Self {
        let file = match &bind {
            Address::Unix(path) => SocketFile::at(path).ok(),
            _ => None,
        };
        Self { bind, sockets, backlog, is_sole, file }
    }

    /// Removes the file of a Unix socket, if it still belongs to this socket. To be called when no worker accepts any more.
    pub fn remove_file(&self) {
        if let Some(Err(error)) = self.file.as_ref().map(SocketFile::remove) {
            tracing::warn!(bind = %self.bind, %error, "the socket file cannot be removed");
        }
    }

    /// Lets connections in.
    ///
    /// # Errors
    /// As `listen(2)`, with the address in the text.
    pub fn listen(&self) -> io::Result<()> {
        let listen = |(number, socket): (usize, &Arc<Socket>)| match self.is_sole && number == 0 {
            true => net::listen_alone(socket, self.backlog),
            false => net::listen(socket, self.backlog),
        };
        self.sockets.iter().enumerate().try_for_each(listen).map_err(|error| refused(&self.bind, &error))
    }

    /// Where it is bound, the port being known even if 0 was configured.
    pub fn address(&self) -> String {
        let Some(address) = self.sockets.first().and_then(|socket| socket.local_addr().ok()) else {
            return String::new();
        };
        match (address.as_socket(), address.as_pathname()) {
            (Some(address), _) => address.to_string(),
            (None, Some(path)) => format!("unix:{}", path.display()),
            (None, None) => String::new(),
        }
    }

    /// Those that worker `id` of `workers` accepts from.
    fn of_worker(&self, id: usize, workers: usize) -> Queues {
        let is_shared = matches!(self.bind, Address::Unix(_));
        let mut queues = Queues::default();
        for (at, socket) in self.sockets.iter().enumerate() {
            let is_own = is_shared || at % workers == id;
            if is_own { &mut queues.own } else { &mut queues.others }.push(socket.clone());
        }
        queues
    }
}

/// The sockets from which worker `id` of `workers` accepts.
pub fn of_worker(sockets: &Sockets, id: usize, workers: usize) -> OwnSockets {
    sockets.iter().map(|(name, sockets)| (name.clone(), sockets.of_worker(id, workers))).collect()
}

/// Binds the listeners of `next` that `current` does not have at the same address, or takes their sockets out of
/// `inherited`. They listen after [`ListenerSockets::listen`]: until then the start may fail without a trace.
///
/// # Errors
/// As `bind(2)`, with the address in the text; another process listens there, and the listener has no `reuse_port`.
pub fn bind_new(
    next: &Snapshot,
    current: Option<&Snapshot>,
    inherited: &mut Inherited,
    workers: usize,
) -> io::Result<Sockets> {
    let is_new = |listener: &&Listener| {
        let kept = current.and_then(|current| current.listener(&listener.settings.name));
        kept.is_none_or(|kept| kept.settings.bind != listener.settings.bind)
    };
    // At these this process listens itself, or the one before it.
    let current = current.iter().flat_map(|current| &current.listeners).map(|listener| &listener.settings.bind);
    let own: Vec<Address> = current.chain(inherited.iter().map(|(bind, _)| bind)).cloned().collect();
    let mut sockets = Sockets::new();
    for listener in next.listeners.iter().filter(is_new) {
        let settings = &listener.settings;
        let mut taken = take(inherited, &settings.bind);
        let is_tcp = !matches!(settings.bind, Address::Unix(_));
        let is_shared = settings.reuse_port || own.iter().any(|own| own.excludes(&settings.bind));
        let is_sole = is_tcp && taken.is_empty() && !is_shared;
        if is_sole {
            refuse_shared(listener)?;
        }
        bind_missing(&settings.bind, &mut taken, workers)?;
        let all = taken.into_iter().map(Arc::new).collect();
        let bound = ListenerSockets::new(settings.bind.clone(), all, settings.backlog, is_sole);
        sockets.insert(settings.name.clone(), bound);
    }
    Ok(sockets)
}

/// The inherited sockets of `bind`: those of the same words in the configuration, or of the same address.
fn take(inherited: &mut Inherited, bind: &Address) -> Vec<Socket> {
    let is_at = |sockets: &[Socket]| {
        let address = sockets.first().and_then(|socket| socket.local_addr().ok()?.as_socket());
        matches!((bind, address), (Address::Socket(wanted), Some(address)) if *wanted == address)
    };
    let found = inherited.iter().position(|(old, _)| old == bind);
    let found = found.or_else(|| inherited.iter().position(|(_, sockets)| is_at(sockets)));
    found.map(|at| inherited.swap_remove(at).1).unwrap_or_default()
}

/// With `SO_REUSEPORT` two processes share the connections of an address. A second start of a gateway is never meant to do that.
fn refuse_shared(listener: &Listener) -> io::Result<()> {
    let (name, bind) = (&listener.settings.name, &listener.settings.bind);
    if net::wait_for_sole_use(bind).map_err(|error| refused(bind, &error))? {
        return Ok(());
    }
    let mut text =
        format!("{}: free the address, or give the listener \"{name}\" another bind", occupant::in_use(bind));
    if net::bind(bind).is_ok() {
        text += "; `weir upgrade` replaces a running gateway, and reuse_port = true lets both share the connections";
    }
    Err(refused(bind, &io::Error::new(io::ErrorKind::AddrInUse, text)))
}

/// Adds to `own` what is missing to one socket per worker.
fn bind_missing(bind: &Address, own: &mut Vec<Socket>, workers: usize) -> io::Result<()> {
    let wanted = if matches!(bind, Address::Unix(_)) { 1 } else { workers };
    while own.len() < wanted {
        // With port 0 the kernel chose one; the others must have the same.
        let bound = own.first().map(Socket::local_addr).transpose()?.and_then(|address| address.as_socket());
        let bound = bound.map_or_else(|| bind.clone(), Address::Socket);
        own.push(net::bind(&bound).map_err(|error| refused(bind, &error))?);
    }
    Ok(())
}

/// With the address, and of one in use with the process that listens there.
fn refused(bind: &Address, error: &io::Error) -> io::Error {
    let is_bare = error.kind() == io::ErrorKind::AddrInUse && error.raw_os_error().is_some();
    let error = if is_bare { &occupant::in_use(bind) } else { error };
    io::Error::new(error.kind(), format!("cannot bind {bind}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> Address {
        "127.0.0.1:0".parse().expect("an address")
    }

    fn listener_sockets(bind: &Address, sockets: Vec<Socket>) -> ListenerSockets {
        ListenerSockets::new(bind.clone(), sockets.into_iter().map(Arc::new).collect(), 8, false)
    }

    #[test]
    fn every_socket_is_dealt_to_exactly_one_worker_whatever_their_number() {
        let mut own = Vec::new();
        bind_missing(&free(), &mut own, 5).expect("bound");
        let bound = listener_sockets(&free(), own);
        for workers in 1..=5 {
            let dealt: usize = (0..workers).map(|id| bound.of_worker(id, workers).own.len()).sum();
            assert_eq!(dealt, 5, "{workers} workers");
            let sees_all = |queues: Queues| !queues.own.is_empty() && queues.own.len() + queues.others.len() == 5;
            assert!((0..workers).all(|id| sees_all(bound.of_worker(id, workers))), "{workers} workers");
        }
    }

    #[test]
    fn a_unix_socket_is_one_queue_for_all_workers() {
        let folder = tempfile::tempdir().expect("a folder");
        let bind = Address::Unix(folder.path().join("weir.sock"));
        let mut own = Vec::new();
        bind_missing(&bind, &mut own, 3).expect("bound");
        let bound = listener_sockets(&bind, own);
        assert!((0..3).all(|id| bound.of_worker(id, 3).own.len() == 1));
    }

    #[test]
    fn inherited_sockets_are_found_by_their_words_or_their_address_and_completed() {
        let mut own = Vec::new();
        bind_missing(&free(), &mut own, 2).expect("bound");
        let address = own[0].local_addr().expect("bound").as_socket().expect("an IP address");
        let other = net::bind(&free()).expect("bound");
        let mut inherited = vec![(free(), own), ("localhost:1".parse().expect("an address"), vec![other])];
        assert!(take(&mut inherited, &"127.0.0.1:1".parse().expect("an address")).is_empty());
        let mut found = take(&mut inherited, &Address::Socket(address));
        assert_eq!((found.len(), inherited.len()), (2, 1));
        bind_missing(&Address::Socket(address), &mut found, 4).expect("two more at the same address");
        let is_there = |socket: &Socket| socket.local_addr().expect("bound").as_socket() == Some(address);
        assert!(found.len() == 4 && found.iter().all(is_there));
        assert_eq!(take(&mut inherited, &"localhost:1".parse().expect("an address")).len(), 1);
    }
}
