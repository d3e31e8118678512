//! The account that servers run as: PostgreSQL and PgBouncer refuse to run as root.

use std::os::unix::fs::chown;
use std::path::Path;

use rustix::process::getuid;

/// The system user that Debian's package makes.
const NAME: &str = "postgres";

/// Another account than that of the test.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    user: u32,
    group: u32,
}

/// The account of servers; `None`: that of the test, which is not root.
///
/// # Panics
/// If the test is root and the system has no such user.
pub fn of_servers() -> Option<Account> {
    if !getuid().is_root() {
        return None;
    }
    let text = std::fs::read_to_string("/etc/passwd").expect("the users of the system");
    let mut fields = text.lines().map(|line| line.split(':'));
    let found = fields.find_map(|mut fields| (fields.next() == Some(NAME)).then(|| (fields.nth(1), fields.next())));
    let parse = |id: Option<&str>| id.and_then(|id| id.parse().ok());
    let ids = found.and_then(|(user, group)| parse(user).zip(parse(group)));
    let (user, group) = ids.unwrap_or_else(|| panic!("no user {NAME}: run `cargo xtask setup postgres`"));
    Some(Account { user, group })
}

/// `words` as a command line of that account. The program gets `signal` when the thread that started it ends: a change of
/// account clears the signal that [`crate::process::Process`] sets.
pub fn command_line(words: &[String], signal: &str) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(Account { user, group }) = of_servers() {
        all.extend(["setpriv".to_owned(), format!("--reuid={user}"), format!("--regid={group}")]);
        all.extend(["--clear-groups", "--pdeathsig", signal].map(str::to_owned));
    }
    all.extend_from_slice(words);
    all
}

/// Gives a file or folder to that account.
///
/// # Panics
/// If the kernel refuses.
pub fn give(path: &Path) {
    if let Some(Account { user, group }) = of_servers() {
        chown(path, Some(user), Some(group)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
