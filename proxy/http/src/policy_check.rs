//! The check of a request: the policies of its route in their order.
//!
//! 1. Fields that carry identities to origins ([`Routes::identity_fields`](crate::routes::Routes)) are removed from every request of the
//!    listener, whatever its route: no client names itself.
//! 2. Address, CORS preflight, authentication, rate limits, length of the body, external service; the first refusal is the response.
//! 3. Credentials are removed and the identity is added just before the request goes on.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use weir_base::time::turn;
use weir_http_codec::{Fields, Known, RequestHead};
use weir_policy::http::{Basic, BasicCheck, ForwardedFor, RateKey, RateLimit, RateOutcome, SlowCheck};
use weir_telemetry::log::Peer;

use crate::{
    connection::Connection,
    ext_auth::ExtAuth,
    jwks::{self, Fetch, RemoteKeys},
    local_reply::LocalReply,
    policies::{Admitted, Identity, Policies, PolicyFields, WithUserHeader},
    refusal::Refusal,
    request_context::RequestContext,
};

/// The reason why the check of a request is not over, or the request does not go on.
pub(crate) enum PolicyStop {
    /// The response comes without an upstream.
    Reply(LocalReply),
    /// It is checked again after a wait.
    Wait(PolicyWait),
}

impl<T: Into<LocalReply>> From<T> for PolicyStop {
    fn from(reply: T) -> Self {
        Self::Reply(reply.into())
    }
}

/// A wait before a request is checked again.
pub(crate) enum PolicyWait {
    /// For the check of a password, which takes milliseconds.
    Password(Box<PasswordCheck>),
    /// For keys that have to be fetched.
    Keys(Arc<RemoteKeys>),
    /// For the decision of another service.
    Service(Arc<ExtAuth>),
}

/// A password whose check takes milliseconds, and the policy that waits for it.
pub(crate) struct PasswordCheck {
    check: Box<SlowCheck>,
    basic: Arc<WithUserHeader<Basic>>,
}

/// Checks a password on a thread that serves no connections. The result is cached, so the next check of the policies is immediate.
pub(crate) async fn check_password(connection: &Connection, slow: PasswordCheck) -> Result<(), Refusal> {
    let PasswordCheck { check, basic } = slow;
    let outcome = weir_engine::run_blocking(move || check.run()).await.map_err(|_| Refusal::POLICY_FAILED)?;
    let mut seen = connection.service.seen.borrow_mut();
    // A refusal follows when the policies are checked again.
    let _ = basic.policy.finish(outcome, &mut seen, turn::now());
    Ok(())
}

impl Policies {
    /// Lets a request through, or refuses it.
    pub(crate) fn check_request(
        &self,
        connection: &Connection,
        head: &RequestHead,
        request: &RequestContext,
    ) -> Result<Admitted, PolicyStop> {
        let mut response_fields = PolicyFields::default();
        if let Some(cors) = &self.cors {
            head.fields.all(Known::Origin).for_each(|origin| response_fields.origin.push(b"Origin", origin));
            if let Some(preflight) = cors.preflight(head) {
                // A denied address gets its refusal here as for the request that would follow.
                let refusal = match self.check_address(connection, head) {
                    Ok(_) => {
                        if !preflight.is_allowed {
                            connection.service.metrics.denied("cors_origin_denied");
                        }
                        return Err(LocalReply::text(204, "", &preflight.fields).into());
                    }
                    Err(refusal) => refusal,
                };
                return Err(self.refused(connection, refusal, response_fields, request).into());
            }
        }
        match self.check(connection, head, &mut response_fields) {
            Ok(admitted) => {
                if response_fields.identity.is_some() || self.cors.is_some() || !response_fields.added.is_empty() {
                    self.keep(response_fields, request);
                }
                Ok(admitted)
            }
            Err(Denial::Wait(wait)) => Err(PolicyStop::Wait(wait)),
            Err(Denial::Refused(refusal)) => Err(self.refused(connection, refusal, response_fields, request).into()),
        }
    }

    fn check_address(&self, connection: &Connection, head: &RequestHead) -> Result<IpAddr, weir_policy::http::Refusal> {
        let (peer, client) = connection.addresses(&head.fields);
        if let Some(rules) = &self.address {
            rules.judge(peer, client)?;
        }
        Ok(client)
    }

    fn check(
        &self,
        connection: &Connection,
        head: &RequestHead,
        response_fields: &mut PolicyFields,
    ) -> Result<Admitted, Denial> {
        let client = self.check_address(connection, head)?;
        let mut admitted = Admitted::default();
        if let Some(basic) = &self.basic {
            let mut seen = connection.service.seen.borrow_mut();
            match basic.policy.check(&head.fields, &mut seen, turn::now()) {
                BasicCheck::Granted(user) => admitted.user = Some(user),
                BasicCheck::Refused(refusal) => return Err(Denial::Refused(refusal)),
                BasicCheck::Slow(check) => {
                    let slow = PasswordCheck { check, basic: basic.clone() };
                    return Err(Denial::Wait(PolicyWait::Password(Box::new(slow))));
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
                    jwks::due(&self.keys).map_or(Denial::Refused(refusal), |keys| Denial::Wait(PolicyWait::Keys(keys)))
                }
                _ => Denial::Refused(refusal),
            })?);
        }
        response_fields.identity = admitted.identity();
        self.count(connection, client, head, response_fields)?;
        Ok(admitted)
    }

    /// Counts the request with every limit. The response shows the limit with the least left.
    fn count(
        &self,
        connection: &Connection,
        client: IpAddr,
        head: &RequestHead,
        response_fields: &mut PolicyFields,
    ) -> Result<(), Denial> {
        let identity = response_fields.identity.as_ref().and_then(Identity::name);
        let mut nearest: Option<(&RateLimit, RateOutcome)> = None;
        for rate in &self.rates {
            let Some(taken) = rate.take(client, &head.fields, identity, turn::now()) else { continue };
            if !taken.is_allowed {
                // Clients that share a bucket should not come back all at once.
                let is_shared = rate.settings().key == RateKey::All;
                let jitter = if is_shared { connection.service.sessions.chance() % 1_000 } else { 0 };
                return Err(rate.refusal(&taken, Duration::from_millis(jitter)).into());
            }
            if nearest.as_ref().is_none_or(|(_, known)| taken.remaining < known.remaining) {
                nearest = Some((rate, taken));
            }
        }
        if let Some((rate, taken)) = nearest {
            rate.append_to(&taken, &mut response_fields.added);
        }
        Ok(())
    }

    fn refused(
        &self,
        connection: &Connection,
        refusal: weir_policy::http::Refusal,
        mut response_fields: PolicyFields,
        request: &RequestContext,
    ) -> LocalReply {
        connection.service.metrics.denied(refusal.reason);
        for field in refusal.fields.iter() {
            response_fields.added.set_named(field.name, field.value);
        }
        self.keep(response_fields, request);
        LocalReply::Refusal(Refusal::of_policy(&refusal))
    }

    /// Stores the fields for any response. A page may read the reason of a refusal, as far as it may read anything.
    fn keep(&self, mut response_fields: PolicyFields, request: &RequestContext) {
        if let Some(cors) = &self.cors {
            let mut own = response_fields.added.clone();
            cors.apply(&response_fields.origin, &mut own);
            response_fields.own = Some(own);
        }
        // Policies that are checked again after a slow check have not come this far before.
        let _ = request.policy_fields.set(Box::new(response_fields));
    }
}

/// The reason why a request is not let through.
enum Denial {
    Refused(weir_policy::http::Refusal),
    Wait(PolicyWait),
}

impl From<weir_policy::http::Refusal> for Denial {
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

    /// Addresses of the peer, and of the client by the fields of trusted proxies. A Unix socket has no address: its peer is 0.0.0.0,
    /// which only a list of all networks contains.
    pub(crate) fn addresses(&self, fields: &Fields) -> (IpAddr, IpAddr) {
        let peer = match self.handle.peer() {
            Peer::Ip(address) => address.ip(),
            Peer::Unix => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let forwarded: ForwardedFor = self.service.http().forwarded_for;
        (peer, forwarded.client(peer, fields))
    }
}
