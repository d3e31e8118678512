//! The policies of a listener, a domain or a route, and the fields that they add to a response.
//!
//! The policies themselves are pure and in `weir_policy::http`; `policy_check` runs them in their order. A route has its policies whole,
//! those of its listener included: nothing is looked up in two places.

use std::sync::Arc;

use weir_http_codec::{Fields, RequestHead};
use weir_policy::http::{AddressRules, ApiKeys, Basic, Cors, Jwt, RateLimit, Verified};

use crate::{ext_auth::ExtAuth, jwks::RemoteKeys};

/// The policies of a route. A request must satisfy every configured one.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Addresses that requests may come from.
    pub address: Option<Arc<AddressRules>>,
    /// Pages of other origins that may read responses. A copy for each worker: regexes keep scratch memory.
    pub cors: Option<Cors>,
    /// Somebody with a password.
    pub basic: Option<Arc<WithUserHeader<Basic>>>,
    /// A program with a key.
    pub api_keys: Option<Arc<WithUserHeader<ApiKeys>>>,
    /// Somebody with a token.
    pub jwt: Option<Arc<Jwt>>,
    /// Sources of the keys of tokens.
    pub keys: Vec<Arc<RemoteKeys>>,
    /// The service that decides when all others have allowed the request.
    pub ext_auth: Option<Arc<ExtAuth>>,
    /// Rate limits; a request counts with each.
    pub rates: Vec<Arc<RateLimit>>,
}

/// A policy that authenticates a user, and the field that carries the name to the origin.
#[derive(Debug)]
pub struct WithUserHeader<P> {
    /// The policy.
    pub policy: P,
    /// `None`: the origin does not get the name.
    pub user_field: Option<Box<str>>,
}

/// The authenticated identity.
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

/// The results of the policies of a route for an allowed request.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    pub(crate) user: Option<Arc<str>>,
    pub(crate) owner: Option<Arc<str>>,
    pub(crate) token: Option<Arc<Verified>>,
    /// Fields of the external service.
    pub(crate) ext_auth_fields: Option<Fields>,
}

/// Fields that policies add to the response to one request, of an origin or of the gateway.
#[derive(Debug, Default)]
pub(crate) struct PolicyFields {
    /// The Origin of the request, if its route has a CORS policy.
    pub(crate) origin: Fields,
    /// Fields of the nearest rate limit, and of a refusal.
    pub(crate) added: Fields,
    /// The same and the CORS fields, for responses of the gateway's own; only with a CORS policy.
    pub(crate) own: Option<Fields>,
    /// The authenticated identity.
    pub(crate) identity: Option<Identity>,
}

impl PolicyFields {
    /// Puts the fields of the policies into an origin's response.
    pub(crate) fn apply(&self, policies: Option<&Policies>, fields: &mut Fields) {
        if let Some(cors) = policies.and_then(|policies| policies.cors.as_ref()) {
            cors.apply(&self.origin, fields);
        }
        for field in self.added.iter() {
            fields.set_named(field.name, field.value);
        }
    }

    /// The fields for a response of the gateway's own.
    pub(crate) fn own(&self) -> &Fields {
        self.own.as_ref().unwrap_or(&self.added)
    }
}

impl Policies {
    /// The upstreams that policies use.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<str>> {
        self.keys.iter().map(|keys| &keys.upstream).chain(self.ext_auth.iter().map(|service| &service.upstream))
    }

    /// Removes credentials from a request that goes on, and adds the identity for the origin.
    pub(crate) fn forward_identity(&self, admitted: &Admitted, head: &mut RequestHead) {
        if let Some(basic) = &self.basic {
            basic.policy.strip(&mut head.fields);
            set_user_field(&basic.user_field, &admitted.user, &mut head.fields);
        }
        if let Some(keys) = &self.api_keys {
            keys.policy.strip(head);
            set_user_field(&keys.user_field, &admitted.owner, &mut head.fields);
        }
        if let Some(jwt) = &self.jwt {
            jwt.strip(head);
        }
        if let Some(token) = &admitted.token {
            token.append_to(&mut head.fields);
        }
        if let (Some(service), Some(fields)) = (&self.ext_auth, &admitted.ext_auth_fields) {
            service.apply(fields, &mut head.fields);
        }
    }
}

fn set_user_field(field: &Option<Box<str>>, name: &Option<Arc<str>>, fields: &mut Fields) {
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
