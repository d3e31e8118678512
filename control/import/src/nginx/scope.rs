//! A directive as it holds at a place: that of the innermost block that has it.

use super::syntax::Directive;

/// Blocks around a place, the outermost first.
#[derive(Clone, Debug)]
pub(super) struct Scope<'c>(Vec<&'c [Directive]>);

impl<'c> Scope<'c> {
    pub(super) fn new(body: &'c [Directive]) -> Self {
        Self(vec![body])
    }

    /// One block further in.
    pub(super) fn inner(&self, body: &'c [Directive]) -> Self {
        let mut levels = self.0.clone();
        levels.push(body);
        Self(levels)
    }

    /// The directives of the innermost block itself.
    pub(super) fn own(&self) -> &'c [Directive] {
        self.0.last().copied().unwrap_or_default()
    }

    /// A directive of the innermost block itself: those that do something are not inherited.
    pub(super) fn find_own(&self, name: &str) -> Option<&'c Directive> {
        self.own().iter().find(|one| one.name == name)
    }

    /// The directive that holds here.
    pub(super) fn find(&self, name: &str) -> Option<&'c Directive> {
        self.all(name).into_iter().next()
    }

    /// All directives of this name in the innermost block that has one: lists are not merged with those of outer blocks.
    pub(super) fn all(&self, name: &str) -> Vec<&'c Directive> {
        self.any_of(&[name])
    }

    /// All directives with one of these names, which together are a list.
    pub(super) fn any_of(&self, names: &[&str]) -> Vec<&'c Directive> {
        let own = |level: &&'c [Directive]| -> Vec<&'c Directive> {
            level.iter().filter(|one| names.contains(&one.name.as_str())).collect()
        };
        self.0.iter().rev().map(own).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// The first argument of the directive that holds here.
    pub(super) fn first(&self, name: &str) -> Option<&'c str> {
        self.find(name).map(Directive::first)
    }

    /// Whether the directive holds and is `on`.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.first(name) == Some("on")
    }
}
