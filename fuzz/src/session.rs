//! A Redis session in its simulated world.

use weir_redis_simulation::swarm::{Bytes, run, run_raw};

/// The first byte chooses. Even: the others are decisions, one each (settings, faults, the client's commands, sizes of
/// pieces, the order of events), and the client judges every reply. Odd: a few decisions, then bytes of a client as they are.
pub fn redis_session(data: &[u8]) {
    match data.split_first() {
        None => {}
        Some((kind, rest)) if kind % 2 == 0 => run(&mut Bytes(rest)),
        Some((_, rest)) => run_raw(rest),
    }
}
