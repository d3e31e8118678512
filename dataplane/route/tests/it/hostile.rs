//! Large tables and requests made to be slow. A reader that is quadratic somewhere would need minutes here.

use std::time::{Duration, Instant};

use crate::support::{Request, With, path, route};
use weir_analysis::http::path::PathRules;
use weir_route::{RouteTable, rewrite::PathRewrite, text::Operator};

/// Far above what is needed, far below what a quadratic search would take.
const BOUND: Duration = Duration::from_secs(20);

#[test]
fn a_request_costs_the_same_in_a_table_of_thousands_of_hosts_and_prefixes() {
    let mut routes = Vec::new();
    for number in 0..5_000 {
        routes.push(route("exact", &format!("h{number}.example.com"), "/"));
        routes.push(route("wildcard", &format!("*.w{number}.example.com"), "/"));
    }
    for number in 0..5_000 {
        routes.push(route("prefix", "big.example.com", &format!("/p{number}")));
        routes.push(route("path", "big.example.com", &format!("=/e{number}")));
    }
    let table = RouteTable::new(routes);
    let start = Instant::now();
    for round in 0..20_000 {
        let number = round % 5_000;
        for (host, path, expected) in [
            (format!("h{number}.example.com"), "/x".to_owned(), Some("exact")),
            (format!("a.w{number}.example.com"), "/x".to_owned(), Some("wildcard")),
            ("big.example.com".to_owned(), format!("/p{number}/x"), Some("prefix")),
            ("big.example.com".to_owned(), format!("/e{number}"), Some("path")),
            ("big.example.com".to_owned(), format!("/e{number}/x"), None),
            ("none.example.com".to_owned(), "/".to_owned(), None),
        ] {
            assert_eq!(table.find(&Request::get(&host, &path)).map(|route| &*route.name), expected, "{host}{path}");
        }
    }
    assert!(start.elapsed() < BOUND, "took {:?}", start.elapsed());
}

#[test]
fn long_hosts_and_deep_paths_are_searched_in_linear_time() {
    let deep: Vec<_> = (1..200).map(|depth| route("deep", "*.com", &"/a".repeat(depth))).collect();
    let mut routes = deep;
    routes.push(route("any", "*", "/").header("x", Operator::Present, ""));
    let table = RouteTable::new(routes);
    let start = Instant::now();
    let long_path = "/a".repeat(500_000);
    for _ in 0..100 {
        assert!(table.find(&Request::get("x.com", &long_path)).is_some());
        assert!(table.find(&Request::get("x.com", &"/b".repeat(10_000))).is_none());
    }
    // Such hosts never get here; a table must not depend on it.
    for host in ["a.".repeat(500_000), ".".repeat(1_000_000), "a".repeat(1_000_000)] {
        assert!(table.find(&Request::get(&host, "/")).is_none());
    }
    assert!(start.elapsed() < BOUND, "took {:?}", start.elapsed());
}

#[test]
fn conditions_read_long_values_in_linear_time() {
    let mut hostile = route("hostile", "*", "~/(a*)*b");
    hostile =
        hostile.header("x", Operator::Regex, "(a|aa)+$x").header("x", Operator::Contains, &("a".repeat(500) + "b"));
    let mut any_case = route("any case", "*", "/");
    let test = weir_route::text::TextTest::new(Operator::Contains, &("a".repeat(500) + "b"), true).expect("a test");
    any_case.headers.push(weir_route::condition::HeaderCondition::new("x", test).expect("a name"));
    let table = RouteTable::new(vec![hostile, any_case.query("q", Operator::Suffix, "b")]);
    let start = Instant::now();
    let request = Request::get("a", &format!("/{}", "a".repeat(16_000))).query(&"q=%61&".repeat(10_000));
    for value in ["a".repeat(64_000), "A".repeat(64_000)] {
        assert!(table.find(&request.clone().header("x", &value)).is_none());
    }
    let many_lines = (0..100).fold(request, |request, _| request.header("x", &"a".repeat(600)));
    assert!(table.find(&many_lines).is_none());
    assert!(start.elapsed() < BOUND, "took {:?}", start.elapsed());
}

#[test]
fn rewrites_of_long_paths_are_bounded() {
    let rules = PathRules::default();
    let prefix = PathRewrite::prefix(&path("/a"), "/b", &rules).expect("a rewrite");
    // Every search looks through all that is left.
    let regex = PathRewrite::regex(".*[^A-Z]|[A-Z]", "x", &rules).expect("a rewrite");
    let start = Instant::now();
    assert!(prefix.apply("/a".repeat(1_000_000).as_bytes()).is_err(), "longer than a path may be");
    for _ in 0..10 {
        assert!(regex.apply(format!("/{}", "A".repeat(100_000)).as_bytes()).is_err());
    }
    assert!(start.elapsed() < BOUND, "took {:?}", start.elapsed());
}
