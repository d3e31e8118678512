//! May this user run this command? (Redis 7.0 `ACLCheckAllUserCommandPerm`.)

use weir_analysis::redis::{
    self, Args, BeginSearch, Categories, Channels, Command, FindKeys, Flags, KeyError, KeyFlags, Keys,
};

use super::{selector::Selector, user::User};

/// The part of a command that a rule forbids, in Redis's order of importance: the command itself first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeniedPart {
    /// The command.
    Command,
    /// The key at this argument.
    Key(usize),
    /// The channel at this argument.
    Channel(usize),
}

/// Why a command may not be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPermission {
    /// A rule.
    Denied(DeniedPart),
    /// SORT with BY and a pattern: it reads any key.
    SortBy,
    /// SORT with GET: it reads any key.
    SortGet,
    /// A script acts at the server with the gateway's rights.
    Script,
    /// Its keys cannot be found; the server would say the same, and nothing needs to be sent.
    Keys(KeyError),
}

/// The keys of a command, looked for when the first selector asks.
enum CommandKeys {
    NotYet,
    Here(Keys),
    Wrong(KeyError),
}

impl User {
    /// Whether the user may run `command` with these arguments. The arity must have been checked before.
    ///
    /// # Errors
    /// Why not.
    pub fn check<A: Args + ?Sized>(&self, command: &Command, args: &A) -> Result<(), NoPermission> {
        let mut found = CommandKeys::NotYet;
        let mut worst = DeniedPart::Command;
        for selector in self.all_selectors() {
            match selector.check(command, args, &mut found) {
                Ok(()) => return self.check_beyond(command, args),
                Err(NoPermission::Denied(denied)) => worst = worst.max(denied),
                Err(other) => return Err(other),
            }
        }
        Err(NoPermission::Denied(worst))
    }

    /// Whether the user may send a command that this build does not know.
    pub fn allows_unknown(&self) -> bool {
        self.all_selectors().any(Selector::allows_unknown)
    }

    /// The checks of a server while it runs a command.
    fn check_beyond<A: Args + ?Sized>(&self, command: &Command, args: &A) -> Result<(), NoPermission> {
        if runs_script(command) && !self.is_unrestricted() {
            return Err(NoPermission::Script);
        }
        if !matches!(command.name, "sort" | "sort_ro") {
            return Ok(());
        }
        let option = foreign_option(args).map_err(NoPermission::Keys)?;
        let mut found = CommandKeys::NotYet;
        let mut reads_all =
            || self.all_selectors().any(|one| one.reads_all_keys() && one.check(command, args, &mut found).is_ok());
        match option {
            Some(denied) if !reads_all() => Err(denied),
            _ => Ok(()),
        }
    }
}

impl Selector {
    fn check<A: Args + ?Sized>(
        &self,
        command: &Command,
        args: &A,
        found: &mut CommandKeys,
    ) -> Result<(), NoPermission> {
        self.check_command(command, args)?;
        if !self.is_all_keys && has_keys(command) {
            self.check_keys(command, args, found)?;
        }
        if !self.is_all_channels
            && let Some(channels) = redis::channels(command)
        {
            self.check_channels(channels, args)?;
        }
        Ok(())
    }

    #[inline]
    fn check_command<A: Args + ?Sized>(&self, command: &Command, args: &A) -> Result<(), NoPermission> {
        let is_allowed = self.is_all_commands
            || self.commands.has(command.id)
            || command.flags.contains(Flags::NO_AUTH)
            || self.allows_first_arg(command, args);
        if is_allowed { Ok(()) } else { Err(NoPermission::Denied(DeniedPart::Command)) }
    }

    fn allows_first_arg<A: Args + ?Sized>(&self, command: &Command, args: &A) -> bool {
        let Some((_, allowed)) = self.first_args.iter().find(|(id, _)| *id == command.id) else { return false };
        args.arg(1).is_some_and(|first| allowed.iter().any(|arg| first.eq_ignore_ascii_case(arg.as_bytes())))
    }

    fn check_keys<A: Args + ?Sized>(
        &self,
        command: &Command,
        args: &A,
        found: &mut CommandKeys,
    ) -> Result<(), NoPermission> {
        if let CommandKeys::NotYet = found {
            let mut keys = Keys::new();
            *found = match redis::keys(command, args, &mut keys) {
                Ok(()) => CommandKeys::Here(keys),
                Err(error) => CommandKeys::Wrong(error),
            };
        }
        let keys = match found {
            CommandKeys::Here(keys) => keys,
            CommandKeys::Wrong(error) => return Err(NoPermission::Keys(*error)),
            CommandKeys::NotYet => return Err(NoPermission::Denied(DeniedPart::Command)),
        };
        if keys.is_incomplete() && !is_incomplete_for_redis_too(command) {
            return Err(NoPermission::Denied(DeniedPart::Key(0)));
        }
        for key in keys.iter().filter(|key| !key.flags.contains(KeyFlags::NOT_KEY)) {
            let name = args.arg(key.index).ok_or(NoPermission::Keys(KeyError::NotBuffered))?;
            if !self.allows_key(name, key.flags) {
                return Err(NoPermission::Denied(DeniedPart::Key(key.index)));
            }
        }
        Ok(())
    }

    fn check_channels<A: Args + ?Sized>(&self, channels: Channels, args: &A) -> Result<(), NoPermission> {
        let end = args.argc().min(channels.count_max.saturating_add(1));
        for index in 1..end {
            let channel = args.arg(index).ok_or(NoPermission::Keys(KeyError::NotBuffered))?;
            if !self.allows_channel(channel, channels.are_patterns) {
                return Err(NoPermission::Denied(DeniedPart::Channel(index)));
            }
        }
        Ok(())
    }
}

/// The command has keys that rules are about; shard channels look like keys and are none.
#[inline]
fn has_keys(command: &Command) -> bool {
    command.keys.iter().any(|spec| !spec.flags.contains(KeyFlags::NOT_KEY))
}

/// Redis lets these pass although they touch keys they do not name: SCAN, KEYS, RANDOMKEY, and SORT, whose options are
/// looked at apart.
fn is_incomplete_for_redis_too(command: &Command) -> bool {
    command.flags.contains(Flags::TOUCHES_ARBITRARY_KEYS) || matches!(command.name, "sort" | "sort_ro")
}

/// EVAL, FCALL and their kin: they take a count of keys that may be zero, and do whatever their script says.
fn runs_script(command: &Command) -> bool {
    let counts_keys =
        |spec: &redis::KeySpec| matches!((spec.begin, spec.find), (BeginSearch::Index(2), FindKeys::KeyNum { .. }));
    command.categories.contains(Categories::SCRIPTING) && command.keys.iter().any(counts_keys)
}

/// The first option of SORT that reads keys it does not name: GET, and BY with a star in its pattern (`sortCommandGeneric`).
fn foreign_option<A: Args + ?Sized>(args: &A) -> Result<Option<NoPermission>, KeyError> {
    let is = |arg: &[u8], word: &[u8]| {
        arg.split(|byte| *byte == 0).next().is_some_and(|text| text.eq_ignore_ascii_case(word))
    };
    let mut index = 2;
    while index < args.argc() {
        let arg = args.arg(index).ok_or(KeyError::NotBuffered)?;
        let left = args.argc() - index - 1;
        if is(arg, b"GET") && left >= 1 {
            return Ok(Some(NoPermission::SortGet));
        }
        if is(arg, b"BY") && left >= 1 {
            if args.arg(index + 1).ok_or(KeyError::NotBuffered)?.contains(&b'*') {
                return Ok(Some(NoPermission::SortBy));
            }
            index += 1;
        } else if is(arg, b"STORE") {
            index += 1;
        } else if is(arg, b"LIMIT") {
            index += 2;
        }
        index += 1;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use weir_analysis::redis::{COMMANDS, Resolved, resolve};

    use super::*;

    fn check(rules: &str, line: &str) -> Result<(), NoPermission> {
        let user = User::from_rules("alice", rules).expect("valid rules");
        let args: Vec<&str> = line.split(' ').collect();
        match resolve(args[0].as_bytes(), args.get(1).map(|sub| sub.as_bytes())) {
            Resolved::Known(command) => user.check(command, &args),
            other => panic!("{line}: {other:?}"),
        }
    }

    const NO_COMMAND: Result<(), NoPermission> = Err(NoPermission::Denied(DeniedPart::Command));

    fn no_key(index: usize) -> Result<(), NoPermission> {
        Err(NoPermission::Denied(DeniedPart::Key(index)))
    }

    #[test]
    fn a_command_needs_its_bit_and_every_key_a_pattern() {
        assert_eq!(check("+get ~a*", "GET a1"), Ok(()));
        assert_eq!(check("+get ~a*", "SET a1 x"), NO_COMMAND);
        assert_eq!(check("+@all ~a*", "MGET a1 b"), no_key(2));
        assert_eq!(check("+@all %R~a* %W~b*", "COPY a1 b1"), Ok(()));
        assert_eq!(check("+@all %R~a* %W~b*", "COPY b1 a1"), no_key(1));
        assert_eq!(check("+@all %W~a*", "SET a1 x GET"), no_key(1));
        assert_eq!(check("+@all %W~a*", "SET a1 x"), Ok(()));
    }

    #[test]
    fn one_selector_must_allow_all_of_it() {
        let rules = "+get ~a (+set ~b) (+mget ~c ~d)";
        assert_eq!(check(rules, "SET b x"), Ok(()));
        assert_eq!(check(rules, "GET b"), no_key(1));
        assert_eq!(check(rules, "MGET c a"), no_key(2));
        assert_eq!(check(rules, "DEL a"), NO_COMMAND);
    }

    #[test]
    fn commands_before_a_login_are_always_allowed() {
        for line in ["AUTH x", "HELLO 3", "RESET", "QUIT"] {
            assert_eq!(check("", line), Ok(()), "{line}");
        }
        assert_eq!(check("", "PING"), NO_COMMAND);
    }

    #[test]
    fn a_first_argument_opens_a_command_for_itself_only() {
        assert_eq!(check("+select|0", "SELECT 0"), Ok(()));
        assert_eq!(check("+select|0", "SELECT 1"), NO_COMMAND);
    }

    #[test]
    fn subscribing_and_publishing_need_channels_and_leaving_needs_none() {
        let rules = "+@pubsub &news.*";
        assert_eq!(check(rules, "SUBSCRIBE news.a news.b"), Ok(()));
        assert_eq!(check(rules, "SUBSCRIBE news.a other"), Err(NoPermission::Denied(DeniedPart::Channel(2))));
        assert_eq!(check(rules, "PSUBSCRIBE news.*"), Ok(()));
        assert_eq!(check(rules, "PSUBSCRIBE news.a*"), Err(NoPermission::Denied(DeniedPart::Channel(1))));
        assert_eq!(check(rules, "PUBLISH other x"), Err(NoPermission::Denied(DeniedPart::Channel(1))));
        assert_eq!(check(rules, "PUBLISH news.a other"), Ok(()), "the message is no channel");
        assert_eq!(check(rules, "SSUBSCRIBE news.a"), Ok(()), "a shard channel is no key");
        assert_eq!(check(rules, "UNSUBSCRIBE other"), Ok(()));
    }

    #[test]
    fn scripts_need_every_right_because_nobody_sees_their_effects() {
        assert_eq!(check("+@all ~* &*", "EVAL x 0"), Ok(()));
        for line in ["EVAL x 0", "EVALSHA x 1 a", "EVAL_RO x 0", "FCALL f 0", "FCALL_RO f 1 a"] {
            assert_eq!(check("+@all ~a &*", line), Err(NoPermission::Script), "{line}");
        }
        let count = COMMANDS.iter().filter(|command| runs_script(command)).count();
        assert_eq!(count, 6, "a new way to run scripts: look at it");
        assert_eq!(check("+get", "EVAL x 0"), NO_COMMAND);
    }

    #[test]
    fn sort_reads_foreign_keys_only_for_users_that_may_read_all() {
        assert_eq!(check("+sort ~a", "SORT a BY nosort LIMIT 0 1"), Ok(()));
        assert_eq!(check("+sort ~a", "SORT a BY w_*"), Err(NoPermission::SortBy));
        assert_eq!(check("+sort ~a", "SORT a LIMIT 0 1 GET x"), Err(NoPermission::SortGet));
        assert_eq!(check("+sort %R~* ~a", "SORT a BY w_* GET #"), Ok(()));
        assert_eq!(check("+sort ~a", "SORT a STORE b"), no_key(3));
        assert_eq!(check("+get ~* (+sort ~a)", "SORT a GET x"), Err(NoPermission::SortGet), "one selector for both");
    }

    #[test]
    fn keys_that_cannot_be_found_are_not_guessed() {
        assert_eq!(check("+zunion ~a", "ZUNION x a"), Err(NoPermission::Keys(KeyError::CountNotInteger)));
        assert_eq!(check("+stralgo ~a", "STRALGO LCS KEYS a b"), no_key(0), "its server does not say where they are");
        assert_eq!(check("+zunion ~*", "ZUNION x a"), Ok(()), "who may use all keys needs none found");
    }

    #[test]
    fn unknown_commands_need_every_right_but_known_commands() {
        let allows = |rules: &str| User::from_rules("alice", rules).expect("valid").allows_unknown();
        assert!(allows("+@all ~* &*") && allows("+@all -@dangerous ~* &*"));
        assert!(!allows("+@all ~a &*") && !allows("+@read ~* &*") && !allows("+@all ~*"));
    }
}
