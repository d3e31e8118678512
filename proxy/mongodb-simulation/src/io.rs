//! The shell's side of a session.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use weir_base::time::Time;
use weir_mongodb_codec::command::Command;
use weir_mongodb_session::face::{Face, Presentation, WireVersions};
use weir_mongodb_session::io::{Clock, Judge, Presents, SharedPins, Users};
use weir_mongodb_session::pins::{PinLimits, Pins};
use weir_mongodb_session::users::{Identity, User};
use weir_mongodb_session::{Refusal, Request};
use weir_sasl::Nonce;

/// See [`weir_mongodb_session::Io`].
#[derive(Debug)]
pub(crate) struct SimulatedIo {
    pub(crate) now: Cell<Time>,
    pub(crate) pins: RefCell<Pins>,
    presentation: Presentation,
}

impl SimulatedIo {
    pub(crate) fn new() -> SimulatedIo {
        let presentation = Presentation {
            face: Face::Mongos,
            service_id: [5; 12],
            wire: WireVersions::KNOWN,
            compressors: Vec::new(),
            session_timeout_minutes: Some(30),
            topology: None,
        };
        SimulatedIo { now: Cell::new(Time::ZERO), pins: RefCell::new(Pins::new(PinLimits::SHARED)), presentation }
    }
}

impl Clock for SimulatedIo {
    fn now(&self) -> Time {
        self.now.get()
    }
    fn unix_ms(&self) -> i64 {
        0
    }
}

impl Users for SimulatedIo {
    fn user(&self, _: &[u8], _: &[u8]) -> Option<Arc<User>> {
        None
    }
    fn nonce(&self) -> Nonce {
        Nonce::from_random(&[0; 18])
    }
}

impl SharedPins for SimulatedIo {
    fn with_pins<R>(&self, act: impl FnOnce(&mut Pins) -> R) -> R {
        act(&mut self.pins.borrow_mut())
    }
    fn has_full_owner(&self) -> bool {
        self.pins.borrow().has_full_owner()
    }
}

impl Judge for SimulatedIo {
    fn judge(&self, _: &Request<'_>, _: &Command<'_>, _: Option<&Identity>) -> Option<Refusal> {
        None
    }
}

impl Presents for SimulatedIo {
    fn presentation(&self) -> &Presentation {
        &self.presentation
    }
}
