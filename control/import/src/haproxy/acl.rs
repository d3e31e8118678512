//! Conditions: named and anonymous ACLs, as conditions of routes.

use std::collections::HashMap;

use super::syntax::{Line, Section};
use crate::model::{PathMatch, Route};
use crate::paths;
use crate::toml::Value;

/// Routes that one condition may become.
const ROUTES_MAX: usize = 64;

/// One test of a request.
#[derive(Clone, Debug)]
pub(super) enum Test {
    /// One of these paths.
    Paths(Vec<PathMatch>),
    /// One of these hosts.
    Hosts(Vec<String>),
    Methods(Vec<String>),
    /// `header` or `query`, its name, how it is compared, with what.
    Field {
        of: &'static str,
        name: String,
        kind: &'static str,
        values: Vec<String>,
        ignores_case: bool,
    },
    /// The connection has TLS.
    Tls,
    /// One of these networks.
    Source(Vec<String>),
    /// The server name that a client of TLS asks for.
    ServerName(Vec<String>),
    Always(bool),
    /// No route has such a condition, and why.
    Unsaid(String),
}

/// The ACLs of a section: each is one of several tests.
pub(super) struct Acls(HashMap<String, Vec<Test>>);

/// A condition: one of these, each of which is all of its tests; true: negated.
pub(super) type Condition = Vec<Vec<(bool, Test)>>;

impl Acls {
    /// Those of a section and of its defaults.
    pub(super) fn of(section: &Section) -> Self {
        let mut all: HashMap<String, Vec<Test>> = HashMap::new();
        let lines = section.defaults.iter().chain(&section.lines);
        for line in lines.filter(|line| line.word(0) == "acl") {
            let test = said(test(line.words.get(2..).unwrap_or_default()));
            all.entry(line.word(1).to_owned()).or_default().push(test);
        }
        Self(all)
    }

    /// Reads what follows `if` or `unless`.
    ///
    /// # Errors
    /// Why it cannot be said.
    pub(super) fn condition(&self, keyword: &str, words: &[String]) -> Result<Condition, String> {
        let all = self.partial_condition(keyword, words)?;
        let unsaid = all.iter().flatten().find_map(|(_, test)| match test {
            Test::Unsaid(why) => Some(why.clone()),
            _ => None,
        });
        unsaid.map_or(Ok(all), Err)
    }

    /// Like [`Acls::condition`], with [`Test::Unsaid`] in the place of each test that cannot be said.
    ///
    /// # Errors
    /// Why the whole cannot be said.
    pub(super) fn partial_condition(&self, keyword: &str, words: &[String]) -> Result<Condition, String> {
        let mut all: Condition = Vec::new();
        let mut terms: Condition = vec![Vec::new()];
        let mut rest = words.iter().peekable();
        while let Some(word) = rest.next() {
            if matches!(word.as_str(), "or" | "||") {
                all.append(&mut terms);
                terms = vec![Vec::new()];
                continue;
            }
            let mut is_negated = word == "!";
            let mut name = if is_negated { rest.next().map_or("", String::as_str) } else { word.as_str() };
            while let Some(behind) = name.strip_prefix('!') {
                (is_negated, name) = (!is_negated, behind);
            }
            let tests = match name {
                "{" => {
                    let inner: Vec<String> = rest.by_ref().take_while(|word| *word != "}").cloned().collect();
                    vec![said(test(&inner))]
                }
                _ => self.named(name),
            };
            terms = conjunction(terms, is_negated, &tests)?;
        }
        all.append(&mut terms);
        match keyword {
            "unless" => negated(&all),
            _ => Ok(all),
        }
    }

    fn named(&self, name: &str) -> Vec<Test> {
        if let Some(tests) = self.0.get(name) {
            return tests.clone();
        }
        vec![match name {
            "TRUE" | "HTTP" | "HTTP_1.1" => Test::Always(true),
            "FALSE" => Test::Always(false),
            "LOCALHOST" => Test::Source(vec!["127.0.0.0/8".into(), "::1/128".into()]),
            "METH_GET" => Test::Methods(vec!["GET".into(), "HEAD".into()]),
            name => match name.strip_prefix("METH_") {
                Some(method) => Test::Methods(vec![method.to_owned()]),
                None => Test::Unsaid(format!("there is no ACL `{name}`")),
            },
        }]
    }
}

fn said(test: Result<Test, String>) -> Test {
    test.unwrap_or_else(Test::Unsaid)
}

/// Each of `terms` and one of `tests`; if negated, each and none of them.
fn conjunction(terms: Condition, is_negated: bool, tests: &[Test]) -> Result<Condition, String> {
    if is_negated {
        let and_none = |mut term: Vec<(bool, Test)>| {
            term.extend(tests.iter().map(|test| (true, test.clone())));
            term
        };
        return Ok(terms.into_iter().map(and_none).collect());
    }
    let mut all = Vec::new();
    for term in &terms {
        for test in tests {
            let mut term = term.clone();
            term.push((false, test.clone()));
            all.push(term);
        }
    }
    match all.len() > ROUTES_MAX {
        true => Err(format!("it would be more than {ROUTES_MAX} routes")),
        false => Ok(all),
    }
}

/// The opposite of a condition with one test in each alternative, or with one alternative.
fn negated(all: &Condition) -> Result<Condition, String> {
    match all.as_slice() {
        [term] => Ok(term.iter().map(|(is_negated, test)| vec![(!is_negated, test.clone())]).collect()),
        terms if terms.iter().all(|term| term.len() == 1) => {
            Ok(vec![terms.iter().flatten().map(|(is_negated, test)| (!is_negated, test.clone())).collect()])
        }
        _ => Err("`unless` with several alternatives is no condition of a route".to_owned()),
    }
}

/// A criterion with its flags and patterns.
fn test(words: &[String]) -> Result<Test, String> {
    let Some((criterion, rest)) = words.split_first() else { return Err("an ACL without a criterion".to_owned()) };
    let mut ignores_case = false;
    let mut matching = None;
    let mut values: Vec<String> = Vec::new();
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-i" if values.is_empty() => ignores_case = true,
            "-m" if values.is_empty() => matching = rest.next().map(String::as_str),
            "-f" if values.is_empty() => return Err("the patterns are in another file".to_owned()),
            "--" => {}
            "-n" if values.is_empty() => {}
            _ => values.push(word.clone()),
        }
    }
    let (name, argument, converters) = parts(criterion);
    // `path_beg` is `path -m beg`.
    let (base, suffix) = match name.rsplit_once('_') {
        Some((base, suffix @ ("beg" | "end" | "sub" | "reg" | "dir" | "dom" | "str" | "cnt" | "len"))) => {
            (base, suffix)
        }
        _ => (name, ""),
    };
    let kind = matching.unwrap_or(if suffix.is_empty() { "str" } else { suffix });
    let is_host = matches!(base, "hdr" | "req.hdr" | "req.fhdr") && argument.eq_ignore_ascii_case("host");
    // Hosts are compared without their case and their port in any case.
    let own = if is_host { &["lower", "host_only", "field(1,:)"][..] } else { &[] };
    let others = own.iter().fold(converters.to_owned(), |rest, one| rest.replace(one, ""));
    if others.contains(|c| c != ',') {
        return Err(format!("`{criterion}` is converted first, and a route compares the original text"));
    }
    match base {
        "path" if argument.is_empty() => paths_of(kind, &values, ignores_case).map(Test::Paths),
        "url" if argument.is_empty() => match kind == "beg" && values.iter().all(|value| is_path(value)) {
            true => paths_of(kind, &values, ignores_case).map(Test::Paths),
            false => Err("a URL ends in its query, which is no part of the path of a route".to_owned()),
        },
        _ if is_host => hosts_of(kind, &values).map(Test::Hosts),
        "hdr" | "req.hdr" | "req.fhdr" => field("header", argument, kind, values, ignores_case),
        "cook" | "req.cook" => Err("cookies are no condition of a route".to_owned()),
        "url_param" | "urlp" => field("query", argument, kind, values, ignores_case),
        "method" => Ok(Test::Methods(values)),
        "ssl_fc" => Ok(Test::Tls),
        "src" => Ok(Test::Source(values)),
        "req.ssl_sni" | "req_ssl_sni" | "ssl_fc_sni" => hosts_of(kind, &values).map(Test::ServerName),
        "req.ssl_hello_type" | "req_ssl_hello_type" => Ok(Test::Always(true)),
        "always_true" => Ok(Test::Always(true)),
        "always_false" => Ok(Test::Always(false)),
        _ => Err(format!("`{criterion}` is no condition of a route")),
    }
}

/// A criterion as its name, its argument, and the converters behind it: `req.hdr(host),lower`.
fn parts(criterion: &str) -> (&str, &str, &str) {
    let Some((name, rest)) = criterion.split_once('(') else { return (criterion, "", "") };
    match rest.split_once(')') {
        Some((argument, behind)) => (name, argument, behind.trim_start_matches(',')),
        None => (name, rest, ""),
    }
}

/// Whether the beginning of a URL ends in its path.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains(['?', '#'])
}

fn paths_of(kind: &str, values: &[String], ignores_case: bool) -> Result<Vec<PathMatch>, String> {
    let one = |value: &String| -> Result<PathMatch, String> {
        let literal = paths::escaped(&paths::encoded(value));
        let flag = if ignores_case { "(?i)" } else { "" };
        let plain = || paths::oddity(value).is_none() && !ignores_case;
        Ok(match kind {
            "str" if plain() => PathMatch::Exact(value.clone()),
            "str" => PathMatch::Regex(format!("{flag}{literal}")),
            "beg" if value == "/" => PathMatch::Any,
            "beg" if plain() => PathMatch::Prefix(value.clone()),
            "beg" => PathMatch::Regex(format!("{flag}{literal}.*")),
            "end" => PathMatch::Regex(format!("{flag}.*{literal}")),
            "sub" => PathMatch::Regex(format!("{flag}.*{literal}.*")),
            "dir" => PathMatch::Regex(format!("{flag}(?:.*/)?{}(?:/.*)?", literal.trim_matches('/'))),
            "reg" => PathMatch::Regex(paths::whole_regex(value, ignores_case)?),
            _ => return Err(format!("paths are not compared by `{kind}`")),
        })
    };
    values.iter().map(one).collect()
}

/// Hosts without their port, which routes do not see.
fn hosts_of(kind: &str, values: &[String]) -> Result<Vec<String>, String> {
    let one = |value: &String| {
        let host = value
            .rsplit_once(':')
            .filter(|(_, port)| port.parse::<u16>().is_ok())
            .map_or(value.as_str(), |(host, _)| host);
        let host = host.to_lowercase();
        match kind {
            "str" => Ok(host),
            "end" if host.starts_with('.') => Ok(format!("*{host}")),
            _ => Err(format!("hosts are names or end like a wildcard, and are not compared by `{kind}`")),
        }
    };
    values.iter().map(one).collect()
}

fn field(of: &'static str, name: &str, kind: &str, values: Vec<String>, ignores_case: bool) -> Result<Test, String> {
    let kind = match kind {
        "str" => "exact",
        "beg" => "prefix",
        "end" => "suffix",
        "sub" => "contains",
        "reg" => "regex",
        "found" => "present",
        other => return Err(format!("headers are not compared by `{other}`")),
    };
    // A regex of Weir is for the whole value, and that of HAProxy for a part.
    let whole = |value: String| paths::whole_regex(&value, false);
    let values = match kind {
        "regex" => values.into_iter().map(whole).collect::<Result<_, _>>()?,
        "present" => Vec::new(),
        _ => values,
    };
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || of == "header" && !name.bytes().all(is_token) {
        return Err(format!("`{name}` is no name of a {of}"));
    }
    Ok(Test::Field { of, name: name.to_owned(), kind, values, ignores_case })
}

/// Routes like `base` with all conditions of one alternative. Empty: no request of a listener with or without TLS meets them.
///
/// # Errors
/// Why it cannot be said.
pub(super) fn routes(base: &Route, tests: &[(bool, Test)], has_tls: bool) -> Result<Vec<Route>, String> {
    let is_never = |(is_negated, test): &(bool, Test)| match test {
        Test::Tls => has_tls == *is_negated,
        Test::Always(holds) => holds == is_negated,
        _ => false,
    };
    if tests.iter().any(is_never) {
        return Ok(Vec::new());
    }
    let mut route = base.clone();
    let mut paths: Option<Vec<PathMatch>> = None;
    let mut hosts: Option<Vec<String>> = None;
    for (is_negated, test) in tests {
        match (test, is_negated) {
            (Test::Tls | Test::Always(_), _) => {}
            (Test::Unsaid(why), _) => return Err(why.clone()),
            (Test::Field { of, name, kind, values, ignores_case }, _) => {
                let condition = field_condition(name, kind, values, *ignores_case, *is_negated)?;
                if *of == "query" && *is_negated {
                    return Err("the query has no negated conditions".to_owned());
                }
                route.conditions.push((of, condition));
            }
            (_, true) => return Err("only headers have negated conditions".to_owned()),
            (Test::Paths(list), false) => match paths.is_none() {
                true => paths = Some(list.clone()),
                false => return Err("a route has one path".to_owned()),
            },
            (Test::Hosts(list), false) => {
                let known = hosts.take();
                let is_in = |host: &&String| known.as_ref().is_none_or(|known| known.contains(host));
                hosts = Some(list.iter().filter(is_in).cloned().collect());
            }
            (Test::Methods(list), false) => route.methods.extend(list.iter().cloned()),
            (Test::Source(_), false) => return Err("addresses are no condition of a route".to_owned()),
            (Test::ServerName(_), false) => return Err("the server name of TLS is no condition of a route".to_owned()),
        }
    }
    match hosts {
        Some(hosts) if hosts.is_empty() => return Ok(Vec::new()),
        Some(hosts) => route.hosts = hosts,
        None => {}
    }
    let with_path = |path: PathMatch| Route { path, ..route.clone() };
    Ok(paths.unwrap_or_else(|| vec![route.path.clone()]).into_iter().map(with_path).collect())
}

fn field_condition(
    name: &str,
    kind: &str,
    values: &[String],
    ignores_case: bool,
    is_negated: bool,
) -> Result<Value, String> {
    let (kind, value) = match values {
        [] => ("present", None),
        [value] => (kind, Some(value.clone())),
        // One of several is a regex.
        several if kind == "exact" => {
            let all: Vec<String> = several.iter().map(|value| paths::escaped(value)).collect();
            ("regex", Some(all.join("|")))
        }
        _ => return Err("several patterns of this kind are no condition of a route".to_owned()),
    };
    let mut entries = vec![("name".to_owned(), Value::text(name))];
    if kind != "exact" {
        entries.push(("kind".to_owned(), Value::text(kind)));
    }
    entries.extend(value.map(|value| ("value".to_owned(), Value::Text(value))));
    if ignores_case && kind != "present" {
        entries.push(("ignore_case".to_owned(), Value::Flag(true)));
    }
    if is_negated {
        entries.push(("negate".to_owned(), Value::Flag(true)));
    }
    Ok(Value::Inline(entries))
}

/// Splits the words of a rule at `if` or `unless`.
pub(super) fn split_condition(line: &Line) -> (&[String], Option<(&str, &[String])>) {
    let at = line.words.iter().position(|word| matches!(word.as_str(), "if" | "unless"));
    match at {
        Some(at) => (&line.words[..at], Some((line.word(at), &line.words[at + 1..]))),
        None => (&line.words, None),
    }
}
