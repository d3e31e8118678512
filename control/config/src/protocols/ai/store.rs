//! The store that several gateways share their budgets in.

use std::collections::HashMap;

use weir_ai::settings::{KeyMode, STORE_ENDPOINTS_MAX, StoreSettings};
use weir_ai::store::LIMIT;
use weir_spend::{budget::Budgets, shared::ClaimSettings};

use super::keys::{AiSection, AiStoreSection};
use crate::checks::{endpoints, store, tls};
use crate::protocols::ListenerProtocol;
use crate::reader::Reader;
use crate::snapshot::Listener;

/// The path of the table.
const PATH: &str = "ai.store";

/// The store of the process; mistakes are reported.
pub(super) fn settings(section: &AiSection, listeners: &[Listener], reader: &mut Reader<'_>) -> Option<StoreSettings> {
    let own = section.store.as_ref()?;
    if section.state.is_none() && reader.lacks(section.state.as_ref(), "ai", "state") {
        let message = "`ai.store` needs `ai.state`, which holds the journal and the name of this gateway".to_owned();
        let help = "write state = \"/var/lib/weir/ai\" in [ai]";
        reader.problems.error(&own.place.0, PATH, message, help);
    }
    let login = store::Login {
        user: own.user.as_ref(),
        password: own.password.as_ref(),
        endpoints: own.endpoints.as_ref(),
        tls: own.tls.as_ref(),
    };
    login.check(LIMIT, PATH, reader);
    check_budgets(listeners, own, reader);
    let list = own.endpoints.as_ref()?;
    endpoints(list, STORE_ENDPOINTS_MAX, "name one server and its replicas", PATH, reader);
    let tls = own.tls.as_ref().map(|tls| tls::client(tls, &list.value, "ai.store.tls", reader));
    Some(StoreSettings {
        endpoints: list.value.iter().map(|endpoint| endpoint.value.0.clone()).collect(),
        tls,
        username: own.user.as_ref().map(|user| user.value.0.clone()),
        password: own.password.as_ref().map(|password| password.value.secret.clone()),
        prefix: own.prefix.value.0.clone(),
        claims: ClaimSettings { claim_ttl: own.claim_ttl.value.0, on_failure: own.on_failure.value },
    })
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
