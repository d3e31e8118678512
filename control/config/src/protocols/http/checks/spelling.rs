//! Values that are read, and match nothing that clients send: the wrong case, a pattern where there is none.

use weir_analysis::http::path::{Ambiguous, PathRules};
use weir_http_codec::{Known, token};
use weir_route::path::PathMatch;
use weir_route::text::Operator;

use crate::checks::{error_at, warn_at, warn_repeated};
use crate::document::At;
use crate::protocols::http::route::{HeaderMatchSection, QueryMatchSection};
use crate::reader::Reader;
use crate::texts::{LongWord, Text, Word};

/// Methods of the registry (RFC 9110 section 16.1.1, RFC 5789, RFC 4918, RFC 3253) that clients are likely to send.
const METHODS: [&str; 16] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "OPTIONS",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
];

/// Methods that no request of a listener has: it answers them with 405.
const REFUSED: [&str; 2] = ["CONNECT", "TRACE"];

/// Rules under which a path has the most forms.
const LOOSEST: PathRules = PathRules {
    merge_slashes: false,
    escaped_nul: Ambiguous::Keep,
    escaped_slash: Ambiguous::Keep,
    backslash: Ambiguous::Keep,
    parameters: Ambiguous::Keep,
};

/// The methods of a route.
pub(super) fn methods(list: &At<Vec<At<Word>>>, path: &str, reader: &mut Reader<'_>) {
    if list.value.is_empty() {
        error_at(list, path, "methods", "is empty", "name methods, or remove it to match all methods", reader);
    }
    for word in &list.value {
        method(word, path, "methods", reader);
        let upper = word.value.0.to_ascii_uppercase();
        if REFUSED.contains(&&*upper) {
            let what = format!("has {upper}, which listeners refuse");
            error_at(word, path, "methods", &what, "remove it; a WebSocket over HTTP/2 matches GET", reader);
        }
    }
    warn_repeated(list, path, "methods", reader);
}

/// A method in another case than clients have.
pub(super) fn method(word: &At<Word>, path: &str, key: &str, reader: &mut Reader<'_>) {
    let (text, upper) = (&*word.value.0, word.value.0.to_ascii_uppercase());
    if text == upper {
        return;
    }
    let what = format!("has \"{text}\", but methods are case-sensitive");
    let help = format!("write \"{upper}\"");
    if METHODS.contains(&&*upper) {
        error_at(word, path, key, &what, help, reader);
    } else {
        warn_at(word, path, key, &what, help, reader);
    }
}

/// The path of a route that is no regex.
pub(super) fn plain_path(word: &At<LongWord>, path: &str, key: &str, reader: &mut Reader<'_>) {
    let text = &*word.value.0;
    if text.contains('*') {
        let plain = text.trim_end_matches('*').trim_end_matches('/');
        let prefix = if plain.is_empty() { "/" } else { plain };
        let help = match plain.contains('*') {
            false => format!("write path_prefix = \"{prefix}\" for this path and all paths below it, or path_regex"),
            true => "write path_regex, with `.*` for any text".to_owned(),
        };
        let what = "has a `*`, which matches only the character `*`";
        return error_at(word, path, key, what, help, reader);
    }
    let odd = text.chars().find(|c| matches!(c, '{' | '}' | '^' | '|' | '<' | '>' | '"' | '`' | '[' | ']' | '$'));
    let mark = if text.contains("/:") { Some(':') } else { odd };
    if let Some(mark) = mark {
        let what = format!("has a `{mark}`, which matches only this character");
        let help = "write path_regex if it is a pattern; browsers send such characters as escapes (%7B)";
        warn_at(word, path, key, &what, help, reader);
    }
}

/// A regex for paths. False: no path matches it, which was reported.
pub(super) fn regex_path(word: &At<LongWord>, made: &PathMatch, path: &str, reader: &mut Reader<'_>) -> bool {
    if made.can_match(&LOOSEST) {
        return true;
    }
    let help = "it must match the whole path, without host and query: begin it with `/`; a normalised path has no dot \
                segments, spaces or lower-case escapes (%c3)";
    error_at(word, path, "path_regex", "matches no path that a request can have", help, reader);
    false
}

/// A condition on a header.
pub(super) fn header(section: &HeaderMatchSection, path: &str, reader: &mut Reader<'_>) {
    let Some(name) = &section.name else { return };
    connection_field(name, path, "header.name", reader);
    if Known::of(name.value.0.as_bytes()) == Known::Host {
        let what = "is the host as in HTTP/1.1: with the port, in upper or lower case, and absent in HTTP/2";
        warn_at(name, path, "header.name", what, "write hosts instead", reader);
    }
    value(section.kind.value, section.value.as_ref(), path, "header.value", reader);
    if let Some(value) = section.value.as_ref().filter(|_| section.kind.value != Operator::Regex) {
        let text = &*value.value.0;
        let begins = !matches!(section.kind.value, Operator::Suffix | Operator::Contains);
        let ends = !matches!(section.kind.value, Operator::Prefix | Operator::Contains);
        let is_outside = begins && text.starts_with([' ', '\t']) || ends && text.ends_with([' ', '\t']);
        if is_outside || text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            let what = "is not a header value: it begins or ends with a space, or has a line end";
            error_at(value, path, "header.value", what, "write the value as clients send it", reader);
        }
    }
}

/// A condition on the query.
pub(super) fn query(section: &QueryMatchSection, path: &str, reader: &mut Reader<'_>) {
    if let Some(name) = &section.name {
        query_name(name, path, "query.name", reader);
    }
    value(section.kind.value, section.value.as_ref(), path, "query.value", reader);
    if let Some(value) = section.value.as_ref().filter(|value| has_escape(&value.value.0)) {
        let what = "has an escape, but is compared with the decoded value";
        warn_at(value, path, "query.value", what, "write the character itself", reader);
    }
}

/// A comparison that always holds.
fn value(kind: Operator, value: Option<&At<Text>>, path: &str, key: &str, reader: &mut Reader<'_>) {
    let Some(value) = value.filter(|value| value.value.0.is_empty()) else { return };
    if matches!(kind, Operator::Prefix | Operator::Suffix | Operator::Contains) {
        let what = "is empty, so that every value matches";
        warn_at(value, path, key, what, "write a text, or kind = \"present\"", reader);
    }
}

/// The name of a parameter in a query.
pub(super) fn query_name(name: &At<Word>, path: &str, key: &str, reader: &mut Reader<'_>) {
    let text = &*name.value.0;
    if has_escape(text) || text.contains(['=', '&', '?', '#']) {
        let what = "has a character that query names have only as an escape, but is compared with the decoded name";
        warn_at(name, path, key, what, "write the decoded name", reader);
    }
}

fn has_escape(text: &str) -> bool {
    let digits = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    text.match_indices('%').any(|(at, _)| digits(&text[at + 1..]))
}

/// The name of a field that something is read from. False: it is none, which was reported.
pub(super) fn field(name: &At<Word>, path: &str, key: &str, reader: &mut Reader<'_>) -> bool {
    let is_name = token::is_token(name.value.0.as_bytes());
    if !is_name {
        let help = "use letters, digits and hyphens, without a colon";
        error_at(name, path, key, "is not a header name", help, reader);
    } else {
        connection_field(name, path, key, reader);
    }
    is_name
}

/// Fields of a connection (RFC 9110 section 7.6.1) say nothing of a request, and HTTP/2 has none of them.
fn connection_field(name: &At<Word>, path: &str, key: &str, reader: &mut Reader<'_>) {
    let is_of_connection = matches!(
        Known::of(name.value.0.as_bytes()),
        Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Te
            | Known::Trailer
            | Known::Upgrade
            | Known::HttpTwoSettings
    );
    if is_of_connection {
        let what = "is a header of the connection, which HTTP/2 requests do not have";
        warn_at(name, path, key, what, "use a header of the request", reader);
    }
}
