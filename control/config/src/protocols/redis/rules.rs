//! Users of a Redis listener: rules as they stand in the file, and files of users.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use weir_base::Secret;
use weir_policy::redis::{BadRule, PasswordHash, RuleError, User, parse_file, words};

use crate::document::Node;
use crate::reader::Reader;
use crate::secret::private_file;
use crate::texts::string;
use crate::value::{Shape, Value};

/// Bytes of a file of users. Default 1 MiB: some thousand users.
const USERS_BYTES_MAX: u64 = 1024 * 1024;

/// Mistakes of one file of users that are reported.
const MISTAKES_MAX: usize = 16;

/// Rules as ACL SETUSER takes them. Passwords are hashed at once: neither they nor their hashes are shown again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules(Secret);

impl Rules {
    /// The rules, passwords as hashes.
    pub(crate) fn text(&self) -> &str {
        self.0.expose_str().unwrap_or_default()
    }
}

impl Value for Rules {
    fn shape() -> Shape {
        Shape::Text { what: "rules of a user", example: "on ~app:* +@read" }
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = string(node, &Self::shape(), reader)?;
        match hashed(text).and_then(|rules| User::from_rules("", &rules).map(|_| rules)) {
            Ok(rules) => Some(Self(Secret::from(rules))),
            Err(bad) => {
                let message = format!("`{}`: {bad}", node.path);
                reader.wrong_value(node, message, remedy(bad.error));
                None
            }
        }
    }

    fn show(&self) -> Json {
        let shown = words(self.text()).unwrap_or_default().into_iter().map(|rule| match rule.as_bytes().first() {
            Some(b'#') => "#...".to_owned(),
            Some(b'!') => "!...".to_owned(),
            _ => rule,
        });
        json!(shown.collect::<Vec<_>>().join(" "))
    }
}

/// The same rules without passwords in clear: the hash of one does the same.
fn hashed(text: &str) -> Result<String, BadRule> {
    let rules = words(text)?.into_iter().map(|rule| match rule.as_bytes() {
        [b'>', password @ ..] => format!("#{}", PasswordHash::of(password).to_hex()),
        [b'<', password @ ..] => format!("!{}", PasswordHash::of(password).to_hex()),
        _ => rule,
    });
    Ok(rules.collect::<Vec<_>>().join(" "))
}

fn remedy(error: RuleError) -> &'static str {
    match error {
        RuleError::UnknownName => "commands are written +get or +config|get, categories +@read; ACL CAT lists them",
        RuleError::Syntax => {
            "rules are on, off, nopass, >password, #hash, ~keys, %R~keys, %W~keys, &channels, +command, -command, +@category, (selector)"
        }
        RuleError::KeysAfterAll => "leave the pattern out, or write resetkeys in front of it",
        RuleError::ChannelsAfterAll => "leave the pattern out, or write resetchannels in front of it",
        RuleError::NoSuchPassword => "leave it out: rules begin without passwords",
        RuleError::BadHash => "make one with: printf %s PASSWORD | sha256sum",
        RuleError::FirstArgOfSubcommand => "allow the subcommand as a whole",
        RuleError::Unmatched => "close it: (+get ~key)",
    }
}

/// A file of users, in the format of Redis's `aclfile`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsersFile {
    /// As it is opened.
    path: PathBuf,
    pub(crate) users: Vec<User>,
}

impl Value for UsersFile {
    fn shape() -> Shape {
        Shape::Text { what: "the path of a file of users", example: "users.acl" }
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = string(node, &Self::shape(), reader)?;
        if text.is_empty() || text.contains('\0') {
            reader.wrong_value(node, format!("`{}` is not a path", node.path), "write the path of a file of users");
            return None;
        }
        let contents = private_file(node, Path::new(text), USERS_BYTES_MAX, reader)?;
        let path = reader.directory.join(text);
        let contents = Secret::new(contents.bytes);
        let Some(lines) = contents.expose_str() else {
            let message = format!("`{}`: {} is not UTF-8", node.path, path.display());
            reader.wrong_value(node, message, "save it as UTF-8");
            return None;
        };
        match parse_file(lines) {
            Ok(users) => Some(Self { path, users }),
            Err(mistakes) => {
                for mistake in mistakes.iter().take(MISTAKES_MAX) {
                    let message = format!("`{}`: {}:{}: {}", node.path, path.display(), mistake.line, mistake.text);
                    let help = "correct the line: user NAME and rules as in ACL SETUSER, without comments";
                    reader.wrong_value(node, message, help);
                }
                None
            }
        }
    }

    fn show(&self) -> Json {
        json!(self.path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_clear_is_neither_kept_nor_shown() {
        let rules = hashed("on >canary <canary >canary ~a (+get ~b)").expect("valid");
        assert!(!rules.contains("canary"));
        let user = User::from_rules("alice", &rules).expect("valid");
        assert!(user.admits(b"canary"));
        let rules = Rules(Secret::from(rules));
        assert_eq!(rules.show(), json!("on #... !... #... ~a (+get ~b)"));
        assert!(!format!("{rules:?}").contains(&PasswordHash::of(b"canary").to_hex()));
    }
}
