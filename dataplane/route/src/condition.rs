//! The conditions of a route besides host and path. All conditions of a route have to hold.

use std::{cmp::Ordering, fmt};

use weir_analysis::http::query;

use crate::{
    RequestFacts, RouteError,
    text::{Operator, TextTest},
};

/// A method. Case matters (RFC 9110 9.1); GET does not stand for HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method(Box<str>);

impl Method {
    /// Known or not: any token is a method.
    ///
    /// # Errors
    /// No token.
    pub fn new(text: &str) -> Result<Self, RouteError> {
        if is_token(text) { Ok(Self(text.into())) } else { Err(RouteError::Method(text.to_owned())) }
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A condition on a header.
#[derive(Clone, Debug)]
pub struct HeaderCondition {
    /// Lower case.
    name: Box<str>,
    test: TextTest,
    is_negated: bool,
    missing_as_empty: bool,
}

impl HeaderCondition {
    /// The header `name` is there and its value passes the test. [`RequestFacts::header`] defines the value of a header with
    /// several lines.
    ///
    /// # Errors
    /// No field name.
    pub fn new(name: &str, test: TextTest) -> Result<Self, RouteError> {
        if !is_token(name) {
            return Err(RouteError::HeaderName(name.to_owned()));
        }
        Ok(Self { name: name.to_ascii_lowercase().into(), test, is_negated: false, missing_as_empty: false })
    }

    /// The contrary: absent for [`Operator::Present`], else there with a value that does not pass. A missing header has no
    /// value, so it fulfils no test of one, negated or not (Contour, Envoy), unless it is taken for empty.
    #[must_use]
    pub fn negated(mut self) -> Self {
        self.is_negated = true;
        self
    }

    /// A missing header has an empty value.
    ///
    /// # Errors
    /// The condition is not negated (Contour allows it there only), or asks for presence.
    pub fn missing_as_empty(mut self) -> Result<Self, RouteError> {
        if !self.is_negated || self.test.operator() == Operator::Present {
            return Err(RouteError::MissingAsEmpty(self.name.into()));
        }
        self.missing_as_empty = true;
        Ok(self)
    }

    /// Lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it holds for this value.
    pub fn holds(&self, value: Option<&[u8]>) -> bool {
        let passes = match value {
            Some(value) => self.test.matches(value),
            None if self.test.operator() == Operator::Present => false,
            None if self.missing_as_empty => self.test.matches(b""),
            None => return false,
        };
        passes != self.is_negated
    }

    /// Whether each request that fulfils `other` fulfils this too, as far as their texts tell.
    pub(crate) fn follows_from(&self, other: &Self) -> bool {
        if self.name != other.name {
            return false;
        }
        let manner = |condition: &Self| (condition.is_negated, condition.missing_as_empty);
        let is_same = manner(self) == manner(other) && self.test.is_same(&other.test);
        let is_present = self.test.operator() == Operator::Present && !self.is_negated && !other.is_negated;
        let only = other.test.only_value().filter(|_| !other.is_negated);
        is_same || is_present || only.is_some_and(|value| self.holds(Some(value)))
    }

    /// Orders conditions, the more specific first (contract of routing, step 7).
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let key = |condition: &Self| (condition.test.operator(), condition.is_negated);
        self.name.cmp(&other.name).then_with(|| key(self).cmp(&key(other)))
    }
}

impl fmt::Display for HeaderCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.is_negated { "not " } else { "" };
        let missing = if self.missing_as_empty { ", missing as empty" } else { "" };
        write!(f, "header `{}` {not}{}{missing}", self.name, self.test)
    }
}

/// A condition on a pair of the query. If several pairs have the same name, the first counts.
#[derive(Clone, Debug)]
pub struct QueryCondition {
    name: Box<str>,
    test: TextTest,
}

impl QueryCondition {
    /// There is a pair with this name, case-sensitive, and its decoded value passes the test.
    pub fn new(name: &str, test: TextTest) -> Self {
        Self { name: name.into(), test }
    }

    /// As it is in a decoded query.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it holds for this query. Allocates only for a value with escapes.
    pub fn holds(&self, query: Option<&[u8]>) -> bool {
        let value = query.and_then(|query| query::first(query, self.name.as_bytes()));
        value.is_some_and(|value| self.test.operator() == Operator::Present || self.test.matches(&value.decoded()))
    }

    /// Whether each request that fulfils `other` fulfils this too, as far as their texts tell.
    pub(crate) fn follows_from(&self, other: &Self) -> bool {
        let is_present = self.test.operator() == Operator::Present;
        let is_passed = other.test.only_value().is_some_and(|value| self.test.matches(value));
        self.name == other.name && (is_present || is_passed || self.test.is_same(&other.test))
    }

    /// Orders conditions, the more specific first (contract of routing, step 7).
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name).then_with(|| self.test.operator().cmp(&other.test.operator()))
    }
}

impl fmt::Display for QueryCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query `{}` {}", self.name, self.test)
    }
}

/// The first condition of a route that does not hold.
#[derive(Clone, Copy, Debug)]
pub enum Failure<'a> {
    /// The path.
    Path,
    /// The method is none of the route's.
    Method,
    /// This one.
    Header(&'a HeaderCondition),
    /// This one.
    Query(&'a QueryCondition),
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path => f.write_str("path"),
            Self::Method => f.write_str("method"),
            Self::Header(condition) => condition.fmt(f),
            Self::Query(condition) => condition.fmt(f),
        }
    }
}

/// The conditions of a route besides host and path, cheapest first.
pub(crate) fn check<'a>(
    methods: &[Method],
    headers: &'a [HeaderCondition],
    queries: &'a [QueryCondition],
    facts: &impl RequestFacts,
) -> Result<(), Failure<'a>> {
    if !methods.is_empty() && !methods.iter().any(|method| method.0.as_bytes() == facts.method()) {
        return Err(Failure::Method);
    }
    let fails = |condition: &&HeaderCondition| !condition.holds(facts.header(&condition.name).as_deref());
    if let Some(condition) = headers.iter().find(fails) {
        return Err(Failure::Header(condition));
    }
    match queries.iter().find(|condition| !condition.holds(facts.query())) {
        Some(condition) => Err(Failure::Query(condition)),
        None => Ok(()),
    }
}

/// A `token` of RFC 9110 5.6.2.
pub(crate) fn is_token(text: &str) -> bool {
    let is_token_byte = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
    };
    !text.is_empty() && text.bytes().all(is_token_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(operator: Operator, text: &str) -> HeaderCondition {
        let test = TextTest::new(operator, text, false).expect("a test");
        HeaderCondition::new("X-Env", test).expect("a name")
    }

    #[test]
    fn a_missing_header_fulfils_no_test_of_a_value_unless_it_is_taken_for_empty() {
        let exact = header(Operator::Exact, "prod");
        assert!(exact.holds(Some(b"prod")) && !exact.holds(Some(b"test")) && !exact.holds(None));
        let not = exact.clone().negated();
        assert!(!not.holds(Some(b"prod")) && not.holds(Some(b"test")) && !not.holds(None));
        let not_or_missing = not.missing_as_empty().expect("negated");
        assert!(not_or_missing.holds(None) && !not_or_missing.holds(Some(b"prod")));
        let not_empty = header(Operator::Exact, "").negated().missing_as_empty().expect("negated");
        assert!(!not_empty.holds(None), "missing is empty");
        assert!(exact.missing_as_empty().is_err(), "only where negated");
    }

    #[test]
    fn absent_is_present_negated() {
        let present = header(Operator::Present, "");
        assert!(present.holds(Some(b"")) && !present.holds(None));
        let absent = present.negated();
        assert!(!absent.holds(Some(b"")) && absent.holds(None));
        assert!(absent.missing_as_empty().is_err(), "a question for presence has no value");
    }

    #[test]
    fn a_query_condition_sees_the_first_decoded_value() {
        let test = |operator, text| TextTest::new(operator, text, false).expect("a test");
        let exact = QueryCondition::new("v", test(Operator::Exact, "a b"));
        assert!(exact.holds(Some(b"x=1&v=a%20b&v=c")) && exact.holds(Some(b"v=a+b")));
        assert!(!exact.holds(Some(b"v=c&v=a+b")) && !exact.holds(Some(b"V=a+b")) && !exact.holds(None));
        let present = QueryCondition::new("v", test(Operator::Present, ""));
        assert!(present.holds(Some(b"v")) && !present.holds(Some(b"w=v")));
    }

    #[test]
    fn names_and_methods_are_tokens() {
        for text in ["", "a b", "a:", "\u{e9}", "a\r"] {
            assert!(Method::new(text).is_err(), "{text}");
            let test = TextTest::new(Operator::Present, "", false).expect("a test");
            assert!(HeaderCondition::new(text, test).is_err(), "{text}");
        }
        assert_eq!(Method::new("PROPFIND").expect("a token").as_str(), "PROPFIND");
    }

    #[test]
    fn conditions_print_their_requirement() {
        let condition = header(Operator::Contains, "a").negated().missing_as_empty().expect("negated");
        assert_eq!(condition.to_string(), "header `x-env` not contains `a`, missing as empty");
        let test = TextTest::new(Operator::Prefix, "b", true).expect("a test");
        assert_eq!(QueryCondition::new("V", test).to_string(), "query `V` prefix `b` (any case)");
    }
}
