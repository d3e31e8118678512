//! Which endpoints take connections of a pool: the protocol of the upstream judges each, by what all workers know of it.

use std::{future::poll_fn, rc::Rc, sync::Arc, task::Poll, time::Duration};

use weir_base::{exchange::Refusal, time::turn};
use weir_engine::timeout;

use super::{PooledProtocol, PooledUpstream, pool::Pool, wait::Wait};
use crate::endpoints::SelectionCriteria;

/// The use of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    /// It takes connections.
    #[default]
    Fit,
    /// It takes them while no other one is fit.
    Spare,
    /// It takes none.
    Unfit,
}

/// The pause of one that found no endpoint: one that could not be reached may be back. Default 250 ms. The ledger keeps all that wait to one
/// attempt at a time.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

impl SelectionCriteria {
    fn bars(&self, number: usize) -> bool {
        number < 64 && self.barred & 1 << number != 0
    }
}

impl<P: PooledProtocol> Pool<P> {
    pub(super) fn fitness(&self, number: usize) -> Fitness {
        self.context.protocol.fitness(&self.members[number].share.ledger.watch)
    }

    /// The knowledge of the protocol about endpoint number `number`, on all workers.
    pub fn watch(&self, number: usize) -> &P::Watch {
        &self.members[number].share.ledger.watch
    }

    /// A client has reason to doubt what is known of endpoint number `number`.
    pub fn suspect(&self, number: usize) {
        self.context.protocol.on_trouble(&self.members[number].share.ledger.watch);
    }

    /// The endpoint is of no use to those that wait for one of its connections.
    pub(super) fn is_unfit(&self, number: usize) -> bool {
        self.context.protocol.judges() && self.fitness(number) == Fitness::Unfit
    }

    /// The endpoint for the next connection, of those that the protocol judges: fit ones first.
    pub(super) fn choose_fit(&self, wanted: &SelectionCriteria) -> Result<usize, Refusal> {
        for level in [Fitness::Fit, Fitness::Spare] {
            if level == Fitness::Spare && wanted.bars_spare {
                break;
            }
            let is_off = |number: usize| wanted.bars(number) || self.fitness(number) != level;
            let is_left = |number: usize| !is_off(number) && !wanted.tried.has(number);
            if !(0..self.members.len()).any(is_left) {
                continue;
            }
            let has_idle = |number: usize| self.members[number].has_idle();
            // The usual case: one endpoint, with a connection at hand.
            let mut left = (0..self.members.len()).filter(|number| is_left(*number));
            if let (Some(only), None) = (left.next(), left.next())
                && has_idle(only)
            {
                return Ok(only);
            }
            if let Some(chosen) =
                self.context.endpoints.choose_among(wanted, has_idle, is_off, |number| self.is_busy(number))
            {
                return Ok(chosen.number);
            }
        }
        Err(Refusal::Unreachable)
    }

    /// Waits until the protocol judges an endpoint otherwise, or for a while; false: the wait is over.
    pub(super) async fn reconsidered(self: &Rc<Self>, wait: &mut Wait<'_, impl FnOnce()>) -> bool {
        let now = turn::now();
        let due = wait.due().min(now.saturating_add(RETRY_PAUSE));
        let ledgers: Vec<_> = self.members.iter().map(|member| member.share.ledger.clone()).collect();
        let seen: Vec<_> = ledgers.iter().map(|ledger| ledger.judgements()).collect();
        let changed = poll_fn(|context| {
            let is_changed =
                ledgers.iter().zip(&seen).any(|(ledger, seen)| ledger.poll_judged(*seen, context).is_ready());
            if is_changed { Poll::Ready(()) } else { Poll::Pending }
        });
        let _ = timeout(due.since(now), changed).await;
        !wait.is_over(self.is_paused())
    }
}

impl<P: PooledProtocol> PooledUpstream<P> {
    /// The knowledge of the protocol about endpoint number `number`, on all workers.
    pub fn watch(&self, number: usize) -> Arc<P::Watch> {
        self.ledgers[number].watch.clone()
    }

    /// The same, to look at.
    pub fn watch_ref(&self, number: usize) -> &P::Watch {
        &self.ledgers[number].watch
    }

    /// The protocol judges endpoint number `number` otherwise than before. `is_over`: its connections are closed when they are free, and those
    /// that wait for one choose again.
    pub fn reconsider(&self, number: usize, is_over: bool) {
        self.ledgers[number].reconsider(is_over);
    }

    /// An endpoint is fit, and none of `barred`: a bit for each number.
    pub fn has_fit(&self, barred: u64) -> bool {
        let wanted = SelectionCriteria { barred, ..SelectionCriteria::default() };
        let is_fit = |number: usize| self.context.protocol.fitness(&self.ledgers[number].watch) == Fitness::Fit;
        (0..self.ledgers.len()).any(|number| !wanted.bars(number) && is_fit(number))
    }

    /// It was replaced.
    pub fn is_retired(&self) -> bool {
        self.context.is_retired.get()
    }

    /// Tells operators that endpoint number `number` has another role.
    pub fn role_changed(&self, number: usize, is_primary: bool) {
        self.context.endpoints.get(number).metrics().role_changed(is_primary);
    }
}
