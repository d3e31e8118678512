//! Requests and routes, written briefly.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::borrow::Cow;

use weir_analysis::http::path::PathRules;
use weir_route::{
    RequestFacts, Route,
    condition::{HeaderCondition, Method, QueryCondition},
    facts::joined,
    host::{HostMatch, Labels},
    path::PathMatch,
    text::{Operator, TextTest},
};

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    pub host: String,
    pub path: String,
    pub query: Option<String>,
    pub method: String,
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// `GET` without query and headers.
    pub fn get(host: &str, path: &str) -> Self {
        let (host, path, method) = (host.to_owned(), path.to_owned(), "GET".to_owned());
        Self { host, path, query: None, method, headers: Vec::new() }
    }

    pub fn method(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    pub fn query(mut self, query: &str) -> Self {
        self.query = Some(query.to_owned());
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl RequestFacts for Request {
    fn host(&self) -> &[u8] {
        self.host.as_bytes()
    }

    fn path(&self) -> &[u8] {
        self.path.as_bytes()
    }

    fn query(&self) -> Option<&[u8]> {
        self.query.as_deref().map(str::as_bytes)
    }

    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        joined(self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_bytes()))
    }
}

/// `=/a` exact, `~/a.*` regex, `^/a` string prefix, `/a` prefix by segment.
pub fn path(text: &str) -> PathMatch {
    let rules = PathRules::default();
    let path = match text.split_at(1) {
        ("=", text) => PathMatch::exact(text, &rules),
        ("~", text) => PathMatch::regex(text),
        ("^", text) => PathMatch::text(text, &rules),
        _ => PathMatch::segments(text, &rules),
    };
    path.expect(text)
}

/// `a.b`, `*.b` (one label), `**.b` (many), `*`.
pub fn host(text: &str) -> HostMatch {
    match text.strip_prefix("**") {
        Some(suffix) => HostMatch::parse(&format!("*{suffix}"), Labels::Many),
        None => HostMatch::parse(text, Labels::One),
    }
    .expect(text)
}

/// A route whose action is its place among those declared.
pub fn route(name: &str, host_text: &str, path_text: &str) -> Route<usize> {
    Route::new(name, host(host_text), path(path_text), 0)
}

pub fn test(operator: Operator, text: &str) -> TextTest {
    TextTest::new(operator, text, false).expect(text)
}

/// Adds conditions to a route.
pub trait With: Sized {
    fn method(self, method: &str) -> Self;
    fn header(self, name: &str, operator: Operator, text: &str) -> Self;
    fn query(self, name: &str, operator: Operator, text: &str) -> Self;
    fn priority(self, priority: i32) -> Self;
}

impl With for Route<usize> {
    fn method(mut self, method: &str) -> Self {
        self.methods.push(Method::new(method).expect(method));
        self
    }

    fn header(mut self, name: &str, operator: Operator, text: &str) -> Self {
        self.headers.push(HeaderCondition::new(name, test(operator, text)).expect(name));
        self
    }

    fn query(mut self, name: &str, operator: Operator, text: &str) -> Self {
        self.queries.push(QueryCondition::new(name, test(operator, text)));
        self
    }

    fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
}
