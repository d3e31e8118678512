//! Locations: which paths each has, so that Weir's order gives what nginx's order gives.
//!
//! nginx: exact; else the longest prefix is remembered; unless that is `^~`, regexes in the order of the file; else the prefix.
//! Weir: exact, regexes from the longest text to the shortest, prefixes from the longest to the shortest. So regexes are made
//! longer where their order demands it, and `^~` prefixes become regexes that are longer than all others.

use super::scope::Scope;
use super::syntax::Directive;
use crate::model::PathMatch;
use crate::note::{Mistake, Note};
use crate::paths;

/// A location that serves requests of clients.
pub(super) struct Location<'c> {
    pub(super) path: PathMatch,
    /// As it was written, without its modifier.
    pub(super) text: String,
    pub(super) scope: Scope<'c>,
    pub(super) directive: &'c Directive,
}

/// All locations in `body`, including nested ones and excluding named ones.
pub(super) fn all<'c>(
    body: &'c [Directive],
    scope: &Scope<'c>,
    notes: &mut Vec<Note>,
) -> Result<Vec<Location<'c>>, Mistake> {
    let mut written = Vec::new();
    collect(body, scope, None, &mut written, notes)?;
    let has_regex = written.iter().any(|(kind, ..)| *kind == Kind::Regex);
    let mut found = Vec::new();
    for (kind, text, scope, directive) in written {
        let regex = |pattern: &str, ignores_case: bool| paths::whole_regex(pattern, ignores_case);
        let made = match kind {
            Kind::Exact => plain(&text).map(|()| PathMatch::Exact(text.clone())),
            Kind::Prefix if text == "/" => Ok(PathMatch::Any),
            Kind::First if !has_regex && text == "/" => Ok(PathMatch::Any),
            Kind::First if has_regex => Ok(PathMatch::Regex(format!("{}.*", paths::escaped(&paths::encoded(&text))))),
            Kind::Prefix | Kind::First => plain(&text).map(|()| PathMatch::Prefix(text.clone())),
            Kind::Regex => regex(&text, directive.first() == "~*").map(PathMatch::Regex),
        };
        match made {
            Ok(path) => found.push((kind, Location { path, text, scope, directive })),
            Err(why) => {
                let nearest = "path, path_string_prefix or path_regex of a [[route]]";
                notes.push(Note::new(&directive.place, directive.text(), format!("is left out: {why}"), nearest));
            }
        }
    }
    order(&mut found, notes);
    Ok(found.into_iter().map(|(_, location)| location).collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Exact,
    /// `^~`.
    First,
    Regex,
    Prefix,
}

type Written<'c> = (Kind, String, Scope<'c>, &'c Directive);

/// Depth is bounded by the parser.
fn collect<'c>(
    body: &'c [Directive],
    scope: &Scope<'c>,
    outer: Option<&Directive>,
    found: &mut Vec<Written<'c>>,
    notes: &mut Vec<Note>,
) -> Result<(), Mistake> {
    for one in body.iter().filter(|one| one.name == "location") {
        let (kind, text) = match one.args.as_slice() {
            [path] if path.starts_with('@') => continue,
            [path] => (Kind::Prefix, path),
            [modifier, path] => match modifier.as_str() {
                "=" => (Kind::Exact, path),
                "^~" => (Kind::First, path),
                "~" | "~*" => (Kind::Regex, path),
                other => return Err(Mistake::new(&one.place, format!("`{other}` is no modifier of a location"))),
            },
            _ => return Err(Mistake::new(&one.place, "location needs a path")),
        };
        let is_inside_a_path = outer.is_some_and(|outer| outer.args.last().is_some_and(|path| path != "/"));
        if kind == Kind::Regex && is_inside_a_path {
            let why = "a regex inside a location applies only to paths that match both locations; it is left out";
            notes.push(Note::new(&one.place, one.text(), why, "path_regex of a [[route]]"));
            continue;
        }
        let inner = scope.inner(one.body());
        collect(one.body(), &inner, Some(one), found, notes)?;
        found.push((kind, text.clone(), inner, one));
    }
    Ok(())
}

fn plain(path: &str) -> Result<(), String> {
    paths::oddity(path).map_or(Ok(()), |why| Err(why.to_owned()))
}

/// Makes regexes longer where an earlier one is not, and notes what is left.
fn order(found: &mut [(Kind, Location<'_>)], notes: &mut Vec<Note>) {
    let is_regex = |location: &Location<'_>| matches!(location.path, PathMatch::Regex(_));
    let mut places: Vec<usize> = (0..found.len()).filter(|at| is_regex(&found[*at].1)).collect();
    // `^~` first, the longest of them first; regexes keep their order.
    places.sort_by_key(|at| match found[*at].0 {
        Kind::First => (0, usize::MAX - found[*at].1.text.len()),
        _ => (1, 0),
    });
    let mut longest = 0;
    for at in places.iter().rev() {
        let PathMatch::Regex(regex) = &mut found[*at].1.path else { continue };
        paths::pad(regex, longest);
        longest = regex.len();
    }
    let firsts: Vec<&Location<'_>> =
        found.iter().filter(|(kind, one)| *kind == Kind::First && is_regex(one)).map(|(_, one)| one).collect();
    for (kind, one) in found.iter() {
        let is_under = |first: &&&Location<'_>| one.text.starts_with(&first.text) && one.text != first.text;
        if *kind == Kind::Prefix && firsts.iter().any(|first| is_under(&first)) {
            let why = "a `^~` location with a shorter path is tried first";
            notes.push(Note::new(&one.directive.place, one.directive.text(), why, "path_regex of a [[route]]"));
        }
    }
}

/// Paths that nginx redirects to themselves with a slash: those of proxied prefixes with a slash at the end, unless another
/// location has the path without it.
pub(super) fn slash_redirects(found: &[Location<'_>]) -> Vec<String> {
    let is_proxied = |one: &&Location<'_>| {
        let is_prefix = one.directive.args.len() == 1 || one.directive.first() == "^~";
        is_prefix && ["proxy_pass", "grpc_pass"].iter().any(|name| one.scope.find_own(name).is_some())
    };
    let mut redirects: Vec<String> = Vec::new();
    for one in found.iter().filter(is_proxied) {
        let Some(path) = one.text.strip_suffix('/').filter(|path| !path.is_empty()) else { continue };
        let is_taken = found.iter().any(|other| other.text == path && !matches!(other.directive.first(), "~" | "~*"));
        if !is_taken && paths::oddity(path).is_none() && !redirects.iter().any(|known| known == path) {
            redirects.push(path.to_owned());
        }
    }
    redirects
}
