//! A victim beside an attack.

use std::io::Result;
use std::time::{Duration, Instant};

use weir_tests::deadline::{WAIT, until};
use weir_tests::isolation::{Attack, Caller, Cell, Extent, Stand, Victim, Waits, to};
use weir_tests::stream::Address;

/// Waits of a victim that is connected before the attack, for as long as it is watched.
pub fn waits(
    connect: impl Fn() -> Result<Box<dyn Caller>> + Send + 'static,
    extent: Extent,
    attack: impl FnOnce() -> Attack,
) -> Waits {
    let victim = Victim::steady(connect);
    // A victim without service has errors: some servers fail without a gateway.
    let begun = Instant::now();
    while victim.served() < 5 && begun.elapsed() < WAIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let attack = attack();
    std::thread::sleep(extent.watched);
    let waits = victim.stop();
    drop(attack);
    waits
}

/// The victim's waits with an attack at an address, beside `without` it; in the whole table also at the origin itself.
pub fn compared(stand: &Stand, extent: Extent, without: &Waits, attack: impl Fn(&Address) -> Attack) -> Cell {
    let victim = Victim::steady(stand.victim());
    until("the victim to be served", WAIT, || (victim.served() >= 5).then_some(()));
    let begun = attack(&stand.gateway.address);
    std::thread::sleep(extent.watched);
    let is_cut = !begun.ended().is_empty();
    let with = victim.stop();
    drop(begun);
    let origin = stand.origin.address();
    let direct = extent.is_whole.then(|| waits(to(stand.protocol, &origin), extent, || attack(&origin)));
    stand.gateway.wait_at_rest();
    Cell::Waits { with, without: without.clone(), direct, attack: if is_cut { " (ended)" } else { "" } }
}

/// Waits of the victim without an attack.
pub fn quiet(stand: &Stand, extent: Extent) -> Waits {
    waits(stand.victim(), extent, Attack::none)
}
