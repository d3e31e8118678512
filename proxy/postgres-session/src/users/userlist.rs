//! `userlist.txt` of PgBouncer: a user and its password per line, each in double quotes.

use std::fmt;

use weir_base::secret::Secret;

/// Bytes of a name that PgBouncer accepts.
const NAME_BYTES_MAX: usize = 127;
/// Bytes of a password that PgBouncer accepts.
const PASSWORD_BYTES_MAX: usize = 2047;

/// A line that is not one. The text has no part of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserlistError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The rule that it breaks.
    pub rule: &'static str,
}

impl fmt::Display for UserlistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.rule)
    }
}

impl std::error::Error for UserlistError {}

/// Names and stored passwords of a file. Lines that are empty or begin with `;` are none; text behind the password is not
/// read; two double quotes inside of a string are one.
///
/// # Errors
/// The first line that is none. PgBouncer stops reading there and keeps the lines before it.
pub fn userlist(text: &[u8]) -> Result<Vec<(Vec<u8>, Secret)>, UserlistError> {
    let mut users = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b";") {
            continue;
        }
        users.push(user(line).map_err(|rule| UserlistError { line: index + 1, rule })?);
    }
    Ok(users)
}

fn user(line: &[u8]) -> Result<(Vec<u8>, Secret), &'static str> {
    let (name, rest) = quoted(line).ok_or("it does not begin with a user in double quotes")?;
    let (password, _) = quoted(rest.trim_ascii_start()).ok_or("the user has no password in double quotes")?;
    let password = Secret::new(password);
    match (name.len(), password.expose().len()) {
        (0, _) => Err("the user is empty"),
        (name, _) if name > NAME_BYTES_MAX => Err("the user has more than 127 bytes"),
        (_, password) if password > PASSWORD_BYTES_MAX => Err("the password has more than 2,047 bytes"),
        _ => Ok((name, password)),
    }
}

/// The text of the string at the front, and the bytes behind it.
fn quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut found = Vec::new();
    loop {
        let end = rest.iter().position(|byte| *byte == b'"')?;
        found.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(b"\"") {
            Some(behind) => {
                found.push(b'"');
                rest = behind;
            }
            None => return Some((found, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_pgbouncer_is_read() {
        let text = concat!(
            "; users of the shop\n",
            "\"app\" \"pencil\"\r\n",
            "\n",
            "  \"with \"\"quotes\"\"\"\t\"\"\"\" ignored\n",
            "\"md5\" \"md520c46e3762c864548e296b33c3406aa9\" \"\"\n",
            "\"empty\" \"\""
        );
        let users = userlist(text.as_bytes()).expect("legal");
        let expected = [
            ("app", "pencil"),
            ("with \"quotes\"", "\""),
            ("md5", "md520c46e3762c864548e296b33c3406aa9"),
            ("empty", ""),
        ];
        let expected = expected.map(|(name, password)| (name.as_bytes().to_vec(), Secret::from(password)));
        assert_eq!(users, expected);
    }

    #[test]
    fn a_line_that_is_none_is_named_without_its_password() {
        let long = "x".repeat(2048);
        let lines = [
            "app canary".to_owned(),
            "\"app\" canary".to_owned(),
            "\"app\" \"canary".to_owned(),
            "\"app\"".to_owned(),
            "\"\" \"canary\"".to_owned(),
            format!("\"app\" \"{long}\""),
            format!("\"{}\" \"canary\"", "x".repeat(128)),
        ];
        for line in lines {
            let error = userlist(format!("\"ok\" \"ok\"\n{line}\n").as_bytes()).expect_err(&line);
            assert_eq!(error.line, 2);
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
