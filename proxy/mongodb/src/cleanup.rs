//! Commands on the gateway's own behalf: killCursors and abortTransaction for cursors and transactions that have lost
//! their client.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};

use weir_base::{exchange::LossCause, time::turn};
use weir_engine::timeout;
use weir_mongodb_session::pins::Cleanup;
use weir_upstream::{
    SelectionCriteria,
    pooled::{Condition, Patience},
};

use crate::{own_request, service::Service, upstream::MongodbUpstream};

/// Commands that wait. Default 10,000, as many as an owner may have cursors: further ones are left to the server, which ends
/// unused ones by itself.
const WAITING_MAX: usize = 10_000;
/// Commands under way at once. Default 8: a tenth of a pool, so that clients have the rest.
const RUNNING_MAX: usize = 8;
/// For a connection and for the reply. Default 5 s each: they wait for no user.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// The commands of one listener on one worker.
#[derive(Default)]
pub(crate) struct Cleaner {
    waiting: RefCell<VecDeque<(Cleanup, Rc<MongodbUpstream>)>>,
    running: Rc<Cell<usize>>,
}

impl Cleaner {
    fn place(&self) -> Place {
        self.running.set(self.running.get() + 1);
        Place(self.running.clone())
    }
}

fn kind(cleanup: &Cleanup) -> &'static str {
    match cleanup {
        Cleanup::KillCursor { .. } => "cursor",
        Cleanup::AbortTransaction { .. } => "transaction",
    }
}

/// Takes commands in, and sees to them one after the other.
pub(crate) fn clean(service: &Rc<Service>, upstream: &Rc<MongodbUpstream>, cleanups: Vec<Cleanup>) {
    let cleaner = &service.cleaner;
    for cleanup in cleanups {
        if cleaner.waiting.borrow().len() >= WAITING_MAX {
            service.metrics.cleaned(kind(&cleanup), "dropped");
            continue;
        }
        cleaner.waiting.borrow_mut().push_back((cleanup, upstream.clone()));
    }
    let wanted = cleaner.waiting.borrow().len().min(RUNNING_MAX.saturating_sub(cleaner.running.get()));
    for _ in 0..wanted {
        weir_engine::spawn(run(service.clone(), cleaner.place())).detach();
    }
}

/// A place among those that run, until it is dropped: a panic gives it back.
struct Place(Rc<Cell<usize>>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn run(service: Rc<Service>, _place: Place) {
    loop {
        let next = service.cleaner.waiting.borrow_mut().pop_front();
        let Some((cleanup, upstream)) = next else { break };
        let outcome = carry_out(&cleanup, &upstream).await;
        service.metrics.cleaned(kind(&cleanup), outcome);
    }
}

/// Any connection of the server will do.
async fn carry_out(cleanup: &Cleanup, upstream: &Rc<MongodbUpstream>) -> &'static str {
    let Some(number) = upstream.number_of(cleanup.server()).filter(|number| *number < 64) else {
        return "server_gone";
    };
    let (since, barred) = (turn::now(), !(1_u64 << number));
    let wanted = SelectionCriteria { barred, is_optional: true, ..SelectionCriteria::default() };
    let patience = Patience { since, deadline: since.saturating_add(STEP_TIMEOUT), notify_at: None };
    let Ok(mut server) = upstream.pool().acquire(wanted, patience, || {}).await else { return "no_server" };
    let stream = server.stream();
    match timeout(STEP_TIMEOUT, own_request::clean(stream, cleanup)).await {
        Ok(Ok(())) => {
            server.give_back(Condition::Clean);
            "done"
        }
        Ok(Err(_)) => {
            server.close(LossCause::Closed);
            "lost"
        }
        Err(_) => {
            server.close(LossCause::Timeout);
            "lost"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn i7_a_panic_gives_its_place_back() {
        let cleaner = Cleaner::default();
        let place = cleaner.place();
        assert_eq!(cleaner.running.get(), 1);
        let run = catch_unwind(AssertUnwindSafe(move || {
            let _place = place;
            panic!("as told");
        }));
        assert!(run.is_err() && cleaner.running.get() == 0);
    }
}
