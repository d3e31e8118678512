//! A user: a name, passwords and selectors, made by applying rules one after the other (Redis 7.0 `ACLSetUser`).

use super::{
    password::PasswordHash,
    rules::{BadRule, RuleError, words},
    selector::{Selector, has_space},
};

/// The user that a connection has before it says who it is.
const DEFAULT: &str = "default";

/// Whether payloads of RESTORE are looked at closely. The gateway looks at none; it is kept to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitize {
    /// `sanitize-payload`
    Yes,
    /// `skip-sanitize-payload`
    Skip,
}

/// A user and its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    pub(super) is_enabled: bool,
    pub(super) needs_no_password: bool,
    pub(super) sanitize: Option<Sanitize>,
    pub(super) passwords: Vec<PasswordHash>,
    pub(super) root: Selector,
    pub(super) selectors: Vec<Selector>,
}

impl User {
    /// A user that may nothing: `off`, no password, no command, no key, no channel.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_enabled: false,
            needs_no_password: false,
            sanitize: None,
            passwords: Vec::new(),
            root: Selector::default(),
            selectors: Vec::new(),
        }
    }

    /// A user made by a rule text.
    ///
    /// # Errors
    /// The first rule that cannot be applied.
    pub fn from_rules(name: &str, text: &str) -> Result<Self, BadRule> {
        let mut user = Self::new(name);
        for rule in words(text)? {
            user.apply(&rule).map_err(|error| BadRule { rule, error })?;
        }
        Ok(user)
    }

    /// Whether `name` may be that of a user: spaces and NULs would make rules ambiguous.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && !has_space(name)
    }

    /// Applies one rule. On an error the user may be half changed.
    ///
    /// # Errors
    /// The error of the rule.
    pub fn apply(&mut self, rule: &str) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word);
        let rest = |rule: &'_ str| rule.as_bytes()[1..].to_vec();
        match rule.as_bytes().first() {
            None => {}
            _ if is("on") => self.is_enabled = true,
            _ if is("off") => self.is_enabled = false,
            _ if is("skip-sanitize-payload") => self.sanitize = Some(Sanitize::Skip),
            _ if is("sanitize-payload") => self.sanitize = Some(Sanitize::Yes),
            _ if is("nopass") => (self.needs_no_password, self.passwords) = (true, Vec::new()),
            _ if is("resetpass") => (self.needs_no_password, self.passwords) = (false, Vec::new()),
            _ if is("clearselectors") => self.selectors.clear(),
            _ if is("reset") => {
                let name = std::mem::take(&mut self.name);
                *self = Self { sanitize: Some(Sanitize::Yes), ..Self::new(&name) };
            }
            Some(b'>') => self.add_password(PasswordHash::of(&rest(rule))),
            Some(b'#') => self.add_password(PasswordHash::from_hex(&rest(rule)).ok_or(RuleError::BadHash)?),
            Some(b'<') => self.remove_password(PasswordHash::of(&rest(rule)))?,
            Some(b'!') => self.remove_password(PasswordHash::from_hex(&rest(rule)).ok_or(RuleError::BadHash)?)?,
            Some(b'(') if rule.ends_with(')') => {
                let mut selector = Selector::default();
                // `(` alone is no selector, and `)` may stand for both.
                let inner = rule.get(1..rule.len() - 1).unwrap_or_default();
                inner.split_ascii_whitespace().try_for_each(|rule| selector.apply(rule))?;
                self.selectors.push(selector);
            }
            Some(_) => self.root.apply(rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, password: PasswordHash) {
        if !self.passwords.contains(&password) {
            self.passwords.push(password);
        }
        self.needs_no_password = false;
    }

    fn remove_password(&mut self, password: PasswordHash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| *known == password).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user that a connection has before it says who it is.
    pub fn is_default(&self) -> bool {
        self.name == DEFAULT
    }

    /// Whether it may log in.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Somebody can log in as this user: it is enabled, and has a password or needs none.
    pub fn may_log_in(&self) -> bool {
        self.is_enabled && (self.needs_no_password || !self.passwords.is_empty())
    }

    /// Whether every password will do.
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Whether somebody who gives this password may be this user (`ACLCheckUserCredentials`). The password is hashed and
    /// compared whatever the response, so that time tells nothing about the user.
    pub fn admits(&self, password: &[u8]) -> bool {
        let fits = PasswordHash::of(password).is_one_of(&self.passwords);
        self.is_enabled && (self.needs_no_password || fits)
    }

    /// All selectors, the user's own first.
    pub(super) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether it may do everything, so that checks can be skipped.
    pub fn is_unrestricted(&self) -> bool {
        self.all_selectors().any(Selector::is_unrestricted)
    }

    /// Whether it may use every channel that `before` might: otherwise who subscribed by the old rules must be looked at
    /// (`ACLKillPubsubClientsIfNeeded`).
    pub fn keeps_channels_of(&self, before: &User) -> bool {
        if self.all_selectors().any(|selector| selector.is_all_channels) {
            return true;
        }
        let has = |rule| self.all_selectors().any(|selector| selector.channels.contains(rule));
        before.all_selectors().all(|selector| !selector.is_all_channels && selector.channels.iter().all(has))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(rules: &str) -> User {
        User::from_rules("alice", rules).expect("valid rules")
    }

    #[test]
    fn a_new_user_may_nothing() {
        let user = user("");
        assert!(!user.is_enabled() && !user.admits(b"") && !user.is_unrestricted());
    }

    #[test]
    fn passwords_are_added_and_removed_in_both_forms() {
        let hash = PasswordHash::of(b"b").to_hex();
        let both = user(&format!("on >a #{hash}"));
        assert!(both.admits(b"a") && both.admits(b"b") && !both.admits(b"c"));
        let one = user(&format!("on >a >b <a >a !{hash} >a"));
        assert!(one.admits(b"a") && !one.admits(b"b"));
        assert!(!user("off >a").admits(b"a") && user("on nopass").admits(b"anything"));
        assert!(!user("on nopass >a").admits(b"b") && !user("on >a resetpass").admits(b"a"));
        let error = User::from_rules("alice", "<canary").expect_err("no such password").to_string();
        assert!(error.ends_with("does not exist") && !error.contains("canary"), "{error}");
    }

    #[test]
    fn reset_leaves_a_new_user() {
        let reset = user("on >a ~* &* +@all (+get ~a) reset");
        assert_eq!(reset, User { sanitize: Some(Sanitize::Yes), ..User::new("alice") });
    }

    #[test]
    fn an_error_inside_a_selector_names_the_whole_of_it() {
        let error = User::from_rules("alice", "on (+get +nope)").expect_err("unknown").to_string();
        assert_eq!(error, "Error in ACL SETUSER modifier '(+get +nope)': Unknown command or category name in ACL");
    }

    #[test]
    fn odd_parentheses_are_no_panic() {
        for rule in ["(", ")", "()", "(()", "())", "(+get)x", "((+get))"] {
            let _ = User::from_rules("alice", rule);
        }
        assert_eq!(user("()").selectors, [Selector::default()]);
    }

    #[test]
    fn all_three_make_a_user_unrestricted() {
        assert!(user("~* &* +@all").is_unrestricted());
        assert!(user("(~* &* +@all)").is_unrestricted());
        for rules in ["~* +@all", "&* +@all", "~* &* +@all -get", "~* &*", "~a +@all &* (~* +get)"] {
            assert!(!user(rules).is_unrestricted(), "{rules}");
        }
    }

    #[test]
    fn channels_are_kept_if_every_old_rule_is_there() {
        assert!(user("&a &b").keeps_channels_of(&user("&a")) && user("&*").keeps_channels_of(&user("&a")));
        assert!(user("(&a)").keeps_channels_of(&user("&a")));
        assert!(!user("&a").keeps_channels_of(&user("&a &b")) && !user("&a").keeps_channels_of(&user("&*")));
    }
}
