//! Bounds of what a peer may claim.

/// Bytes of one message of a peer. PostgreSQL accepts 1,024; a nonce of a client is 24 bytes and a salt 16. The frame of the
/// protocol around it has a bound of its own, so this one only keeps an exchange small: it holds three messages.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// Rounds of PBKDF2 that a server may demand of us. PostgreSQL and MongoDB use 4,096 to 15,000 unless configured otherwise. A
/// hostile server could claim 2^31, which is minutes of a core; this many are about half a second.
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// Rounds of PBKDF2 of a verifier that we make: the default of PostgreSQL, and the least of RFC 7677.
pub const ITERATIONS_DEFAULT: u32 = 4096;

/// Bytes of a salt that we make, as PostgreSQL makes it.
pub const SALT_BYTES: usize = 16;

/// Random bytes of a nonce, as PostgreSQL has it.
pub const NONCE_RANDOM_BYTES: usize = 18;

/// Bytes of a verifier in its text form. One of PostgreSQL has 133; a longer salt is legal.
pub const VERIFIER_BYTES_MAX: usize = 4 * 1024;

/// Entries of a [`KeyCache`](crate::KeyCache) unless its owner says otherwise. An entry has about 150 bytes.
pub const CACHED_KEYS: usize = 1024;
