//! The file of users: `"name" "password"`, a line for each. Passwords stay here: only their form is known outside.

use crate::note::{Mistake, SourceLine};

/// Users in a file. Default 65,536; each has a table per listener.
const USERS_MAX: usize = 65_536;

/// The form of a stored password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Md5,
    Scram,
    Empty,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) form: Form,
    pub(super) place: SourceLine,
}

/// Reads the file called `name`.
///
/// # Errors
/// A line that PgBouncer would not take; nothing of it is repeated.
pub(super) fn read(name: &str, text: &str) -> Result<Vec<Listed>, Mistake> {
    let file: std::rc::Rc<str> = name.into();
    let mut users = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = SourceLine { file: file.clone(), line: index + 1 };
        let line = line.trim_start();
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        let wrong = || Mistake::new(&place, "the line is not \"name\" \"password\"");
        let quoted = |text: &str| -> Option<(String, usize)> {
            let inner = text.strip_prefix('"')?;
            let (field, rest) = super::ini::unquoted(inner, '"')?;
            Some((field, text.len() - rest.len()))
        };
        let (name, end) = quoted(line).ok_or_else(wrong)?;
        let (password, _) = quoted(line[end..].trim_start()).ok_or_else(wrong)?;
        if users.len() == USERS_MAX {
            return Err(Mistake::new(&place, format!("there are more than {USERS_MAX} users")));
        }
        users.push(Listed { name, form: form(&password), place });
    }
    Ok(users)
}

fn form(password: &str) -> Form {
    let is_md5 = |hash: &str| hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    match password {
        "" => Form::Empty,
        _ if password.starts_with("SCRAM-SHA-256$") => Form::Scram,
        _ if password.strip_prefix("md5").is_some_and(is_md5) => Form::Md5,
        _ => Form::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_passwords_are_known_and_mistakes_repeat_none() {
        let md5 = "md545f2603610af569b6155c45067268c6b";
        let text =
            format!("; c\n\"a\" \"x\"\"y\" more\n\"b\" \"{md5}\"\n\"c\" \"SCRAM-SHA-256$4096:s$k:k\"\n\"d\" \"\"\n");
        let users = read("u", &text).expect("read");
        let forms: Vec<_> = users.iter().map(|user| (&*user.name, user.form, user.place.line)).collect();
        assert_eq!(forms, [("a", Form::Plain, 2), ("b", Form::Md5, 3), ("c", Form::Scram, 4), ("d", Form::Empty, 5)]);
        for text in ["\"a\" \"canary", "\"a\" canary", "canary", "\"canary"] {
            assert_eq!(read("u", text).expect_err("refused").to_string(), "u:1: the line is not \"name\" \"password\"");
        }
    }
}
