//! Parts of a message without a counterpart that a translation leaves out.

use crate::json::Json;
use crate::limits::{LOSS_BYTES_MAX, LOSSES_MAX};

/// Members whose default is false or zero. For other members, such as `seed`, these values mean something.
const OFF_BY_DEFAULT: [&str; 9] = [
    "frequency_penalty",
    "presence_penalty",
    "store",
    "logprobs",
    "is_error",
    "strict",
    "defer_loading",
    "stream",
    "index",
];

/// The names of the parts that are left out, such as `seed` or `messages.name`, each once.
///
/// A name may be a key that the sender chose. It has only letters, digits, `_`, `-` and `.`, so that a header and a log
/// line can carry it. Values never appear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    names: Vec<Box<str>>,
    /// There were more than [`LOSSES_MAX`].
    has_more: bool,
}

impl Losses {
    /// Nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names, in the order in which they were found.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name).chain(self.has_more.then_some("more"))
    }

    /// The value of the header `x-weir-translation-loss`: the names, joined by a comma and a blank.
    pub fn header_value(&self) -> String {
        self.names().collect::<Vec<_>>().join(", ")
    }

    /// Adds the member `name` of `place`, which is empty for the outermost object.
    pub(crate) fn add(&mut self, place: &'static str, name: &str) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let fits = !name.is_empty() && place.len() + 1 + name.len() <= LOSS_BYTES_MAX && name.bytes().all(is_plain);
        let name = if fits { name } else { "other" };
        let dot = if place.is_empty() { "" } else { "." };
        let is_same = |known: &str| {
            let behind = known.strip_prefix(place).and_then(|known| known.strip_prefix(dot));
            behind == Some(name)
        };
        if self.names.iter().any(|known| is_same(known)) {
            return;
        }
        match self.names.len() < LOSSES_MAX {
            true => self.names.push(format!("{place}{dot}{name}").into()),
            false => self.has_more = true,
        }
    }

    /// Adds a member unless its value says no more than its absence does: it is empty, or the default of that member.
    pub(crate) fn add_value(&mut self, place: &'static str, name: &str, value: Json<'_>) {
        let is_off_by_default = place.starts_with("usage") || OFF_BY_DEFAULT.contains(&name);
        let says_nothing = if is_off_by_default { value.is_neutral() } else { value.is_empty() };
        if !says_nothing {
            self.add(place, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a11_a_name_is_bounded_and_cannot_break_a_header() {
        let mut losses = Losses::default();
        losses.add("", "seed");
        losses.add("", "seed");
        losses.add("messages", "name");
        losses.add("tools", "x\r\nset-cookie: a");
        losses.add("tools", &"x".repeat(100));
        assert_eq!(losses.header_value(), "seed, messages.name, tools.other");
        for number in 0..100 {
            losses.add("", &format!("x{number}"));
        }
        assert_eq!(losses.names().count(), LOSSES_MAX + 1);
        assert_eq!(losses.names().last(), Some("more"));
    }
}
