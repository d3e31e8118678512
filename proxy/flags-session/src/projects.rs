//! Projects: the part of an environment that a token may see.

use crate::token::Token;

/// A set of projects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Projects {
    /// Every project, also later ones.
    All,
    /// These, in order and each once.
    Some(Box<[Box<str>]>),
}

impl Projects {
    /// The set of these names. `*` among them means all, and so does an empty list.
    pub fn new<S: AsRef<str>>(names: &[S]) -> Self {
        if names.is_empty() || names.iter().any(|name| name.as_ref() == "*") {
            return Self::All;
        }
        let mut names: Vec<Box<str>> = names.iter().map(|name| name.as_ref().into()).collect();
        names.sort_unstable();
        names.dedup();
        Self::Some(names.into())
    }

    /// The names: `*` for all.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let all = matches!(self, Self::All).then_some("*");
        let some = match self {
            Self::All => &[],
            Self::Some(names) => &names[..],
        };
        all.into_iter().chain(some.iter().map(|name| &**name))
    }

    /// Whether there is none: a token of several projects that its server has not named yet.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Some(names) if names.is_empty())
    }

    /// Whether a project is one of them.
    pub fn has(&self, project: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.binary_search_by(|name| (**name).cmp(project)).is_ok(),
        }
    }

    /// Whether all of the others are among them.
    pub fn include(&self, others: &Self) -> bool {
        match (self, others) {
            (Self::All, _) => true,
            (Self::Some(_), Self::All) => false,
            (Self::Some(_), Self::Some(others)) => others.iter().all(|other| self.has(other)),
        }
    }

    /// Those that are in both sets, for a request that names some. `None`: the request may see none of those that it names.
    pub fn restricted_to(&self, others: &Self) -> Option<Self> {
        match (self, others) {
            (_, Self::All) => Some(self.clone()),
            (Self::All, _) => Some(others.clone()),
            (Self::Some(_), Self::Some(others)) => {
                let both: Box<[Box<str>]> = others.iter().filter(|other| self.has(other)).cloned().collect();
                (!both.is_empty()).then_some(Self::Some(both))
            }
        }
    }
}

/// The fewest of the tokens that together see everything: one upstream poll with each serves all.
pub fn minimal<'a>(tokens: &[&'a Token]) -> Vec<&'a Token> {
    let is_needed = |at: usize, token: &Token| {
        // The first of equal ones stays.
        let others = tokens.iter().enumerate().filter(|(other, _)| *other != at);
        !others.into_iter().any(|(other, it)| it.subsumes(token) && (other < at || !token.subsumes(it)))
    };
    tokens.iter().enumerate().filter(|(at, token)| is_needed(*at, token)).map(|(_, token)| *token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_own_projects_and_a_star_has_all() {
        let some = Projects::new(&["b", "a", "b"]);
        assert_eq!(some.names().collect::<Vec<_>>(), ["a", "b"]);
        assert!(some.has("a") && !some.has("c"));
        for all in [Projects::new(&["a", "*"]), Projects::new::<&str>(&[])] {
            assert_eq!(all, Projects::All);
            assert!(all.has("c") && all.include(&some) && !some.include(&all));
        }
        assert!(some.include(&Projects::new(&["b"])) && !Projects::new(&["b"]).include(&some));
    }

    #[test]
    fn a_request_sees_no_more_than_its_token() {
        let token = Projects::new(&["a", "b"]);
        assert_eq!(token.restricted_to(&Projects::new(&["b", "c"])), Some(Projects::new(&["b"])));
        assert_eq!(token.restricted_to(&Projects::new(&["c"])), None);
        assert_eq!(token.restricted_to(&Projects::All), Some(token.clone()));
        assert_eq!(Projects::All.restricted_to(&token), Some(token));
    }
}
