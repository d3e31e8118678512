//! Orders of operators that come by the console of a protocol.

use std::sync::{Arc, Weak};

use weir_listener::{OrderEnd, ProcessOrders};

use super::{Gateway, Reloaded};

/// Carries them out for as long as the gateway is there.
pub struct OrderTaker(Weak<Gateway>);

impl OrderTaker {
    pub fn new(gateway: &Arc<Gateway>) -> Self {
        Self(Arc::downgrade(gateway))
    }
}

impl ProcessOrders for OrderTaker {
    fn reload(&self, end: OrderEnd) {
        let gateway = self.0.clone();
        // A reload waits for the workers, and one of these has given the order.
        let reload = move || {
            let reloaded = gateway.upgrade().map(|gateway| gateway.reload());
            end(match reloaded {
                Some(Reloaded::Applied(_) | Reloaded::Unchanged) => Ok(()),
                Some(Reloaded::Rejected(diagnostics)) => Err(crate::check::mistakes(&diagnostics)),
                Some(Reloaded::Refused(error)) => Err(error.to_string()),
                None => Err("the process ends".to_owned()),
            });
        };
        // Without a thread the order has no end, and the console says so.
        drop(std::thread::Builder::new().name("reload".into()).spawn(reload));
    }

    fn drain(&self) {
        if let Some(gateway) = self.0.upgrade() {
            gateway.request_drain();
        }
    }
}
