//! A set of rules about commands, keys and channels. A user has one of its own and any number besides, and may run what
//! at least one of them allows.

use weir_analysis::redis::{COMMANDS, Categories, Command, CommandId, KeyFlags, Resolved, resolve};

use super::{glob::Glob, rules::RuleError};

/// Words of the bit set. Ids beyond are never allowed; `every_command_has_a_bit` watches.
const WORDS: usize = 8;

/// The categories, in the order of Redis 7.0 (`ACLCommandCategories`).
pub const CATEGORIES: [(&str, Categories); 21] = [
    ("keyspace", Categories::KEYSPACE),
    ("read", Categories::READ),
    ("write", Categories::WRITE),
    ("set", Categories::SET),
    ("sortedset", Categories::SORTEDSET),
    ("list", Categories::LIST),
    ("hash", Categories::HASH),
    ("string", Categories::STRING),
    ("bitmap", Categories::BITMAP),
    ("hyperloglog", Categories::HYPERLOGLOG),
    ("geo", Categories::GEO),
    ("stream", Categories::STREAM),
    ("pubsub", Categories::PUBSUB),
    ("admin", Categories::ADMIN),
    ("fast", Categories::FAST),
    ("slow", Categories::SLOW),
    ("blocking", Categories::BLOCKING),
    ("dangerous", Categories::DANGEROUS),
    ("connection", Categories::CONNECTION),
    ("transaction", Categories::TRANSACTION),
    ("scripting", Categories::SCRIPTING),
];

/// The category of this name, in any case.
pub fn category(name: &str) -> Option<Categories> {
    CATEGORIES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, category)| *category)
}

/// Which commands are allowed: a bit for each, and one for all that this build does not know (modules, newer servers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    bits: [u64; WORDS],
    pub(super) has_unknown: bool,
}

impl Commands {
    pub(super) const NONE: Self = Self { bits: [0; WORDS], has_unknown: false };
    pub(super) const ALL: Self = Self { bits: [u64::MAX; WORDS], has_unknown: true };

    #[inline]
    pub(super) fn has(&self, id: CommandId) -> bool {
        let (word, bit) = (usize::from(id.0 / 64), id.0 % 64);
        self.bits.get(word).is_some_and(|bits| bits >> bit & 1 == 1)
    }

    fn set(&mut self, id: CommandId, is_allowed: bool) {
        let (word, bit) = (usize::from(id.0 / 64), id.0 % 64);
        if let Some(bits) = self.bits.get_mut(word) {
            *bits = *bits & !(1 << bit) | u64::from(is_allowed) << bit;
        }
    }

    /// A container takes its subcommands with it.
    pub(super) fn change(&mut self, command: &Command, is_allowed: bool) {
        self.set(command.id, is_allowed);
        for sub in subcommands(command) {
            self.set(sub.id, is_allowed);
        }
    }

    pub(super) fn change_category(&mut self, category: Categories, is_allowed: bool) {
        for command in in_category(category) {
            self.change(command, is_allowed);
        }
    }
}

/// The subcommands of a container.
pub(super) fn subcommands(command: &Command) -> impl Iterator<Item = &'static Command> {
    let (name, is_container) = (command.name, command.container);
    COMMANDS.iter().filter(move |sub| is_container && sub.base_name() == name && sub.subcommand_name().is_some())
}

/// The commands of a category, subcommands too.
pub(super) fn in_category(category: Categories) -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(move |command| command.categories.intersects(category))
}

/// A pattern of keys, and what may be done with those that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    /// Keys that it is about.
    pub glob: Glob,
    /// Values may be shown.
    pub reads: bool,
    /// Values may be changed.
    pub writes: bool,
}

/// Rules about commands, keys and channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    pub(super) commands: Commands,
    /// Every command, known or not. Once one was taken away this is never true again without `+@all`.
    pub(super) is_all_commands: bool,
    /// First arguments with which a command is allowed although its bit is not set: `+select|0`.
    pub(super) first_args: Vec<(CommandId, Vec<String>)>,
    pub(super) is_all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    pub(super) is_all_channels: bool,
    pub(super) channels: Vec<Glob>,
}

impl Selector {
    /// Applies one rule (`ACLSetSelector`).
    pub(super) fn apply(&mut self, rule: &str) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word);
        if is("allkeys") || is("~*") {
            (self.is_all_keys, self.keys) = (true, Vec::new());
        } else if is("resetkeys") {
            (self.is_all_keys, self.keys) = (false, Vec::new());
        } else if is("allchannels") || is("&*") {
            (self.is_all_channels, self.channels) = (true, Vec::new());
        } else if is("resetchannels") {
            (self.is_all_channels, self.channels) = (false, Vec::new());
        } else if is("allcommands") || is("+@all") {
            (self.commands, self.is_all_commands, self.first_args) = (Commands::ALL, true, Vec::new());
        } else if is("nocommands") || is("-@all") {
            (self.commands, self.is_all_commands, self.first_args) = (Commands::NONE, false, Vec::new());
        } else {
            return match rule.as_bytes() {
                [b'~' | b'%', ..] => self.add_keys(rule),
                [b'&', ..] => self.add_channels(&rule[1..]),
                [b'+', b'@', ..] => self.change_category(&rule[2..], true),
                [b'-', b'@', ..] => self.change_category(&rule[2..], false),
                [b'+', ..] => self.allow(&rule[1..]),
                [b'-', ..] => self.change(lookup(&rule[1..]).ok_or(RuleError::UnknownName)?, false),
                _ => Err(RuleError::Syntax),
            };
        }
        Ok(())
    }

    fn add_keys(&mut self, rule: &str) -> Result<(), RuleError> {
        if self.is_all_keys {
            return Err(RuleError::KeysAfterAll);
        }
        let (reads, writes, pattern) = match rule.strip_prefix('%') {
            None => (true, true, &rule[1..]),
            Some(rest) => key_permissions(rest)?,
        };
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.glob.text() == pattern.as_bytes()) {
            Some(known) => (known.reads, known.writes) = (known.reads | reads, known.writes | writes),
            None => self.keys.push(KeyPattern { glob: Glob::new(pattern.as_bytes()), reads, writes }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &str) -> Result<(), RuleError> {
        if self.is_all_channels {
            return Err(RuleError::ChannelsAfterAll);
        }
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known.text() == pattern.as_bytes()) {
            self.channels.push(Glob::new(pattern.as_bytes()));
        }
        Ok(())
    }

    fn change_category(&mut self, name: &str, is_allowed: bool) -> Result<(), RuleError> {
        for command in in_category(category(name).ok_or(RuleError::UnknownName)?) {
            self.change(command, is_allowed)?;
        }
        Ok(())
    }

    fn change(&mut self, command: &'static Command, is_allowed: bool) -> Result<(), RuleError> {
        self.commands.change(command, is_allowed);
        self.is_all_commands &= is_allowed;
        self.first_args.retain(|(id, _)| *id != command.id);
        Ok(())
    }

    /// `+command`, `+container|subcommand`, `+command|first-argument`.
    fn allow(&mut self, rule: &str) -> Result<(), RuleError> {
        let Some((name, sub)) = rule.rsplit_once('|') else {
            return self.change(lookup(rule).ok_or(RuleError::UnknownName)?, true);
        };
        let command = lookup(name).ok_or(RuleError::UnknownName)?;
        if command.subcommand_name().is_some() {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if sub.is_empty() {
            return Err(RuleError::Syntax);
        }
        if command.container {
            return self.change(lookup(rule).ok_or(RuleError::UnknownName)?, true);
        }
        let known = match self.first_args.iter().position(|(id, _)| *id == command.id) {
            Some(at) => at,
            None => {
                self.first_args.push((command.id, Vec::new()));
                self.first_args.len() - 1
            }
        };
        let args = &mut self.first_args[known].1;
        if !args.iter().any(|arg| arg.eq_ignore_ascii_case(sub)) {
            args.push(sub.to_owned());
        }
        Ok(())
    }

    /// Whether a key may be used in the way of these flags (`ACLSelectorCheckKey`).
    #[inline]
    pub(super) fn allows_key(&self, key: &[u8], flags: KeyFlags) -> bool {
        let (reads, writes) = uses(flags);
        let fits = |pattern: &KeyPattern| {
            (pattern.reads || !reads) && (pattern.writes || !writes) && pattern.glob.matches(key)
        };
        self.is_all_keys || self.keys.iter().any(fits)
    }

    /// Whether every key may be read (`ACLSelectorHasUnrestrictedKeyAccess`).
    pub(super) fn reads_all_keys(&self) -> bool {
        self.is_all_keys || self.keys.iter().any(|pattern| pattern.reads && pattern.glob.text() == b"*")
    }

    /// Whether a channel, or a pattern of them, may be used (`ACLCheckChannelAgainstList`). A pattern must be one of the
    /// rules letter by letter.
    #[inline]
    pub(super) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let fits = |rule: &Glob| if is_pattern { rule.text() == channel } else { rule.matches(channel) };
        self.is_all_channels || self.channels.iter().any(fits)
    }

    /// Whether everything is allowed, so that nothing has to be looked at.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.is_all_commands && self.is_all_keys && self.is_all_channels
    }

    /// Whether commands that this build does not know are allowed. Their keys and channels cannot be found, so all
    /// of these must be allowed too.
    pub(super) fn allows_unknown(&self) -> bool {
        self.commands.has_unknown && self.is_all_keys && self.is_all_channels
    }
}

/// The rights that a use of a key needs: to read, to write.
#[inline]
fn uses(flags: KeyFlags) -> (bool, bool) {
    const WRITES: KeyFlags = KeyFlags::INSERT.union(KeyFlags::DELETE).union(KeyFlags::UPDATE);
    (flags.contains(KeyFlags::ACCESS), flags.intersects(WRITES))
}

/// `R~`, `W~`, `RW~` behind the percent sign, and the pattern.
fn key_permissions(text: &str) -> Result<(bool, bool, &str), RuleError> {
    let (mut reads, mut writes) = (false, false);
    let mut end = text.len();
    for (at, letter) in text.bytes().enumerate() {
        match letter.to_ascii_uppercase() {
            b'R' if !reads => reads = true,
            b'W' if !writes => writes = true,
            b'~' => {
                end = at;
                break;
            }
            _ => return Err(RuleError::Syntax),
        }
    }
    // A pattern without any permission crashes Redis 7.0 when it is shown (CVE-2024-31227); later ones refuse it.
    if !reads && !writes {
        return Err(RuleError::Syntax);
    }
    Ok((reads, writes, text.get(end + 1..).unwrap_or_default()))
}

/// Spaces and NULs would make rules ambiguous when they are shown again (`ACLStringHasSpaces`).
pub(super) fn has_space(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' | 0))
}

/// The command `get`, or the subcommand `config|get` (`ACLLookupCommand`).
fn lookup(name: &str) -> Option<&'static Command> {
    let mut parts = name.split('|');
    let (base, sub) = (parts.next()?, parts.next());
    match (resolve(base.as_bytes(), sub.map(str::as_bytes)), sub, parts.next()) {
        (Resolved::Known(command), None, None) => Some(command),
        (Resolved::Known(command), Some(_), None) if command.subcommand_name().is_some() => Some(command),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rules: &str) -> Result<Selector, RuleError> {
        let mut selector = Selector::default();
        rules.split(' ').try_for_each(|rule| selector.apply(rule))?;
        Ok(selector)
    }

    fn allows(rules: &str, name: &str) -> bool {
        let selector = after(rules).expect("valid rules");
        selector.commands.has(lookup(name).expect("a command").id)
    }

    #[test]
    fn every_command_has_a_bit() {
        assert!(COMMANDS.len() <= WORDS * 64, "raise WORDS");
        assert!(COMMANDS.iter().all(|command| Commands::ALL.has(command.id) && !Commands::NONE.has(command.id)));
    }

    #[test]
    fn the_later_rule_counts() {
        assert!(allows("+@all -get +get", "get") && !allows("+get -get", "get"));
        assert!(!allows("+@read -@string", "get") && allows("-@string +@read", "get"));
        assert!(allows("+@all", "config|set") && !allows("+@all -@dangerous", "config|set"));
    }

    #[test]
    fn a_container_takes_its_subcommands_with_it() {
        assert!(allows("+config", "config|get") && allows("+config|get", "config|get"));
        assert!(!allows("+config|get", "config|set") && !allows("+config|get", "config"));
        assert!(!allows("+config -config|set", "config|set") && allows("+config -config|set", "config|get"));
        assert!(allows("+CONFIG|Get", "config|get"));
    }

    #[test]
    fn taking_one_command_away_ends_all_commands() {
        assert!(after("allcommands").expect("valid").is_all_commands);
        let most = after("+@all -get +get").expect("valid");
        assert!(!most.is_all_commands && most.commands.has_unknown, "future commands stay allowed");
        assert!(!after("+@all -@all +@read").expect("valid").commands.has_unknown);
    }

    #[test]
    fn wrong_rules_are_refused_as_redis_refuses_them() {
        use RuleError::*;
        for (rules, error) in [
            ("+nope", UnknownName),
            ("-nope", UnknownName),
            ("+@nope", UnknownName),
            ("+@", UnknownName),
            ("+", UnknownName),
            ("+config|nope", UnknownName),
            ("-get|x", UnknownName),
            ("+config|get|x", FirstArgOfSubcommand),
            ("+select|", Syntax),
            ("nope", Syntax),
            ("%~x", Syntax),
            ("%RR~x", Syntax),
            ("%X~x", Syntax),
            ("~a\tb", Syntax),
            ("&a\0", Syntax),
            ("(+get)", Syntax),
            ("~* ~a", KeysAfterAll),
            ("allkeys %R~a", KeysAfterAll),
            ("&* &a", ChannelsAfterAll),
        ] {
            assert_eq!(after(rules).map(drop), Err(error), "{rules}");
        }
    }

    #[test]
    fn permissions_of_one_pattern_add_up() {
        let read = KeyFlags::RO | KeyFlags::ACCESS;
        let update = KeyFlags::RW | KeyFlags::ACCESS | KeyFlags::UPDATE;
        let selector = after("%R~a* %w~b* %RW~c* ~d*").expect("valid");
        assert!(selector.allows_key(b"a1", read) && !selector.allows_key(b"a1", update));
        assert!(selector.allows_key(b"b1", KeyFlags::OW | KeyFlags::UPDATE) && !selector.allows_key(b"b1", read));
        assert!(selector.allows_key(b"c1", update) && selector.allows_key(b"d1", update));
        assert!(!selector.allows_key(b"e", KeyFlags::RO), "whoever needs nothing needs the name at least");
        assert!(selector.allows_key(b"a1", KeyFlags::RO), "EXISTS tells no value");
        let both = after("%R~a %W~a").expect("valid");
        assert!(both.keys.len() == 1 && both.allows_key(b"a", update));
    }

    #[test]
    fn first_arguments_are_kept_once_and_end_with_their_command() {
        let selector = after("+select|0 +SELECT|0 +select|1").expect("valid");
        assert_eq!(selector.first_args.len(), 1);
        assert_eq!(selector.first_args[0].1, ["0", "1"]);
        assert!(after("+select|0 -select").expect("valid").first_args.is_empty());
        assert!(after("+select|0 -@all").expect("valid").first_args.is_empty());
    }

    #[test]
    fn a_pattern_of_channels_is_compared_letter_by_letter() {
        let selector = after("&news.* &exact").expect("valid");
        assert!(selector.allows_channel(b"news.a", false) && selector.allows_channel(b"news.*", true));
        assert!(!selector.allows_channel(b"news.a*", true) && !selector.allows_channel(b"exac", false));
    }
}
