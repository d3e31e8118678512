//! Orders of operators that an upgrade carries to the new process: PAUSE, DISABLE and SET of the consoles.

use std::sync::Arc;

use weir_postgres::{ListenerShared, PausedDatabases, StandingOrders, UpgradeRelay};

use super::{
    Gateway,
    plan::{ListenerPlan, Plan},
};
use crate::upgrade::orders::{Order, Pause};

/// Keeps operators from giving such orders, until the new process serves or the upgrade has failed.
pub(super) struct GateGuard<'a> {
    relay: &'a UpgradeRelay,
    /// The orders that were given before.
    pub(super) orders: Vec<Order>,
    stays_closed: bool,
}

impl<'a> GateGuard<'a> {
    pub(super) fn close(relay: &'a UpgradeRelay, collect: impl FnOnce() -> Vec<Order>) -> Self {
        Self { relay, orders: relay.close_gate(collect), stays_closed: false }
    }

    /// The new process serves: it takes the orders from now on.
    pub(super) fn stay_closed(mut self) {
        self.stays_closed = true;
    }
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        if !self.stays_closed {
            self.relay.open_gate();
        }
    }
}

impl Gateway {
    /// The orders that hold now.
    pub(super) fn standing_orders(&self) -> Vec<Order> {
        let plan = self.plan.load();
        let paused = plan.shares.iter().map(|(name, shares)| (name, PausedDatabases::of(shares)));
        let pauses = paused.flat_map(|(name, paused)| {
            let databases = paused.names.into_iter().map(Vec::from).collect();
            Pause { upstream: name.to_string(), is_all: paused.is_all, databases }.orders()
        });
        let mut orders: Vec<_> = pauses.collect();
        for (bind, shared) in consoles(&plan) {
            let StandingOrders { disabled, settings } = shared.standing_orders();
            let disable = |name: Box<[u8]>| Order::Disable { bind: bind.clone(), database: name.into() };
            orders.extend(disabled.into_iter().map(disable));
            let set = |(name, value): (Box<str>, _)| Order::Set { bind: bind.clone(), setting: name.into(), value };
            orders.extend(settings.into_iter().map(set));
        }
        orders
    }

    /// Goes on with the orders of the process before: upstreams are known by their names, and listeners by their addresses. Nothing is
    /// accepted yet, and no worker has a listener.
    pub fn go_on_with(&self, orders: Vec<Order>) {
        let plan = self.plan.load();
        let count = orders.len();
        let mut is_lost = false;
        for order in orders {
            is_lost |= !go_on_with(&plan, order);
        }
        if is_lost {
            tracing::warn!(
                "orders of the process before end: the configuration has no such upstream, listener or setting"
            );
        }
        if count > 0 {
            tracing::info!(count, "databases are paused, disabled or set as in the process before");
        }
    }
}

/// False: what it is about is gone.
fn go_on_with(plan: &Plan, order: Order) -> bool {
    let at = |wanted: &str| consoles(plan).find(|(bind, _)| bind == wanted).map(|(_, shared)| shared);
    match order {
        Order::Pause { upstream, database } => {
            let Some(shares) = plan.shares.get(&*upstream) else { return false };
            let (is_all, names) = (database.is_none(), database.into_iter().map(Vec::into_boxed_slice).collect());
            PausedDatabases { is_all, names }.hold(shares);
            true
        }
        Order::Disable { bind, database } => at(&bind).is_some_and(|shared| {
            let orders = StandingOrders { disabled: vec![database.into()], ..StandingOrders::default() };
            shared.go_on_with(orders).is_empty()
        }),
        Order::Set { bind, setting, value } => at(&bind).is_some_and(|shared| {
            let orders = StandingOrders { settings: vec![(setting.into(), value)], ..StandingOrders::default() };
            shared.go_on_with(orders).is_empty()
        }),
    }
}

/// The listeners with a console, by their addresses.
fn consoles(plan: &Plan) -> impl Iterator<Item = (String, Arc<ListenerShared>)> {
    plan.snapshot.listeners.iter().filter_map(|listener| {
        let ListenerPlan { share, .. } = plan.listeners.get(&listener.settings.name)?;
        let shared = share.clone().downcast::<ListenerShared>().ok()?;
        Some((listener.settings.bind.to_string(), shared))
    })
}
