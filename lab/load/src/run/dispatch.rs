//! When each request is sent: by the schedule, or by the reply before it.

use std::rc::Rc;
use std::time::Duration;

use weir_base::Time;
use weir_engine::spawn;

use super::generator::{Generator, Slot};
use super::visit::visit;
use crate::arrivals::Schedule;
use crate::outcome::Turn;

/// The shortest sleep. Default 20 us: a tenth of the lag that a valid trial may have. Requests due within it leave
/// together, which spares the generator a wake for each.
const SLEEP_MIN: Duration = Duration::from_micros(20);

/// The times of one phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The schedule begins, with the warm-up.
    pub(super) begins: Time,
    /// The window begins.
    pub(super) measures: Time,
    /// Window and schedule end.
    pub(super) ends: Time,
    /// Requests still in flight are given up.
    pub(super) drained: Time,
}

/// Sends what the schedule wants until all of it has ended.
pub(super) async fn open(generator: Rc<Generator>, schedule: Schedule, times: Times) {
    let late_limit = generator.scenario.late_limit;
    let begins = times.begins.as_nanos();
    let mut schedule = schedule.map(|offset| begins.saturating_add(offset));
    let mut next = schedule.next();
    while let Some(intended) = next {
        let now = Time::now();
        if now >= times.drained {
            break;
        }
        if now.as_nanos() < intended {
            let wake = Time::from_nanos(intended).max(now.saturating_add(SLEEP_MIN));
            generator.bell.wait(wake).await;
            continue;
        }
        if let Some(slot) = generator.take_slot() {
            let ready = intended.max(slot.since);
            let turn = Turn::of(intended, ready, now.as_nanos(), late_limit);
            generator.intended(intended);
            if turn == Turn::Send {
                send(&generator, slot, intended, ready);
            } else {
                generator.give_back(slot);
                generator.skipped(intended, turn);
            }
        } else if !generator.has_connection() {
            generator.intended(intended);
            generator.unsendable(intended);
        } else {
            generator.bell.wait(times.drained).await;
            continue;
        }
        next = schedule.next();
    }
    drain(&generator, times).await;
    // Only a target that was behind to the end leaves any: no slot became free before they were too late.
    for intended in next.into_iter().chain(schedule) {
        generator.intended(intended);
        generator.skipped(intended, Turn::SkipBacklog);
    }
}

/// Sends a request on every slot that becomes free, until the window is over and all of them have ended.
pub(super) async fn closed(generator: Rc<Generator>, times: Times) {
    while Time::now() < times.begins {
        generator.bell.wait(times.begins).await;
    }
    while Time::now() < times.ends {
        let Some(slot) = generator.take_slot() else {
            generator.bell.wait(times.ends).await;
            continue;
        };
        let intended = slot.since.max(times.begins.as_nanos());
        generator.intended(intended);
        send(&generator, slot, intended, intended);
    }
    drain(&generator, times).await;
}

/// Sends the next request on its slot, or on a connection of its own.
fn send(generator: &Rc<Generator>, slot: Slot, intended: u64, ready: u64) {
    if generator.scenario.churn {
        let index = generator.begin_visit(slot, intended, ready);
        spawn(visit(generator.clone(), slot, index)).detach();
    } else {
        generator.send(slot, intended, ready);
    }
}

/// Waits for what is under way, up to the drain limit; the rest are timeouts.
async fn drain(generator: &Generator, times: Times) {
    while generator.in_flight() > 0 && Time::now() < times.drained {
        generator.bell.wait(times.drained).await;
    }
    generator.time_out();
}
