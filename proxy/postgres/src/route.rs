//! The upstream of a client: the database that it names decides.

use std::{borrow::Cow, collections::HashMap, rc::Rc, time::Duration};

use weir_postgres_session::{SessionSettings, users::Credential};

use crate::{
    connection::SeenBy,
    server::PoolKey,
    service::PostgresUpstream,
    settings::{PostgresDatabaseSettings, PostgresListenerSettings},
};

/// The standbys of a database.
pub(crate) struct StandbyRoute {
    pub(crate) upstream: Rc<PostgresUpstream>,
    pub(crate) lag_max: Option<Duration>,
    pub(crate) seen: Rc<SeenBy>,
}

/// The way of the clients of one database.
pub(crate) struct Route {
    pub(crate) upstream: Rc<PostgresUpstream>,
    pub(crate) session: Rc<SessionSettings>,
    /// Where statements may go that only read.
    pub(crate) standbys: Option<StandbyRoute>,
    /// `None`: the listener has no entries, and every name is served.
    pub(crate) entry: Option<PostgresDatabaseSettings>,
}

impl Route {
    /// The pool of a client that is logged in, at one of its upstreams.
    pub(crate) fn key(
        &self,
        upstream: &PostgresUpstream,
        user: &[u8],
        database: &[u8],
        credential: Credential,
    ) -> PoolKey {
        PoolKey::new(user, database, credential, upstream.protocol().settings(), self.entry.as_ref())
    }

    /// The upstreams of its clients.
    pub(crate) fn upstreams(&self) -> Vec<Rc<PostgresUpstream>> {
        let standbys = self.standbys.as_ref().map(|standbys| standbys.upstream.clone());
        std::iter::once(self.upstream.clone()).chain(standbys).collect()
    }

    /// The database at the servers for clients that name `database`.
    pub(crate) fn database<'n>(&'n self, database: &'n str) -> &'n str {
        self.fixed_database().unwrap_or(database)
    }

    /// The database of all clients; `None`: the one that a client names.
    fn fixed_database(&self) -> Option<&str> {
        let own = self.entry.as_ref().and_then(|entry| entry.database.as_deref());
        own.or(self.upstream.protocol().settings().database.as_deref())
    }

    /// The database in the names of pools. Without entries it is that of the servers.
    pub(crate) fn pool_name<'n>(&'n self, database: &'n str) -> &'n str {
        if self.entry.is_some() { database } else { self.database(database) }
    }

    /// The user that logs in at the servers; `None`: that of the client.
    pub(crate) fn user(&self) -> Option<&str> {
        let own = self.entry.as_ref().and_then(|entry| entry.user.as_deref());
        own.or(self.upstream.protocol().settings().user.as_deref())
    }
}

/// The ways of all databases of a listener.
pub(crate) struct Routes {
    upstreams: Vec<Rc<PostgresUpstream>>,
    named: HashMap<Box<[u8]>, Rc<Route>>,
    /// For names that no entry has.
    others: Option<Rc<Route>>,
}

impl Routes {
    /// The routes of these settings; `upstreams` are those that they name, in the same order.
    pub(crate) fn new(settings: &PostgresListenerSettings, upstreams: Vec<Rc<PostgresUpstream>>) -> Self {
        let (mut named, mut others) = (HashMap::new(), None);
        let session = Rc::new(settings.session(settings.pool_mode, false));
        if settings.databases.is_empty() {
            let upstream = upstreams[0].clone();
            others = Some(Rc::new(Route { upstream, session: session.clone(), standbys: None, entry: None }));
        }
        for entry in &settings.databases {
            let upstream = upstreams[entry.upstream].clone();
            let standbys = entry.read_upstream.map(|number| StandbyRoute {
                upstream: upstreams[number].clone(),
                lag_max: entry.replica_lag_max,
                seen: Rc::default(),
            });
            let session = match entry.pool_mode == settings.pool_mode && standbys.is_none() {
                true => session.clone(),
                false => Rc::new(settings.session(entry.pool_mode, standbys.is_some())),
            };
            let route = Rc::new(Route { upstream, session, standbys, entry: Some(entry.clone()) });
            match &entry.name {
                Some(name) => drop(named.insert(name.as_bytes().into(), route)),
                None => others = Some(route),
            }
        }
        Self { upstreams, named, others }
    }

    /// The way of clients that name `database`. `None`: there is no such database.
    pub(crate) fn find(&self, database: &[u8]) -> Option<&Rc<Route>> {
        self.named.get(database).or(self.others.as_ref())
    }

    /// The database whose figures those of clients are that name `database`, and whether the configuration has its name. A name that is
    /// no entry's stands for the database that serves it: otherwise clients could fill the list of figures with names of one database.
    pub(crate) fn label<'n>(&'n self, database: &'n [u8]) -> (Cow<'n, str>, bool) {
        let name = String::from_utf8_lossy(database);
        match &self.others {
            Some(route) if !self.named.contains_key(database) => match route.fixed_database() {
                Some(fixed) => (fixed.into(), true),
                None => (name, false),
            },
            _ => (name, true),
        }
    }

    /// All upstreams of the listener.
    pub(crate) fn upstreams(&self) -> &[Rc<PostgresUpstream>] {
        &self.upstreams
    }

    /// The databases with a name of their own, in the order of their names.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.named.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort_unstable();
        names
    }
}
