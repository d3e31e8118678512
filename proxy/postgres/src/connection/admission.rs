//! From the first byte of a client to its session: encryption, proof, the pool of its database, the greeting of a server.

use std::{cell::Cell, future::poll_fn, mem, pin::pin, rc::Rc, sync::Arc, task::Poll, time::Duration};

use futures_util::future::{Either, select};
use weir_base::{limits, time::turn};
use weir_engine::{Output, Stream, timeout};
use weir_listener::{
    CloseReason, Drain, Security,
    login::{Begun, derive, entropy},
};
use weir_postgres_codec::{
    Version,
    backend::{self, ErrorReport},
    sqlstate,
};
use weir_postgres_session::{
    Session, SessionSettings,
    login::{ClientLogin, Entropy, LoggedIn, Peer, Progress, Refusal, RefusalKind, Start, Step, TlsFacts, greeting},
    users::{Credential, User},
};
use weir_upstream::{
    Refusal as UpstreamRefusal, SelectionCriteria,
    pooled::{Condition, Patience, Pool},
};

use super::{
    Connection,
    identity::{Identity, Place, name_of},
    place::Standbys,
};
use crate::{
    aside,
    cancel::CancelSlot,
    console::{self, Rights},
    listen::ClientFeed,
    lookup::LookupFailure,
    metrics::{CancelOutcome, DatabaseMetrics},
    route::Routes,
    server::{Greeting, PostgresServer, channel_binding},
    service::PostgresUpstream,
    settings::{AuthQuerySettings, PostgresListenerSettings},
};

/// A client that is logged in.
pub(super) struct Client {
    pub(super) session: Session,
    pub(super) identity: Identity,
    /// Counts of its database.
    pub(super) metrics: Rc<DatabaseMetrics>,
    pub(super) pool: Rc<Pool<PostgresServer>>,
    pub(super) upstream: Rc<PostgresUpstream>,
    /// `None`: all its statements go to `pool`.
    pub(super) standbys: Option<Standbys>,
    pub(super) settings: Rc<PostgresListenerSettings>,
    pub(super) cancel: Rc<CancelSlot>,
    pub(super) feed: ClientFeed,
    /// Bytes that the client sent behind its login.
    pub(super) input: Vec<u8>,
}

/// The pools of a client that logs in.
struct Placed {
    routes: Rc<Routes>,
    /// Settings of its session.
    session: Rc<SessionSettings>,
    place: Place,
    /// The parameters that a server has reported.
    reported: Greeting,
}

/// The result of a login.
pub(super) enum Admitted {
    /// A session with a server.
    Client(Box<Client>),
    /// A session with the admin console, and bytes that the client sent behind its login.
    Console(Vec<u8>),
}

/// Lets a client in.
pub(super) async fn admit(
    connection: &Rc<Connection>,
    stream: &mut Stream,
    security: Security,
) -> Result<Admitted, CloseReason> {
    let settings = connection.service.settings();
    let limit = settings.client_login_timeout;
    let ended = poll_fn(|context| {
        let ending = connection.handle.poll_ending(context);
        let is_draining = connection.service.sessions.drain_state() != Drain::Off;
        ending.or(is_draining.then_some(CloseReason::Drained)).map_or(Poll::Pending, Poll::Ready)
    });
    let output = stream.output.clone();
    let may_speak = Cell::new(false);
    let (waited, looked_up) = (Duration::ZERO, None);
    let name = Vec::new();
    let mut admission = Admission { connection, settings, security, waited, may_speak: &may_speak, name, looked_up };
    let admitted = pin!(timeout(limit, admission.run(stream)));
    match select(admitted, pin!(ended)).await {
        Either::Left((Ok(admitted), _)) => admitted,
        Either::Left((Err(_), _)) => {
            let refusal = Refusal::timeout(limit.as_millis() as u64);
            Err(violation(connection, &refusal))
        }
        Either::Right((reason, _)) => {
            if may_speak.get() {
                shutdown(&output);
            }
            Err(reason)
        }
    }
}

/// FATAL with 57P01: the gateway drains, or ends the connection.
pub(crate) fn shutdown(output: &Output) {
    let refusal = weir_postgres_session::Refusal::shutdown();
    output.with(|out| backend::error(out, &ErrorReport::fatal(refusal.sqlstate, &*refusal.text)));
}

/// The reason of a close that a refusal causes.
fn violation(connection: &Connection, refusal: &Refusal) -> CloseReason {
    match &refusal.kind {
        RefusalKind::Violation(violation) => connection.violated(violation),
        _ => CloseReason::Ended(refusal.reason),
    }
}

struct Admission<'a> {
    connection: &'a Rc<Connection>,
    settings: Rc<PostgresListenerSettings>,
    security: Security,
    /// The delay of this login so far.
    waited: Duration,
    /// The client has sent something, and a message to it is whole and readable: no TLS handshake is under way.
    may_speak: &'a Cell<bool>,
    /// The user that the client names.
    name: Vec<u8>,
    /// The user that was found at the server.
    looked_up: Option<Vec<u8>>,
}

impl Admission<'_> {
    async fn run(&mut self, stream: &mut Stream) -> Result<Admitted, CloseReason> {
        let mut login = self.login()?;
        let (mut input, mut out) = (Vec::new(), Vec::new());
        loop {
            match stream.reader.receive().await {
                Ok(Some(chunk)) => {
                    self.may_speak.set(true);
                    input.extend_from_slice(&chunk);
                }
                Ok(None) => return Err(CloseReason::ClientClosed),
                Err(_) => return Err(CloseReason::ClientReset),
            }
            let mut is_over = false;
            while !is_over {
                let Progress { consumed, mut step } = login.on_bytes(&input, &mut out);
                input.drain(..consumed);
                // Without progress the machine waits for bytes.
                is_over = matches!(step, Step::More);
                loop {
                    if let Step::Refuse(refusal) = &step {
                        return Err(self.refused(refusal, stream, &out).await);
                    }
                    stream.output.append(&out);
                    out.clear();
                    step = match step {
                        Step::More => break,
                        Step::StartTls => {
                            let facts = self.start_tls(stream, mem::take(&mut input)).await?;
                            login.on_tls(facts, &mut out)
                        }
                        Step::LookUp { user, is_password_needed } => {
                            if is_password_needed {
                                self.delay(&user, stream).await?;
                            }
                            self.name.clone_from(&user);
                            let found = self.user(user, is_password_needed, stream).await?;
                            login.on_user(found, &mut out)
                        }
                        Step::Derive(derivation) => {
                            let keys = derive(derivation, &self.connection.service.keys).await;
                            login.on_keys(&keys, &mut out)
                        }
                        Step::Cancel { pid, secret } => return Err(self.cancel(pid, &secret).await),
                        Step::Done(client) => return self.logged_in(*client, stream, input).await,
                        Step::Refuse(refusal) => return Err(violation(self.connection, &refusal)),
                    };
                }
            }
        }
    }

    fn login(&self) -> Result<ClientLogin, CloseReason> {
        let (mut nonce, mut salt) = ([0; _], [0; 4]);
        if !(entropy::fill(&mut nonce) && entropy::fill(&mut salt)) {
            return Err(CloseReason::InternalInvariant);
        }
        let peer = Peer { address: self.connection.address(), tls: None };
        Ok(ClientLogin::new(self.connection.service.policy(), peer, Entropy { nonce, salt }))
    }

    /// The user of this name, with its verifier if its password decides.
    async fn user(
        &mut self,
        name: Vec<u8>,
        is_password_needed: bool,
        stream: &Stream,
    ) -> Result<Option<Arc<User>>, CloseReason> {
        let user = match (self.settings.users.find(&name), self.settings.auth_query.clone()) {
            (Some(user), _) => user.clone(),
            (None, Some(query)) if is_password_needed => match self.look_up(name, &query, stream).await? {
                Some(user) => user,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        if is_password_needed && !user.is_derived() {
            let work = user.clone();
            // Without a thread for it, the machine does it.
            let _ = weir_engine::run_blocking(move || work.verifier().is_some()).await;
        }
        Ok(Some(user))
    }

    /// A user that the server knows. A server that does not say is no wrong password.
    async fn look_up(
        &mut self,
        name: Vec<u8>,
        query: &Arc<AuthQuerySettings>,
        stream: &Stream,
    ) -> Result<Option<Arc<User>>, CloseReason> {
        let service = &self.connection.service;
        let found = service.lookups.find(&name, query, &service.upstream(), &service.share).await;
        self.looked_up = Some(name);
        found.map_err(|failure| match failure {
            LookupFailure::Query(violation) => {
                let _ = self.fatal(stream, sqlstate::CONNECTION_FAILURE, "the user cannot be looked up");
                self.connection.violated(&violation)
            }
            LookupFailure::NoServer(refusal) => {
                service.metrics.shed(refusal.name());
                self.fatal(stream, sqlstate::CANNOT_CONNECT_NOW, "the user cannot be looked up now")
            }
            LookupFailure::Timeout => {
                service.metrics.shed(UpstreamRefusal::QueueTimeout.name());
                self.fatal(stream, sqlstate::CANNOT_CONNECT_NOW, "the user cannot be looked up now")
            }
        })
    }

    /// Makes the TLS handshake, behind the byte that accepts it.
    async fn start_tls(&self, stream: &mut Stream, received: Vec<u8>) -> Result<TlsFacts, CloseReason> {
        let Security::Offer(acceptor) = &self.security else { return Err(CloseReason::InternalInvariant) };
        // The byte goes in clear text.
        if !stream.output.drained(limits::WRITE_IDLE_TIMEOUT).await {
            return Err(CloseReason::ClientReset);
        }
        self.may_speak.set(false);
        let handshake = acceptor.accept(stream, &received).await;
        handshake.map_err(|_| CloseReason::of_client("tls_handshake"))?;
        self.may_speak.set(true);
        // The common name alone, as in PostgreSQL.
        let name = stream.peer_identity().and_then(|identity| identity.common_name);
        let client_names = name.into_iter().map(String::into_bytes).collect();
        Ok(TlsFacts { has_alpn: stream.has_agreed_on(b"postgresql"), client_names, binding: channel_binding(stream) })
    }

    /// Sends a cancel request on its way. The client is shown nothing, whatever comes of it.
    async fn cancel(&self, pid: u32, secret: &[u8]) -> CloseReason {
        let service = &self.connection.service;
        match service.cancels.admits(self.connection.address()) {
            true => service.cancel(pid, secret).await,
            false => service.metrics.cancelled(CancelOutcome::Limited),
        }
        CloseReason::Ended("cancel_request")
    }

    /// After wrong passwords of its address a client waits before its proof.
    async fn delay(&mut self, user: &[u8], stream: &Stream) -> Result<(), CloseReason> {
        let Some(address) = self.connection.address() else { return Ok(()) };
        let (delay, waiting) = match self.connection.service.penalties.begins(address, user, turn::now()) {
            Begun::Free => return Ok(()),
            Begun::Waits(delay, waiting) => (delay, waiting),
            Begun::Refused => {
                return Err(self.fatal(stream, sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
            }
        };
        weir_engine::sleep(delay).await;
        drop(waiting);
        self.waited = delay;
        Ok(())
    }

    /// Counts a refusal; a client with a wrong password waits for it.
    async fn refused(&self, refusal: &Refusal, stream: &Stream, words: &[u8]) -> CloseReason {
        let service = &self.connection.service;
        if refusal.kind == RefusalKind::WrongPassword {
            service.metrics.auth_failures.inc();
            if let Some(name) = &self.looked_up {
                service.lookups.doubt(name);
            }
            if let Some(address) = self.connection.address() {
                weir_engine::sleep(service.penalties.failed(address, &self.name, self.waited, turn::now())).await;
            }
        }
        stream.output.append(words);
        violation(self.connection, refusal)
    }

    /// The client is who it says. Finds its pool and what a server of it has to say.
    async fn logged_in(&self, client: LoggedIn, stream: &mut Stream, input: Vec<u8>) -> Result<Admitted, CloseReason> {
        let service = &self.connection.service;
        let start = client.start;
        self.show(&start);
        let wake = Rc::downgrade(self.connection);
        let wake = move || {
            if let Some(connection) = wake.upgrade() {
                connection.handle.wake();
            }
        };
        let wake: Rc<dyn Fn()> = Rc::new(wake);
        let Some(cancel) = service.cancels.enter(start.version, wake.clone()) else {
            return Err(self.fatal(stream, sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
        };
        if start.database == console::DATABASE {
            return self.console(&start, stream, &cancel, input);
        }
        if let Some((code, text)) = service.shared.refusal(&start.database) {
            return Err(self.fatal(stream, code, &text));
        }
        // A password is enough for every server; keys of a proof only for one with the same verifier.
        let known = client.user.as_ref().map(|user| user.credential());
        let credential = known.filter(|known| *known != Credential::None).unwrap_or(client.credential);
        let (user, database) = (start.user[..].into(), start.database[..].into());
        let identity = Identity { user, database, credential };
        let tls = stream.tls_facts().map(|(version, suite)| format!("TLSv{version}/{suite}"));
        self.connection.handle.entry().details().tls = tls.unwrap_or_default();
        let Placed { routes, session, place, reported } = self.place(&identity, stream).await?;
        let Place { upstream, pool, standbys } = place;
        let settings: Vec<_> = start.settings.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let shown = reported.iter().map(|(name, value)| {
            let own = settings.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
            (&name[..], own.map_or(&value[..], |(_, value)| value))
        });
        stream.output.with(|out| greeting(out, shown, cancel.key()));
        // Those of now: a reload may have come since the connection did.
        let rules = service.settings().statement_rules.clone();
        let judge = service.judges.of(&rules, (&start.user, &start.database), self.connection);
        let session = Session::new(settings.iter().copied(), session, service.share.clone(), turn::now())
            .with_process(cancel.key().pid())
            .with_pool(&name_of(&upstream, &pool))
            .with_judge(judge);
        let (label, is_listed) = routes.label(&start.database);
        let metrics = service.metrics.database(&service.shared.label(&label, is_listed));
        metrics.logins.inc();
        let settings = self.settings.clone();
        let feed = ClientFeed::new(&upstream, &pool, wake);
        let client = Client { session, identity, metrics, pool, upstream, standbys, settings, cancel, feed, input };
        Ok(Admitted::Client(Box::new(client)))
    }

    /// Shows operators who the client is.
    fn show(&self, start: &Start) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut details = self.connection.handle.entry().details();
        details.user = text(&start.user);
        details.database = text(&start.database);
        details.version = if start.version >= Version::V3_2 { "PostgreSQL 3.2" } else { "PostgreSQL 3.0" };
        let name = start.settings.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"application_name"));
        details.name = name.map(|(_, value)| text(value)).unwrap_or_default();
    }

    /// Finds the pools of the client, and what a server of them has to say. A reload meanwhile may have given its database others.
    async fn place(&self, identity: &Identity, stream: &Stream) -> Result<Placed, CloseReason> {
        loop {
            let routes = self.connection.service.routes();
            let Some(route) = routes.find(&identity.database) else {
                let text = format!("database \"{}\" does not exist", String::from_utf8_lossy(&identity.database));
                return Err(self.fatal(stream, sqlstate::INVALID_CATALOG_NAME, &text));
            };
            let (place, session) = (identity.place(route), route.session.clone());
            *self.connection.upstreams.borrow_mut() = route.upstreams();
            place.show(self.connection.handle.entry());
            let reported = match place.upstream.protocol().greeting(place.pool.key()) {
                None => self.greeting(&place, &routes, stream).await?,
                known => known,
            };
            if let Some(reported) = reported {
                return Ok(Placed { routes, session, place, reported });
            }
        }
    }

    /// Connects to a server: the first one for this database and user. `None`: a reload has replaced the routes.
    async fn greeting(
        &self,
        place: &Place,
        routes: &Rc<Routes>,
        stream: &Stream,
    ) -> Result<Option<Greeting>, CloseReason> {
        let (service, pool) = (&self.connection.service, &place.pool);
        let since = turn::now();
        let patience =
            Patience { since, deadline: since.saturating_add(self.settings.query_wait_timeout), notify_at: None };
        // A reload wakes all connections.
        let is_replaced = pin!(poll_fn(|_| match Rc::ptr_eq(routes, &service.routes()) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }));
        let entry = self.connection.handle.entry();
        entry.wait(Some(since));
        let acquired = pin!(pool.acquire(SelectionCriteria::default(), patience, || {}));
        let acquired = select(acquired, is_replaced).await;
        entry.wait(None);
        match acquired {
            Either::Right(_) => Ok(None),
            Either::Left((Ok(server), _)) => {
                let (protocol, key) = (place.upstream.protocol(), pool.key());
                // A server that comes from another worker logged in there.
                let greeting = protocol.greeting(key).unwrap_or_else(|| protocol.greeting_of(key, server.state_ref()));
                server.give_back(Condition::Clean);
                Ok(Some(greeting))
            }
            Either::Left((Err(error), _)) => {
                if let (UpstreamRefusal::Greeting, Some(name)) = (error.refusal, &self.looked_up) {
                    // Perhaps its password has changed.
                    service.lookups.forget(name);
                }
                let (code, text) = aside::login_failed(&error, pool.key());
                service.metrics.shed(error.refusal.name());
                Err(self.fatal(stream, code, &text))
            }
        }
    }

    fn console(
        &self,
        start: &Start,
        stream: &Stream,
        cancel: &CancelSlot,
        input: Vec<u8>,
    ) -> Result<Admitted, CloseReason> {
        self.connection.service.cancels.leave(cancel);
        if Rights::of(&start.user, &self.settings).is_none() {
            return Err(self.fatal(stream, sqlstate::INSUFFICIENT_PRIVILEGE, "not allowed"));
        }
        let parameters: [(&[u8], &[u8]); 6] = [
            (b"server_version", b"1.24.1/weir"),
            (b"client_encoding", b"UTF8"),
            (b"server_encoding", b"UTF8"),
            (b"DateStyle", b"ISO"),
            (b"TimeZone", b"GMT"),
            (b"standard_conforming_strings", b"on"),
        ];
        stream.output.with(|out| greeting(out, parameters, cancel.key()));
        Ok(Admitted::Console(input))
    }

    fn fatal(&self, stream: &Stream, code: &str, text: &str) -> CloseReason {
        stream.output.with(|out| backend::error(out, &ErrorReport::fatal(code, text)));
        CloseReason::Ended("login_refused")
    }
}
