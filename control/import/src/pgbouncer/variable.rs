//! Names of environment variables for passwords.

use std::collections::{HashMap, HashSet};

/// Names that are in use.
#[derive(Default)]
pub(super) struct Variables {
    used: HashSet<String>,
    /// The last number of a name, so that a million alike names take a million steps.
    numbers: HashMap<String, u64>,
    /// The variable of each user and password of connection strings.
    of_servers: HashMap<(String, String), String>,
}

impl Variables {
    /// A name like `wanted` with `suffix` behind it, which a shell can set and which is not in use.
    pub(super) fn unique(&mut self, wanted: &str, suffix: &str) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let mut base: String = wanted.chars().map(word).collect();
        if !base.starts_with(|c: char| c.is_ascii_alphabetic()) {
            base.insert_str(0, "USER_");
        }
        let number = self.numbers.entry(base.clone()).or_default();
        loop {
            *number += 1;
            let name = match *number {
                1 => format!("{base}{suffix}"),
                number => format!("{base}_{number}{suffix}"),
            };
            if self.used.insert(name.clone()) {
                return name;
            }
        }
    }

    /// The variable for the password of a user at the servers. Databases with the same ones share it, and so an upstream.
    pub(super) fn of_server(&mut self, user: &str, password: &str, database: &str) -> String {
        let key = (user.to_owned(), password.to_owned());
        if let Some(known) = self.of_servers.get(&key) {
            return known.clone();
        }
        let name = self.unique(database, "_SERVER_PASSWORD");
        self.of_servers.insert(key, name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_settable_and_unique() {
        let mut variables = Variables::default();
        let mut unique = |name| variables.unique(name, "_PASSWORD");
        assert_eq!(unique("my-app"), "MY_APP_PASSWORD");
        assert_eq!(unique("my.app_2"), "MY_APP_2_PASSWORD");
        assert_eq!(unique("my app"), "MY_APP_3_PASSWORD");
        assert_eq!(unique("7"), "USER_7_PASSWORD");
    }
}
