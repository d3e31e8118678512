//! Rewrites of paths and hosts.

use super::*;

const RULES: fn() -> PathRules = PathRules::default;

fn applied(rewrite: &PathRewrite, path: &str) -> Result<String, RewriteError> {
    rewrite.apply(path.as_bytes()).map(|made| String::from_utf8_lossy(&made).into_owned())
}

/// The table of the Gateway API's `ReplacePrefixMatch`, and more.
#[test]
fn a_prefix_is_replaced_and_the_result_begins_with_one_slash() {
    for (prefix, replacement, path, expected) in [
        ("/foo", "/xyz", "/foo/bar", "/xyz/bar"),
        ("/foo", "/xyz/", "/foo/bar", "/xyz/bar"),
        ("/foo/", "/xyz", "/foo/bar", "/xyz/bar"),
        ("/foo/", "/xyz/", "/foo/bar", "/xyz/bar"),
        ("/foo", "/xyz", "/foo", "/xyz"),
        ("/foo", "/xyz", "/foo/", "/xyz/"),
        ("/foo", "", "/foo/bar", "/bar"),
        ("/foo", "", "/foo/", "/"),
        ("/foo", "", "/foo", "/"),
        ("/foo", "/", "/foo/", "/"),
        ("/foo", "/", "/foo", "/"),
        ("/foo", "xyz", "/foo/bar", "/xyz/bar"),
        ("/foo", "//xyz//", "/foo/bar", "/xyz/bar"),
        ("/", "/api", "/x/y", "/api/x/y"),
        ("/", "/api", "/", "/api/"),
    ] {
        let matched = PathMatch::segments(prefix, &RULES()).expect("a prefix");
        let rewrite = PathRewrite::prefix(&matched, replacement, &RULES()).expect("a rewrite");
        assert_eq!(applied(&rewrite, path).as_deref(), Ok(expected), "{prefix} by {replacement:?}: {path}");
    }
}

#[test]
fn a_string_prefix_is_replaced_in_the_middle_of_a_segment() {
    let matched = PathMatch::text("/v1-", &RULES()).expect("a prefix");
    let rewrite = PathRewrite::prefix(&matched, "/v2/", &RULES()).expect("a rewrite");
    assert_eq!(applied(&rewrite, "/v1-users/7").as_deref(), Ok("/v2/users/7"));
    assert_eq!(applied(&rewrite, "/other").as_deref(), Ok("/other"), "without the prefix nothing changes");
}

#[test]
fn a_rewrite_cannot_climb() {
    let matched = PathMatch::text("/img", &RULES()).expect("a prefix");
    let rewrite = PathRewrite::prefix(&matched, "/", &RULES()).expect("a rewrite");
    assert_eq!(applied(&rewrite, "/img../etc"), Err(RewriteError::Path(PathError::AboveRoot)));
    let regex = PathRewrite::regex("^/(.*)-(.*)$", "/$1/$2", &RULES()).expect("a rewrite");
    assert_eq!(applied(&regex, "/..-x"), Err(RewriteError::Path(PathError::AboveRoot)));
    assert_eq!(applied(&regex, "/a-b").as_deref(), Ok("/a/b"));
}

#[test]
fn a_regex_puts_its_groups_where_the_replacement_says() {
    for (pattern, replacement, path, expected) in [
        ("^/service/([^/]+)(/.*)$", "$2/instance/$1", "/service/foo/v1/api", "/v1/api/instance/foo"),
        ("^/u/(?<id>[0-9]+)", "/users/${id}x", "/u/7/p", "/users/7x/p"),
        ("^/(a)", "/${1}1$$", "/a", "/a1$"),
        ("one", "two", "/xxx/one/yyy/one/zzz", "/xxx/two/yyy/two/zzz"),
        ("^/(a)?b", "/$1c", "/b", "/c"),
        ("nothing", "/x", "/a", "/a"),
        ("^/a/", "", "/a/b", "/b"),
        ("^/", "//", "/a", "/a"),
        (".*", "", "/a", "/"),
    ] {
        let rewrite = PathRewrite::regex(pattern, replacement, &RULES()).expect("a rewrite");
        assert_eq!(applied(&rewrite, path).as_deref(), Ok(expected), "{pattern} {replacement}");
    }
}

#[test]
fn a_replacement_is_read_when_the_route_is_built() {
    let error = |replacement| PathRewrite::regex("/(?<id>a)", replacement, &RULES()).err();
    let group = |text: &str, group: &str| Some(RouteError::Group { text: text.to_owned(), group: group.to_owned() });
    assert_eq!(error("/$2"), group("/$2", "2"));
    assert_eq!(error("/${name}"), group("/${name}", "name"));
    for replacement in ["/$", "/$id", "/${id", "/a$/"] {
        assert_eq!(error(replacement), Some(RouteError::Dollar(replacement.to_owned())), "{replacement}");
    }
    for replacement in ["/a?b", "/a b", "/a\r\nb", "/\u{e9}"] {
        assert_eq!(error(replacement), Some(RouteError::Replacement(replacement.to_owned())), "{replacement}");
        assert!(PathRewrite::full(replacement, &RULES()).is_err(), "{replacement}");
        let matched = PathMatch::segments("/a", &RULES()).expect("a prefix");
        assert!(PathRewrite::prefix(&matched, replacement, &RULES()).is_err(), "{replacement}");
    }
    let exact = PathMatch::exact("/a", &RULES()).expect("a path");
    assert!(matches!(PathRewrite::prefix(&exact, "/b", &RULES()), Err(RouteError::NoPrefix(_))));
}

#[test]
fn a_full_path_replaces_the_path_as_written() {
    for (replacement, expected) in [("/x/y", "/x/y"), ("x", "/x"), ("", "/"), ("//x", "/x"), ("/a/../b", "/b")] {
        let rewrite = PathRewrite::full(replacement, &RULES()).expect("a rewrite");
        assert_eq!(applied(&rewrite, "/whatever").as_deref(), Ok(expected), "{replacement}");
    }
}

#[test]
fn a_rewrite_does_not_grow_without_bound() {
    let rewrite = PathRewrite::regex("^(.*)$", &"$1".repeat(1_000), &RULES()).expect("a rewrite");
    assert_eq!(applied(&rewrite, &"/a".repeat(2_000)), Err(RewriteError::TooLong));
    let rewrite = PathRewrite::regex("a", "b", &RULES()).expect("a rewrite");
    assert_eq!(applied(&rewrite, &"/a".repeat(1_000)), Err(RewriteError::TooLong));
    assert!(applied(&rewrite, &"/a".repeat(REPLACEMENTS_MAX)).is_ok());
}

struct Request(Option<Cow<'static, [u8]>>);

impl RequestFacts for Request {
    fn host(&self) -> &[u8] {
        b"front.example"
    }
    fn path(&self) -> &[u8] {
        b"/"
    }
    fn query(&self) -> Option<&[u8]> {
        None
    }
    fn method(&self) -> &[u8] {
        b"GET"
    }
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.0.clone().filter(|_| name == "x-host")
    }
}

#[test]
fn a_host_is_a_literal_or_comes_from_a_header() {
    let literal = HostRewrite::literal("Back.example:8080").expect("a host");
    assert_eq!(literal.apply(&Request(None)).expect("a host").as_deref(), Some(&b"back.example:8080"[..]));
    assert!(HostRewrite::literal("a b").is_err() && HostRewrite::from_header("x host").is_err());
    let header = HostRewrite::from_header("X-Host").expect("a name");
    let apply = |value: Option<Cow<'static, [u8]>>| {
        let request = Request(value);
        header.apply(&request).map(|host| host.map(Cow::into_owned))
    };
    assert_eq!(apply(None), Ok(None), "the host stays");
    assert_eq!(apply(Some(Cow::Borrowed(b"A.b:81"))), Ok(Some(b"a.b:81".to_vec())));
    assert_eq!(apply(Some(Cow::Owned(b"a.b".to_vec()))), Ok(Some(b"a.b".to_vec())));
    assert_eq!(apply(Some(Cow::Owned(b"a.b, c.d".to_vec()))), Err(HostError::Character), "two lines of it");
    assert_eq!(apply(Some(Cow::Borrowed(b""))), Err(HostError::Empty));
}
