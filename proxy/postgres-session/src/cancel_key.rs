//! Cancel keys of the gateway's own. The process id of a key is not one: it names the gateway process, the worker and the
//! connection there, so that the process which accepts a cancel request can send it on to the right place: a worker of its own, or the
//! process before an upgrade. Gateways that are not successors of each other have the same numbers, and do not know each other.
//! Only the secret decides whether a request may cancel.

use subtle::ConstantTimeEq;
use weir_postgres_codec::Version;

/// Bytes of the secret for clients of protocol 3.2, as PostgreSQL 18 has it.
pub const SECRET_BYTES: usize = 32;
/// Bytes of the secret for clients of protocol 3.0: the protocol has no other length.
pub const SECRET_BYTES_V3_0: usize = 4;

/// Bits of the parts of a process id. The highest bit stays 0: clients read a signed number.
const SLOT_BITS: u32 = 17;
const WORKER_BITS: u32 = 8;
const PROCESS_BITS: u32 = 6;

/// Successive gateway processes that keys can tell apart: 63. Number 0 is none, so that no key has the process id 0.
pub const PROCESSES_MAX: u32 = (1 << PROCESS_BITS) - 1;
/// Workers of a process: 256.
pub const WORKERS_MAX: u32 = 1 << WORKER_BITS;
/// Connections of a worker: 131,072.
pub const SLOTS_MAX: u32 = 1 << SLOT_BITS;

const _: () = assert!(SLOT_BITS + WORKER_BITS + PROCESS_BITS == 31, "a positive int32");

/// The connection that a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Number of the gateway process among those of its upgrades, from 1 to [`PROCESSES_MAX`].
    pub process: u32,
    /// Number of the worker, below [`WORKERS_MAX`].
    pub worker: u32,
    /// Number of the connection at its worker, below [`SLOTS_MAX`]. It is used again after the connection.
    pub slot: u32,
}

impl Place {
    /// The process id of a key of this place; `None`: a number is out of its range.
    #[must_use]
    pub fn pid(self) -> Option<u32> {
        let Place { process, worker, slot } = self;
        let is_valid = (1..=PROCESSES_MAX).contains(&process) && worker < WORKERS_MAX && slot < SLOTS_MAX;
        is_valid.then_some((process << (WORKER_BITS + SLOT_BITS)) | (worker << SLOT_BITS) | slot)
    }

    /// The place that a cancel request names; `None`: no key has this process id. The place may be empty.
    #[must_use]
    pub fn of(pid: u32) -> Option<Place> {
        let process = pid >> (WORKER_BITS + SLOT_BITS);
        let worker = (pid >> SLOT_BITS) & (WORKERS_MAX - 1);
        let slot = pid & (SLOTS_MAX - 1);
        (1..=PROCESSES_MAX).contains(&process).then_some(Place { process, worker, slot })
    }
}

/// The key of one client.
#[derive(Clone)]
pub struct CancelKey {
    pid: u32,
    secret: [u8; SECRET_BYTES],
    secret_bytes: usize,
}

impl std::fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelKey").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl CancelKey {
    /// The key of a connection; `None`: its place is out of range. `random` comes from the system's source of randomness.
    #[must_use]
    pub fn new(place: Place, version: Version, random: [u8; SECRET_BYTES]) -> Option<CancelKey> {
        let secret_bytes = if version >= Version::V3_2 { SECRET_BYTES } else { SECRET_BYTES_V3_0 };
        Some(CancelKey { pid: place.pid()?, secret: random, secret_bytes })
    }

    /// The process id of BackendKeyData.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The secret of BackendKeyData.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.secret[..self.secret_bytes]
    }

    /// Whether a cancel request has this key. The time does not depend on how much of the secret is right.
    #[must_use]
    pub fn matches(&self, pid: u32, secret: &[u8]) -> bool {
        self.pid == pid && bool::from(self.secret().ct_eq(secret))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_process_id_names_its_place_and_is_positive(
            process in 1..=PROCESSES_MAX, worker in 0..WORKERS_MAX, slot in 0..SLOTS_MAX,
        ) {
            let place = Place { process, worker, slot };
            let pid = place.pid().expect("in range");
            prop_assert!(pid > 0 && i32::try_from(pid).is_ok());
            prop_assert_eq!(Place::of(pid), Some(place));
        }

        #[test]
        fn any_process_id_of_a_client_is_a_place_or_none(pid: u32) {
            if let Some(place) = Place::of(pid) {
                prop_assert_eq!(place.pid(), Some(pid));
            }
        }
    }

    #[test]
    fn numbers_out_of_range_make_no_key() {
        let place = Place { process: 1, worker: 2, slot: 3 };
        for wrong in [
            Place { process: 0, ..place },
            Place { process: PROCESSES_MAX + 1, ..place },
            Place { worker: WORKERS_MAX, ..place },
            Place { slot: SLOTS_MAX, ..place },
        ] {
            assert!(CancelKey::new(wrong, Version::V3_0, [0; 32]).is_none(), "{wrong:?}");
        }
        assert_eq!(Place::of(0), None);
        assert_eq!(Place::of(u32::MAX), None);
    }

    #[test]
    fn only_the_whole_secret_of_its_version_matches() {
        let place = Place { process: 1, worker: 2, slot: 3 };
        let random: [u8; 32] = std::array::from_fn(|index| index as u8);
        for (version, bytes) in [(Version::V3_0, 4), (Version::of(0x3_0001), 4), (Version::V3_2, 32)] {
            let key = CancelKey::new(place, version, random).expect("in range");
            assert_eq!(key.secret(), &random[..bytes]);
            assert!(key.matches(key.pid(), &random[..bytes]));
            assert!(!key.matches(key.pid() + 1, &random[..bytes]));
            assert!(!key.matches(key.pid(), &random[..bytes - 1]));
            assert!(!key.matches(key.pid(), b""));
            let mut wrong = random;
            wrong[bytes - 1] ^= 1;
            assert!(!key.matches(key.pid(), &wrong[..bytes]));
            assert!(!format!("{key:?}").contains("secret"));
        }
    }
}
