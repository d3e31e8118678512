//! Coarse deadlines of one core: whole-message, idle, half-close and drain deadlines.
//!
//! [`Wheel`] is the plain structure, without a clock: a hierarchical timer wheel with ticks of [`TICK`]. [`Deadlines`]
//! puts wakers into it, and a task owns [`Deadline`] handles.
//!
//! Cost: moving a deadline later, or clearing it, is one store, as its entry stays where it is until that
//! slot is due and is then placed again (or parked). Setting an earlier time is two list operations. Nothing is
//! allocated per re-arm. Entries far in the future stand in coarse slots that are visited once per slot, not per
//! tick.
//!
//! Guarantee: a deadline never fires early. It fires in the first [`Wheel::expire`] whose time is one tick or
//! more past both the deadline and the moment it was set.

use std::time::Duration;

use weir_base::Time;

mod deadline;
#[cfg(test)]
mod tests;

pub use deadline::{Deadline, Deadlines, Expired};

/// Resolution. 10 ms: fine enough for deadlines of whole messages (2 s and more), coarse enough that a busy core
/// fires many at once.
pub const TICK: Duration = Duration::from_millis(10);

const TICK_NANOS: u64 = 10_000_000;
const _: () = assert!(TICK.as_nanos() == TICK_NANOS as u128);

/// Slots per level, one bit each in a `u64`.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;

/// Levels of 64 slots: 640 ms, 41 s, 44 min, 47 h, 124 days, 22 years, and the seventh covers all that [`Time`] can
/// hold.
const LEVELS: usize = 7;

/// Bits of a tick number. `u64::MAX` nanoseconds are below 2^41 ticks.
const TICK_BITS: u32 = SLOT_BITS * LEVELS as u32;
const TICK_MASK: u64 = (1 << TICK_BITS) - 1;
const _: () = assert!(u64::MAX / TICK_NANOS + 1 < TICK_MASK);

/// The tick of an entry without a deadline.
const DISARMED: u64 = TICK_MASK;

/// The slot of an entry that stands in no list.
const PARKED: u64 = 0x3ff;
const _: () = assert!(LEVELS * SLOTS < PARKED as usize);

/// End of a list.
const NIL: u32 = u32::MAX;

/// The right to one entry of a [`Wheel`]; made by [`Wheel::insert`], given back by [`Wheel::remove`]. Not `Copy`, so
/// that it cannot outlive its entry unnoticed. Valid only for the wheel that made it.
#[derive(Debug)]
pub struct Key(u32);

/// Entries with deadlines, without a clock. `T` is what the caller gets back when a deadline has passed: a small token,
/// or a waker.
pub struct Wheel<T> {
    entries: Vec<Entry<T>>,
    /// First vacant entry; vacant entries are chained by `next`.
    vacant: u32,
    len: usize,
    /// Every slot that starts at or before this tick has been processed.
    current: u64,
    /// First entry of each slot.
    heads: Box<[[u32; SLOTS]; LEVELS]>,
    /// Bit `i` of a level: its slot `i` is not empty.
    occupied: [u64; LEVELS],
}

/// 16 bytes and the token, so 32 with a waker.
struct Entry<T> {
    /// Tick of the deadline, rounded up (42 bits), and the slot where the entry stands (10 bits above them).
    placed: u64,
    previous: u32,
    next: u32,
    token: T,
}

const _: () = assert!(size_of::<Entry<u32>>() <= 24);
const _: () = assert!(size_of::<Entry<Option<std::task::Waker>>>() <= 32);

impl<T: Default> Wheel<T> {
    /// An empty wheel that starts at `now`. Holds 1.8 KiB.
    pub fn new(now: Time) -> Self {
        Self {
            entries: Vec::new(),
            vacant: NIL,
            len: 0,
            current: now.as_nanos() / TICK_NANOS,
            heads: Box::new([[NIL; SLOTS]; LEVELS]),
            occupied: [0; LEVELS],
        }
    }

    /// Adds an entry without a deadline. Allocates only when the wheel holds more entries than ever before; that memory
    /// is kept for the next ones.
    ///
    /// # Panics
    /// With 2^32 - 1 entries, which the connection limits are far below.
    pub fn insert(&mut self, token: T) -> Key {
        let entry = Entry { placed: PARKED << TICK_BITS | DISARMED, previous: NIL, next: NIL, token };
        self.len += 1;
        if self.vacant != NIL {
            let index = self.vacant;
            self.vacant = self.entries[index as usize].next;
            self.entries[index as usize] = entry;
            return Key(index);
        }
        let index = u32::try_from(self.entries.len()).ok().filter(|index| *index != NIL);
        self.entries.push(entry);
        Key(index.expect("fewer than 2^32 - 1 deadlines"))
    }

    /// Takes an entry out and gives its token back.
    pub fn remove(&mut self, key: Key) -> T {
        self.unlink(key.0);
        let entry = &mut self.entries[key.0 as usize];
        entry.next = self.vacant;
        self.vacant = key.0;
        self.len -= 1;
        std::mem::take(&mut entry.token)
    }

    /// Sets or moves the deadline; [`Time::NEVER`] clears it. A deadline that has passed already fires with the next
    /// tick.
    pub fn set(&mut self, key: &Key, deadline: Time) {
        if deadline == Time::NEVER {
            return self.clear(key);
        }
        let tick = deadline.as_nanos().div_ceil(TICK_NANOS);
        let due = tick.max(self.current + 1);
        let entry = &mut self.entries[key.0 as usize];
        entry.set_tick(tick);
        let slot = entry.slot();
        if slot != PARKED && self.slot_start(slot) <= due {
            return;
        }
        self.unlink(key.0);
        self.link(key.0, due);
    }

    /// Takes the deadline away; the entry stays for the next [`set`](Self::set).
    pub fn clear(&mut self, key: &Key) {
        self.entries[key.0 as usize].set_tick(DISARMED);
    }

    /// The deadline, rounded up to the tick; `None` if there is none.
    pub fn deadline(&self, key: &Key) -> Option<Time> {
        match self.entries[key.0 as usize].tick() {
            DISARMED => None,
            tick => Some(time_of(tick)),
        }
    }

    /// True from the first [`expire`](Self::expire) past the deadline until it is set again or cleared.
    pub fn is_expired(&self, key: &Key) -> bool {
        self.entries[key.0 as usize].tick() <= self.current
    }

    /// The token of an entry.
    pub fn token_mut(&mut self, key: &Key) -> &mut T {
        &mut self.entries[key.0 as usize].token
    }

    /// When [`expire`](Self::expire) has something to do next; `None`: nothing is pending. It may be earlier than the
    /// earliest deadline (a coarse slot has to be split, or a deadline was moved), at most once per level and entry.
    pub fn next_deadline(&self) -> Option<Time> {
        self.next_slot().map(|slot| time_of(self.slot_start(slot)))
    }

    /// Advances to `now` and calls `fire` once with the token of every deadline that has passed since. Such an entry
    /// stays, expired, until it is set again. Gives the number fired. A `now` before the last one does nothing.
    pub fn expire(&mut self, now: Time, mut fire: impl FnMut(&mut T)) -> usize {
        let target = now.as_nanos() / TICK_NANOS;
        let mut fired = 0;
        while let Some(slot) = self.next_slot() {
            let start = self.slot_start(slot);
            if start > target {
                break;
            }
            debug_assert!(start > self.current);
            self.current = start;
            let mut index = self.take_slot(slot);
            while index != NIL {
                let entry = &mut self.entries[index as usize];
                let (next, tick) = (entry.next, entry.tick());
                entry.set_slot(PARKED);
                if tick == DISARMED {
                    // Cleared since it was placed.
                } else if tick <= target {
                    fire(&mut entry.token);
                    fired += 1;
                } else {
                    self.link(index, tick);
                }
                index = next;
            }
        }
        self.current = self.current.max(target);
        fired
    }

    /// [`expire`](Self::expire) has something to do, or notes a later tick.
    #[inline]
    pub fn is_behind(&self, now: Time) -> bool {
        now.as_nanos() / TICK_NANOS > self.current
    }

    /// Entries, with a deadline or without.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot that starts first. All slots of a level start before all of the next level, as the entries of a level
    /// differ from the current tick in that level's digit and agree in every higher one.
    fn next_slot(&self) -> Option<u64> {
        let level = self.occupied.iter().position(|bits| *bits != 0)?;
        Some((level * SLOTS) as u64 + u64::from(self.occupied[level].trailing_zeros()))
    }

    /// First tick of an occupied slot.
    fn slot_start(&self, slot: u64) -> u64 {
        let shift = SLOT_BITS * (slot >> SLOT_BITS) as u32;
        let digit = slot & (SLOTS as u64 - 1);
        let frame = self.current >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        frame | digit << shift
    }

    /// Empties a slot; gives the head of its list.
    fn take_slot(&mut self, slot: u64) -> u32 {
        let (level, digit) = place_of(slot);
        self.occupied[level] &= !(1 << digit);
        std::mem::replace(&mut self.heads[level][digit], NIL)
    }

    /// Puts an entry that stands nowhere into the slot of `tick`, which lies after the current tick.
    fn link(&mut self, index: u32, tick: u64) {
        debug_assert!(tick > self.current);
        let level = ((self.current ^ tick).ilog2() / SLOT_BITS) as usize;
        let digit = (tick >> (SLOT_BITS * level as u32)) as usize & (SLOTS - 1);
        let head = std::mem::replace(&mut self.heads[level][digit], index);
        self.occupied[level] |= 1 << digit;
        let entry = &mut self.entries[index as usize];
        entry.set_slot((level * SLOTS + digit) as u64);
        entry.previous = NIL;
        entry.next = head;
        if head != NIL {
            self.entries[head as usize].previous = index;
        }
    }

    /// Takes an entry out of its slot, if it stands in one.
    fn unlink(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        let slot = entry.slot();
        if slot == PARKED {
            return;
        }
        let (previous, next) = (entry.previous, entry.next);
        entry.set_slot(PARKED);
        if next != NIL {
            self.entries[next as usize].previous = previous;
        }
        if previous != NIL {
            self.entries[previous as usize].next = next;
            return;
        }
        let (level, digit) = place_of(slot);
        self.heads[level][digit] = next;
        if next == NIL {
            self.occupied[level] &= !(1 << digit);
        }
    }
}

impl<T> Entry<T> {
    fn tick(&self) -> u64 {
        self.placed & TICK_MASK
    }

    fn set_tick(&mut self, tick: u64) {
        self.placed = self.placed & !TICK_MASK | tick;
    }

    fn slot(&self) -> u64 {
        self.placed >> TICK_BITS
    }

    fn set_slot(&mut self, slot: u64) {
        self.placed = self.placed & TICK_MASK | slot << TICK_BITS;
    }
}

/// Level and digit of a slot.
fn place_of(slot: u64) -> (usize, usize) {
    let slot = slot as usize;
    (slot / SLOTS, slot % SLOTS)
}

fn time_of(tick: u64) -> Time {
    Time::from_nanos(tick.saturating_mul(TICK_NANOS))
}
