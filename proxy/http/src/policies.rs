//! What a listener, a domain or a route asks of a request before it goes anywhere, and what the answer says of that.
//!
//! The policies themselves are pure and in `weir_policy::http`; `judge` asks them in their order. A route has its policies whole, those of
//! its listener included: nothing is looked up in two places.

use std::sync::Arc;

use weir_http_codec::{Fields, RequestHead};
use weir_policy::http::{AddressRules, ApiKeys, Basic, Cors, Jwt, RateLimit, Verified};

use crate::{ext_auth::ExtAuth, jwks::RemoteKeys};

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
    pub(crate) user: Option<Arc<str>>,
    pub(crate) owner: Option<Arc<str>>,
    pub(crate) token: Option<Arc<Verified>>,
    /// What another service told.
    pub(crate) told: Option<Fields>,
}

/// What answers to one request carry because of policies, whoever answers.
#[derive(Debug, Default)]
pub(crate) struct AnswerFields {
    /// The Origin of the request, if its route has a CORS policy.
    pub(crate) origin: Fields,
    /// Of the rate limit that is nearest, and of a refusal.
    pub(crate) told: Fields,
    /// The same and what a page may read, for answers of the gateway's own; only with a CORS policy.
    pub(crate) own: Option<Fields>,
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

impl Policies {
    /// The upstreams that are asked.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<str>> {
        self.keys.iter().map(|keys| &keys.upstream).chain(self.ext_auth.iter().map(|service| &service.upstream))
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

impl Admitted {
    /// The first that was found: a user, the owner of a key, the subject of a token.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let name = self.user.as_ref().or(self.owner.as_ref());
        name.cloned().map(Identity::Name).or_else(|| self.token.clone().map(Identity::Token))
    }
}
