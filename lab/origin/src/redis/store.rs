//! The databases of one worker.

use std::rc::Rc;

use weir_base::Time;

use super::{keyspace::Keyspace, memory::Memory};

/// Redis' `databases` default.
pub const DATABASES: usize = 16;

/// Slots of each database looked at per sweep: at ten sweeps a second a million keys take 100 s, and a sweep some 20 µs.
const SWEEP_SLOTS: usize = 1_000;

/// All databases.
pub struct Store {
    databases: Vec<Keyspace>,
}

impl Store {
    pub fn new(memory: &Rc<Memory>) -> Self {
        Self { databases: (0..DATABASES).map(|_| Keyspace::new(memory.clone())).collect() }
    }

    /// Database `index`, below [`DATABASES`].
    #[inline]
    pub fn keys(&mut self, index: usize) -> &mut Keyspace {
        &mut self.databases[index]
    }

    /// All databases in order.
    pub fn iter(&self) -> impl Iterator<Item = &Keyspace> {
        self.databases.iter()
    }

    pub fn clear(&mut self) {
        self.databases.iter_mut().for_each(Keyspace::clear);
    }

    /// Removes some of the keys that have ended.
    pub fn sweep(&mut self, now: Time) {
        self.databases.iter_mut().for_each(|keys| keys.sweep(SWEEP_SLOTS, now));
    }
}
