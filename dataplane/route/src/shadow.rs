//! Routes that no request can have, because another one is tried first and takes all that they would take.

use std::collections::HashMap;

use crate::{Route, RouteTable, path::PathMatch};

impl<T> RouteTable<T> {
    /// Routes that are never chosen, each with the one that is chosen in its place. A table without is not proven to have
    /// none: conditions are compared by their texts.
    pub fn shadowed(&self) -> Vec<(&Route<T>, &Route<T>)> {
        let mut found = Vec::new();
        for routes in self.routes().chunk_by(|one, other| one.host == other.host) {
            shadowed_of_host(routes, &mut found);
        }
        found
    }
}

/// `routes` are in the order in which they are tried.
fn shadowed_of_host<'t, T>(routes: &'t [Route<T>], found: &mut Vec<(&'t Route<T>, &'t Route<T>)>) {
    let mut families: HashMap<(u8, &str), Vec<&Route<T>>> = HashMap::new();
    let mut for_all: Vec<&Route<T>> = Vec::new();
    for route in routes {
        let before = families.entry(route.path.family()).or_default();
        let earlier = before.iter().chain(&for_all).find(|earlier| earlier.takes_all_of(route)).copied();
        match earlier {
            Some(earlier) => found.push((route, earlier)),
            // A shadowed route shadows only routes that its own shadow covers too.
            None => before.push(route),
        }
        if matches!(&route.path, PathMatch::Regex(regex) if regex.takes_all()) {
            for_all.push(route);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_analysis::http::path::PathRules;

    use super::*;
    use crate::{
        condition::{HeaderCondition, Method, QueryCondition},
        host::{HostMatch, Labels},
        text::{Operator, TextTest},
    };

    /// `NAME HOST PATH [METHOD,METHOD] [NAME=VALUE or NAME]`, the path with `~` for a regex.
    fn route(text: &str) -> Route<()> {
        let mut words = text.split(' ');
        let mut next = || words.next().expect("a word");
        let (name, host, path) = (next(), HostMatch::parse(next(), Labels::One).expect("a host"), next());
        let path = match path.strip_prefix('~') {
            Some(regex) => PathMatch::regex(regex),
            None => PathMatch::segments(path, &PathRules::default()),
        };
        let mut route = Route::new(name, host, path.expect("a path"), ());
        for word in words {
            let (operator, name, value) = match word.split_once('=') {
                Some((name, value)) => (Operator::Exact, name, value),
                None => (Operator::Present, word, ""),
            };
            let test = TextTest::new(operator, value, false).expect("a test");
            match name.strip_prefix('?') {
                _ if name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b',') => {
                    route.methods = name.split(',').map(|method| Method::new(method).expect("a method")).collect();
                }
                Some(name) => route.queries.push(QueryCondition::new(name, test)),
                None => route.headers.push(HeaderCondition::new(name, test).expect("a name")),
            }
        }
        route
    }

    fn shadowed(routes: &[&str]) -> Vec<String> {
        let table = RouteTable::new(routes.iter().map(|text| route(text)).collect());
        table.shadowed().iter().map(|(route, by)| format!("{} by {}", route.name, by.name)).collect()
    }

    #[test]
    fn the_second_of_two_routes_with_the_same_conditions_takes_nothing() {
        assert_eq!(shadowed(&["a * /x", "b * /x"]), ["b by a"]);
        assert_eq!(shadowed(&["a * /x", "b * /x", "c * /x"]), ["b by a", "c by a"]);
        assert_eq!(shadowed(&["a * /x GET,PUT", "b * /x PUT"]), ["b by a"]);
        assert_eq!(shadowed(&["a * /x x-a", "b * /x x-a=1"]), ["a by b"; 0], "exact goes first");
        assert_eq!(shadowed(&["a * /x x-a=1 ?q", "b * /x x-a=1 ?q=2"]), [""; 0], "exact goes first");
        assert_eq!(shadowed(&["a * /x x-a=1", "b * /x x-a=1"]), ["b by a"]);
    }

    #[test]
    fn a_regex_for_all_paths_shadows_prefixes() {
        assert_eq!(shadowed(&["guard * /admin", "all * ~/.*"]), ["guard by all"]);
        assert_eq!(shadowed(&["guard * /admin", "all * ~/.* x-a"]), [""; 0]);
        assert_eq!(shadowed(&["guard * /admin", "all * ~/a.*"]), [""; 0], "not known to take all");
    }

    #[test]
    fn routes_that_ask_for_other_things_do_not_shadow_each_other() {
        for routes in [
            ["a a.example /x", "b b.example /x"],
            ["a * /x", "b * /x/y"],
            ["a * /x GET", "b * /x PUT"],
            ["a * /x GET", "b * /x"],
            ["a * /x x-a=1", "b * /x x-a=2"],
            ["a * /x x-a=1", "b * /x x-b=1"],
            ["a * /x ?q=1", "b * /x"],
        ] {
            assert_eq!(shadowed(&routes), [""; 0], "{routes:?}");
        }
    }
}
