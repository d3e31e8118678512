//! The state that a new configuration takes over from the one before it.

use std::{collections::HashMap, sync::Arc};

use weir_policy::http::RateLimit;

use crate::{jwks::RemoteKeys, routes::Routes};

/// Rate limits that are the same in the old and in the new configuration keep their state: a reload gives no client a full bucket.
pub(crate) fn keep_limits(old: &Routes, new: &mut Routes) {
    let known: HashMap<&str, &[Arc<RateLimit>]> = old
        .table
        .routes()
        .iter()
        .filter_map(|route| Some((&*route.name, &*route.action.policies.as_ref()?.rates)))
        .collect();
    // A limit of the listener or of a domain is one for all its routes, the new ones too.
    let mut kept: HashMap<*const RateLimit, Arc<RateLimit>> = HashMap::new();
    // One limit that has become two starts full for the second: they must not become one for good.
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

/// Keys that stand in a new configuration as they stood in the old one are there at once.
pub(crate) fn keep_keys(old: &Routes, new: &Routes) {
    fn all(routes: &Routes) -> impl Iterator<Item = &Arc<RemoteKeys>> {
        let policies = routes.table.routes().iter().filter_map(|route| route.action.policies.as_ref());
        policies.flat_map(|policies| &policies.keys)
    }
    for keys in all(new) {
        if let Some(same) = all(old).find(|old| !Arc::ptr_eq(old, keys) && old.is_same_place(keys)) {
            keys.adopt(same);
        }
    }
}
