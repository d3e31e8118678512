//! The store that several gateways share their budgets in.

use std::collections::HashMap;

use weir_ai::settings::{KeyMode, STORE_ENDPOINTS_MAX, StoreSettings};
use weir_ai::store::LIMIT;
use weir_spend::{budget::Budgets, shared::ClaimSettings};

use super::keys::{AiSection, AiStoreSection};
use super::provider::is_far;
use crate::checks::{endpoints, error_at, tls, warn_at};
use crate::protocols::ListenerProtocol;
use crate::reader::Reader;
use crate::snapshot::Listener;

/// The path of the table.
const PATH: &str = "ai.store";

/// The store of the process; mistakes are reported.
pub(super) fn settings(section: &AiSection, listeners: &[Listener], reader: &mut Reader<'_>) -> Option<StoreSettings> {
    let store = section.store.as_ref()?;
    if section.state.is_none() && reader.lacks(section.state.as_ref(), "ai", "state") {
        let message = "`ai.store` needs `ai.state`, which holds the journal and the name of this gateway".to_owned();
        let help = "write state = \"/var/lib/weir/ai\" in [ai]";
        reader.problems.error(&store.place.0, PATH, message, help);
    }
    check_login(store, reader);
    check_handshake(store, reader);
    check_budgets(listeners, store, reader);
    let list = store.endpoints.as_ref()?;
    endpoints(list, STORE_ENDPOINTS_MAX, "name one server and its replicas", PATH, reader);
    let tls = store.tls.as_ref().map(|tls| tls::client(tls, &list.value, "ai.store.tls", reader));
    Some(StoreSettings {
        endpoints: list.value.iter().map(|endpoint| endpoint.value.0.clone()).collect(),
        tls,
        username: store.user.as_ref().map(|user| user.value.0.clone()),
        password: store.password.as_ref().map(|password| password.value.secret.clone()),
        prefix: store.prefix.value.0.clone(),
        claims: ClaimSettings { claim_ttl: store.claim_ttl.value.0, on_failure: store.on_failure.value },
    })
}

/// A user without a password, and a password that others can read on its way.
fn check_login(store: &AiStoreSection, reader: &mut Reader<'_>) {
    if let (Some(user), true) = (&store.user, reader.lacks(store.password.as_ref(), PATH, "password")) {
        let help = "add password = \"env:NAME\", or remove it";
        error_at(user, PATH, "user", "has no effect without a password: there is no login", help, reader);
    }
    let far = store.endpoints.iter().flat_map(|list| &list.value).find(|endpoint| is_far(&endpoint.value.0));
    if let (Some(password), Some(endpoint), None) = (&store.password, far, &store.tls) {
        let what = format!("goes to {} in clear text", endpoint.value.0);
        warn_at(password, PATH, "password", &what, "add [ai.store.tls]", reader);
    }
}

/// A handshake that may take longer than the whole connection.
fn check_handshake(store: &AiStoreSection, reader: &mut Reader<'_>) {
    let Some(tls) = &store.tls else { return };
    if tls.handshake_timeout.is_given && tls.handshake_timeout.value.0 > LIMIT {
        let what = "has no effect beyond 1 s: connecting, handshake and login together may take 1 s";
        error_at(&tls.handshake_timeout, "ai.store.tls", "handshake_timeout", what, "write at most \"1s\"", reader);
    }
}

/// A key has one budget in the store, so its tables have to agree on it.
fn check_budgets(listeners: &[Listener], store: &AiStoreSection, reader: &mut Reader<'_>) {
    let mut known: HashMap<&str, &Budgets> = HashMap::new();
    for listener in listeners {
        let ListenerProtocol::Ai(own) = &listener.protocol else { continue };
        for key in own.keys.iter().filter(|_| own.key_mode == KeyMode::Required) {
            let budgets = &key.policy.budgets;
            if known.insert(&key.name, budgets).is_some_and(|before| before != budgets) {
                let message = format!(
                    "`{PATH}`: the key {} has different budgets in its listeners, but one budget in the store",
                    key.name
                );
                reader.problems.error(&store.place.0, PATH, message, "give the key the same budgets in each listener");
            }
        }
    }
}
