//! From a name on the wire to a row of the table: no allocation, any case, about one probe.
//!
//! A name is packed into three words and lower-cased eight bytes at a time; the words, mixed with the container for
//! subcommands, index an open-addressed table that is built at compile time.

use super::command::{Command, CommandId};
use super::table::{commands, subcommands};

/// Bytes of the longest name or subcommand name that is looked up. The longest of the table has 21
/// (`count-failure-reports`); a longer one fails the build.
pub const NAME_BYTES_MAX: usize = 24;

/// Bytes of an unknown name that may be forwarded: what a server repeats in its error (128). Longer is no command.
pub const UNKNOWN_NAME_BYTES_MAX: usize = 128;

/// Commands and subcommands of the table, commands first, each part by name.
pub static COMMANDS: &[Command] = &TABLE;

const COUNT: usize = commands::ROWS.len() + subcommands::ROWS.len();
/// A power of two; at most half full, so that a miss ends soon.
const SLOTS: usize = 1024;
const SLOT_BITS: u32 = SLOTS.trailing_zeros();
const EMPTY: u16 = u16::MAX;
/// Odd multiplier (2^64 / golden ratio); `lookup_takes_few_probes` watches that it suits the table.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const _: () = assert!(COUNT * 2 <= SLOTS && COUNT < EMPTY as usize);

static TABLE: [Command; COUNT] = assemble();
static KEYS: [Key; COUNT] = packed_names();
static INDEX: [u16; SLOTS] = index();

/// Result of [`resolve`].
#[derive(Debug, Clone, Copy)]
pub enum Resolved {
    /// A command, or a subcommand when the command is a container and was given one.
    Known(&'static Command),
    /// The container is known, the subcommand is not.
    UnknownSubcommand(&'static Command),
    /// No server of the table knows the name.
    Unknown,
}

/// Finds the command `name`, or its subcommand `sub` (argument 1 of the request) when it is a container. Names in any
/// case; `sub` is ignored for commands that have no subcommands.
#[inline]
pub fn resolve(name: &[u8], sub: Option<&[u8]>) -> Resolved {
    let Some(command) = find(name, 0) else {
        return Resolved::Unknown;
    };
    match sub {
        Some(sub) if command.container => match find(sub, salt_of(command.id)) {
            Some(subcommand) => Resolved::Known(subcommand),
            None => Resolved::UnknownSubcommand(command),
        },
        _ => Resolved::Known(command),
    }
}

/// Whether a name or subcommand that the table does not know may be sent to the upstream at all (a module's command, a
/// newer server). Only printable ASCII: the servers find names by a hash of all bytes but compare them as C strings, so
/// Valkey 9.1 runs `CONFIG "get\0x"` as CONFIG GET, and Redis 7.0 does when the hash falls into the right bucket. A
/// gateway that forwarded such a name would let it pass every rule about the real command.
pub fn may_forward_unknown(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= UNKNOWN_NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic)
}

impl CommandId {
    /// The row of this id.
    ///
    /// # Panics
    /// When the id does not come from [`COMMANDS`].
    pub fn command(self) -> &'static Command {
        &COMMANDS[usize::from(self.0)]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    words: [u64; 3],
    /// 0 for commands, otherwise the container.
    salt: u16,
    length: u16,
}

#[inline]
fn find(name: &[u8], salt: u16) -> Option<&'static Command> {
    let key = Key { words: pack(name)?, salt, length: name.len() as u16 };
    let mut slot = slot_of(&key);
    loop {
        let at = INDEX[slot];
        if at == EMPTY {
            return None;
        }
        if KEYS[usize::from(at)] == key {
            return Some(&TABLE[usize::from(at)]);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// The name, zero-padded and in lower case; `None` when it is empty or too long. Reads overlap instead of looping.
#[inline]
fn pack(name: &[u8]) -> Option<[u64; 3]> {
    let length = name.len();
    let words = match length {
        0 => return None,
        1..=3 => {
            let (middle, last) = (length / 2, length - 1);
            let [a, b, c] = [name[0], name[middle], name[last]].map(u64::from);
            [a | b << (8 * middle) | c << (8 * last), 0, 0]
        }
        4..=8 => {
            let low = u64::from(u32::from_le_bytes(*name.first_chunk()?));
            let high = u64::from(u32::from_le_bytes(*name.last_chunk()?));
            [low | high << (8 * (length - 4)), 0, 0]
        }
        9..=16 => [word(name.first_chunk()?), word(name.last_chunk()?) >> (8 * (16 - length)), 0],
        17..=NAME_BYTES_MAX => {
            let tail = word(name.last_chunk()?) >> (8 * (NAME_BYTES_MAX - length));
            [word(name.first_chunk()?), word(name[8..].first_chunk()?), tail]
        }
        _ => return None,
    };
    Some(words.map(lower))
}

#[inline]
fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

/// ASCII upper to lower case in all eight bytes; other bytes stay.
const fn lower(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let seven_bits = word & (0x7f * ONES);
    let from_a = seven_bits + (0x80 - b'A' as u64) * ONES;
    let beyond_z = seven_bits + (0x7f - b'Z' as u64) * ONES;
    let upper = (from_a ^ beyond_z) & !word & (0x80 * ONES);
    word | (upper >> 2)
}

const fn slot_of(key: &Key) -> usize {
    let [a, b, c] = key.words;
    let mixed = a ^ b.rotate_left(23) ^ c.rotate_left(41) ^ ((key.salt as u64) << 48);
    (mixed.wrapping_mul(MULTIPLIER) >> (64 - SLOT_BITS)) as usize
}

const fn salt_of(container: CommandId) -> u16 {
    container.0 + 1
}

// === Built at compile time ===

const fn assemble() -> [Command; COUNT] {
    let mut table = [commands::ROWS[0]; COUNT];
    let mut at = 0;
    while at < COUNT {
        table[at] =
            if at < commands::ROWS.len() { commands::ROWS[at] } else { subcommands::ROWS[at - commands::ROWS.len()] };
        table[at].id = CommandId(at as u16);
        at += 1;
    }
    table
}

const fn packed_names() -> [Key; COUNT] {
    let table = assemble();
    let mut keys = [Key { words: [0; 3], salt: 0, length: 0 }; COUNT];
    let mut at = 0;
    while at < COUNT {
        let name = table[at].name.as_bytes();
        let start = after_bar(name);
        assert!(name.len() - start <= NAME_BYTES_MAX, "raise NAME_BYTES_MAX");
        let mut byte = start;
        while byte < name.len() {
            keys[at].words[(byte - start) / 8] |= (name[byte] as u64) << (8 * ((byte - start) % 8));
            byte += 1;
        }
        keys[at].length = (name.len() - start) as u16;
        if start > 0 {
            keys[at].salt = salt_of(container_of(&table, name, start - 1));
        }
        at += 1;
    }
    keys
}

/// Where the subcommand's own name starts; 0 without a container.
const fn after_bar(name: &[u8]) -> usize {
    let mut at = 0;
    while at < name.len() {
        if name[at] == b'|' {
            return at + 1;
        }
        at += 1;
    }
    0
}

const fn container_of(table: &[Command; COUNT], name: &[u8], length: usize) -> CommandId {
    let mut at = 0;
    while at < commands::ROWS.len() {
        let candidate = table[at].name.as_bytes();
        if candidate.len() == length {
            let mut byte = 0;
            while byte < length && candidate[byte] == name[byte] {
                byte += 1;
            }
            if byte == length {
                return table[at].id;
            }
        }
        at += 1;
    }
    panic!("a subcommand without its container")
}

const fn index() -> [u16; SLOTS] {
    let keys = packed_names();
    let mut index = [EMPTY; SLOTS];
    let mut at = 0;
    while at < COUNT {
        let mut slot = slot_of(&keys[at]);
        while index[slot] != EMPTY {
            slot = (slot + 1) % SLOTS;
        }
        index[slot] = at as u16;
        at += 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::rng::Rng;

    fn probes(key: &Key) -> usize {
        let mut slot = slot_of(key);
        let mut count = 1;
        while KEYS[usize::from(INDEX[slot])] != *key {
            slot = (slot + 1) % SLOTS;
            count += 1;
        }
        count
    }

    #[test]
    fn lookup_takes_few_probes() {
        let counts: Vec<usize> = KEYS.iter().map(probes).collect();
        let mean = counts.iter().sum::<usize>() as f64 / COUNT as f64;
        let most = counts.iter().max().copied().unwrap_or(0);
        assert!(mean < 1.5 && most <= 8, "mean {mean:.2}, most {most}: choose another MULTIPLIER");
        for hot in ["get", "set", "mget", "hget", "incr", "del"] {
            let key = KEYS[usize::from(find(hot.as_bytes(), 0).expect("a known command").id.0)];
            assert_eq!(probes(&key), 1, "{hot}");
        }
    }

    #[test]
    fn every_name_is_found_in_random_case() {
        let mut rng = Rng::new(7);
        for command in COMMANDS {
            for _ in 0..8 {
                let mut wire = command.name.as_bytes().to_vec();
                wire.iter_mut().filter(|_| rng.next_u64() & 1 == 1).for_each(|byte| *byte = byte.to_ascii_uppercase());
                let mut parts = wire.split(|&byte| byte == b'|');
                let name = parts.next().expect("a name");
                match resolve(name, parts.next()) {
                    Resolved::Known(found) => assert_eq!(found.id, command.id, "{}", command.name),
                    other => panic!("{}: {other:?}", command.name),
                }
            }
        }
    }

    #[test]
    fn packing_agrees_with_the_plain_loop_for_every_byte_and_length() {
        let mut rng = Rng::new(11);
        for length in 1..=NAME_BYTES_MAX {
            for _ in 0..2_000 {
                let name: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
                let mut plain = [0u64; 3];
                for (at, byte) in name.iter().enumerate() {
                    plain[at / 8] |= u64::from(byte.to_ascii_lowercase()) << (8 * (at % 8));
                }
                assert_eq!(pack(&name), Some(plain), "{name:?}");
            }
        }
        assert_eq!(pack(b""), None);
        assert_eq!(pack(&[b'a'; NAME_BYTES_MAX + 1]), None);
    }

    #[test]
    fn a_name_with_a_nul_is_never_forwarded() {
        assert!(may_forward_unknown(b"JSON.SET") && may_forward_unknown(b"HIMPORT"));
        for name in [&b"get\0x"[..], b"", b"a b", b"caf\xc3\xa9", b"x\r\n", &[b'x'; 129]] {
            assert!(!may_forward_unknown(name), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn text_that_only_looks_like_a_name_is_unknown() {
        for name in [&b"get\0"[..], b"ge", b"gett", b"", b"client|list", b"\xe7et", b"g\x05t", &[b'x'; 4096]] {
            assert!(matches!(resolve(name, None), Resolved::Unknown), "{}", name.escape_ascii());
        }
        assert!(matches!(resolve(b"CLIENT", Some(b"nope")), Resolved::UnknownSubcommand(c) if c.name == "client"));
        assert!(matches!(resolve(b"CLIENT", Some(b"")), Resolved::UnknownSubcommand(c) if c.name == "client"));
        // A subcommand of one container is none of another.
        assert!(matches!(resolve(b"CONFIG", Some(b"setname")), Resolved::UnknownSubcommand(c) if c.name == "config"));
        assert!(matches!(resolve(b"client", None), Resolved::Known(c) if c.container));
        assert!(matches!(resolve(b"get", Some(b"list")), Resolved::Known(c) if c.name == "get"));
    }
}
