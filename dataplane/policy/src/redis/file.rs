//! The format of Redis's `aclfile`: lines `user <name> ... rules ...`, and empty ones (Redis 7.0 `ACLLoadFromFile`).

use super::{
    rules::{BadRule, words},
    user::User,
};

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Counted from 1.
    pub line: usize,
    /// The error, in the words of the server.
    pub text: String,
}

/// The users of a file in the order of their lines.
///
/// # Errors
/// Everything that is wrong, at most one mistake a line. Comments are wrong too, as they are for Redis, which would lose
/// them when it writes the file.
pub fn parse_file(text: &str) -> Result<Vec<User>, Vec<FileError>> {
    let mut users: Vec<User> = Vec::new();
    let mut errors = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match parse_line(line) {
            Ok(None) => {}
            Ok(Some(user)) if users.iter().any(|known| known.name() == user.name()) => {
                let text = format!("Duplicate user '{}' found", user.name());
                errors.push(FileError { line: index + 1, text });
            }
            Ok(Some(user)) => users.push(user),
            Err(text) => errors.push(FileError { line: index + 1, text }),
        }
    }
    if errors.is_empty() { Ok(users) } else { Err(errors) }
}

fn parse_line(line: &str) -> Result<Option<User>, String> {
    let mut rest = line.trim_ascii();
    if rest.is_empty() {
        return Ok(None);
    }
    let mut word = || {
        let (word, behind) = rest.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((rest, ""));
        rest = behind.trim_ascii_start();
        word
    };
    let (keyword, name) = (word(), word());
    if keyword != "user" || name.is_empty() {
        return Err("should start with user keyword followed by the username".to_owned());
    }
    if !User::is_name(name) {
        return Err("the username contains invalid characters".to_owned());
    }
    let mut user = User::new(name);
    let in_file = |bad: BadRule| bad.to_string();
    for rule in words(rest).map_err(in_file)? {
        user.apply(&rule).map_err(|error| in_file(BadRule { rule, error }))?;
    }
    Ok(Some(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_users() {
        let users = parse_file("\nuser default off\r\n  user alice on >x ~a (+get ~b)  \n\n").expect("valid");
        let names: Vec<&str> = users.iter().map(User::name).collect();
        assert_eq!(names, ["default", "alice"]);
        assert!(users[1].admits(b"x"));
    }

    #[test]
    fn every_wrong_line_is_reported() {
        let text = "# comment\nuser\nuser a on\nuser a on\nuser b +nope\nuser c (+get\nuser d on";
        let errors = parse_file(text).expect_err("wrong");
        let told: Vec<(usize, &str)> = errors.iter().map(|error| (error.line, error.text.as_str())).collect();
        assert_eq!(
            told,
            [
                (1, "should start with user keyword followed by the username"),
                (2, "should start with user keyword followed by the username"),
                (4, "Duplicate user 'a' found"),
                (5, "Error in ACL SETUSER modifier '+nope': Unknown command or category name in ACL"),
                (6, "Unmatched parenthesis in acl selector starting at '(+get'."),
            ]
        );
    }
}
