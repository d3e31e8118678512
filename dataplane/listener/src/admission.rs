//! Whether a connection may come in. Connections are rare beside requests, so these limits are exact and process-wide.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use weir_base::permit::{Budget, Permit};

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The process has as many as it may.
    Process,
    /// The listener has.
    Listener,
    /// The source address has.
    Source,
}

impl NotAdmitted {
    /// The label value.
    pub fn name(self) -> &'static str {
        match self {
            NotAdmitted::Process => "process_connections",
            NotAdmitted::Listener => "listener_connections",
            NotAdmitted::Source => "source_connections",
        }
    }
}

type Sources = Mutex<HashMap<IpAddr, u32>>;

/// The connection budget of the process.
#[derive(Clone)]
pub struct Admission {
    total: Budget,
    per_source: Arc<AtomicU32>,
    sources: Arc<Sources>,
}

impl Admission {
    /// At most `connections` in all and `per_source` from one address.
    pub fn new(connections: u32, per_source: u32) -> Self {
        Self {
            total: Budget::new(connections.into()),
            per_source: Arc::new(AtomicU32::new(per_source)),
            sources: Arc::default(),
        }
    }

    /// New limits; connections already open stay.
    pub fn set_limits(&self, connections: u32, per_source: u32) {
        self.total.set_limit(connections.into());
        self.per_source.store(per_source, Ordering::Relaxed);
    }

    /// Connections open now.
    pub fn in_use(&self) -> u64 {
        self.total.in_use()
    }

    /// A share of the budget for one listener.
    pub fn listener(&self, connections: u32, per_source: u32) -> ListenerAdmission {
        ListenerAdmission {
            process: self.clone(),
            own: Budget::new(connections.into()),
            per_source,
            sources: Arc::default(),
        }
    }
}

/// The connection budget of one listener, within that of the process. Clones share it.
#[derive(Clone)]
pub struct ListenerAdmission {
    process: Admission,
    own: Budget,
    per_source: u32,
    sources: Arc<Sources>,
}

impl ListenerAdmission {
    /// The same budget with new limits.
    pub fn with_limits(&self, connections: u32, per_source: u32) -> Self {
        self.own.set_limit(connections.into());
        Self { per_source, ..self.clone() }
    }

    /// Connections open now.
    pub fn in_use(&self) -> u64 {
        self.own.in_use()
    }

    /// A permit for a connection from `source`; Unix sockets have none and share no source limit.
    ///
    /// # Errors
    /// Which limit said no.
    pub fn admit(&self, source: Option<IpAddr>) -> Result<ConnectionPermit, NotAdmitted> {
        let total = self.process.total.try_acquire().ok_or(NotAdmitted::Process)?;
        let own = self.own.try_acquire().ok_or(NotAdmitted::Listener)?;
        let process_limit = self.process.per_source.load(Ordering::Relaxed);
        let in_process = SourcePermit::acquire(&self.process.sources, source, process_limit);
        let here = SourcePermit::acquire(&self.sources, source, self.per_source);
        Ok(ConnectionPermit {
            _total: total,
            _own: own,
            _in_process: in_process.ok_or(NotAdmitted::Source)?,
            _here: here.ok_or(NotAdmitted::Source)?,
        })
    }

    /// A permit for a connection that another process of the gateway let in: counted against the limits, never refused.
    pub fn admit_moved(&self, source: Option<IpAddr>) -> ConnectionPermit {
        ConnectionPermit {
            _total: self.process.total.acquire_over(),
            _own: self.own.acquire_over(),
            _in_process: SourcePermit::acquire_over(&self.process.sources, source),
            _here: SourcePermit::acquire_over(&self.sources, source),
        }
    }
}

/// The right to hold one connection; given back on drop.
pub struct ConnectionPermit {
    _total: Permit,
    _own: Permit,
    _in_process: SourcePermit,
    _here: SourcePermit,
}

/// One connection of a source address, or nothing for a Unix socket.
struct SourcePermit(Option<(Arc<Sources>, IpAddr)>);

impl SourcePermit {
    fn acquire(sources: &Arc<Sources>, source: Option<IpAddr>, limit: u32) -> Option<Self> {
        let Some(source) = source else { return Some(Self(None)) };
        let mut counts = sources.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(source).or_insert(0);
        if *count >= limit {
            if *count == 0 {
                counts.remove(&source);
            }
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Self(Some((sources.clone(), source))))
    }

    /// Counts one more, also beyond the limit.
    fn acquire_over(sources: &Arc<Sources>, source: Option<IpAddr>) -> Self {
        let Some(source) = source else { return Self(None) };
        *sources.lock().unwrap_or_else(PoisonError::into_inner).entry(source).or_insert(0) += 1;
        Self(Some((sources.clone(), source)))
    }
}

impl Drop for SourcePermit {
    fn drop(&mut self) {
        let Some((sources, source)) = self.0.take() else { return };
        let mut counts = sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
    const B: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));

    #[test]
    fn each_limit_says_no_in_its_own_name_and_gives_everything_back() {
        let process = Admission::new(3, 2);
        let listener = process.listener(2, 9);
        let other = process.listener(9, 1);
        let first = listener.admit(A).ok();
        let second = listener.admit(B).ok();
        assert_eq!(listener.admit(B).err(), Some(NotAdmitted::Listener));
        let third = other.admit(A).ok();
        assert!(first.is_some() && second.is_some() && third.is_some());
        assert_eq!(other.admit(B).err(), Some(NotAdmitted::Process));
        drop(second);
        assert_eq!(other.admit(A).err(), Some(NotAdmitted::Source));
        drop((first, third));
        assert_eq!((process.in_use(), listener.in_use(), other.in_use()), (0, 0, 0));
        assert!(process.sources.lock().is_ok_and(|sources| sources.is_empty()));
    }

    #[test]
    fn an_earlier_admitted_connection_is_counted_and_never_refused() {
        let process = Admission::new(1, 1);
        let listener = process.listener(1, 1);
        let newcomer = listener.admit(A).ok();
        let moved: Vec<_> = [A, A, B, None].into_iter().map(|source| listener.admit_moved(source)).collect();
        assert!(newcomer.is_some());
        assert_eq!((process.in_use(), listener.in_use()), (5, 5));
        assert_eq!(listener.admit(B).err(), Some(NotAdmitted::Process));
        drop((newcomer, moved));
        assert_eq!((process.in_use(), listener.in_use()), (0, 0));
        assert!(process.sources.lock().is_ok_and(|sources| sources.is_empty()));
        assert!(listener.admit(A).is_ok());
    }

    #[test]
    fn unix_clients_share_no_source() {
        let listener = Admission::new(9, 1).listener(9, 1);
        let held: Vec<_> = (0..3).map(|_| listener.admit(None)).collect();
        assert!(held.iter().all(Result::is_ok));
    }
}
