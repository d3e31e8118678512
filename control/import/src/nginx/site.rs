//! What a server does with a request: returns and rewrites first, then the location that fits best.

use super::Importer;
use super::action::{self, Answer};
use super::location::{self, Location};
use super::scope::Scope;
use super::settings::{Settings, difference};
use super::syntax::Directive;
use super::unknown::{self, Context};
use crate::model::{PathMatch, Route, Target};
use crate::note::{Mistake, Note};
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
    pub(super) scope: Scope<'c>,
    /// What its listeners have for all routes.
    pub(super) base: Settings,
}

impl Site<'_> {
    /// The scheme of its requests.
    pub(super) const fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }
}

impl<'c> Importer<'c> {
    /// The routes of a site.
    pub(super) fn site(&mut self, site: &Site<'c>) -> Result<(), Mistake> {
        let before = self.config.routes.len();
        let hosts = self.conditional_returns(site)?;
        let all_of_it = self.unconditional(site)?;
        if !all_of_it {
            self.server_rewrites(site)?;
            self.locations(site)?;
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

    /// `if ($host = x) { return ...; }` is a route of that host. Returns the hosts that are taken so.
    fn conditional_returns(&mut self, site: &Site<'c>) -> Result<Vec<String>, Mistake> {
        let mut hosts = Vec::new();
        for one in site.scope.own().iter().filter(|one| one.name == "if") {
            let words: Vec<&str> =
                one.args.iter().map(|arg| arg.trim_matches(['(', ')'])).filter(|arg| !arg.is_empty()).collect();
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
                // Known by the listener: see `unconditional`.
                ["$scheme", "=" | "!=", _] if matches!(first.name.as_str(), "return" | "rewrite") => {}
                _ => self.config.notes.extend(unknown::note(one, Context::Location)),
            }
        }
        Ok(hosts)
    }

    /// A `return` of the server itself, or of an `if ($scheme ...)` that holds for all requests of these listeners. True: it is
    /// for all requests.
    fn unconditional(&mut self, site: &Site<'c>) -> Result<bool, Mistake> {
        let by_scheme = site.scope.own().iter().filter(|one| one.name == "if").find_map(|one| {
            let words: Vec<&str> =
                one.args.iter().map(|arg| arg.trim_matches(['(', ')'])).filter(|arg| !arg.is_empty()).collect();
            let ["$scheme", operator, scheme] = words.as_slice() else { return None };
            let is_same = *scheme == site.scheme();
            (is_same == (*operator == "=")).then(|| one.body().first()).flatten()
        });
        let of = match by_scheme.filter(|of| matches!(of.name.as_str(), "return" | "rewrite")) {
            Some(of) => of,
            None => match site.scope.find_own("return") {
                Some(of) => of,
                None => return Ok(false),
            },
        };
        let route = match of.name.as_str() {
            "return" => self.returned(of, site)?,
            _ => {
                action::redirect_of_rewrite(of, site).map(|(_, keys)| Route::new(String::new(), Target::Redirect(keys)))
            }
        };
        let Some(mut route) = route else { return Ok(false) };
        route.name = self.route_names.unique(&site.name);
        self.config.routes.push(route);
        Ok(true)
    }

    /// The route of a `return`, without a name. `None`: it cannot be said, which is noted.
    fn returned(&mut self, of: &Directive, site: &Site<'c>) -> Result<Option<Route>, Mistake> {
        let mut notes = Vec::new();
        let target = action::returned(of, site, &mut notes)?;
        let mut route = Route::new(String::new(), target);
        route.notes = notes;
        Ok(Some(route))
    }

    fn server_rewrites(&mut self, site: &Site<'c>) -> Result<(), Mistake> {
        for of in site.scope.own().iter().filter(|one| one.name == "rewrite") {
            let Some((path, keys)) = action::redirect_of_rewrite(of, site) else {
                self.note(
                    of,
                    "a rewrite for the whole server is not one of its locations",
                    "[route.rewrite] of a route",
                );
                continue;
            };
            let mut route =
                Route::new(self.route_names.unique(&format!("{}-rewrite", site.name)), Target::Redirect(keys));
            route.path = path;
            self.config.routes.push(route);
        }
        Ok(())
    }

    fn locations(&mut self, site: &Site<'c>) -> Result<(), Mistake> {
        let found = location::all(site.scope.own(), &site.scope, &mut self.config.notes)?;
        for one in &found {
            self.location(one, site)?;
            self.partial_redirects(one, site);
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
            self.rest(site);
        }
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

    /// Requests that no location takes. nginx looks for a file.
    fn rest(&mut self, site: &Site<'c>) {
        let mut route = Route::new(self.route_names.unique(&format!("{}-rest", site.name)), Target::status(404));
        if let Some(root) = site.scope.find("root") {
            let why = "Weir serves no files; what no location takes is answered 404";
            route.notes.push(Note::new(&root.place, root.text(), why, "an origin that serves them"));
        }
        self.config.routes.push(route);
    }

    fn location(&mut self, one: &Location<'c>, site: &Site<'c>) -> Result<(), Mistake> {
        let mut notes: Vec<Note> =
            one.scope.own().iter().filter_map(|of| unknown::note(of, Context::Location)).collect();
        let answer = self.answer(one, site, &mut notes)?;
        let Answer { target, rewrite, host } = answer;
        let is_proxy = matches!(target, Target::Upstream(_));
        let suffix = if one.path == PathMatch::Any { String::new() } else { format!("-{}", one.text) };
        let mut route = Route::new(self.route_names.unique(&format!("{}{suffix}", site.name)), target);
        route.path = one.path.clone();
        let mut settings = self.settings(&one.scope, &mut notes)?;
        if !is_proxy {
            // For a response that the gateway itself makes, only the policies matter.
            settings.retain(|(key, _)| matches!(*key, "ip_filter" | "basic_auth" | "rate_limit"));
        }
        let policies = |(key, _): &&(&str, Value)| matches!(*key, "ip_filter" | "basic_auth" | "rate_limit");
        let base: Settings = match is_proxy {
            true => site.base.clone(),
            false => site.base.iter().filter(policies).cloned().collect(),
        };
        for (key, value) in difference(&settings, &base) {
            route.more.set(key, value);
        }
        let mut changes = rewrite;
        if is_proxy {
            self.request_headers(one, site, host, &mut changes, &mut route, &mut notes);
        }
        if !changes.is_empty() {
            route.more.set("rewrite", Value::Inline(changes));
        }
        self.response_headers(one, is_proxy, &mut route, &mut notes);
        route.notes = notes;
        self.config.routes.push(route);
        Ok(())
    }
}
