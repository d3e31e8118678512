//! Envoy's Maglev table (`source/extensions/load_balancing_policies/maglev`), for hosts of equal weight and the default
//! size. The construction is listing 1 of Eisenbud et al., "Maglev", NSDI 2016.

use xxhash_rust::xxh64::xxh64;

/// Entries of the table (`table_size`), a prime.
const TABLE_SIZE: u64 = 65_537;

/// Host by entry.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<u16>,
}

impl Table {
    pub(super) fn new(names: &[String]) -> Self {
        const EMPTY: u16 = u16::MAX;
        /// A host's own order of the entries.
        struct Preference {
            offset: u64,
            skip: u64,
            next: u64,
        }
        let mut hosts: Vec<Preference> = names
            .iter()
            .map(|name| Preference {
                offset: xxh64(name.as_bytes(), 0) % TABLE_SIZE,
                skip: xxh64(name.as_bytes(), 1) % (TABLE_SIZE - 1) + 1,
                next: 0,
            })
            .collect();
        let mut entries = vec![EMPTY; TABLE_SIZE as usize];
        // The hosts take turns, each its first wish that is free.
        for turn in 0..entries.len() {
            let host = turn % hosts.len();
            let Preference { offset, skip, next } = &mut hosts[host];
            let entry = loop {
                let wish = ((*offset + *skip * *next) % TABLE_SIZE) as usize;
                *next += 1;
                if entries[wish] == EMPTY {
                    break wish;
                }
            };
            entries[entry] = host as u16;
        }
        Self { entries }
    }

    pub(super) fn place(&self, hash: u64) -> u16 {
        self.entries[(hash % TABLE_SIZE) as usize]
    }

    /// The hosts of all entries from that of `hash` on, once around.
    pub(super) fn walk(&self, hash: u64) -> impl Iterator<Item = u16> {
        let at = (hash % TABLE_SIZE) as usize;
        self.entries[at..].iter().chain(&self.entries[..at]).copied()
    }
}
