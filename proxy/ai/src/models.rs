//! The list of models, where the configuration names them.

use std::net::IpAddr;

use bytes::Bytes;
use weir_http::filter::WholeResponse;
use weir_http_codec::{Fields, Known};
use weir_json_codec::write::string;
use weir_spend::{
    keys::Key,
    policy::{Mode, Policy},
};

use crate::{admission::source, error::ApiError, settings::Model, worker::Worker};

/// The gateway's own response to a request for the models that a key may use, or for one of them. `None`: the provider knows.
///
/// # Errors
/// The key may not be used from `address`, or it may not see the model.
pub(crate) fn own(
    worker: &Worker,
    key: Option<&Key>,
    address: IpAddr,
    name: Option<&str>,
) -> Result<Option<WholeResponse>, ApiError> {
    let models = &worker.settings.models;
    source(worker, key, address).map_err(|denial| ApiError::of_denial(&denial))?;
    match name {
        None if models.is_empty() => Ok(of_key(key)),
        None => Ok(Some(list(models, key))),
        Some(name) if models.is_empty() => {
            if may_forward(key, name) {
                Ok(None)
            } else {
                Err(ApiError::NO_MODEL)
            }
        }
        Some(name) => one(models, key, name).map(Some).ok_or(ApiError::NO_MODEL),
    }
}

/// Whether a policy denies a key some models by name.
pub(crate) fn has_denied(key: Option<&Key>) -> bool {
    policies(key).any(|policy| !policy.models_denied.is_empty())
}

/// Whether a key may see a model: none of its policies forbids it. One that only observes forbids nothing.
pub(crate) fn may_use(key: Option<&Key>, model: &str) -> bool {
    let permits = |policy: &Policy| {
        let is_allowed =
            policy.models_allowed.is_empty() || policy.models_allowed.iter().any(|glob| glob.matches(model));
        policy.mode == Mode::Observe || is_allowed && !policy.models_denied.iter().any(|glob| glob.matches(model))
    };
    key.is_none_or(|key| key.levels().iter().all(|level| permits(&level.policy)))
}

/// All models that a key may use. A pattern is no name, so it is not listed.
fn list(models: &[Model], key: Option<&Key>) -> WholeResponse {
    let names = models.iter().filter(|model| model.name.is_exact()).map(|model| model.name.text());
    listed(names.filter(|name| may_use(key, name)))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> WholeResponse {
    let mut out = b"{\"object\":\"list\",\"data\":[".to_vec();
    for (at, name) in names.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(name, &mut out);
    }
    out.extend_from_slice(b"]}");
    response(out)
}

/// The list where the configuration names no models: the exact names that a key may use by its own list. `None`: it has none, and the
/// provider knows its models.
fn of_key(key: Option<&Key>) -> Option<WholeResponse> {
    let mut policies = policies(key).filter(|policy| !policy.models_allowed.is_empty()).peekable();
    policies.peek()?;
    let mut names: Vec<&str> = Vec::new();
    for glob in policies.flat_map(|policy| &policy.models_allowed) {
        if glob.is_exact() && may_use(key, glob.text()) && !names.contains(&glob.text()) {
            names.push(glob.text());
        }
    }
    Some(listed(names.into_iter()))
}

/// Whether a key may see the description of a model by its provider. `name`: as the path has it. With escapes it may be another one for the
/// provider.
fn may_forward(key: Option<&Key>, name: &str) -> bool {
    let mut rules =
        policies(key).filter(|policy| !policy.models_allowed.is_empty() || !policy.models_denied.is_empty());
    may_use(key, name) && (rules.next().is_none() || !name.contains('%'))
}

/// The policies of a key that refuse.
fn policies(key: Option<&Key>) -> impl Iterator<Item = &Policy> {
    key.map_or(&[][..], Key::levels).iter().map(|level| &*level.policy).filter(|policy| policy.mode == Mode::Enforce)
}

/// One of them. `None`: there is none of this name for the key.
fn one(models: &[Model], key: Option<&Key>, name: &str) -> Option<WholeResponse> {
    let exists = models.iter().any(|model| model.name.matches(name));
    (exists && may_use(key, name)).then(|| {
        let mut out = Vec::new();
        write(name, &mut out);
        response(out)
    })
}

fn write(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":");
    string(out, name);
    // When a model was made is not known here.
    out.extend_from_slice(b",\"object\":\"model\",\"created\":0,\"owned_by\":\"weir\"}");
}

fn response(body: Vec<u8>) -> WholeResponse {
    let mut fields = Fields::new();
    fields.set(Known::ContentType, b"application/json");
    WholeResponse { status: 200, fields, body: Bytes::from(body) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;
    use weir_spend::{
        Glob,
        budget::Ledger,
        keys::{KeyRing, KeySecret, KeySettings, NewKey},
    };

    use super::*;
    use crate::settings::Balance;

    fn models() -> Vec<Model> {
        let model = |name: &str| Model {
            sticky_prefix_bytes: None,
            name: Glob::new(name).expect("a pattern"),
            balance: Balance::default(),
            targets: Vec::new(),
        };
        ["fast", "slow", "gpt-*"].map(model).to_vec()
    }

    fn ids(response: &WholeResponse) -> Vec<String> {
        let value: Value = serde_json::from_slice(&response.body).expect("JSON");
        let data = value["data"].as_array().expect("a list");
        data.iter().map(|model| model["id"].as_str().expect("an id").to_owned()).collect()
    }

    #[test]
    fn a_key_sees_the_models_that_it_may_use() {
        assert_eq!(ids(&list(&models(), None)), ["fast", "slow"]);
        let secret = NewKey::generate().expect("randomness");
        let policy = Policy { models_allowed: vec![Glob::new("fast").expect("a name")], ..Policy::default() };
        let settings = KeySettings {
            name: "k".into(),
            secrets: vec![KeySecret { hash: secret.hash, shown: "k".into(), until: None }],
            is_enabled: true,
            expires: None,
            policy: Arc::new(policy),
            team: None,
            organization: None,
        };
        let ring = KeyRing::new(&[settings], &[], &Ledger::default()).expect("a ring");
        let key = ring.find(secret.text.expose(), 0).expect("the key");
        assert_eq!(ids(&list(&models(), Some(key))), ["fast"]);
        assert!(one(&models(), Some(key), "slow").is_none() && one(&models(), None, "slow").is_some());
        assert!(one(&models(), None, "gpt-x").is_some() && one(&models(), None, "other").is_none());
    }
}
