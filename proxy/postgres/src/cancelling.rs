//! Cancel requests under way, by pool, for operators.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

/// Counts of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CancelCounts {
    /// Requests on their way to a server that has not got them.
    pub(crate) waiting: u32,
    /// Requests that a server has, each on a connection of its own.
    pub(crate) active: u32,
    /// Servers that would be idle if no request for them were under way.
    pub(crate) held: u32,
}

impl CancelCounts {
    pub(crate) fn add(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.active += other.active;
        self.held += other.held;
    }

    fn count(&mut self, stage: Stage) -> &mut u32 {
        match stage {
            Stage::Waiting => &mut self.waiting,
            Stage::Active => &mut self.active,
            Stage::Held => &mut self.held,
        }
    }
}

/// The stage of a request, or the state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Active,
    Held,
}

type Pools = RefCell<HashMap<String, CancelCounts>>;

/// Counts of the pools of one listener on one worker.
#[derive(Default)]
pub(crate) struct Cancelling(Rc<Pools>);

impl Cancelling {
    /// A request for a server of `pool` begins; it is under way until the result is dropped.
    pub(crate) fn request(&self, pool: String) -> Underway {
        Underway::new(&self.0, pool, Stage::Waiting)
    }

    /// A server of `pool` waits for such a request until the result is dropped.
    pub(crate) fn held(&self, pool: String) -> Underway {
        Underway::new(&self.0, pool, Stage::Held)
    }

    /// The pools for which any is under way.
    pub(crate) fn counts(&self) -> HashMap<String, CancelCounts> {
        self.0.borrow().clone()
    }
}

/// See [`Cancelling::request`].
pub(crate) struct Underway {
    pools: Rc<Pools>,
    pool: String,
    stage: Stage,
}

impl Underway {
    fn new(pools: &Rc<Pools>, pool: String, stage: Stage) -> Self {
        *pools.borrow_mut().entry(pool.clone()).or_default().count(stage) += 1;
        Self { pools: pools.clone(), pool, stage }
    }

    /// The server has the request.
    pub(crate) fn sent(&mut self) {
        let mut pools = self.pools.borrow_mut();
        if let Some(counts) = pools.get_mut(&self.pool) {
            *counts.count(self.stage) -= 1;
            *counts.count(Stage::Active) += 1;
            self.stage = Stage::Active;
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let mut pools = self.pools.borrow_mut();
        let Some(counts) = pools.get_mut(&self.pool) else { return };
        *counts.count(self.stage) -= 1;
        if *counts == CancelCounts::default() {
            pools.remove(&self.pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_by_its_stage_until_it_is_over() {
        let cancelling = Cancelling::default();
        let pool = || "app@shop".to_owned();
        let counts = || cancelling.counts().get("app@shop").copied();
        let (mut first, held) = (cancelling.request(pool()), cancelling.held(pool()));
        assert_eq!(counts(), Some(CancelCounts { waiting: 1, active: 0, held: 1 }));
        first.sent();
        assert_eq!(counts(), Some(CancelCounts { waiting: 0, active: 1, held: 1 }));
        drop(first);
        drop(held);
        assert_eq!(counts(), None);
    }
}
