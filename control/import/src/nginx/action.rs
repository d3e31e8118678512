//! The action of a location: `proxy_pass`, `return`, `rewrite`.

use super::Importer;
use super::location::Location;
use super::scope::Scope;
use super::site::Site;
use super::syntax::Directive;
use super::upstream::{UpstreamUse, with_port};
use crate::model::{PathMatch, Target};
use crate::note::{Mistake, Note};
use crate::paths;
use crate::toml::Value;

/// Keys of an inline table.
pub(super) type Keys = Vec<(String, Value)>;

/// Status of an imported location that Weir has no counterpart for: 501 (RFC 9110 section 15.6.2).
const UNSERVED: u64 = 501;

/// The handling of the requests of a location.
pub(super) struct LocationAction {
    pub(super) target: Target,
    /// Keys of `rewrite`.
    pub(super) rewrite: Keys,
    /// The Host that nginx sends unless `proxy_set_header` says otherwise.
    pub(super) host: String,
}

impl<'c> Importer<'c> {
    pub(super) fn answer(
        &mut self,
        one: &Location<'c>,
        site: &Site<'c>,
        notes: &mut Vec<Note>,
    ) -> Result<LocationAction, Mistake> {
        let plain = |target| LocationAction { target, rewrite: Vec::new(), host: String::new() };
        if let Some(of) = one.scope.find_own("internal") {
            let why = "an internal location does not exist for clients, so the route responds with 404";
            notes.push(Note::new(&of.place, one.directive.text(), why, ""));
            return Ok(plain(Target::status(404)));
        }
        if let Some(of) = one.scope.find_own("return") {
            return Ok(plain(returned(of, site, &one.scope, notes)?));
        }
        for of in redirects(one) {
            if let Some((_, keys)) = redirect_of_rewrite(of, site).filter(|(path, _)| takes_all(path, one)) {
                return Ok(plain(Target::Redirect(keys)));
            }
        }
        let scope = &one.scope;
        let pass = scope.find_own("proxy_pass").map(|of| (of, false));
        let Some((of, is_grpc)) = pass.or_else(|| scope.find_own("grpc_pass").map(|of| (of, true))) else {
            notes.push(unserved(one));
            return Ok(plain(Target::status(UNSERVED)));
        };
        if of.first().contains('$') {
            let why = "a variable cannot select the upstream; the route responds with 501";
            notes.push(Note::new(&of.place, of.text(), why, "upstream of a [[route]]"));
            return Ok(plain(Target::status(UNSERVED)));
        }
        let url = PassUrl::parse(of, is_grpc)?;
        let name = self.upstream(&url.server, url.way, scope, &of.place)?;
        let rewrite = path_change(&url, one, notes);
        let host = match self.blocks.contains_key(url.server.as_str()) {
            _ if url.server.starts_with("unix:") => "localhost".to_owned(),
            true => url.server.clone(),
            false => without_default_port(&url),
        };
        Ok(LocationAction { target: Target::Upstream(name), rewrite, host })
    }
}

fn unserved(one: &Location<'_>) -> Note {
    let why = "nothing here sends requests to an HTTP server; the route responds with 501";
    Note::new(&one.directive.place, one.directive.text(), why, "an HTTP origin")
}

/// `http://server/path` of a `proxy_pass`.
struct PassUrl {
    way: UpstreamUse,
    server: String,
    /// The path behind the server; `None`: the path of the request goes on.
    path: Option<String>,
}

impl PassUrl {
    fn parse(of: &Directive, is_grpc: bool) -> Result<Self, Mistake> {
        let text = of.first();
        let (scheme, rest) = match text.split_once("://") {
            Some(parts) => parts,
            None if is_grpc => ("grpc", text),
            None => return Err(Mistake::new(&of.place, format!("`{}` has no scheme", of.text()))),
        };
        let way = match (scheme, is_grpc) {
            ("http", false) => UpstreamUse::Http,
            ("https", false) => UpstreamUse::Https,
            ("grpc", true) => UpstreamUse::Grpc,
            ("grpcs", true) => UpstreamUse::Grpcs,
            _ => return Err(Mistake::new(&of.place, format!("`{scheme}` is no scheme of {}", of.name))),
        };
        if let Some(socket) = rest.strip_prefix("unix:") {
            let (path, uri) = socket.split_once(':').unwrap_or((socket, ""));
            let path_behind = (!uri.is_empty()).then(|| uri.to_owned());
            return Ok(Self { way, server: format!("unix:{path}"), path: path_behind });
        }
        let at = rest.find('/').unwrap_or(rest.len());
        if at == 0 {
            return Err(Mistake::new(&of.place, format!("`{}` names no server", of.text())));
        }
        let path = (at < rest.len()).then(|| rest[at..].to_owned());
        Ok(Self { way, server: rest[..at].to_owned(), path })
    }
}

fn without_default_port(url: &PassUrl) -> String {
    let (port, text) =
        if url.way == UpstreamUse::Https || url.way == UpstreamUse::Grpcs { (443, ":443") } else { (80, ":80") };
    let whole = with_port(&url.server, port);
    whole.strip_suffix(text).unwrap_or(&whole).to_owned()
}

/// The rewrite of the path: the path of `proxy_pass` replaces that of the location, or a `rewrite` changes it.
fn path_change(url: &PassUrl, one: &Location<'_>, notes: &mut Vec<Note>) -> Keys {
    let text = |key: &str, value: String| (key.to_owned(), Value::Text(value));
    let mut rewrites = changes(one);
    while let Some(of) = rewrites.next() {
        match rewrite(of) {
            Some((pattern, replacement)) => {
                if of.args.get(2).is_none_or(|flag| flag == "last") {
                    let why = "the path is rewritten, and no other location is looked for";
                    notes.push(Note::new(&of.place, of.text(), why, "rewrite ... break"));
                }
                // nginx tries the next one if this one does not match, and without a flag also if it does.
                for further in rewrites {
                    let why = "a route has one rewrite; the first of the location is used";
                    notes.push(Note::new(&further.place, further.text(), why, "a [[route]] for each"));
                }
                return vec![text("path_regex", pattern), text("path_replacement", replacement)];
            }
            None => {
                let why = "a rewrite has groups of its regex, and no other variables and no query";
                notes.push(Note::new(&of.place, of.text(), why, "[route.rewrite]"));
            }
        }
    }
    let Some(path) = &url.path else { return Vec::new() };
    let path = paths::encoded(path);
    match &one.path {
        // A location that is a prefix and has the same path in the place of it.
        PathMatch::Any if path == "/" => Vec::new(),
        PathMatch::Prefix(prefix) if *prefix == path => Vec::new(),
        PathMatch::Exact(_) => vec![text("path", path)],
        PathMatch::Regex(_) if one.directive.first() != "^~" => {
            let why = "in a location with a regex proxy_pass has no path";
            notes.push(Note::new(&one.directive.place, one.directive.text(), why, "[route.rewrite]"));
            Vec::new()
        }
        _ => {
            let prefix = paths::escaped(&paths::encoded(&one.text));
            vec![text("path_regex", format!("^{prefix}")), text("path_replacement", path.replace('$', "$$"))]
        }
    }
}

/// A `rewrite` of the path as a regex and its replacement.
fn rewrite(of: &Directive) -> Option<(String, String)> {
    let [pattern, replacement, ..] = of.args.as_slice() else { return None };
    let flag = of.args.get(2).map_or("last", String::as_str);
    if !matches!(flag, "break" | "last") || replacement.contains('?') || !replacement.starts_with(['/', '$']) {
        return None;
    }
    let replacement = groups(replacement)?;
    let whole = paths::whole_regex(pattern, false).ok()?;
    Some((format!("^{whole}$"), replacement))
}

/// A replacement whose variables are groups: `$1` as `${1}`, so that a digit or letter may follow.
fn groups(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(before);
        let digit = behind.chars().next().filter(char::is_ascii_digit)?;
        out.push_str(&format!("${{{digit}}}"));
        rest = &behind[1..];
    }
    out.push_str(rest);
    Some(out)
}

/// A `return`: a redirect, or a response of the gateway's own.
///
/// # Errors
/// It has no status, or none that is a number.
pub(super) fn returned(
    of: &Directive,
    site: &Site<'_>,
    scope: &Scope<'_>,
    notes: &mut Vec<Note>,
) -> Result<Target, Mistake> {
    let (status, text) = match of.args.as_slice() {
        [url] if url.contains("://") || url.starts_with('$') => (302, Some(url.as_str())),
        [status] => (code(of, status)?, None),
        [status, text] => (code(of, status)?, Some(text.as_str())),
        _ => return Err(Mistake::new(&of.place, "return needs a status, a text or an address")),
    };
    if matches!(status, 301 | 302 | 303 | 307 | 308) {
        let Some(keys) = text.and_then(|url| redirect(status, url, site)) else {
            let why =
                "a redirect needs a scheme, a host and a path, or those of the request; the route responds with 501";
            notes.push(Note::new(&of.place, of.text(), why, "[route.redirect]"));
            return Ok(Target::status(UNSERVED));
        };
        if text.is_some_and(|url| !url.contains("$request_uri") && !url.contains("$args")) {
            let why = "a redirect keeps the query of the request";
            notes.push(Note::new(&of.place, of.text(), why, "[route.redirect]"));
        }
        return Ok(Target::Redirect(keys));
    }
    if !(200..=599).contains(&status) || status == 444 {
        let why = "a response is sent in any case; here 403";
        notes.push(Note::new(&of.place, of.text(), why, "[route.response]"));
        return Ok(Target::status(403));
    }
    let mut keys = vec![("status".to_owned(), Value::Number(status))];
    if let Some(body) = text {
        match body.contains('$') || body.len() > 4096 {
            true => {
                let why = "the body of a response is a fixed text of up to 4 KiB; here it is empty";
                notes.push(Note::new(&of.place, of.text(), why, "[route.response] body"));
            }
            false => keys.push(("body".to_owned(), Value::text(body))),
        }
        if let Some(kind) = scope.first("default_type") {
            keys.push(("content_type".to_owned(), Value::text(kind)));
        }
    }
    Ok(Target::Response(keys))
}

fn code(of: &Directive, text: &str) -> Result<u64, Mistake> {
    text.parse().map_err(|_| Mistake::new(&of.place, format!("`{text}` is no status")))
}

/// The keys of a redirect to `url`; `None`: it cannot be said.
fn redirect(status: u64, url: &str, site: &Site<'_>) -> Option<Keys> {
    let mut keys = vec![("status".to_owned(), Value::Number(status))];
    let path = match url.split_once("://") {
        None => url,
        Some((scheme, rest)) => {
            match scheme {
                "http" | "https" => keys.push(("scheme".to_owned(), Value::text(scheme))),
                "$scheme" => {}
                _ => return None,
            }
            let at = rest.find('/').or_else(|| rest.find("$request_uri")).or_else(|| rest.find("$uri"));
            let (host, path) = rest.split_at(at.unwrap_or(rest.len()));
            match host {
                "$host" | "$http_host" => {}
                "$server_name" => keys.push(("host".to_owned(), Value::text(site.server_name()?))),
                _ if host.contains('$') => return None,
                _ => match host.rsplit_once(':') {
                    Some((name, port)) => {
                        keys.push(("host".to_owned(), Value::text(name)));
                        keys.push(("port".to_owned(), Value::Number(port.parse().ok()?)));
                    }
                    None => keys.push(("host".to_owned(), Value::text(host))),
                },
            }
            if path.is_empty() { "/" } else { path }
        }
    };
    match path {
        "$request_uri" | "$uri" | "$uri$is_args$args" | "$request_uri?" => {}
        _ if path.contains(['$', '?', '#']) || !path.starts_with('/') => return None,
        _ => keys.push(("path".to_owned(), Value::text(paths::encoded(path)))),
    }
    // A redirect to the request's own address would go round in circles.
    (keys.len() > 1).then_some(keys)
}

/// A `rewrite` of a server that sends clients elsewhere, with the paths that it is for.
pub(super) fn redirect_of_rewrite(of: &Directive, site: &Site<'_>) -> Option<(PathMatch, Keys)> {
    let [pattern, replacement, ..] = of.args.as_slice() else { return None };
    let status = match of.args.get(2).map(String::as_str) {
        Some("permanent") => 301,
        Some("redirect") => 302,
        _ if replacement.contains("://") => 302,
        _ => return None,
    };
    let is_all = matches!(pattern.as_str(), "^" | "^/" | "^(.*)$" | "^/(.*)$" | "^/(.*)" | "(.*)" | ".*" | "^.*$");
    let same_path = |url: &str| {
        let url = url.strip_suffix('?').unwrap_or(url);
        let rest = url.strip_suffix("/$1").or_else(|| url.strip_suffix("$1"));
        rest.map_or_else(|| url.to_owned(), |rest| format!("{rest}$request_uri"))
    };
    if is_all {
        return Some((PathMatch::Any, redirect(status, &same_path(replacement), site)?));
    }
    // `^/old/(.*)$` to `/new/$1`: a prefix in place of another.
    let stem =
        pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix("(.*)$").or_else(|| rest.strip_suffix("(.*)")));
    if let (Some(old), Some(new)) = (stem, replacement.strip_suffix("$1")) {
        if !is_literal(old) || new.contains('$') || paths::oddity(old).is_some() {
            return None;
        }
        let mut keys = redirect(status, new, site)?;
        let (_, prefix) = keys.pop().filter(|(key, _)| key == "path")?;
        keys.push(("path_prefix".to_owned(), prefix));
        return Some((PathMatch::Prefix(old.to_owned()), keys));
    }
    let keys = redirect(status, replacement, site)?;
    let exact = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$'));
    let path = match exact.filter(|path| is_literal(path) && paths::oddity(path).is_none()) {
        Some(path) => PathMatch::Exact(path.to_owned()),
        None => PathMatch::Regex(paths::whole_regex(pattern, false).ok()?),
    };
    Some((path, keys))
}

/// The `rewrite` directives of a location that send clients elsewhere.
pub(super) fn redirects<'c>(one: &Location<'c>) -> impl Iterator<Item = &'c Directive> + use<'c> {
    one.scope.own().iter().filter(|of| of.name == "rewrite" && is_redirect(of))
}

/// The `rewrite` directives of a location that change the path.
pub(super) fn changes<'c>(one: &Location<'c>) -> impl Iterator<Item = &'c Directive> + use<'c> {
    one.scope.own().iter().filter(|of| of.name == "rewrite" && !is_redirect(of))
}

fn is_redirect(of: &Directive) -> bool {
    of.args.get(1).is_some_and(|url| url.contains("://"))
        || matches!(of.args.get(2).map(String::as_str), Some("permanent" | "redirect"))
}

/// Whether a redirect of a location takes all of its requests.
pub(super) fn takes_all(path: &PathMatch, one: &Location<'_>) -> bool {
    *path == PathMatch::Any || *path == one.path
}

fn is_literal(text: &str) -> bool {
    paths::escaped(text) == text
        || text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_'))
}
