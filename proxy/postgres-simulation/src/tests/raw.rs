//! Clients that break rules: messages of the swarm with bytes changed at random.

use weir_base::Rng;

use crate::server::ModelServer;
use crate::{client, raw};

/// Inputs; each from a seed of its own.
const INPUTS: u64 = 3_000;

#[test]
fn whatever_a_client_sends_nothing_panics_and_nothing_is_left() {
    for seed in 0..INPUTS {
        let mut rng = Rng::new(seed);
        let mut direct = ModelServer::new();
        let mut input = vec![rng.below(256) as u8];
        for _ in 0..rng.below(12) {
            let bytes = client::messages(&mut rng, "m", &direct);
            direct.receive(&bytes);
            direct.run();
            input.extend_from_slice(&bytes);
        }
        for _ in 0..rng.below(4) {
            let at = 1 + rng.below(input.len() as u64) as usize;
            if let Some(byte) = input.get_mut(at) {
                *byte = rng.below(256) as u8;
            }
        }
        raw::run_raw(&input);
    }
}
