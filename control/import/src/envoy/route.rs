//! Virtual hosts and their routes. The best domain decides alone in both programs; within it Envoy takes the first route.

use std::collections::HashSet;

use super::Importer;
use super::arrival::{Arrival, Condition};
use super::target::place_prefix;
use crate::model::{PathMatch, Route, Target};
use crate::note::Mistake;
use crate::order::{Rule, first_match};
use crate::paths;
use crate::toml::Value;
use crate::yaml::Node;

/// A route, its virtual host and the `route_config`: each may change headers.
pub(super) type Levels<'n> = [&'n Node; 3];

/// Keys of these changes.
const CHANGES: [&str; 4] =
    ["request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove"];

impl<'n> Importer<'n> {
    pub(super) fn routes(&mut self, config: &'n Node, listener: &str) -> Result<(), Mistake> {
        let own = ["virtual_hosts", "internal_only_headers", "most_specific_header_mutations_wins"];
        self.rest(config, &[&own[..], &CHANGES].concat(), "route_config");
        let mut known = HashSet::new();
        for host in config.items_at("virtual_hosts") {
            self.virtual_host(host, config, &mut known, listener)?;
        }
        let is_for_all = |host: &Node| host.items_at("domains").iter().any(|one| without_port(one.text()) == "*");
        if !config.items_at("virtual_hosts").iter().any(is_for_all) {
            self.rest_of_all("other", listener);
        }
        Ok(())
    }

    /// `known`: the hosts of those before.
    fn virtual_host(
        &mut self,
        host: &'n Node,
        config: &'n Node,
        known: &mut HashSet<String>,
        listener: &str,
    ) -> Result<(), Mistake> {
        self.rest(host, &[&["domains", "routes", "require_tls"][..], &CHANGES].concat(), "virtual_host");
        let name = host.text_at("name").unwrap_or("host");
        let Some(hosts) = self.domains(host, known) else { return Ok(()) };
        let mut rules = Vec::new();
        let redirects = self.redirects_all(host);
        if let Some(node) = redirects {
            let keys = [("status", Value::Number(301)), ("scheme", Value::text("https"))];
            let target = Target::Redirect(keys.map(|(key, value)| (key.to_owned(), value)).into());
            let mut route = Route::new(String::new(), target);
            route.hosts.clone_from(&hosts);
            rules.push(Rule { route, place: node.place.clone(), text: "require_tls".to_owned() });
        }
        for node in host.items_at("routes").iter().filter(|_| redirects.is_none()) {
            if let Some(mut route) = self.route([node, host, config])? {
                route.hosts.clone_from(&hosts);
                let text = format!("match {}", match_text(node));
                rules.push(Rule { route, place: node.place.clone(), text });
            }
        }
        for mut route in first_match(rules) {
            route.listeners = vec![listener.to_owned()];
            let end = match &route.path {
                PathMatch::Any => String::new(),
                PathMatch::Exact(path)
                | PathMatch::Segments(path)
                | PathMatch::Prefix(path)
                | PathMatch::Regex(path) => {
                    format!("-{path}")
                }
            };
            route.name = self.route_names.unique(&format!("{name}{end}"));
            self.config.routes.push(route);
        }
        // Both respond with 404 if no route of a host matches; here, other hosts need a route for that.
        if hosts.is_empty() {
            self.rest_of_all(name, listener);
        }
        Ok(())
    }

    /// The key by which all requests of a virtual host get a redirect to HTTPS, if it does that.
    fn redirects_all(&mut self, host: &'n Node) -> Option<&'n Node> {
        let node = host.get("require_tls").filter(|node| node.text() != "NONE")?;
        let has_external = node.text() == "EXTERNAL_ONLY" && self.arrival.has_internal;
        let (is_made, why, nearest) = match self.arrival.fixed_scheme() {
            Some("https") => return None,
            Some(_) if has_external => (
                true,
                "the Location has no port, and Envoy keeps that of the Host; also internal clients get the redirect",
                "[route.redirect] port",
            ),
            Some(_) => (true, "the Location has no port; Envoy keeps that of the Host", "[route.redirect] port"),
            None => (
                false,
                "requests whose X-Forwarded-Proto is not https, also by default, are forwarded; Envoy redirects them",
                "a [[route]] with a [[route.header]] on x-forwarded-proto",
            ),
        };
        self.note(node, &format!("require_tls: {}", node.text()), why, nearest);
        is_made.then_some(node)
    }

    /// A request that no route takes gets a 404, and does not go to the upstream of the listener.
    fn rest_of_all(&mut self, name: &str, listener: &str) {
        let is_for_all = |route: &Route| {
            let is_plain = route.methods.is_empty() && route.conditions.is_empty() && route.path == PathMatch::Any;
            is_plain && route.hosts.is_empty() && route.listeners.iter().any(|own| own == listener)
        };
        if self.config.routes.iter().any(is_for_all) {
            return;
        }
        let mut route = Route::new(self.route_names.unique(&format!("{name}-rest")), Target::status(404));
        route.listeners = vec![listener.to_owned()];
        self.config.routes.push(route);
    }

    /// The hosts of a virtual host; empty: all. `None`: none of them can be said, which is noted. `known`: the hosts of those before.
    fn domains(&mut self, host: &'n Node, known: &mut HashSet<String>) -> Option<Vec<String>> {
        let mut hosts = Vec::new();
        let all = host.items_at("domains");
        for node in all {
            let text = node.text();
            let name = without_port(text);
            let directive = format!("domains: {text}");
            if !(name == "*" || name.starts_with("*.") || !name.contains('*')) {
                let why = "hosts are names, or names with a star in front";
                self.note(node, &directive, why, "hosts = [\"*.example.com\"]");
                continue;
            }
            let name = name.to_lowercase();
            if hosts.contains(&name) {
                continue;
            }
            if !known.insert(name.clone()) {
                let why = "is left out: hosts have no port here, and an earlier virtual host has this one";
                self.note(node, &directive, why, "a [[listener]] of its own");
                continue;
            }
            let is_named = |one: &Node| one.text().eq_ignore_ascii_case(&name);
            if name.len() < text.len() && !all.iter().any(is_named) {
                let why = match text.ends_with(":*") {
                    true => "hosts have no port here: requests without a port match too",
                    false => "hosts have no port here: requests with other ports and without one match too",
                };
                self.note(node, &directive, why, "a [[listener]] of its own");
            }
            // It stands beside others only with a host of its own.
            if name == "*" && all.len() == 1 {
                return Some(Vec::new());
            }
            hosts.push(name);
        }
        // Without a host its routes would be for all hosts.
        if hosts.is_empty() {
            let name = host.text_at("name").unwrap_or("host");
            self.note(host, &format!("virtual_host {name}"), "is left out: Weir supports no domain of it", "hosts");
            return None;
        }
        Some(hosts)
    }

    /// A route; `None`: it cannot be said, which is noted.
    fn route(&mut self, levels: Levels<'n>) -> Result<Option<Route>, Mistake> {
        let node = levels[0];
        self.rest(node, &[&["match", "route", "redirect", "direct_response"][..], &CHANGES].concat(), "route");
        let Some(matched) = node.get("match") else { return Err(Mistake::new(&node.place, "a route needs a match")) };
        let mut notes = Vec::new();
        let target = self.target(levels, &mut notes)?;
        let mut route = Route::new(String::new(), target);
        match conditions(matched, &mut route, &self.arrival) {
            Ok(true) => {}
            // Envoy sends no request of this listener there either.
            Ok(false) => return Ok(None),
            Err(why) => {
                let why = format!("is left out: {why}");
                self.note(node, &format!("match {}", match_text(node)), &why, "conditions of a [[route]]");
                return Ok(None);
            }
        }
        place_prefix(&mut route);
        if let (Target::Upstream(_) | Target::Split(_), Some(action)) = (&route.target, node.get("route")) {
            route.more.set("domain", Value::text(&self.domain));
            self.action(action, levels, &mut route)?;
            self.headers(levels, &mut route);
        } else {
            self.own_response_headers(levels, &mut route);
        }
        route.notes.append(&mut notes);
        Ok(Some(route))
    }
}

/// A domain without its port.
fn without_port(domain: &str) -> &str {
    let is_port = |port: &str| port == "*" || port.parse::<u16>().is_ok();
    domain.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(domain, |(name, _)| name)
}

fn match_text(node: &Node) -> String {
    let found = node.get("match").and_then(|matched| matched.entries().first());
    found.map_or_else(String::new, |(key, value)| {
        let text = if value.text().is_empty() { value.text_at("regex").unwrap_or_default() } else { value.text() };
        format!("{key}: {text}")
    })
}

/// The conditions of a `match`. False: no request meets them.
fn conditions(matched: &Node, route: &mut Route, arrival: &Arrival) -> Result<bool, String> {
    let read = ["prefix", "path", "path_separated_prefix", "safe_regex", "headers", "query_parameters"];
    // Without one of its conditions a route would take more requests.
    if let Some((key, _)) =
        matched.entries().iter().find(|(key, node)| !read.contains(&key.as_str()) && !says_nothing(key, node))
    {
        return Err(format!("`{key}` is no condition of a route"));
    }
    let plain = |path: &str| paths::oddity(path).map_or(Ok(path.to_owned()), |why| Err(why.to_owned()));
    route.path = match (matched.text_at("prefix"), matched.text_at("path"), matched.text_at("path_separated_prefix")) {
        (Some("/" | ""), ..) => PathMatch::Any,
        (Some(path), ..) => PathMatch::Prefix(plain(path)?),
        (_, Some(path), _) => PathMatch::Exact(plain(path)?),
        (.., Some(path)) => PathMatch::Segments(plain(path)?),
        _ => match matched.text_at("safe_regex.regex") {
            // Envoy's is for the whole path too.
            Some(regex) => {
                paths::whole_regex(regex, false)?;
                PathMatch::Regex(regex.to_owned())
            }
            None => return Err("a path is a prefix, a whole path or a regex".to_owned()),
        },
    };
    for header in matched.items_at("headers") {
        if !header_condition(header, route, arrival)? {
            return Ok(false);
        }
    }
    for query in matched.items_at("query_parameters") {
        let (kind, value) = string_match(query)?;
        route.conditions.push(("query", Value::Inline(entries(query, kind, value))));
    }
    Ok(true)
}

/// A condition on a header. False: no request meets it.
fn header_condition(header: &Node, route: &mut Route, arrival: &Arrival) -> Result<bool, String> {
    let name = header.text_at("name").unwrap_or_default();
    let (kind, value) = string_match(header)?;
    let is_negated = header.get("invert_match").is_some_and(Node::is_true);
    if name == ":method" && kind == "exact" && !is_negated {
        route.methods.push(value.unwrap_or_default());
        return Ok(true);
    }
    if name.starts_with(':') {
        return Err(format!("`{name}` is no header here"));
    }
    let ignores_case = ignores_case(header, kind);
    if let Some(is_met) =
        arrival.decided(&Condition { name, kind, value: value.as_deref(), ignores_case, is_negated })?
    {
        return Ok(is_met);
    }
    let mut entries = entries(header, kind, value);
    if is_negated {
        entries.push(("negate".to_owned(), Value::Flag(true)));
    }
    route.conditions.push(("header", Value::Inline(entries)));
    Ok(true)
}

fn entries(matcher: &Node, kind: &str, value: Option<String>) -> Vec<(String, Value)> {
    let name = matcher.text_at("name").unwrap_or_default();
    let mut entries = vec![("name".to_owned(), Value::text(name)), ("kind".to_owned(), Value::text(kind))];
    entries.extend(value.map(|value| ("value".to_owned(), Value::Text(value))));
    if ignores_case(matcher, kind) {
        entries.push(("ignore_case".to_owned(), Value::Flag(true)));
    }
    entries
}

/// Envoy does not look at the key beside a regex.
fn ignores_case(matcher: &Node, kind: &str) -> bool {
    kind != "regex" && matcher.at("string_match.ignore_case").is_some_and(Node::is_true)
}

/// Keys of a `match` that change nothing: Envoy's defaults.
fn says_nothing(key: &str, node: &Node) -> bool {
    key == "case_sensitive" && node.is_true()
}

/// How a header or a parameter is compared, and with what.
///
/// # Errors
/// The comparison cannot be said. Nothing else may become `present`, which matches more.
fn string_match(node: &Node) -> Result<(&'static str, Option<String>), String> {
    const KINDS: [(&str, &str); 10] = [
        ("string_match.exact", "exact"),
        ("string_match.prefix", "prefix"),
        ("string_match.suffix", "suffix"),
        ("string_match.contains", "contains"),
        ("string_match.safe_regex.regex", "regex"),
        // The older spelling.
        ("exact_match", "exact"),
        ("prefix_match", "prefix"),
        ("suffix_match", "suffix"),
        ("contains_match", "contains"),
        ("safe_regex_match.regex", "regex"),
    ];
    let is_read = |(key, node): &&(String, Node)| match key.as_str() {
        "name" | "invert_match" => true,
        "present_match" => node.is_true(),
        "treat_missing_header_as_empty" => !node.is_true(),
        _ => false,
    };
    let others: Vec<&str> =
        node.entries().iter().filter(|entry| !is_read(entry)).map(|(key, _)| key.as_str()).collect();
    let found = KINDS.iter().find_map(|(path, kind)| Some((path, *kind, node.text_at(path)?)));
    match (others.as_slice(), found) {
        ([], _) => Ok(("present", None)),
        ([key], Some((path, kind, text))) if path.split('.').next() == Some(*key) => Ok((kind, Some(text.to_owned()))),
        ([key, ..], _) => Err(format!("the comparison `{key}` is no condition of a route")),
    }
}
