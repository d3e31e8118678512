//! Carriers that take no exchanges any more, while the last ones on them go on.
//!
//! Where the quota is used up, a worker may have one carrier beyond it that takes exchanges. A server that sends GOAWAY on each would have
//! as many connections as there are long exchanges, so those that drain are bounded: past [`DRAINING_MAX`] of them the oldest is cut once
//! another one is needed, but none before [`DRAINING_MIN`].

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    time::Duration,
};

use weir_base::time::{Time, turn};

use crate::carrier::{Carrier, CarrierEntry};

/// Carriers of one endpoint that drain on one worker beside one that takes exchanges beyond the quota. 8: servers behind one address that
/// restart one after the other, each with long streams. Worst case: so many connections of each worker beyond `connections_max`, and the one
/// that takes exchanges.
pub(crate) const DRAINING_MAX: usize = 8;

/// How long each of them may drain. 10 s: ordinary exchanges are over by then. Worst case: exchanges of the worker wait as long for a
/// connection, or are refused, if a server drains its connections faster than that.
pub(crate) const DRAINING_MIN: Duration = Duration::from_secs(10);

/// The draining carriers of one endpoint, and since when each drains, the oldest first.
pub(crate) struct Draining<C: Carrier>(RefCell<Vec<(Time, Weak<CarrierEntry<C>>)>>);

impl<C: Carrier> Default for Draining<C> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<C: Carrier> Draining<C> {
    /// These drain from now on, as far as they carry something.
    pub(crate) fn extend(&self, carriages: &[Rc<CarrierEntry<C>>]) {
        let busy = carriages.iter().filter(|carriage| carriage.idle_since().is_none());
        self.0.borrow_mut().extend(busy.map(|carriage| (turn::now(), Rc::downgrade(carriage))));
    }

    /// There may be another carrier beside them; cuts the oldest for it if it has to.
    pub(crate) fn makes_room(&self, now: Time) -> bool {
        let mut all = self.0.borrow_mut();
        all.retain(|(_, carriage)| carriage.strong_count() > 0);
        if all.len() <= DRAINING_MAX {
            return true;
        }
        let is_oldest_late = now.since(all[0].0) >= DRAINING_MIN;
        if is_oldest_late && let Some(oldest) = all.remove(0).1.upgrade() {
            oldest.retire();
            oldest.carrier.cut();
        }
        is_oldest_late
    }
}
