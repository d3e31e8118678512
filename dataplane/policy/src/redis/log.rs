//! Log of denials, newest first, like events as one (Redis 7.0 `addACLLogEntry`). Bounded in number and size.

use std::{collections::VecDeque, time::Duration};

/// Entries that are kept. Default 128, as `acllog-max-len`; worst case about 200 KiB.
pub const ENTRIES_MAX: usize = 128;

/// Bytes of a key, channel or command that an entry repeats. Default 1 KiB: a key may have 512 MiB.
pub const OBJECT_BYTES_MAX: usize = 1024;

/// Like events within this time are one entry (`ACL_LOG_GROUPING_MAX_TIME_DELTA`).
pub const GROUPING_MAX: Duration = Duration::from_secs(60);

/// Entries that are compared with a new event.
const COMPARED_MAX: usize = 10;

/// Why something was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
    /// A login.
    Auth,
}

impl Reason {
    /// As ACL LOG and the label of the metric have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::Auth => "auth",
        }
    }
}

/// Where it was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// A command on its own.
    TopLevel,
    /// Between MULTI and EXEC.
    Multi,
}

impl Context {
    /// As ACL LOG has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Multi => "multi",
        }
    }
}

/// Something that was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Why.
    pub reason: Reason,
    /// Where.
    pub context: Context,
    /// The command, key or channel.
    pub object: &'a [u8],
    /// The user, or the name that a failed login gave.
    pub user: &'a [u8],
}

/// Like events as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How many there were.
    pub count: u64,
    /// Why.
    pub reason: Reason,
    /// Where.
    pub context: Context,
    /// The command, key or channel; long ones are cut.
    pub object: Vec<u8>,
    /// The user.
    pub user: Vec<u8>,
    /// Time of the latest, since a fixed moment.
    pub at: Duration,
    /// The client of one of the latest, as CLIENT LIST shows it.
    pub client: Vec<u8>,
}

/// A log of denials.
#[derive(Debug, Default)]
pub struct AclLog {
    entries: VecDeque<Entry>,
}

impl AclLog {
    /// Adds an event at the time `now`. `client` gives its line at most once a second per entry: a client that is
    /// denied again and again must cost less than one that is not.
    pub fn add(&mut self, event: Event<'_>, now: Duration, client: impl FnOnce() -> Vec<u8>) {
        let object = &event.object[..event.object.len().min(OBJECT_BYTES_MAX)];
        let user = &event.user[..event.user.len().min(OBJECT_BYTES_MAX)];
        let is_like = |entry: &Entry| {
            (entry.reason, entry.context) == (event.reason, event.context)
                && now.saturating_sub(entry.at) <= GROUPING_MAX
                && entry.object == object
                && entry.user == user
        };
        if let Some(at) = self.entries.iter().take(COMPARED_MAX).position(is_like)
            && let Some(mut entry) = self.entries.remove(at)
        {
            entry.count += 1;
            if now.saturating_sub(entry.at) >= Duration::from_secs(1) {
                entry.client = client();
            }
            entry.at = now;
            self.entries.push_front(entry);
            return;
        }
        self.entries.truncate(ENTRIES_MAX - 1);
        self.entries.push_front(Entry {
            count: 1,
            reason: event.reason,
            context: event.context,
            object: object.to_vec(),
            user: user.to_vec(),
            at: now,
            client: client(),
        });
    }

    /// The entries, newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(object: &[u8]) -> Event<'_> {
        Event { reason: Reason::Key, context: Context::TopLevel, object, user: b"alice" }
    }

    #[test]
    fn like_events_are_one_entry_that_moves_to_the_front() {
        let mut log = AclLog::default();
        let second = Duration::from_secs(1);
        log.add(event(b"a"), second, || b"1".to_vec());
        log.add(event(b"b"), second, || b"2".to_vec());
        log.add(event(b"a"), second * 2, || b"3".to_vec());
        let told: Vec<(&[u8], u64, &[u8])> =
            log.entries().map(|entry| (&*entry.object, entry.count, &*entry.client)).collect();
        assert_eq!(told, [(&b"a"[..], 2, &b"3"[..]), (b"b", 1, b"2")]);
        log.add(event(b"a"), second * 63, Vec::new);
        assert_eq!(log.entries().len(), 3, "a minute later it is another event");
        log.clear();
        assert_eq!(log.entries().len(), 0);
    }

    #[test]
    fn a_flood_stays_within_the_bounds_and_asks_for_no_lines() {
        let mut log = AclLog::default();
        for index in 0..10_000_u32 {
            log.add(event(&[index as u8; 4096]), Duration::ZERO, Vec::new);
        }
        assert_eq!(log.entries().len(), ENTRIES_MAX);
        assert!(log.entries().all(|entry| entry.object.len() == OBJECT_BYTES_MAX));
        log.clear();
        log.add(event(b"a"), Duration::ZERO, Vec::new);
        for _ in 0..1_000 {
            log.add(event(b"a"), Duration::ZERO, || panic!("asked again within a second"));
        }
        assert_eq!(log.entries().next().map(|entry| entry.count), Some(1_001));
    }
}
