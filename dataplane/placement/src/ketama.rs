//! twemproxy's ketama (`hashkit/nc_ketama.c`), for servers of equal weight.

use super::ring::Ring;

/// Points of each server.
const POINTS_PER_SERVER: usize = 160;
/// One MD5 digest gives four.
const POINTS_PER_DIGEST: usize = 4;
/// The port that twemproxy leaves out of a server's name, as libmemcached did.
const UNNAMED_PORT: &str = ":11211";

/// The ring of the servers with these names.
pub(super) fn ring(names: &[String]) -> Ring<u32> {
    // Shares of equal servers are counted in floating point there: (1/n * 160 / 4 * n + 1e-10), cut, which is 40.
    let digests = POINTS_PER_SERVER / POINTS_PER_DIGEST;
    Ring::new(names.iter().zip(0u16..).flat_map(|(name, server)| {
        let name = name.strip_suffix(UNNAMED_PORT).unwrap_or(name);
        (0..digests).flat_map(move |n| {
            let digest = md5::compute(format!("{name}-{n}")).0;
            let (words, _) = digest.as_chunks::<4>();
            [0, 1, 2, 3].map(|at| (u32::from_le_bytes(words[at]), server))
        })
    }))
}
