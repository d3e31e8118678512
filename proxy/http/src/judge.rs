//! The judgement on a request: the policies of its route in their order.
//!
//! 1. Fields by which origins are told who asks ([`Routes::identity_fields`](crate::routes::Routes)) are taken from every
//!    request of the listener, whatever its route: no client names itself.
//! 2. Address, CORS preflight, authentication, rate limits, length of the body, another service; the first no is the answer.
//! 3. Credentials are taken away and who asks is told just before the request goes on.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use weir_base::time::turn;
use weir_http_codec::{Fields, Known, RequestHead};
use weir_policy::http::{Basic, BasicCheck, ForwardedFor, RateAnswer, RateKey, RateLimit, SlowCheck};
use weir_telemetry::log::Peer;

use crate::{
    asked::Asked,
    connection::Connection,
    ext_auth::ExtAuth,
    jwks::{self, Fetch, RemoteKeys},
    local::Local,
    policies::{Admitted, AnswerFields, Identity, Policies, Told},
    refusal::Refusal,
};

/// The reason why a request is not judged to its end yet, or does not go on.
pub(crate) enum Stop {
    /// It is answered without an upstream.
    Local(Local),
    /// It is judged again after a wait.
    Wait(Wait),
}

impl<T: Into<Local>> From<T> for Stop {
    fn from(local: T) -> Self {
        Self::Local(local.into())
    }
}

/// A wait before a request is judged again.
pub(crate) enum Wait {
    /// For the check of a password, which takes milliseconds.
    Password(Box<Slow>),
    /// For keys that have to be fetched.
    Keys(Arc<RemoteKeys>),
    /// For the decision of another service.
    Service(Arc<ExtAuth>),
}

/// A password whose check takes milliseconds, and the policy that waits for it.
pub(crate) struct Slow {
    check: Box<SlowCheck>,
    basic: Arc<Told<Basic>>,
}

/// Has a password checked on a thread that serves no connections. What comes of it is remembered, so asking the policies again
/// gives an answer.
pub(crate) async fn find_out(connection: &Connection, slow: Slow) -> Result<(), Refusal> {
    let Slow { check, basic } = slow;
    let outcome = weir_engine::run_blocking(move || check.run()).await.map_err(|_| Refusal::POLICY_FAILED)?;
    let mut seen = connection.service.seen.borrow_mut();
    // A no is told when the policies are asked again.
    let _ = basic.policy.finish(outcome, &mut seen, turn::now());
    Ok(())
}

impl Policies {
    /// Whether a request is let through.
    pub(crate) fn judge(&self, connection: &Connection, head: &RequestHead, asked: &Asked) -> Result<Admitted, Stop> {
        let mut answer = AnswerFields::default();
        if let Some(cors) = &self.cors {
            head.fields.all(Known::Origin).for_each(|origin| answer.origin.push(b"Origin", origin));
            if let Some(preflight) = cors.preflight(head) {
                // An address that is denied is told so here as for the request that would follow.
                let refusal = match self.check_address(connection, head) {
                    Ok(_) => {
                        if !preflight.is_allowed {
                            connection.service.metrics.denied("cors_origin_denied");
                        }
                        return Err(Local::text(204, "", &preflight.fields).into());
                    }
                    Err(refusal) => refusal,
                };
                return Err(self.refused(connection, refusal, answer, asked).into());
            }
        }
        match self.check(connection, head, &mut answer) {
            Ok(admitted) => {
                if answer.identity.is_some() || self.cors.is_some() || !answer.told.is_empty() {
                    self.keep(answer, asked);
                }
                Ok(admitted)
            }
            Err(No::Wait(wait)) => Err(Stop::Wait(wait)),
            Err(No::Refused(refusal)) => Err(self.refused(connection, refusal, answer, asked).into()),
        }
    }

    fn check_address(&self, connection: &Connection, head: &RequestHead) -> Result<IpAddr, weir_policy::http::Refusal> {
        let (peer, client) = connection.addresses(&head.fields);
        if let Some(rules) = &self.address {
            rules.judge(peer, client)?;
        }
        Ok(client)
    }

    fn check(&self, connection: &Connection, head: &RequestHead, answer: &mut AnswerFields) -> Result<Admitted, No> {
        let client = self.check_address(connection, head)?;
        let mut admitted = Admitted::default();
        if let Some(basic) = &self.basic {
            let mut seen = connection.service.seen.borrow_mut();
            match basic.policy.check(&head.fields, &mut seen, turn::now()) {
                BasicCheck::Granted(user) => admitted.user = Some(user),
                BasicCheck::Refused(refusal) => return Err(No::Refused(refusal)),
                BasicCheck::Slow(check) => {
                    let slow = Slow { check, basic: basic.clone() };
                    return Err(No::Wait(Wait::Password(Box::new(slow))));
                }
            }
        }
        if let Some(keys) = &self.api_keys {
            admitted.owner = Some(keys.policy.check(head)?.clone());
        }
        if let Some(jwt) = &self.jwt {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            jwks::refresh(&self.keys, |keys| connection.fetch(keys));
            let checked = jwt.check(head, &mut connection.service.tokens.borrow_mut(), now);
            admitted.token = Some(checked.map_err(|refusal| match refusal.reason {
                // The issuer may have new ones.
                "jwt_unknown_key" => {
                    jwks::due(&self.keys).map_or(No::Refused(refusal), |keys| No::Wait(Wait::Keys(keys)))
                }
                _ => No::Refused(refusal),
            })?);
        }
        answer.identity = admitted.identity();
        self.count(connection, client, head, answer)?;
        Ok(admitted)
    }

    /// Counts the request with every limit. The client is told of the one that leaves it the least.
    fn count(
        &self,
        connection: &Connection,
        client: IpAddr,
        head: &RequestHead,
        answer: &mut AnswerFields,
    ) -> Result<(), No> {
        let identity = answer.identity.as_ref().and_then(Identity::name);
        let mut nearest: Option<(&RateLimit, RateAnswer)> = None;
        for rate in &self.rates {
            let Some(taken) = rate.take(client, &head.fields, identity, turn::now()) else { continue };
            if !taken.is_allowed {
                // Who shares a bucket with everybody should not come back with everybody.
                let is_shared = rate.settings().key == RateKey::All;
                let jitter = if is_shared { connection.service.sessions.chance() % 1_000 } else { 0 };
                return Err(rate.refusal(&taken, Duration::from_millis(jitter)).into());
            }
            if nearest.as_ref().is_none_or(|(_, known)| taken.remaining < known.remaining) {
                nearest = Some((rate, taken));
            }
        }
        if let Some((rate, taken)) = nearest {
            rate.tell(&taken, &mut answer.told);
        }
        Ok(())
    }

    fn refused(
        &self,
        connection: &Connection,
        refusal: weir_policy::http::Refusal,
        mut answer: AnswerFields,
        asked: &Asked,
    ) -> Local {
        connection.service.metrics.denied(refusal.reason);
        for field in refusal.fields.iter() {
            answer.told.set_named(field.name, field.value);
        }
        self.keep(answer, asked);
        Local::Refused(Refusal::of_policy(&refusal))
    }

    /// Keeps what the answer says for whoever answers. A page may read why it was refused, as far as it may read anything.
    fn keep(&self, mut answer: AnswerFields, asked: &Asked) {
        if let Some(cors) = &self.cors {
            let mut own = answer.told.clone();
            cors.apply(&answer.origin, &mut own);
            answer.own = Some(own);
        }
        // Policies that are asked again after a slow check have not come this far before.
        let _ = asked.answer_fields.set(Box::new(answer));
    }
}

/// Why a request is not let through.
enum No {
    Refused(weir_policy::http::Refusal),
    Wait(Wait),
}

impl From<weir_policy::http::Refusal> for No {
    fn from(refusal: weir_policy::http::Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Connection {
    /// A fetch of these keys.
    pub(crate) fn fetch(&self, keys: &Arc<RemoteKeys>) -> Fetch {
        let service = &self.service;
        let upstream = service.routing().upstream(&keys.upstream).cloned();
        Fetch {
            keys: keys.clone(),
            upstream,
            metrics: service.metrics.clone(),
            log: service.sessions.core().log.clone(),
        }
    }

    /// Of the other end, and of the client as trusted proxies tell it. A Unix socket has no address: its peer is 0.0.0.0,
    /// which no list of networks has unless it has all.
    pub(crate) fn addresses(&self, fields: &Fields) -> (IpAddr, IpAddr) {
        let peer = match self.handle.peer() {
            Peer::Ip(address) => address.ip(),
            Peer::Unix => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let forwarded: ForwardedFor = self.service.http().forwarded_for;
        (peer, forwarded.client(peer, fields))
    }
}
