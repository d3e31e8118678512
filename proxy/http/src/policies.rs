//! What a listener, a domain or a route asks of a request before it goes anywhere, and what the answer says of that.
//!
//! The policies themselves are pure and in `weir_policy::http`; here they are asked in their order, and what they decide is
//! put into heads. A route has its policies whole, those of its listener included: nothing is looked up in two places.
//!
//! 1. Fields by which origins are told who asks ([`Routes::identity_fields`](crate::routes::Routes)) are taken from every
//!    request of the listener, whatever its route: no client names itself.
//! 2. Address, CORS preflight, authentication, rate limits, length of the body, another service; the first no is the answer.
//! 3. Credentials are taken away and who asks is told just before the request goes on.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use weir_base::time::turn;
use weir_http_codec::{Fields, Known, RequestHead};
use weir_policy::http::{
    AddressRules, ApiKeys, Basic, BasicCheck, Cors, ForwardedFor, Jwt, RateAnswer, RateKey, RateLimit, SlowCheck,
    Verified, is_same_name,
};
use weir_telemetry::log::Peer;

use crate::{
    connection::Connection,
    exchange::Asked,
    ext_auth::ExtAuth,
    jwks::{self, RemoteKeys},
    refusal::Refusal,
    routes::Routes,
    routing::Local,
};

/// What is asked of the requests of a route. All that is configured must be fulfilled.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Where requests may come from.
    pub address: Option<Arc<AddressRules>>,
    /// Which pages of other origins may read answers. A copy for each worker: regexes keep scratch memory.
    pub cors: Option<Cors>,
    /// Somebody with a password.
    pub basic: Option<Arc<Told<Basic>>>,
    /// A program with a key.
    pub api_keys: Option<Arc<Told<ApiKeys>>>,
    /// Somebody with a token.
    pub jwt: Option<Arc<Jwt>>,
    /// Where the keys of tokens are had from.
    pub keys: Vec<Arc<RemoteKeys>>,
    /// Who decides when all others have said yes.
    pub ext_auth: Option<Arc<ExtAuth>>,
    /// How often; each of them.
    pub rates: Vec<Arc<RateLimit>>,
}

/// A policy that finds out who asks, and the field by which the origin is told.
#[derive(Debug)]
pub struct Told<P> {
    /// The policy.
    pub policy: P,
    /// `None`: the origin is not told.
    pub user_field: Option<Box<str>>,
}

/// Who authentication found.
#[derive(Clone, Debug)]
pub(crate) enum Identity {
    /// A user, or the owner of a key.
    Name(Arc<str>),
    /// The subject of a token.
    Token(Arc<Verified>),
}

impl Identity {
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Token(token) => token.subject(),
        }
    }
}

/// What the policies of a route have found out about a request that they let through.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    user: Option<Arc<str>>,
    owner: Option<Arc<str>>,
    token: Option<Arc<Verified>>,
    /// What another service told.
    pub(crate) told: Option<Fields>,
}

/// What answers to one request carry because of policies, whoever answers.
#[derive(Debug, Default)]
pub(crate) struct AnswerFields {
    /// The Origin of the request, if its route has a CORS policy.
    origin: Fields,
    /// Of the rate limit that is nearest, and of a refusal.
    told: Fields,
    /// The same and what a page may read, for answers of the gateway's own; only with a CORS policy.
    own: Option<Fields>,
    /// Who asked.
    pub(crate) identity: Option<Identity>,
}

impl AnswerFields {
    /// Makes the fields of an origin's answer those of the policies.
    pub(crate) fn apply(&self, policies: Option<&Policies>, fields: &mut Fields) {
        if let Some(cors) = policies.and_then(|policies| policies.cors.as_ref()) {
            cors.apply(&self.origin, fields);
        }
        for field in self.told.iter() {
            fields.set_named(field.name, field.value);
        }
    }

    /// What an answer of the gateway's own carries besides what it is.
    pub(crate) fn own(&self) -> &Fields {
        self.own.as_ref().unwrap_or(&self.told)
    }
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
    /// The upstreams that are asked.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<str>> {
        self.keys.iter().map(|keys| &keys.upstream).chain(self.ext_auth.iter().map(|service| &service.upstream))
    }

    /// Whether a request is let through.
    pub(crate) fn judge(&self, connection: &Connection, head: &RequestHead, asked: &Asked) -> Result<Admitted, Local> {
        let mut answer = AnswerFields::default();
        if let Some(cors) = &self.cors {
            head.fields.all(Known::Origin).for_each(|origin| answer.origin.push(b"Origin", origin));
            if let Some(preflight) = cors.preflight(head) {
                // An address that is denied is told so here as for the request that would follow.
                let refusal = match self.check_address(connection, head) {
                    Ok(_) if preflight.is_allowed => return Err(Local::no_content(preflight.fields)),
                    Ok(_) => {
                        connection.service.metrics.denied("cors_origin_denied");
                        return Err(Local::no_content(preflight.fields));
                    }
                    Err(refusal) => refusal,
                };
                return Err(self.refused(connection, refusal, answer, asked));
            }
        }
        match self.check(connection, head, &mut answer) {
            Ok(admitted) => {
                if answer.identity.is_some() || self.cors.is_some() || !answer.told.is_empty() {
                    self.keep(answer, asked);
                }
                Ok(admitted)
            }
            Err(No::Slow(slow)) => Err(Local::Slow(Box::new(slow))),
            Err(No::Keys(keys)) => Err(Local::Keys(keys)),
            Err(No::Refused(refusal)) => Err(self.refused(connection, refusal, answer, asked)),
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
                BasicCheck::Slow(check) => return Err(No::Slow(Slow { check, basic: basic.clone() })),
            }
        }
        if let Some(keys) = &self.api_keys {
            admitted.owner = Some(keys.policy.check(head)?.clone());
        }
        if let Some(jwt) = &self.jwt {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            jwks::refresh(&self.keys, connection);
            let checked = jwt.check(head, &mut connection.service.tokens.borrow_mut(), now);
            admitted.token = Some(checked.map_err(|refusal| match refusal.reason {
                // The issuer may have new ones.
                "jwt_unknown_key" => jwks::due(&self.keys).map_or(No::Refused(refusal), No::Keys),
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

    /// Takes credentials out of a request that goes on, and tells the origin who asks.
    pub(crate) fn tell(&self, admitted: &Admitted, head: &mut RequestHead) {
        if let Some(basic) = &self.basic {
            basic.policy.strip(&mut head.fields);
            tell_name(&basic.user_field, &admitted.user, &mut head.fields);
        }
        if let Some(keys) = &self.api_keys {
            keys.policy.strip(head);
            tell_name(&keys.user_field, &admitted.owner, &mut head.fields);
        }
        if let Some(jwt) = &self.jwt {
            jwt.strip(head);
        }
        if let Some(token) = &admitted.token {
            token.tell(&mut head.fields);
        }
        if let (Some(service), Some(told)) = (&self.ext_auth, &admitted.told) {
            service.tell(told, &mut head.fields);
        }
    }
}

fn tell_name(field: &Option<Box<str>>, name: &Option<Arc<str>>, fields: &mut Fields) {
    if let (Some(field), Some(name)) = (field, name) {
        fields.push(field.as_bytes(), name.as_bytes());
    }
}

/// Why a request is not let through.
enum No {
    Refused(weir_policy::http::Refusal),
    Slow(Slow),
    Keys(Arc<RemoteKeys>),
}

impl From<weir_policy::http::Refusal> for No {
    fn from(refusal: weir_policy::http::Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Admitted {
    /// The first that was found: a user, the owner of a key, the subject of a token.
    fn identity(&self) -> Option<Identity> {
        let name = self.user.as_ref().or(self.owner.as_ref());
        name.cloned().map(Identity::Name).or_else(|| self.token.clone().map(Identity::Token))
    }
}

impl Connection {
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

/// Takes away what a client says under names by which origins are told who asks. `_` counts as `-`: many origins take them for
/// one.
pub(crate) fn clean(names: &[Box<str>], fields: &mut Fields) {
    fields.retain(|field| !names.iter().any(|name| is_same_name(name, field.name)));
}

/// Rate limits that stand in a new configuration as they stood in the old one go on where they were: a reload gives nobody a
/// full bucket.
pub(crate) fn keep_limits(old: &Routes, new: &mut Routes) {
    let known: HashMap<&str, &[Arc<RateLimit>]> = old
        .table
        .routes()
        .iter()
        .filter_map(|route| Some((&*route.name, &*route.action.policies.as_ref()?.rates)))
        .collect();
    // A limit of the listener or of a domain is one for all its routes, the new ones too.
    let mut kept: HashMap<*const RateLimit, Arc<RateLimit>> = HashMap::new();
    // What was one limit and is two now begins anew for the second: they must not become one for good.
    let mut claimed: HashMap<*const RateLimit, *const RateLimit> = HashMap::new();
    for route in new.table.routes() {
        let (Some(policies), Some(before)) = (&route.action.policies, known.get(&*route.name)) else { continue };
        for rate in &policies.rates {
            let Some(same) = before.iter().find(|before| before.settings() == rate.settings()) else { continue };
            let by = *claimed.entry(Arc::as_ptr(same)).or_insert(Arc::as_ptr(rate));
            if by == Arc::as_ptr(rate) {
                kept.entry(by).or_insert_with(|| same.clone());
            }
        }
    }
    for (_, action) in new.table.actions_mut() {
        for rate in action.policies.iter_mut().flat_map(|policies| &mut policies.rates) {
            if let Some(same) = kept.get(&Arc::as_ptr(rate)) {
                *rate = same.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_identity_fields_are_taken_whatever_their_case_and_their_hyphens() {
        let mut fields = Fields::new();
        for name in ["X-User", "x_user", "X-USER", "X-Users", "x-other"] {
            fields.push(name.as_bytes(), b"root");
        }
        clean(&["x-user".into()], &mut fields);
        let left: Vec<String> = fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
        assert_eq!(left, ["X-Users", "x-other"]);
    }
}
