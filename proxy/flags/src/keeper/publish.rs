//! Snapshots of changed flags, compiled off the worker.

use std::{rc::Rc, sync::Arc};

use weir_base::Time;
use weir_flags_session::Snapshot;

use super::Desk;
use crate::environment::Environment;

/// Compiles what has changed, for as long as the keeper lives.
pub(super) async fn run(desk: Rc<Desk>) {
    loop {
        while let Some(name) = next(&desk) {
            build(&desk, &name).await;
        }
        desk.is_dirty.wait().await;
    }
}

/// An environment whose snapshot lacks the last changes.
fn next(desk: &Desk) -> Option<Box<str>> {
    let state = desk.state.borrow();
    state.environments.iter().find(|(_, one)| one.is_dirty).map(|(name, _)| name.clone())
}

async fn build(desk: &Desk, name: &str) {
    let (flags, history, before) = {
        let mut state = desk.state.borrow_mut();
        let Some(one) = state.environments.get_mut(name) else { return };
        one.is_dirty = false;
        (one.flags.clone(), one.history.clone(), one.built.clone())
    };
    let (own_name, hostname, former) = (Box::<str>::from(name), desk.hostname.clone(), before.clone());
    let made = weir_engine::run_blocking(move || {
        let snapshot = Snapshot::new(&flags, history, hostname.as_deref());
        Environment::new(&own_name, snapshot, former.as_deref(), Time::now())
    });
    let built = match made.await {
        Ok(built) => Arc::new(built),
        Err(error) => {
            return tracing::error!(%error, environment = name, "the flags cannot be compiled; the last ones stay");
        }
    };
    {
        let mut state = desk.state.borrow_mut();
        let Some(one) = state.environments.get_mut(name) else { return };
        let is_unchanged = !one.is_dirty && one.flags.revision() == built.snapshot.revision();
        if !is_same(one.built.as_ref(), before.as_ref(), is_unchanged) {
            return;
        }
        one.built = Some(built.clone());
    }
    for warning in built.snapshot.warnings() {
        tracing::warn!(environment = name, flag = %warning.flag, "{}: the flag is off", warning.text);
    }
    tracing::info!(
        environment = name,
        revision = built.shown_revision(),
        flags = built.snapshot.flag_count(),
        "new flags"
    );
    desk.publish();
}

/// Whether an environment is the one that was compiled. It may have been removed and created again meanwhile, for tokens of other projects: then it
/// has no compiled flags yet. The first flags of an environment have nothing to compare, so they must be the present ones. Otherwise the environment
/// is dirty, and is compiled next.
fn is_same<T>(built: Option<&Arc<T>>, before: Option<&Arc<T>>, is_unchanged: bool) -> bool {
    match (built, before) {
        (Some(built), Some(before)) => Arc::ptr_eq(built, before),
        (None, None) => is_unchanged,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_that_was_created_again_does_not_get_the_flags_of_its_namesake() {
        let (one, other) = (Arc::new(1), Arc::new(1));
        assert!(is_same(Some(&one), Some(&one), false), "changes that came meanwhile are compiled next");
        assert!(!is_same(None, Some(&one), true), "created again, and not compiled yet");
        assert!(!is_same(Some(&other), Some(&one), true));
        assert!(is_same::<u8>(None, None, true) && !is_same::<u8>(None, None, false));
    }
}
