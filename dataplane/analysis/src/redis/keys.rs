//! Where the keys of a command stand (Redis 7.0 `db.c`, `getKeysUsingKeySpecs` and the `*GetKeys` procedures).
//!
//! Positions come from the key specs of the table. The specs of a few commands do not say everything; these are searched
//! as their own parsers read them: XREAD and XREADGROUP (an option's value may spell STREAMS), SORT, MIGRATE, GEORADIUS
//! (of several STORE the last counts). The access of SET and BITFIELD to their key depends on their options. Keys are kept as
//! ranges, so a request with a million keys costs no memory here.

use super::args::{Args, is_word};
use super::command::{BeginSearch, Command, FindKeys, Flags, KeyFlags, KeySpec};
use super::treatment::streams_at;

/// Ranges of one command. The table's longest list of key specs has 3; `key_specs_fit_the_ranges` watches.
pub const RANGES_MAX: usize = 4;

/// Why the keys of a command could not be found. The server would reply with an error too; nothing needs to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// The count of keys is not an integer.
    CountNotInteger,
    /// The count of keys is negative.
    CountNegative,
    /// The count of keys is zero, and the command needs one.
    CountZero,
    /// The count of keys points beyond the last argument.
    CountBeyondArguments,
    /// XREAD, XREADGROUP: not one ID per stream.
    UnbalancedStreams,
    /// A keyword is missing, or keys would stand beyond the last argument.
    Syntax,
    /// An argument that decides is not held in memory ([`Args::arg`] gave `None`).
    NotBuffered,
}

/// Keys of one command: positions in its arguments, in the order of the key specs.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    ranges: [Range; RANGES_MAX],
    used: usize,
    incomplete: bool,
}

/// One key: its position, and what the command does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAt {
    /// Argument index; 0 is the command name.
    pub index: usize,
    /// Flags of the key spec that found it. [`KeyFlags::NOT_KEY`]: a shard channel, counts for the slot only.
    pub flags: KeyFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: usize,
    count: usize,
    step: usize,
    flags: KeyFlags,
}

impl Default for Range {
    fn default() -> Self {
        Self { first: 0, count: 0, step: 1, flags: KeyFlags::empty() }
    }
}

impl Keys {
    /// No keys yet; may be used again for the next command.
    pub fn new() -> Self {
        Self::default()
    }

    /// The keys.
    pub fn iter(&self) -> impl Iterator<Item = KeyAt> + '_ {
        self.ranges[..self.used].iter().flat_map(|range| {
            (0..range.count).map(|at| KeyAt { index: range.first + at * range.step, flags: range.flags })
        })
    }

    /// The first key, which decides a route when there is only one.
    pub fn first(&self) -> Option<KeyAt> {
        self.iter().next()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.ranges[..self.used].iter().map(|range| range.count).sum()
    }

    /// Whether the command names no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the command may touch keys that are not listed here: SORT with BY or GET patterns, SCAN, a command whose
    /// server cannot describe it. A rule about keys must not trust the list then.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    fn clear(&mut self) {
        self.used = 0;
        self.incomplete = false;
    }

    fn push(&mut self, first: usize, count: usize, step: usize, flags: KeyFlags) {
        if count == 0 {
            return;
        }
        if self.used == RANGES_MAX {
            self.incomplete = true;
            return;
        }
        self.ranges[self.used] = Range { first, count, step, flags };
        self.used += 1;
    }
}

/// Finds the keys of `command` in its arguments; `out` is overwritten. The arity must have been checked before.
///
/// # Errors
/// [`KeyError`]; `out` then holds what was found so far and must not be used.
pub fn keys<A: Args + ?Sized>(command: &Command, args: &A, out: &mut Keys) -> Result<(), KeyError> {
    out.clear();
    out.incomplete = command.flags.contains(Flags::TOUCHES_ARBITRARY_KEYS);
    for spec in command.keys {
        apply(command, spec, args, out)?;
    }
    Ok(())
}

fn apply<A: Args + ?Sized>(command: &Command, spec: &KeySpec, args: &A, out: &mut Keys) -> Result<(), KeyError> {
    let flags = flags_of(command, spec.flags, args);
    let is_georadius = matches!(command.name, "georadius" | "georadiusbymember");
    let first = match spec.begin {
        BeginSearch::Index(index) => usize::try_from(index).map_err(|_| KeyError::Syntax)?,
        BeginSearch::Keyword { word: "STREAMS", .. } => return streams(args, spec.flags, out),
        BeginSearch::Keyword { word: "KEYS", .. } if spec.flags.contains(KeyFlags::INCOMPLETE) => {
            return migrate_keys(args, spec.flags, out);
        }
        BeginSearch::Keyword { word: "STORE", .. } if is_georadius => return last_store(args, flags, out),
        BeginSearch::Keyword { word: "STOREDIST", .. } if is_georadius => return Ok(()),
        BeginSearch::Keyword { word, start } => match behind_keyword(args, word, start)? {
            Some(first) => first,
            // Every keyword but STREAMS introduces an option (GEORADIUS … STORE key).
            None => return Ok(()),
        },
        BeginSearch::Unknown => return unknown(command, spec, args, out),
    };
    match spec.find {
        FindKeys::Range { last, step, limit } => range(first, (last, step, limit), args.argc(), flags, out),
        FindKeys::KeyNum { number, first: offset, step } => {
            let count = key_count(command, args, offset_by(first, number)?)?;
            let first = offset_by(first, offset)?;
            let step = usize::try_from(step).map_err(|_| KeyError::Syntax)?.max(1);
            let room = args.argc().saturating_sub(first).div_ceil(step);
            if count > room {
                return Err(KeyError::CountBeyondArguments);
            }
            out.push(first, count, step, flags);
            Ok(())
        }
        FindKeys::Unknown => unknown(command, spec, args, out),
    }
}

fn offset_by(index: usize, offset: i32) -> Result<usize, KeyError> {
    let offset = isize::try_from(offset).map_err(|_| KeyError::Syntax)?;
    index.checked_add_signed(offset).ok_or(KeyError::Syntax)
}

fn range(
    first: usize,
    (last, step, limit): (i32, i32, i32),
    argc: usize,
    flags: KeyFlags,
    out: &mut Keys,
) -> Result<(), KeyError> {
    let step = usize::try_from(step).map_err(|_| KeyError::Syntax)?.max(1);
    let last = if last >= 0 {
        offset_by(first, last)?
    } else if limit <= 1 {
        offset_by(argc, last)?
    } else {
        let part = argc.saturating_sub(first) / usize::try_from(limit).map_err(|_| KeyError::Syntax)?;
        offset_by(first.saturating_add(part), last)?
    };
    if first == argc && last.checked_add(1) == Some(first) {
        // Nothing stands here, which the arity allows: PFMERGE of a destination alone, SUNSUBSCRIBE without a channel.
        return Ok(());
    }
    if last >= argc || last < first {
        return Err(KeyError::Syntax);
    }
    out.push(first, (last - first) / step + 1, step, flags);
    Ok(())
}

/// Reads a count of keys as Redis' `string2ll` would: no sign but `-`, no leading zero, no blanks.
fn key_count<A: Args + ?Sized>(command: &Command, args: &A, at: usize) -> Result<usize, KeyError> {
    if at >= args.argc() {
        return Err(KeyError::Syntax);
    }
    let text = args.arg(at).ok_or(KeyError::NotBuffered)?;
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let canonical = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && (digits[0] != b'0' || text == b"0");
    if !canonical {
        return Err(KeyError::CountNotInteger);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| KeyError::CountNotInteger)?;
    // i64 first: beyond it the servers speak of "not an integer".
    let count = digits.parse::<i64>().map_err(|_| KeyError::CountNotInteger)?;
    match count {
        _ if negative => Err(KeyError::CountNegative),
        0 if !command.flags.contains(Flags::NO_MANDATORY_KEYS) => Err(KeyError::CountZero),
        count => usize::try_from(count).map_err(|_| KeyError::CountBeyondArguments),
    }
}

fn behind_keyword<A: Args + ?Sized>(args: &A, word: &str, start: i32) -> Result<Option<usize>, KeyError> {
    let argc = args.argc();
    let is_word = |index: usize| match args.arg(index) {
        Some(arg) => Ok(is_word(arg, word.as_bytes())),
        None => Err(KeyError::NotBuffered),
    };
    if start >= 0 {
        for index in offset_by(0, start)?..argc {
            if is_word(index)? {
                return Ok((index + 1 < argc).then_some(index + 1));
            }
        }
    } else {
        let Ok(from) = offset_by(argc, start) else {
            return Ok(None);
        };
        for index in (1..=from).rev() {
            if is_word(index)? {
                return Ok(Some(index + 1));
            }
        }
    }
    Ok(None)
}

/// The access of a command to its key where that depends on its options (`setGetKeys`, `bitfieldGetKeys`). In doubt all
/// that it may do: an argument that is not held could be the option.
fn flags_of<A: Args + ?Sized>(command: &Command, flags: KeyFlags, args: &A) -> KeyFlags {
    if !flags.contains(KeyFlags::VARIABLE_FLAGS) {
        return flags;
    }
    match command.name {
        // SET without GET does not tell the old value.
        "set" if (3..args.argc()).all(|index| args.arg(index).is_some_and(|arg| !is_word(arg, b"GET"))) => {
            KeyFlags::OW | KeyFlags::UPDATE
        }
        "bitfield" if only_reads_bits(args) => KeyFlags::RO | KeyFlags::ACCESS,
        _ => flags,
    }
}

/// BITFIELD with nothing but GET and OVERFLOW.
fn only_reads_bits<A: Args + ?Sized>(args: &A) -> bool {
    let mut index = 2;
    while index < args.argc() {
        let left = args.argc() - index - 1;
        index += match args.arg(index) {
            Some(arg) if is_word(arg, b"GET") && left >= 2 => 3,
            Some(arg) if is_word(arg, b"OVERFLOW") && left >= 1 => 2,
            _ => return false,
        };
    }
    true
}

/// GEORADIUS … STORE key, STOREDIST key: the last of them is written (`georadiusGetKeys`).
fn last_store<A: Args + ?Sized>(args: &A, flags: KeyFlags, out: &mut Keys) -> Result<(), KeyError> {
    let mut store = None;
    let mut index = 5;
    while index + 1 < args.argc() {
        let arg = args.arg(index).ok_or(KeyError::NotBuffered)?;
        if is_word(arg, b"STORE") || is_word(arg, b"STOREDIST") {
            index += 1;
            store = Some(index);
        }
        index += 1;
    }
    if let Some(at) = store {
        out.push(at, 1, 1, flags);
    }
    Ok(())
}

/// XREAD, XREADGROUP: the first half behind STREAMS (`xreadGetKeys`).
fn streams<A: Args + ?Sized>(args: &A, flags: KeyFlags, out: &mut Keys) -> Result<(), KeyError> {
    let Some(at) = streams_at(args)?.streams else {
        return Err(KeyError::Syntax);
    };
    let tail = args.argc() - at - 1;
    if tail == 0 || !tail.is_multiple_of(2) {
        return Err(KeyError::UnbalancedStreams);
    }
    out.push(at + 1, tail / 2, 1, flags);
    Ok(())
}

/// MIGRATE host port "" db timeout … KEYS k1 k2: the listed keys replace the empty one (`migrateGetKeys`).
fn migrate_keys<A: Args + ?Sized>(args: &A, flags: KeyFlags, out: &mut Keys) -> Result<(), KeyError> {
    let names_one = !args.arg(3).ok_or(KeyError::NotBuffered)?.is_empty();
    let mut index = 6;
    while index < args.argc() {
        let arg = args.arg(index).ok_or(KeyError::NotBuffered)?;
        if is_word(arg, b"KEYS") {
            if names_one || index + 1 == args.argc() {
                return Err(KeyError::Syntax);
            }
            out.used = 0;
            out.push(index + 1, args.argc() - index - 1, 1, flags);
            return Ok(());
        }
        index += if is_word(arg, b"AUTH") {
            2
        } else if is_word(arg, b"AUTH2") {
            3
        } else {
            1
        };
    }
    Ok(())
}

/// Specs without positions: SORT … STORE key has a procedure (`sortGetKeys`), the others mark the list incomplete.
fn unknown<A: Args + ?Sized>(command: &Command, spec: &KeySpec, args: &A, out: &mut Keys) -> Result<(), KeyError> {
    if !matches!(command.name, "sort" | "sort_ro") {
        out.incomplete = true;
        return Ok(());
    }
    let mut store = None;
    let mut index = 2;
    while index < args.argc() {
        let arg = args.arg(index).ok_or(KeyError::NotBuffered)?;
        let values = if is_word(arg, b"LIMIT") {
            2
        } else if is_word(arg, b"GET") || is_word(arg, b"BY") {
            out.incomplete = true;
            1
        } else if is_word(arg, b"STORE") && index + 1 < args.argc() {
            store = Some(index + 1);
            1
        } else {
            0
        };
        index += 1 + values;
    }
    if let (Some(at), true) = (store, spec.flags.contains(KeyFlags::OW)) {
        out.push(at, 1, 1, spec.flags);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{COMMANDS, Resolved, resolve};
    use super::*;

    fn found(line: &str) -> Result<Vec<usize>, KeyError> {
        let args: Vec<&str> = line.split(' ').collect();
        let Resolved::Known(command) = resolve(args[0].as_bytes(), args.get(1).map(|sub| sub.as_bytes())) else {
            panic!("{line}: unknown")
        };
        let mut out = Keys::new();
        keys(command, &args, &mut out).map(|()| out.iter().map(|key| key.index).collect())
    }

    #[test]
    fn key_specs_fit_the_ranges() {
        assert!(COMMANDS.iter().all(|command| command.keys.len() <= RANGES_MAX));
    }

    #[test]
    fn r18_bad_counts_are_refused() {
        assert_eq!(found("EVAL x -1 a"), Err(KeyError::CountNegative));
        assert_eq!(found("EVAL x 2 a"), Err(KeyError::CountBeyondArguments));
        assert_eq!(found("EVAL x 9223372036854775807 a"), Err(KeyError::CountBeyondArguments));
        assert_eq!(found("EVAL x 9223372036854775808 a"), Err(KeyError::CountNotInteger));
        assert_eq!(found("EVAL x +1 a"), Err(KeyError::CountNotInteger));
        assert_eq!(found("EVAL x 01 a"), Err(KeyError::CountNotInteger));
        assert_eq!(found("EVAL x -0 a"), Err(KeyError::CountNotInteger));
        assert_eq!(found("EVAL x 0 a"), Ok(vec![]));
        assert_eq!(found("ZUNION 0 a"), Err(KeyError::CountZero));
        assert_eq!(found("LMPOP 3 a b LEFT"), Ok(vec![2, 3, 4]), "LEFT counts as a key, as in the server");
    }

    #[test]
    fn an_option_value_that_spells_a_keyword_is_no_keyword() {
        assert_eq!(found("XREADGROUP GROUP streams block STREAMS k >"), Ok(vec![5]));
        assert_eq!(found("XREADGROUP COUNT 1 GROUP STREAMS c STREAMS k >"), Ok(vec![7]));
        assert_eq!(found("SORT k BY STORE GET store LIMIT 0 1"), Ok(vec![1]));
        assert_eq!(found("SORT k STORE a STORE b"), Ok(vec![1, 5]));
        assert_eq!(found("SORT k STORE a LIMIT 0 1 STORE"), Ok(vec![1, 3]), "the last one names nothing");
        assert_eq!(found("XREAD STREAMS a b 0"), Err(KeyError::UnbalancedStreams));
        assert_eq!(found("XREAD COUNT 1 BLOCK 1"), Err(KeyError::Syntax));
    }

    /// `PFMERGE key` was a syntax error, and went to the first shard.
    #[test]
    fn an_optional_key_that_is_absent_is_no_error() {
        assert_eq!(found("PFMERGE k"), Ok(vec![1]));
        assert_eq!(found("pfmerge k a b"), Ok(vec![1, 2, 3]));
        assert_eq!(found("SUNSUBSCRIBE"), Ok(vec![]));
        // Keys beyond the least number of arguments are optional, for every command.
        for command in COMMANDS
            .iter()
            .filter(|command| command.keys.iter().all(|spec| matches!(spec.find, FindKeys::Range { .. })))
        {
            let least = usize::from(command.arity.unsigned_abs());
            let args: Vec<String> = (0..least).map(|index| format!("k{index}")).collect();
            let found = keys(command, &args, &mut Keys::new());
            assert!(
                found.is_ok() || command.keys.iter().any(|spec| matches!(spec.begin, BeginSearch::Keyword { .. })),
                "{}",
                command.name
            );
        }
    }

    #[test]
    fn foreign_keys_are_admitted() {
        let incomplete = |line: &str| {
            let args: Vec<&str> = line.split(' ').collect();
            let Resolved::Known(command) = resolve(args[0].as_bytes(), None) else { panic!("{line}: unknown") };
            let mut out = Keys::new();
            keys(command, &args, &mut out).expect("valid");
            out.is_incomplete()
        };
        assert!(incomplete("SORT k BY w_*") && incomplete("SCAN 0") && incomplete("RANDOMKEY"));
        assert!(!incomplete("SORT k LIMIT 0 1 STORE d") && !incomplete("GET k"));
    }

    #[test]
    fn a_keyword_ends_at_a_nul_as_it_does_for_the_servers() {
        assert_eq!(found("GEORADIUS k 0 0 1 m STORE\0x d"), Ok(vec![1, 7]));
        assert_eq!(found("SORT k store\0 d"), Ok(vec![1, 3]));
        assert_eq!(found("XREAD STREAMS\0y a 0"), Ok(vec![2]));
        assert_eq!(found("GEORADIUS k 0 0 1 m STOREX d"), Ok(vec![1]));
    }

    #[test]
    fn of_several_stores_the_last_is_written() {
        assert_eq!(found("GEORADIUS k 0 0 1 m STORE a STORE b"), Ok(vec![1, 9]));
        assert_eq!(found("GEORADIUSBYMEMBER k x 1 m STOREDIST a STORE b"), Ok(vec![1, 8]));
        assert_eq!(found("GEORADIUS k 0 0 1 m STORE a STORE"), Ok(vec![1, 7]));
    }

    #[test]
    fn the_access_of_set_and_bitfield_depends_on_their_options() {
        let flags = |line: &str| {
            let args: Vec<&str> = line.split(' ').collect();
            let Resolved::Known(command) = resolve(args[0].as_bytes(), None) else { panic!("{line}: unknown") };
            let mut out = Keys::new();
            keys(command, &args, &mut out).expect("valid");
            out.first().expect("a key").flags
        };
        for line in ["SET k v GET", "SET k v EX 1 get", "SET k v get\0x", "BITFIELD k SET u8 0 1", "BITFIELD k GET u8"]
        {
            assert!(flags(line).contains(KeyFlags::ACCESS | KeyFlags::UPDATE), "{line}");
        }
        for line in ["SET k v", "SET k get", "SET k v EX 1 KEEPTTL"] {
            assert!(!flags(line).contains(KeyFlags::ACCESS) && flags(line).contains(KeyFlags::UPDATE), "{line}");
        }
        for line in ["BITFIELD k", "BITFIELD k GET u8 0 OVERFLOW WRAP get u4 0"] {
            assert_eq!(flags(line) & (KeyFlags::ACCESS | KeyFlags::UPDATE), KeyFlags::ACCESS, "{line}");
        }
    }

    #[test]
    fn no_arguments_make_a_key_beyond_the_end() {
        const WORDS: &[&str] = &[
            "0",
            "1",
            "2",
            "-1",
            "9223372036854775807",
            "",
            "k",
            "STREAMS",
            "BLOCK",
            "GROUP",
            "COUNT",
            "STORE",
            "BY",
            "GET",
            "LIMIT",
            "KEYS",
            "AUTH",
            "AUTH2",
            "STOREDIST",
        ];
        let mut rng = weir_base::rng::Rng::new(18);
        let mut out = Keys::new();
        for command in COMMANDS {
            for _ in 0..500 {
                let argc = 1 + rng.below(10) as usize;
                let args: Vec<&str> = (0..argc).map(|_| WORDS[rng.below(WORDS.len() as u64) as usize]).collect();
                if keys(command, &args, &mut out).is_ok() {
                    assert_eq!(out.iter().count(), out.len());
                    assert!(out.iter().all(|key| (1..argc).contains(&key.index)), "{} {args:?}", command.name);
                }
            }
        }
    }

    #[test]
    fn a_value_that_is_not_held_does_not_hide_the_key() {
        struct Streaming;
        impl Args for Streaming {
            fn argc(&self) -> usize {
                3
            }
            fn arg(&self, index: usize) -> Option<&[u8]> {
                [&b"SET"[..], b"k"].get(index).copied()
            }
        }
        let Resolved::Known(set) = resolve(b"set", None) else { panic!("SET is known") };
        let mut out = Keys::new();
        assert_eq!(keys(set, &Streaming, &mut out), Ok(()));
        assert_eq!(out.first().map(|key| key.index), Some(1));
        let Resolved::Known(eval) = resolve(b"eval", None) else { panic!("EVAL is known") };
        assert_eq!(keys(eval, &Streaming, &mut out), Err(KeyError::NotBuffered));
    }
}
