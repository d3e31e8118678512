//! S5: a client leaves and comes back at once, perhaps on another worker.

use std::io::Result;

use weir_tests::isolation::{Ask, Cell, Leaving, Origin, Protocol, Stand, connect, every};
use weir_tests::stream::Address;

/// Allowed excess of overtaken writes over a direct connection, in percent: the window cannot be closed from outside.
const PERCENT_MAX: usize = 2;

/// Sends a value, leaves without reading, comes back, and has another one acknowledged; then that one must be there.
fn overtaken(protocol: &dyn Protocol, origin: &dyn Origin, address: &Address, rounds: usize) -> Result<usize> {
    let mut wrong = 0;
    for round in 0..rounds as u64 {
        let (old, new) = (2 * round + 1, 2 * round + 2);
        protocol.begin(connect(address)?, &Ask::Put(old))?.leave(Leaving::Fin);
        let mut caller = protocol.caller(connect(address)?)?;
        caller.exchange(&[(Ask::Put(new), Vec::new())])?;
        // A late write has some milliseconds to arrive.
        let is_overtaken = (0..3).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            origin.value() != new
        });
        wrong += usize::from(is_overtaken);
    }
    Ok(wrong)
}

#[test]
fn s5_nothing_sent_before_a_reconnect_takes_effect_after_an_acknowledged_write() {
    every("S5", |protocol, extent| {
        let rounds = extent.pick(150, 10_000);
        let workers = extent.pick(&[2][..], &[1, 2, 4]);
        let name = |workers: &u32| format!("{rounds} reconnects, {workers} workers");
        if let Err(why) = protocol.is_ordered() {
            return workers.iter().map(|workers| (name(workers), Cell::None(why))).collect();
        }
        let row = |workers: &u32| {
            let stand = Stand::with(protocol, protocol.origin(), |config| config.workers(*workers));
            let origin = &*stand.origin;
            let count = |address: &Address| overtaken(protocol, origin, address, rounds);
            let mut faults = Vec::new();
            let mut text = |name: &str, counted: Result<usize>, base: usize| match counted {
                Ok(wrong) => {
                    if wrong > base + rounds * PERCENT_MAX / 100 {
                        faults.push(format!("{wrong} of {rounds} old values came after new ones; {base} directly"));
                    }
                    format!("{name} {wrong}")
                }
                Err(error) => {
                    faults.push(format!("{name}: {error}"));
                    format!("{name}: {error}")
                }
            };
            let direct = count(&origin.address());
            let base = direct.as_ref().copied().unwrap_or(0);
            let direct = text("direct", direct, rounds);
            let through = text("through", count(&stand.gateway.address), base);
            (name(workers), Cell::figure(format!("{through}, {direct}"), faults))
        };
        workers.iter().map(row).collect()
    });
}
