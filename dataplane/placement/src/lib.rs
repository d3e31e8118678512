//! Which endpoint holds a key: client-side sharding, as the proxies place keys that users come from.
//!
//! A key's placement must not move when the proxy is replaced, so each scheme is another program's, bit by bit: ketama and
//! modula are twemproxy's (`nc_ketama.c`, `nc_modula.c`), ring hash and Maglev are Envoy's (`ring_hash_lb.cc`,
//! `maglev_lb.cc`). Tests hold them against the programs themselves.
//!
//! | file | concept |
//! |---|---|
//! | `hash` / `tag` | a key becomes a number; the part of it that does |
//! | `ketama` / `ring` / `ring_hash` / `maglev` | a number becomes an endpoint |
//! | `node` | a server as another one names it |

#![forbid(unsafe_code)]

mod hash;
mod ketama;
mod maglev;
mod node;
mod ring;
mod ring_hash;
mod tag;

pub use hash::{KeyHash, SLOTS, slot};
pub use node::{NOBODY, Node};
pub use tag::HashTag;

/// Endpoints of one upstream that keys can be spread over. Default 1,024; Maglev's table has 65,537 entries.
pub const SHARDS_MAX: usize = 1_024;

/// How keys are spread over endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// twemproxy's consistent hashing: 160 points per server on a ring of 32 bits.
    Ketama,
    /// The hash modulo the number of endpoints. Adding one moves nearly all keys.
    Modula,
    /// Envoy's consistent hashing: at least 1,024 points on a ring of 64 bits.
    RingHash,
    /// Envoy's Maglev: a table of 65,537 entries. More even than a ring; a change moves a few more keys.
    Maglev,
}

impl Distribution {
    /// The default hash of the program that it comes from.
    pub fn default_hash(self) -> KeyHash {
        match self {
            Distribution::Ketama | Distribution::Modula => KeyHash::Fnv1a64,
            Distribution::RingHash | Distribution::Maglev => KeyHash::Murmur2,
        }
    }
}

/// How an upstream spreads keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementSettings {
    /// Key hash to endpoint.
    pub distribution: Distribution,
    /// Key to hash.
    pub hash: KeyHash,
    /// The part of a key that is hashed instead of all of it. `None`: always all of it.
    pub hash_tag: Option<HashTag>,
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLocation {
    /// The number of the endpoint.
    pub shard: u16,
    /// Keys of one group may stand in one command: the slot of a cluster, else the shard.
    pub group: u16,
}

/// A table in which every hash has its place, and the places after it.
#[derive(Debug)]
pub struct Walk(Table);

impl Walk {
    /// Envoy's ring of points for servers with these names.
    pub fn ring_hash(names: &[String]) -> Self {
        Self(Table::RingHash(ring_hash::ring(names)))
    }

    /// Maglev's table.
    pub fn maglev(names: &[String]) -> Self {
        Self(Table::Maglev(maglev::Table::new(names)))
    }

    /// The first place from that of `hash` on that suits.
    pub fn find(&self, hash: u64, mut suits: impl FnMut(u16) -> bool) -> Option<u16> {
        match &self.0 {
            Table::RingHash(ring) => ring.walk(hash).find(|&place| suits(place)),
            Table::Maglev(table) => table.walk(hash).find(|&place| suits(place)),
            Table::Modula(_) | Table::Ketama(_) => None,
        }
    }
}

/// Places keys on the endpoints of one upstream. Immutable: made once for a list of endpoints.
#[derive(Debug)]
pub struct Placement {
    settings: PlacementSettings,
    table: Table,
}

#[derive(Debug)]
enum Table {
    Modula(u64),
    Ketama(ring::Ring<u32>),
    RingHash(ring::Ring<u64>),
    Maglev(maglev::Table),
}

impl Placement {
    /// Places keys on `endpoints`, at most [`SHARDS_MAX`]. Their order counts for modula only; the others go by the
    /// address as it is written.
    pub fn new(settings: PlacementSettings, endpoints: &[impl ToString]) -> Self {
        debug_assert!(!endpoints.is_empty() && endpoints.len() <= SHARDS_MAX);
        let names: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        let table = match settings.distribution {
            Distribution::Modula => Table::Modula(names.len() as u64),
            Distribution::Ketama => Table::Ketama(ketama::ring(&names)),
            Distribution::RingHash => Table::RingHash(ring_hash::ring(&names)),
            Distribution::Maglev => Table::Maglev(maglev::Table::new(&names)),
        };
        Self { settings, table }
    }

    /// The number of the endpoint that holds `key`.
    pub fn place(&self, key: &[u8]) -> u16 {
        let key = self.settings.hash_tag.map_or(key, |tag| tag.of(key));
        let hash = self.settings.hash.of(key);
        match &self.table {
            Table::Modula(endpoints) => (hash % endpoints) as u16,
            // A ring of 32 bits: a longer hash is cut, as twemproxy's are by their type.
            Table::Ketama(ring) => ring.place(hash as u32),
            Table::RingHash(ring) => ring.place(hash),
            Table::Maglev(table) => table.place(hash),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(count: u16) -> Vec<String> {
        (0..count).map(|n| format!("127.0.0.1:{}", 7_000 + n)).collect()
    }

    fn placement(distribution: Distribution, count: u16) -> Placement {
        let settings = PlacementSettings { distribution, hash: distribution.default_hash(), hash_tag: None };
        Placement::new(settings, &endpoints(count))
    }

    fn keys() -> impl Iterator<Item = Vec<u8>> {
        (0..10_000).map(|n| format!("user:{n}").into_bytes())
    }

    const ALL: [Distribution; 4] =
        [Distribution::Ketama, Distribution::Modula, Distribution::RingHash, Distribution::Maglev];

    #[test]
    fn every_endpoint_gets_its_part() {
        for distribution in ALL {
            let placement = placement(distribution, 5);
            let mut counts = [0; 5];
            keys().for_each(|key| counts[usize::from(placement.place(&key))] += 1);
            assert!(counts.iter().all(|&count| (1_000..3_500).contains(&count)), "{distribution:?}: {counts:?}");
        }
    }

    #[test]
    fn one_more_endpoint_moves_few_keys_but_with_modula() {
        for distribution in ALL {
            let (before, after) = (placement(distribution, 5), placement(distribution, 6));
            let moved = keys().filter(|key| before.place(key) != after.place(key)).count();
            // A sixth must move.
            let is_consistent = distribution != Distribution::Modula;
            assert_eq!(moved < 3_000, is_consistent, "{distribution:?}: {moved}");
        }
    }

    #[test]
    fn a_tag_keeps_keys_together() {
        for distribution in ALL {
            let hash_tag = Some(HashTag { open: b'{', close: b'}' });
            let settings = PlacementSettings { distribution, hash: KeyHash::Crc16, hash_tag };
            let placement = Placement::new(settings, &endpoints(7));
            let all: Vec<u16> = (0..100).map(|n| placement.place(format!("{{user:7}}:{n}").as_bytes())).collect();
            assert!(all.iter().all(|&one| one == placement.place(b"user:7")), "{distribution:?}");
        }
    }
}
