//! The choice of a server for a request: returns and rewrites first, then the location that fits best.

use super::Importer;
use super::action;
use super::location::{self, Location};
use super::names::plain_names;
use super::route::{fallback, files_note};
use super::scope::Scope;
use super::settings::Settings;
use super::syntax::Directive;
use super::unknown::{self, Context};
use crate::model::{PathMatch, Route, Target};
use crate::note::{Mistake, Note, SourceLine};
use crate::order::{Rule, first_match};
use crate::overlap::rank;
use crate::paths;
use crate::toml::Value;

/// A server on some of its listeners.
pub(super) struct Site<'c> {
    /// For names of routes.
    pub(super) name: String,
    /// Empty: all.
    pub(super) hosts: Vec<String>,
    pub(super) listeners: Vec<String>,
    pub(super) has_tls: bool,
    /// It demands certificates of clients that its listeners do not demand: no client is allowed.
    pub(super) is_closed: bool,
    pub(super) scope: Scope<'c>,
    pub(super) place: SourceLine,
    /// The settings of its listeners for all routes.
    pub(super) base: Settings,
}

impl Site<'_> {
    /// The scheme of its requests.
    pub(super) const fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }

    /// The first name of the server, if it is one.
    pub(super) fn server_name(&self) -> Option<&str> {
        let name = self.scope.find_own("server_name")?.first();
        (!name.contains(['*', '~', '$']) && !plain_names(name).is_empty()).then_some(name)
    }
}

impl<'c> Importer<'c> {
    /// The routes of a site.
    pub(super) fn site(&mut self, site: &Site<'c>) -> Result<(), Mistake> {
        let before = self.config.routes.len();
        let mut hosts = Vec::new();
        if site.is_closed {
            self.config.routes.push(Route::new(self.route_names.unique(&site.name), Target::status(403)));
        } else {
            hosts = self.conditional_returns(site)?;
            self.rules(site)?;
        }
        for route in &mut self.config.routes[before..] {
            route.listeners.clone_from(&site.listeners);
            if route.hosts.is_empty() {
                route.hosts = site.hosts.iter().filter(|host| !hosts.contains(host)).cloned().collect();
            }
        }
        // All hosts of the server are taken by its `if ($host = ...)`: what is left has no request.
        if !site.hosts.is_empty() && site.hosts.iter().all(|host| hosts.contains(host)) {
            let own = self.config.routes.split_off(before);
            self.config.routes.extend(own.into_iter().filter(|route| !route.hosts.is_empty()));
        }
        Ok(())
    }

    /// The routes of the server itself, and behind them those of its locations: nginx looks for a location last.
    fn rules(&mut self, site: &Site<'c>) -> Result<(), Mistake> {
        let mut rules = self.server_rules(site)?;
        let is_first = |rule: &Rule| matches!(rule.route.path, PathMatch::Any);
        let before = self.config.routes.len();
        let mut origins: Vec<(SourceLine, String)> = Vec::new();
        if !rules.iter().any(is_first) {
            self.locations(site, &mut origins)?;
        }
        if rules.is_empty() {
            return Ok(());
        }
        let routes = self.config.routes.split_off(before);
        let mut behind: Vec<Rule> =
            routes.into_iter().zip(origins).map(|(route, (place, text))| Rule { route, place, text }).collect();
        // The best location decides: it is the first in Weir's order.
        behind.sort_by_key(|rule| rank(&rule.route));
        rules.append(&mut behind);
        for mut route in first_match(rules) {
            // The meeting of two rules has the name of the earlier one.
            if self.config.routes[before..].iter().any(|known| known.name == route.name) {
                route.name = self.route_names.unique(&route.name);
            }
            self.config.routes.push(route);
        }
        Ok(())
    }

    /// `if ($host = x) { return ...; }` is a route of that host. Returns the hosts that are taken so.
    fn conditional_returns(&mut self, site: &Site<'c>) -> Result<Vec<String>, Mistake> {
        let mut hosts = Vec::new();
        for one in site.scope.own().iter().filter(|one| one.name == "if") {
            let words = condition(one);
            let [first] = one.body() else {
                self.config.notes.extend(unknown::note(one, Context::Location));
                continue;
            };
            match words.as_slice() {
                ["$host" | "$http_host", "=", host] if first.name == "return" => {
                    let host = (*host).to_lowercase();
                    if let Some(mut route) = self.returned(first, site)? {
                        route.name = self.route_names.unique(&format!("{host}-return"));
                        route.hosts = vec![host.clone()];
                        self.config.routes.push(route);
                        hosts.push(host);
                    }
                }
                // Known by the listener: see `server_rules`.
                ["$scheme", "=" | "!=", _] if matches!(first.name.as_str(), "return" | "rewrite") => {}
                _ => self.config.notes.extend(unknown::note(one, Context::Location)),
            }
        }
        Ok(hosts)
    }

    /// `rewrite` and `return` of the server itself, and those of an `if ($scheme ...)` that holds on these listeners, up to the
    /// first that is for all requests.
    fn server_rules(&mut self, site: &Site<'c>) -> Result<Vec<Rule>, Mistake> {
        let mut rules: Vec<Rule> = Vec::new();
        for one in site.scope.own() {
            let of = match one.name.as_str() {
                "return" | "rewrite" => one,
                "if" => match by_scheme(one, site) {
                    Some(of) => of,
                    None => continue,
                },
                _ => continue,
            };
            let route = match of.name.as_str() {
                "return" => self.returned(of, site)?,
                _ => match action::redirect_of_rewrite(of, site) {
                    Some((path, keys)) => {
                        let mut route = Route::new(String::new(), Target::Redirect(keys));
                        route.path = path;
                        Some(route)
                    }
                    None => {
                        let why = "a rewrite for the whole server is not one of its locations";
                        self.note(of, why, "[route.rewrite] of a route");
                        None
                    }
                },
            };
            let Some(mut route) = route else { continue };
            let is_for_all = route.path == PathMatch::Any;
            let end = if is_for_all { "" } else { "-rewrite" };
            route.name = self.route_names.unique(&format!("{}{end}", site.name));
            rules.push(Rule { route, place: of.place.clone(), text: of.text() });
            if is_for_all {
                break;
            }
        }
        Ok(rules)
    }

    /// The route of a `return`, without a name. `None`: it cannot be said, which is noted.
    fn returned(&mut self, of: &Directive, site: &Site<'c>) -> Result<Option<Route>, Mistake> {
        let mut notes = Vec::new();
        let target = action::returned(of, site, &site.scope, &mut notes)?;
        let mut route = Route::new(String::new(), target);
        route.notes = notes;
        Ok(Some(route))
    }

    /// The routes of the locations, each with the directive that it comes from in `origins`.
    fn locations(&mut self, site: &Site<'c>, origins: &mut Vec<(SourceLine, String)>) -> Result<(), Mistake> {
        let first = self.config.routes.len() - origins.len();
        let server = (site.place.clone(), "server".to_owned());
        let found = location::all(site.scope.own(), &site.scope, &mut self.config.notes)?;
        for one in &found {
            self.location(one, site)?;
            self.partial_redirects(one, site);
            origins.resize(self.config.routes.len() - first, (one.directive.place.clone(), one.directive.text()));
        }
        for path in location::slash_redirects(&found) {
            let keys = vec![
                ("status".to_owned(), Value::Number(301)),
                ("path".to_owned(), Value::text(paths::encoded(&format!("{path}/")))),
            ];
            let name = self.route_names.unique(&format!("{}{path}-slash", site.name));
            let mut route = Route::new(name, Target::Redirect(keys));
            route.path = PathMatch::Exact(path);
            self.config.routes.push(route);
        }
        if !found.iter().any(|one| one.path == PathMatch::Any) {
            self.rest(site)?;
        }
        origins.resize(self.config.routes.len() - first, server);
        Ok(())
    }

    /// Redirects of a location for some of its paths.
    fn partial_redirects(&mut self, one: &Location<'c>, site: &Site<'c>) {
        for of in action::redirects(one) {
            let found = action::redirect_of_rewrite(of, site);
            if found.as_ref().is_some_and(|(path, _)| action::takes_all(path, one)) {
                continue;
            }
            let is_below = |path: &PathMatch| match path {
                PathMatch::Exact(path) | PathMatch::Prefix(path) => path.starts_with(&one.text),
                _ => false,
            };
            match found.filter(|(path, _)| is_below(path)) {
                Some((path, keys)) => {
                    let name = self.route_names.unique(&format!("{}-{}-rewrite", site.name, one.text));
                    let mut route = Route::new(name, Target::Redirect(keys));
                    route.path = path;
                    self.config.routes.push(route);
                }
                None => self.note(of, "a redirect is for a path or a prefix of the location", "[route.redirect]"),
            }
        }
    }

    /// Requests that no location takes. nginx looks for a file, and then goes where `try_files` of the server says.
    fn rest(&mut self, site: &Site<'c>) -> Result<(), Mistake> {
        if let Some((of, named)) = fallback(&site.scope, site) {
            let one = Location {
                path: PathMatch::Any,
                text: "/".to_owned(),
                scope: site.scope.inner(named.body()),
                directive: named,
            };
            let mut notes = vec![files_note(of, named)];
            notes.extend(named.body().iter().filter_map(|of| unknown::note(of, Context::Location)));
            return self.route_of(&one, Some(&site.scope), site, notes);
        }
        let mut route = Route::new(self.route_names.unique(&format!("{}-rest", site.name)), Target::status(404));
        if let Some(root) = site.scope.find("root") {
            let why = "Weir serves no files; requests that match no location get 404";
            route.notes.push(Note::new(&root.place, root.text(), why, "an origin that serves them"));
        }
        self.config.routes.push(route);
        Ok(())
    }
}

/// The words of an `if`, without its brackets.
fn condition(of: &Directive) -> Vec<&str> {
    of.args.iter().map(|arg| arg.trim_matches(['(', ')'])).filter(|arg| !arg.is_empty()).collect()
}

/// The `return` or `rewrite` of an `if ($scheme ...)` that holds for all requests of these listeners.
fn by_scheme<'c>(one: &'c Directive, site: &Site<'_>) -> Option<&'c Directive> {
    let words = condition(one);
    let ["$scheme", operator, scheme] = words.as_slice() else { return None };
    let is_same = *scheme == site.scheme();
    let [of] = one.body() else { return None };
    (is_same == (*operator == "=") && matches!(of.name.as_str(), "return" | "rewrite")).then_some(of)
}
