//! Server names: exact ones, and wildcards for all that ends so.

use std::{collections::HashMap, error::Error, fmt};

/// The values of names.
#[derive(Clone, Debug)]
pub struct Names<T> {
    exact: HashMap<Box<str>, T>,
    /// By the suffix, with its dot in front.
    wildcards: HashMap<Box<str>, T>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcards: HashMap::new() }
    }
}

/// Why a name cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// It is no host name, nor one behind `*.`.
    Malformed,
    /// It is there already.
    Twice,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "is no host name",
            Self::Twice => "stands there twice",
        })
    }
}

impl Error for NameError {}

impl<T> Names<T> {
    /// Adds `a.example`, or `*.example` for every name that ends so, of however many labels.
    ///
    /// # Errors
    /// It is no name, or is there already.
    pub fn add(&mut self, name: &str, value: T) -> Result<(), NameError> {
        let name = name.to_ascii_lowercase();
        let (map, host, key) = match name.strip_prefix('*') {
            Some(suffix) => (&mut self.wildcards, suffix.strip_prefix('.').ok_or(NameError::Malformed)?, suffix),
            None => (&mut self.exact, &*name, &*name),
        };
        if !is_host(host) {
            return Err(NameError::Malformed);
        }
        match map.insert(key.into(), value) {
            None => Ok(()),
            Some(_) => Err(NameError::Twice),
        }
    }

    /// The value for `name`: that of the exact name, else of the longest matching wildcard.
    pub fn find(&self, name: &str) -> Option<&T> {
        let name = name.to_ascii_lowercase();
        if let Some(found) = self.exact.get(&*name) {
            return Some(found);
        }
        let mut dots = name.match_indices('.');
        dots.find_map(|(at, _)| self.wildcards.get(&name[at..]).filter(|_| at > 0))
    }
}

/// Labels of letters, digits and hyphens (RFC 1123 section 2.1), or underscores, which are used.
fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    (1..=253).contains(&host.len()) && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_come_before_wildcards_and_long_ones_before_short() {
        let mut names = Names::default();
        for (name, value) in [("a.example", 1), ("*.example", 2), ("*.b.example", 3), ("*.a.example", 4)] {
            assert_eq!(names.add(name, value), Ok(()));
        }
        let found = |name| names.find(name).copied();
        assert_eq!(found("A.Example"), Some(1));
        assert_eq!((found("c.example"), found("x.y.example")), (Some(2), Some(2)));
        assert_eq!((found("x.b.example"), found("x.a.example")), (Some(3), Some(4)));
        assert_eq!((found("example"), found(".example"), found(""), found("other")), (None, None, None, None));
    }

    #[test]
    fn invalid_names_are_refused() {
        let mut names = Names::default();
        for name in ["", "*", "*.", "*example", "a..b", "-a.b", "a b", "*.*.a", "a.*"] {
            assert_eq!(names.add(name, ()), Err(NameError::Malformed), "{name}");
        }
        assert_eq!((names.add("A.b", ()), names.add("a.B", ())), (Ok(()), Err(NameError::Twice)));
    }
}
