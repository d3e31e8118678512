//! Routes: from sections to the table of a listener.

use std::num::NonZeroU16;
use std::sync::Arc;

use weir_analysis::http::path::PathRules;
use weir_http::routes::{Action, DirectResponse, Mirror, Routes, Target};
use weir_route::{
    Route, RouteTable,
    condition::{HeaderCondition, Method, QueryCondition},
    host::{HostMatch, Labels},
    path::PathMatch,
    redirect::{Redirect, Scheme, Status},
    rewrite::{HostRewrite, PathRewrite},
    split::Split,
    text::{Operator, TextTest},
};

use super::domain::{self, Domain};
use super::remedy::Remedy;
use super::{idle, owners, policy, spelling};
use crate::checks::{error_at, find_upstream, warn_at, warn_repeated};
use crate::document::At;
use crate::protocols::ProtocolName;
use crate::protocols::http::route::{
    HeaderMatchSection, InvalidRoutes, QueryMatchSection, RedirectSection, ResponseSection, RewriteSection,
    RouteSection, RouteState, deeds,
};
use crate::reader::Reader;
use crate::sections::{FileSection, ListenerSection};
use crate::texts::{Name, Text, Word};

/// Bytes of a direct response's body.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// Every route that can be made; mistakes are reported.
pub(in super::super) fn all(file: &FileSection, reader: &mut Reader<'_>) -> Vec<CheckedRoute> {
    let domains = domain::all(file, reader);
    let mut names: Vec<&Name> = Vec::new();
    let mut checked = Vec::new();
    for (index, section) in file.own.http.route.iter().enumerate() {
        let path = format!("route[{index}]");
        if let Some(name) = &section.name {
            if names.contains(&&name.value) {
                error_at(name, &path, "name", "is used twice", "give each route a unique name", reader);
            }
            names.push(&name.value);
            owners::any_listener(file, name, &path, reader);
        }
        if let Some(listeners) = &section.listeners {
            owners::listeners(file, listeners, &path, reader);
        }
        idle::route(section, &path, reader);
        let domain = match &section.domain {
            // The keys that it would inherit are not known.
            Some(wanted) => match domain::find(&domains, wanted, &path, reader) {
                Some(domain) => Some(domain),
                None => continue,
            },
            None => None,
        };
        let is_borne = file.own.http.invalid_routes.value == InvalidRoutes::Unavailable;
        let mut maker = RouteBuilder { file, section, domain, path: &path, reader, is_borne };
        let Some(mut made) = maker.make() else { continue };
        if is_borne {
            made.mistakes = bear(&path, reader);
            made.mistakes.extend(domain.iter().flat_map(|domain| domain.mistakes.iter().cloned()));
            if !made.mistakes.is_empty() {
                made.routes.iter_mut().for_each(|route| route.action = Action::plain(Target::Invalid));
                (made.upstreams, made.mirror) = (Vec::new(), None);
                // Commands that are forbidden elsewhere because of it are forbidden now.
                made.rules = std::mem::take(&mut made.rules).without_policies();
            }
        }
        checked.push(made);
    }
    checked
}

/// Mistakes in the action of the object at `path`; the file may be used all the same.
pub(super) fn bear(path: &str, reader: &mut Reader<'_>) -> Vec<String> {
    let keys: Vec<String> = deeds().into_iter().map(|key| format!("{path}.{key}")).collect();
    reader.problems.bear(&keys);
    reader.problems.errors_in(&format!("{path}.")).map(str::to_owned).collect()
}

/// A route that is in order, once for each of its hosts, with the names of its upstreams.
pub(crate) struct CheckedRoute {
    listeners: Option<Vec<Arc<str>>>,
    is_online: bool,
    routes: Vec<Route<Action>>,
    upstreams: Vec<Share>,
    mirror: Option<Arc<str>>,
    rules: policy::Rules,
    name: At<Name>,
    domain: Option<Arc<str>>,
    path: String,
    /// Mistakes in it; its requests get a 503 then.
    mistakes: Vec<String>,
}

/// A route as an object of its own, whatever its listeners make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteObject {
    /// Its name.
    pub name: Arc<str>,
    /// The domain that it is of.
    pub domain: Option<Arc<str>>,
    /// The listeners that have it.
    pub listeners: Vec<Arc<str>>,
    /// It is in force as far as the file says.
    pub is_online: bool,
    /// Mistakes in it; its requests get a 503 then.
    pub mistakes: Vec<String>,
}

/// The routes as objects of their own.
pub(in super::super) fn objects(file: &FileSection, all: &[CheckedRoute]) -> Vec<RouteObject> {
    let is_http = |listener: &&ListenerSection| {
        listener.protocol.as_ref().is_some_and(|protocol| protocol.value == ProtocolName::Http)
    };
    let named = file.listener.iter().filter(is_http).filter_map(|listener| listener.name.as_ref());
    let listeners: Vec<Arc<str>> = named.map(|name| name.value.0.clone()).collect();
    let object = |one: &CheckedRoute| RouteObject {
        name: one.name.value.0.clone(),
        domain: one.domain.clone(),
        listeners: listeners.iter().filter(|name| one.is_of(name)).cloned().collect(),
        is_online: one.is_online,
        mistakes: one.mistakes.clone(),
    };
    all.iter().map(object).collect()
}

impl CheckedRoute {
    /// Its name and its path in the file.
    pub(super) fn place(&self) -> (&At<Name>, &str) {
        (&self.name, &self.path)
    }

    /// The listener called `name` has it.
    fn is_of(&self, name: &str) -> bool {
        self.listeners.as_ref().is_none_or(|names| names.iter().any(|own| **own == *name))
    }
}

/// An upstream and its weight.
type Share = (Arc<str>, Option<u32>);

/// The routes of the listener called `name`. Requests that match none of them go to `upstream`.
///
/// `rules` are the listener's own, which hold for routes without such a rule.
pub(in super::super) fn of_listener(
    all: &[CheckedRoute],
    name: &str,
    upstream: Arc<str>,
    rules: &policy::Rules,
    reader: &mut Reader<'_>,
) -> Routes {
    let mut identity_fields = rules.identity_fields().to_vec();
    // Those of routes that are not in force too: the origins behind are the same.
    for checked in all.iter().filter(|checked| checked.is_of(name)) {
        identity_fields.extend(checked.rules.identity_fields().iter().cloned());
    }
    let mut upstreams = NumberedUpstreams(vec![upstream]);
    let mut routes = Vec::new();
    let is_here = |one: &&CheckedRoute| one.is_online && one.is_of(name);
    for checked in all.iter().filter(is_here) {
        let rules = checked.rules.over(rules);
        judge_together(&rules, checked, name, reader);
        routes.extend(resolved(checked, &rules, &mut upstreams));
    }
    routes.extend(last(rules, &mut upstreams));
    identity_fields.sort_unstable();
    identity_fields.dedup();
    let names = number_names(&mut routes);
    Routes { table: RouteTable::new(routes), upstreams: upstreams.0, identity_fields, names }
}

/// The upstreams of a listener. A route names each by its place among them.
struct NumberedUpstreams(Vec<Arc<str>>);

impl NumberedUpstreams {
    /// The place of an upstream, which joins them if it is new.
    fn place(&mut self, upstream: &Arc<str>) -> usize {
        self.0.iter().position(|known| known == upstream).unwrap_or_else(|| {
            self.0.push(upstream.clone());
            self.0.len() - 1
        })
    }
}

/// Reports the mistakes that the rules of a route and those of its listener make only together.
fn judge_together(rules: &policy::Rules, checked: &CheckedRoute, listener: &str, reader: &mut Reader<'_>) {
    if rules.wants_authorization_twice() {
        let what =
            format!("requires two kinds of credentials in one Authorization header, with those of \"{listener}\"");
        let help = "disable one on the route (basic_auth = { enabled = false }), or set another header for it";
        error_at(&checked.name, &checked.path, "name", &what, help, reader);
    }
    if rules.counts_without_identity() {
        let what = "has a rate limit by identity, but no basic_auth, api_key or jwt that identifies clients";
        let help = "add one of them, or write key = \"client\" or \"header\"";
        warn_at(&checked.name, &checked.path, "name", what, help, reader);
    }
}

/// The routes of one section, with their policies and with the places of their upstreams.
fn resolved(checked: &CheckedRoute, rules: &policy::Rules, upstreams: &mut NumberedUpstreams) -> Vec<Route<Action>> {
    let policies = rules.policies();
    let targets = checked.upstreams.iter().map(|(upstream, weight)| (upstreams.place(upstream), *weight)).collect();
    let split = Split::new(targets).ok();
    let mirror = checked.mirror.as_ref().map(|upstream| upstreams.place(upstream));
    for upstream in policies.iter().flat_map(|policies| policies.upstreams()) {
        upstreams.place(upstream);
    }
    let resolve = |mut route: Route<Action>| {
        if checked.mistakes.is_empty() {
            route.action.policies.clone_from(&policies);
        }
        if let (Target::Upstream(target), Some(split)) = (&mut route.action.target, &split) {
            *target = split.clone();
        }
        if let (Some(own), Some(place)) = (&mut route.action.mirror, mirror) {
            own.upstream = place;
        }
        route
    };
    checked.routes.iter().cloned().map(resolve).collect()
}

/// The route behind all others. It sends every request to the upstream of the listener.
fn last(rules: &policy::Rules, upstreams: &mut NumberedUpstreams) -> Option<Route<Action>> {
    let path = PathMatch::segments("/", &PathRules::default()).ok()?;
    let split = Split::new(vec![(0, None)]).ok()?;
    let mut last = Route::new("default", HostMatch::Any, path, Action::plain(Target::Upstream(split)));
    last.action.policies = rules.policies();
    for upstream in last.action.policies.iter().flat_map(|policies| policies.upstreams()) {
        upstreams.place(upstream);
    }
    last.priority = i32::MAX;
    Some(last)
}

/// Gives every route the number of its name, and returns the names in the order of their numbers.
fn number_names(routes: &mut [Route<Action>]) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = Vec::new();
    for route in routes {
        route.action.number = names.iter().position(|name| *name == route.name).unwrap_or_else(|| {
            names.push(route.name.clone());
            names.len() - 1
        });
    }
    names
}

/// A condition on one value, as it is written.
struct ValueMatch<'a> {
    name: &'a At<Word>,
    kind: Operator,
    value: Option<&'a At<Text>>,
    ignores_case: bool,
}

/// Makes one route.
struct RouteBuilder<'m, 'f, 'r> {
    file: &'f FileSection,
    section: &'f RouteSection,
    domain: Option<&'m Domain<'f>>,
    path: &'m str,
    reader: &'m mut Reader<'r>,
    /// Mistakes in what it does do not refuse the file.
    is_borne: bool,
}

impl RouteBuilder<'_, '_, '_> {
    fn make(&mut self) -> Option<CheckedRoute> {
        let section = self.section;
        let name = section.name.as_ref()?;
        let path = self.path_match()?;
        let hosts = self.hosts();
        let (target, upstreams) = match self.target(&path) {
            Some(made) => made,
            None if self.is_borne => (Target::Invalid, Vec::new()),
            None => return None,
        };
        let mut action = match self.domain {
            Some(domain) => Action { target, ..domain.action.clone() },
            None => Action::plain(target),
        };
        if let Some(rewrite) = &section.rewrite {
            action.path = self.path_rewrite(rewrite, &path);
            action.host = self.host_rewrite(rewrite);
        }
        section.handling.give(&mut action, self.path, self.reader);
        action.fault = section.fault.as_ref().map(|fault| Box::new(fault.settings()));
        if let Some(mirror) = &section.mirror {
            if let Some(upstream) = &mirror.upstream {
                self.check_upstream(upstream, "mirror.upstream");
            }
            action.mirror = Some(Mirror {
                // Put in per listener.
                upstream: 0,
                share: mirror.share.value.0,
                body_bytes_max: mirror.body_bytes_max.value.bytes() as usize,
            });
        }
        if let Some(list) = &section.methods {
            spelling::methods(list, self.path, self.reader);
        }
        let methods = section.methods.iter().flat_map(|list| &list.value);
        let methods: Vec<Method> =
            methods.filter_map(|word| self.valid(word, "methods", Method::new(&word.value.0))).collect();
        let headers: Vec<HeaderCondition> = section.header.iter().filter_map(|one| self.header(one)).collect();
        let queries: Vec<QueryCondition> = section.query.iter().filter_map(|one| self.query(one)).collect();
        let route = |host| {
            let mut route = Route::new(&name.value.0, host, path.clone(), action.clone());
            (route.methods, route.headers, route.queries) = (methods.clone(), headers.clone(), queries.clone());
            route.priority = section.priority.value as i32;
            route
        };
        section.policies.upstreams().for_each(|(key, upstream)| self.check_upstream(upstream, key));
        let rules = policy::rules(&section.policies, self.path, self.reader);
        let listeners = section.listeners.as_ref().or(self.domain.and_then(|domain| domain.section.listeners.as_ref()));
        let is_online = |state: &At<RouteState>| state.value == RouteState::Online;
        Some(CheckedRoute {
            listeners: listeners.map(|list| list.value.iter().map(|name| name.value.0.clone()).collect()),
            is_online: is_online(&section.state) && self.domain.is_none_or(|domain| is_online(&domain.section.state)),
            routes: hosts.into_iter().map(route).collect(),
            upstreams,
            mirror: section.mirror.as_ref().and_then(|mirror| Some(mirror.upstream.as_ref()?.value.0.clone())),
            rules: match self.domain {
                Some(domain) => rules.over(&domain.rules),
                None => rules,
            },
            name: name.clone(),
            domain: self.domain.and_then(|domain| Some(domain.section.name.as_ref()?.value.0.clone())),
            path: self.path.to_owned(),
            mistakes: Vec::new(),
        })
    }

    /// The value; an error is reported.
    fn valid<T, V, E: std::fmt::Display + Remedy>(&mut self, at: &At<V>, key: &str, made: Result<T, E>) -> Option<T> {
        valid(at, self.path, key, made, self.reader)
    }

    fn wrong<V>(&mut self, at: &At<V>, key: &str, what: &str, help: &str) {
        error_at(at, self.path, key, what, help, self.reader);
    }

    fn hosts(&mut self) -> Vec<HostMatch> {
        match (&self.section.hosts, self.domain) {
            (Some(written), _) => hosts(written, self.section.wildcard.value, self.path, self.reader),
            (None, Some(domain)) => domain.hosts.clone(),
            (None, None) => vec![HostMatch::Any],
        }
    }

    fn path_match(&mut self) -> Option<PathMatch> {
        let section = self.section;
        let kinds = [
            (&section.path, "path"),
            (&section.path_prefix, "path_prefix"),
            (&section.path_string_prefix, "path_string_prefix"),
            (&section.path_regex, "path_regex"),
        ];
        let mut written = kinds.into_iter().filter_map(|(word, key)| Some((word.as_ref()?, key)));
        let rules = PathRules::default();
        let Some((word, key)) = written.next() else { return PathMatch::segments("/", &rules).ok() };
        if let Some((other, other_key)) = written.next() {
            self.wrong(other, other_key, "is a second kind of path", "keep one of them, or write two routes");
            return None;
        }
        let text = &word.value.0;
        let made = match key {
            "path" => PathMatch::exact(text, &rules),
            "path_prefix" => PathMatch::segments(text, &rules),
            "path_string_prefix" => PathMatch::text(text, &rules),
            _ => PathMatch::regex(text),
        };
        let made = self.valid(word, key, made)?;
        match key {
            "path_regex" => spelling::regex_path(word, &made, self.path, self.reader).then_some(made),
            _ => {
                spelling::plain_path(word, self.path, key, self.reader);
                Some(made)
            }
        }
    }

    fn test(&mut self, wanted: &ValueMatch<'_>, key: &str) -> Option<TextTest> {
        let (name, kind) = (wanted.name, wanted.kind);
        match (wanted.value, kind) {
            (Some(value), Operator::Present) => {
                self.wrong(
                    value,
                    &format!("{key}.value"),
                    "has no effect with kind = \"present\"",
                    "remove it, or change kind",
                );
            }
            (None, kind) if kind != Operator::Present => {
                self.wrong(
                    name,
                    &format!("{key}.name"),
                    "has no value to compare with",
                    "add value, or kind = \"present\"",
                );
            }
            _ => {}
        }
        let text = wanted.value.map_or("", |value| &value.value.0);
        self.valid(name, key, TextTest::new(kind, text, wanted.ignores_case))
    }

    fn header(&mut self, section: &HeaderMatchSection) -> Option<HeaderCondition> {
        let name = section.name.as_ref()?;
        spelling::header(section, self.path, self.reader);
        let (kind, value) = (section.kind.value, section.value.as_ref());
        let wanted = ValueMatch { name, kind, value, ignores_case: section.ignore_case.value };
        let test = self.test(&wanted, "header")?;
        let condition = self.valid(name, "header.name", HeaderCondition::new(&name.value.0, test))?;
        let condition = if section.negate.value { condition.negated() } else { condition };
        match section.missing_as_empty.value {
            true => self.valid(&section.missing_as_empty, "header.missing_as_empty", condition.missing_as_empty()),
            false => Some(condition),
        }
    }

    fn query(&mut self, section: &QueryMatchSection) -> Option<QueryCondition> {
        let name = section.name.as_ref()?;
        spelling::query(section, self.path, self.reader);
        let (kind, value) = (section.kind.value, section.value.as_ref());
        let wanted = ValueMatch { name, kind, value, ignores_case: section.ignore_case.value };
        Some(QueryCondition::new(&name.value.0, self.test(&wanted, "query")?))
    }

    /// The target, and the upstreams that it uses, if any; their numbers are put in per listener.
    fn target(&mut self, path: &PathMatch) -> Option<(Target, Vec<Share>)> {
        let section = self.section;
        let ways = [
            section.upstream.is_some(),
            !section.split.is_empty(),
            section.redirect.is_some(),
            section.response.is_some(),
        ];
        let name = section.name.as_ref()?;
        if ways.into_iter().filter(|is_there| *is_there).count() != 1 {
            let what = "needs exactly one of `upstream`, `split`, `redirect` and `response`";
            self.wrong(name, "upstream", what, "write one of these keys");
            return None;
        }
        if let Some(redirect) = &section.redirect {
            return Some((Target::Redirect(self.redirect(redirect, path)?), Vec::new()));
        }
        if let Some(response) = &section.response {
            return Some((Target::Response(self.response(response)?), Vec::new()));
        }
        let mut upstreams = Vec::new();
        if let Some(upstream) = &section.upstream {
            self.check_upstream(upstream, "upstream");
            upstreams.push((upstream.value.0.clone(), None));
        }
        for share in &section.split {
            let upstream = share.upstream.as_ref()?;
            self.check_upstream(upstream, "split.upstream");
            upstreams.push((upstream.value.0.clone(), share.weight.as_ref().map(|weight| weight.value)));
        }
        let numbered = upstreams.iter().enumerate().map(|(number, (_, weight))| (number, *weight)).collect();
        let split = self.valid(name, "split", Split::new(numbered))?;
        Some((Target::Upstream(split), upstreams))
    }

    fn check_upstream(&mut self, wanted: &At<Name>, key: &str) {
        find_upstream(self.file, wanted, self.path, key, self.reader);
    }

    fn redirect(&mut self, section: &RedirectSection, matched: &PathMatch) -> Option<Redirect> {
        let status = Status::from_code(section.status.value as u16);
        let Some(status) = status else {
            let help = "write 301, 302, 303, 307 or 308";
            self.wrong(&section.status, "redirect.status", "is not a redirect status", help);
            return None;
        };
        let mut redirect = Redirect::new(status);
        if let Some(scheme) = &section.scheme {
            redirect = match &*scheme.value.0 {
                "http" => redirect.scheme(Scheme::Http),
                "https" => redirect.scheme(Scheme::Https),
                _ => {
                    self.wrong(scheme, "redirect.scheme", "is not a supported scheme", "write \"http\" or \"https\"");
                    return None;
                }
            };
        }
        if let Some(host) = &section.host {
            redirect = self.valid(host, "redirect.host", redirect.host(&host.value.0))?;
        }
        if let Some(port) = section.port.as_ref().and_then(|port| NonZeroU16::new(port.value as u16)) {
            redirect = redirect.port(port);
        }
        let rules = PathRules::judged();
        match (&section.path, &section.path_prefix) {
            (Some(_), Some(prefix)) => {
                self.wrong(prefix, "redirect.path_prefix", "conflicts with path", "keep one of them");
            }
            (Some(path), None) => {
                redirect =
                    redirect.path(self.valid(path, "redirect.path", PathRewrite::full(&path.value.0, &rules))?);
            }
            (None, Some(prefix)) => {
                let made = PathRewrite::prefix(matched, &prefix.value.0, &rules);
                redirect = redirect.path(self.valid(prefix, "redirect.path_prefix", made)?);
            }
            (None, None) => {}
        }
        Some(redirect)
    }

    fn response(&mut self, section: &ResponseSection) -> Option<Arc<DirectResponse>> {
        let body = section.body.as_ref();
        if let Some(body) = body.filter(|body| body.value.0.len() > BODY_BYTES_MAX) {
            self.wrong(body, "response.body", "is longer than 4 KiB", "serve it from an upstream");
        }
        Some(Arc::new(DirectResponse {
            status: section.status.as_ref()?.value as u16,
            content_type: section.content_type.value.0.clone(),
            body: body.map(|body| body.value.0.clone().into_bytes()).unwrap_or_default(),
        }))
    }

    fn path_rewrite(&mut self, section: &RewriteSection, matched: &PathMatch) -> Option<PathRewrite> {
        let rules = PathRules::judged();
        let kinds =
            [(&section.path, "path"), (&section.path_prefix, "path_prefix"), (&section.path_regex, "path_regex")];
        let mut written = kinds.into_iter().filter_map(|(word, key)| Some((word.as_ref()?, key)));
        let (word, key) = written.next()?;
        if let Some((other, other_key)) = written.next() {
            self.wrong(other, &format!("rewrite.{other_key}"), "is a second rewrite of the path", "keep one of them");
            return None;
        }
        let made = match key {
            "path" => PathRewrite::full(&word.value.0, &rules),
            "path_prefix" => PathRewrite::prefix(matched, &word.value.0, &rules),
            _ => {
                let Some(replacement) = &section.path_replacement else {
                    let help = "add the text that replaces a match";
                    self.wrong(word, "rewrite.path_regex", "needs path_replacement", help);
                    return None;
                };
                PathRewrite::regex(&word.value.0, &replacement.value.0, &rules)
            }
        };
        self.valid(word, &format!("rewrite.{key}"), made)
    }

    fn host_rewrite(&mut self, section: &RewriteSection) -> Option<HostRewrite> {
        match (&section.host, &section.host_from_header) {
            (Some(_), Some(other)) => {
                self.wrong(other, "rewrite.host_from_header", "conflicts with host", "keep one of them");
                None
            }
            (Some(host), None) => self.valid(host, "rewrite.host", HostRewrite::literal(&host.value.0)),
            (None, Some(name)) => self.valid(name, "rewrite.host_from_header", HostRewrite::from_header(&name.value.0)),
            (None, None) => None,
        }
    }
}

/// The value; an error is reported.
pub(in super::super) fn valid<T, V, E: std::fmt::Display + Remedy>(
    at: &At<V>,
    path: &str,
    key: &str,
    made: Result<T, E>,
    reader: &mut Reader<'_>,
) -> Option<T> {
    let report = |error: E| {
        let text = format!("cannot be used: {error}");
        error_at(at, path, key, &text, error.remedy(), reader);
    };
    made.map_err(report).ok()
}

/// The hosts that can be used.
pub(super) fn hosts(
    written: &At<Vec<At<Word>>>,
    labels: Labels,
    path: &str,
    reader: &mut Reader<'_>,
) -> Vec<HostMatch> {
    if written.value.is_empty() {
        error_at(written, path, "hosts", "is empty: no request would ever match", "name hosts, or remove it", reader);
    }
    warn_repeated(written, path, "hosts", reader);
    let read = |word: &At<Word>| valid(word, path, "hosts", HostMatch::parse(&word.value.0, labels), reader);
    written.value.iter().filter_map(read).collect()
}
