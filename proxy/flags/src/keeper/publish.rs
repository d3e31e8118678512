//! Snapshots of changed flags, compiled off the worker.

use std::{rc::Rc, sync::Arc};

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
    let (own_name, hostname) = (Box::<str>::from(name), desk.hostname.clone());
    let made = weir_engine::run_blocking(move || {
        let snapshot = Snapshot::new(&flags, history, hostname.as_deref());
        Environment::new(&own_name, snapshot, before.as_deref())
    });
    let built = match made.await {
        Ok(built) => built,
        Err(error) => {
            return tracing::error!(%error, environment = name, "the flags cannot be compiled; the last ones stay");
        }
    };
    for warning in built.snapshot.warnings() {
        tracing::warn!(environment = name, flag = %warning.flag, "{}: the flag is off", warning.text);
    }
    tracing::info!(
        environment = name,
        revision = built.snapshot.revision(),
        flags = built.snapshot.flag_count(),
        "new flags"
    );
    if let Some(one) = desk.state.borrow_mut().environments.get_mut(name) {
        one.built = Some(Arc::new(built));
    }
    desk.publish();
}
