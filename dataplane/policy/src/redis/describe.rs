//! A user as rules again (Redis 7.0 `ACLDescribeUser`): commands as few categories and then single commands. The result
//! means the same as the original rules; the order of single commands is that of the table.

use weir_analysis::redis::COMMANDS;

use super::{
    selector::{CATEGORIES, Commands, KeyPattern, Selector, in_category},
    user::{Sanitize, User},
};

impl User {
    /// The words of ACL GETUSER's `flags`, in Redis's order.
    pub fn flags(&self) -> Vec<&'static str> {
        let sanitize = self.sanitize.map(|sanitize| match sanitize {
            Sanitize::Yes => "sanitize-payload",
            Sanitize::Skip => "skip-sanitize-payload",
        });
        let state = if self.is_enabled { "on" } else { "off" };
        [Some(state), self.needs_no_password.then_some("nopass"), sanitize].into_iter().flatten().collect()
    }

    /// The hashes of its passwords, in hexadecimal.
    pub fn password_hashes(&self) -> Vec<String> {
        self.passwords.iter().map(|password| password.to_hex()).collect()
    }

    /// The user's own selector, then the others.
    pub fn selectors(&self) -> (&Selector, &[Selector]) {
        (&self.root, &self.selectors)
    }

    /// The rules that make this user.
    pub fn describe(&self) -> String {
        let mut words: Vec<String> = self.flags().into_iter().map(str::to_owned).collect();
        words.extend(self.password_hashes().into_iter().map(|hash| format!("#{hash}")));
        words.push(self.root.describe());
        words.extend(self.selectors.iter().map(|selector| format!("({})", selector.describe())));
        words.join(" ")
    }
}

impl Selector {
    fn describe(&self) -> String {
        let (keys, channels) = (self.describe_keys(), self.describe_channels());
        let mut words = Vec::new();
        words.extend((!keys.is_empty()).then_some(keys));
        words.extend((!self.is_all_channels).then(|| "resetchannels".to_owned()));
        words.extend((!channels.is_empty()).then_some(channels));
        words.push(self.describe_commands());
        words.join(" ")
    }

    /// The patterns of keys as rules.
    pub fn describe_keys(&self) -> String {
        if self.is_all_keys {
            return "~*".to_owned();
        }
        let shown = |pattern: &KeyPattern| {
            let sign = match (pattern.reads, pattern.writes) {
                (true, false) => "%R~",
                (false, true) => "%W~",
                _ => "~",
            };
            format!("{sign}{}", String::from_utf8_lossy(pattern.glob.text()))
        };
        self.keys.iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    /// The patterns of channels as rules.
    pub fn describe_channels(&self) -> String {
        if self.is_all_channels {
            return "&*".to_owned();
        }
        let shown = |glob: &super::Glob| format!("&{}", String::from_utf8_lossy(glob.text()));
        self.channels.iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    /// The commands as rules (`ACLDescribeSelectorCommandRules`): from all or from none, the category that says most
    /// with the fewest mistakes, again and again, then what is left one by one.
    pub fn describe_commands(&self) -> String {
        let adds = !self.commands.has_unknown;
        let (sign, other_sign) = if adds { ('+', '-') } else { ('-', '+') };
        let mut words = vec![format!("{other_sign}@all")];
        let mut said = if adds { Commands::NONE } else { Commands::ALL };
        let mut left = self.commands;
        let mut is_said = [false; CATEGORIES.len()];
        while let Some(best) = best_category(&left, adds, &is_said) {
            let (name, category) = CATEGORIES[best];
            said.change_category(category, adds);
            left.change_category(category, !adds);
            is_said[best] = true;
            words.push(format!("{sign}@{name}"));
        }
        for command in COMMANDS {
            let is_allowed = self.commands.has(command.id);
            if is_allowed != said.has(command.id) {
                words.push(format!("{}{}", if is_allowed { '+' } else { '-' }, command.name));
                said.change(command, is_allowed);
            }
            let first_args = self.first_args.iter().find(|(id, _)| *id == command.id && !is_allowed);
            for arg in first_args.into_iter().flat_map(|(_, args)| args) {
                words.push(format!("+{}|{arg}", command.name));
            }
        }
        words.join(" ")
    }
}

fn best_category(left: &Commands, adds: bool, is_said: &[bool]) -> Option<usize> {
    let mut best: Option<(usize, usize, usize)> = None;
    for (index, (_, category)) in CATEGORIES.iter().enumerate().filter(|(index, _)| !is_said[*index]) {
        let all = in_category(*category).count();
        let on = in_category(*category).filter(|command| left.has(command.id)).count();
        let (same, different) = if adds { (on, all - on) } else { (all - on, on) };
        let is_better = best.is_none_or(|(_, fewest, most)| different < fewest || (different == fewest && same > most));
        if same > different && is_better {
            best = Some((index, different, same));
        }
    }
    best.map(|(index, ..)| index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn described(rules: &str) -> String {
        User::from_rules("alice", rules).expect("valid rules").describe()
    }

    #[test]
    fn users_are_shown_as_redis_shows_them() {
        assert_eq!(described(""), "off resetchannels -@all");
        assert_eq!(described("on nopass ~* &* +@all"), "on nopass ~* &* +@all");
        assert_eq!(
            described("on >x ~a %R~b &c +get (+set ~d)"),
            "on #2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881 ~a %R~b resetchannels &c -@all +get \
             (~d resetchannels -@all +set)"
        );
        assert_eq!(described("+@all -@admin"), "off resetchannels +@all -@admin");
        assert_eq!(described("+select|0"), "off resetchannels -@all +select|0");
        assert_eq!(described("+config -config|set"), "off resetchannels -@all +config -config|set");
    }

    fn rule() -> impl Strategy<Value = String> {
        let command = (0..COMMANDS.len()).prop_map(|index| COMMANDS[index].name.to_owned());
        let category = (0..CATEGORIES.len()).prop_map(|index| format!("@{}", CATEGORIES[index].0));
        let all = Just("@all".to_owned());
        let name = prop_oneof![4 => command, 3 => category, 1 => all];
        (any::<bool>(), name).prop_map(|(is_allowed, name)| format!("{}{name}", if is_allowed { '+' } else { '-' }))
    }

    proptest! {
        #[test]
        fn any_text_is_rules_or_an_error_and_its_description_is_valid(text in "(on|\\+get|[-+~%&@>#<!()RW*|\\[\\]a-z0-9 \\x00é]){0,24}") {
            let _ = crate::redis::parse_file(&format!("user alice {text}\n{text}"));
            if let Ok(user) = User::from_rules("alice", &text) {
                prop_assert!(User::from_rules("alice", &user.describe()).is_ok(), "{}", user.describe());
            }
        }

        #[test]
        fn a_description_means_the_same_as_its_rules(rules in proptest::collection::vec(rule(), 0..12)) {
            let user = User::from_rules("alice", &rules.join(" ")).expect("valid rules");
            let again = User::from_rules("alice", &user.describe()).expect("what is shown is valid");
            prop_assert_eq!(again.root.commands, user.root.commands);
            prop_assert_eq!(again.describe(), user.describe());
        }
    }
}
