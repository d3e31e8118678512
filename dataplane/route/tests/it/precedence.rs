//! The contract of routing: which route is tried first, and which requests have none.

use crate::support::{Request, With, route};
use weir_route::{Route, RouteTable, text::Operator};

/// Names in the order of the table, whatever order they were declared in.
fn assert_order(routes: Vec<Route<usize>>) {
    let expected: Vec<_> = routes.iter().map(|route| route.name.clone()).collect();
    let names = |table: &RouteTable<usize>| table.routes().iter().map(|route| route.name.clone()).collect::<Vec<_>>();
    let mut shuffled = routes.clone();
    for _ in 0..routes.len() {
        shuffled.rotate_left(1);
        assert_eq!(names(&RouteTable::new(shuffled.clone())), expected);
    }
    shuffled.reverse();
    assert_eq!(names(&RouteTable::new(shuffled)), expected, "declared in reverse");
}

fn name<'a>(table: &'a RouteTable<usize>, request: &Request) -> Option<&'a str> {
    let found = table.find(request).map(|route| &*route.name);
    let explanation = table.explain(request);
    assert_eq!(explanation.chosen().map(|route| &*route.name), found, "explained otherwise: {explanation}");
    found
}

#[test]
fn step_1_exact_hosts_then_longer_wildcards_then_any() {
    assert_order(vec![
        route("exact", "a.example.com", "/"),
        route("longer", "*.b.example.com", "/"),
        route("one label", "*.example.com", "/"),
        route("many labels", "**.example.com", "/"),
        route("shorter", "*.com", "=/very/exact"),
        route("any", "*", "=/very/exact"),
    ]);
}

#[test]
fn step_2_exact_paths_then_regexes_then_prefixes() {
    assert_order(vec![
        route("exact", "*", "=/a"),
        route("longer regex", "*", "~/a/b.*"),
        route("regex", "*", "~/.*"),
        route("longer prefix", "*", "/a/b/c"),
        route("segments", "*", "/a/b"),
        route("text", "*", "^/a/b"),
        route("root", "*", "/"),
    ]);
}

#[test]
fn steps_3_to_6_method_then_headers_then_query_then_priority() {
    use Operator::Present;
    assert_order(vec![
        route("method", "*", "/").method("GET").priority(9),
        route("two headers", "*", "/").header("b", Present, "").header("c", Present, ""),
        route("header and query", "*", "/").header("z", Present, "").query("a", Present, ""),
        route("header", "*", "/").header("a", Operator::Exact, "x"),
        route("two queries", "*", "/").query("b", Present, "").query("c", Present, ""),
        route("query", "*", "/").query("a", Present, ""),
        route("lower number", "*", "/").priority(-1),
        route("no number", "*", "/"),
        route("higher number", "*", "/").priority(1),
    ]);
}

#[test]
fn step_7_conditions_by_name_then_by_operator() {
    use Operator::*;
    assert_order(vec![
        route("a exact, z", "*", "/").header("z", Present, "").header("a", Exact, "x"),
        route("a regex, b", "*", "/").header("a", Regex, "x").header("b", Exact, "x"),
        route("a regex, z", "*", "/").header("a", Regex, "x").header("z", Exact, "x"),
        route("exact", "*", "/").header("a", Exact, "x"),
        route("regex", "*", "/").header("a", Regex, "x"),
        route("prefix", "*", "/").header("a", Prefix, "x"),
        route("suffix", "*", "/").header("a", Suffix, "x"),
        route("contains", "*", "/").header("a", Contains, "x"),
        route("present", "*", "/").header("a", Present, ""),
        route("b exact", "*", "/").header("b", Exact, "x"),
        route("query exact", "*", "/").query("a", Exact, "x"),
        route("query present", "*", "/").query("a", Present, ""),
        route("query b", "*", "/").query("b", Exact, "x"),
    ]);
}

#[test]
fn step_8_equal_routes_stay_as_declared() {
    let names = ["z", "a", "m"];
    let table = RouteTable::new(names.iter().map(|name| route(name, "*", "/")).collect());
    let order: Vec<&str> = table.routes().iter().map(|route| &*route.name).collect();
    assert_eq!(order, names);
    assert_eq!(name(&table, &Request::get("a", "/")), Some("z"));
}

#[test]
fn a_route_whose_conditions_fail_is_passed_over_within_its_host() {
    let table = RouteTable::new(vec![
        route("exact POST", "a.com", "=/x").method("POST"),
        route("regex beta", "a.com", "~/x.*").header("x-beta", Operator::Exact, "1"),
        route("prefix v=2", "a.com", "/x").query("v", Operator::Exact, "2"),
        route("root", "a.com", "/"),
    ]);
    let request = Request::get("a.com", "/x");
    for (request, expected) in [
        (request.clone().method("POST"), "exact POST"),
        (request.clone().header("x-beta", "1"), "regex beta"),
        (request.clone().header("x-beta", "0").query("v=2"), "prefix v=2"),
        (request.clone().query("v=1&v=2"), "root"),
        (Request::get("a.com", "/xy").method("POST"), "root"),
    ] {
        assert_eq!(name(&table, &request), Some(expected), "{request:?}");
    }
}

/// Envoy's virtual hosts: a request that the routes of its host do not take goes to no other host.
#[test]
fn the_host_is_chosen_first_and_finally() {
    let table = RouteTable::new(vec![
        route("a", "a.example.com", "/only"),
        route("one", "*.example.com", "/one"),
        route("many", "**.example.com", "/"),
        route("any", "*", "/"),
    ]);
    for (host, path, expected) in [
        ("a.example.com", "/only/x", Some("a")),
        ("a.example.com", "/", None),
        ("a.example.com", "/one", None),
        ("b.example.com", "/one", Some("one")),
        ("b.example.com", "/", None),
        ("b.c.example.com", "/", Some("many")),
        ("example.com", "/", Some("any")),
        ("", "/", Some("any")),
    ] {
        assert_eq!(name(&table, &Request::get(host, path)), expected, "{host}{path}");
    }
    let without_default = RouteTable::new(vec![route("a", "a.example.com", "/")]);
    assert_eq!(name(&without_default, &Request::get("b.example.com", "/")), None);
    assert_eq!(name(&RouteTable::new(vec![]), &Request::get("a", "/")), None);
}

#[test]
fn a_repeated_header_is_one_value() {
    let table = RouteTable::new(vec![
        route("exact", "*", "/").header("x-env", Operator::Exact, "prod"),
        route("contains", "*", "/").header("x-env", Operator::Contains, "prod"),
        route("rest", "*", "/"),
    ]);
    let request = Request::get("a", "/").header("x-env", "prod");
    assert_eq!(name(&table, &request), Some("exact"));
    assert_eq!(name(&table, &request.header("x-env", "test")), Some("contains"), "`prod, test` is not `prod`");
}

#[test]
fn an_explanation_names_the_failed_condition_of_each_route() {
    let table = RouteTable::new(vec![
        route("path", "a.com", "=/other"),
        route("method", "a.com", "/x").method("POST"),
        route("header", "a.com", "/x").header("a", Operator::Present, "").header("b", Operator::Present, ""),
        route("query", "a.com", "/x").query("v", Operator::Exact, "1"),
        route("chosen", "a.com", "/x"),
        route("never", "a.com", "/"),
        route("elsewhere", "*", "/"),
    ]);
    let explanation = table.explain(&Request::get("a.com", "/x").header("a", "1"));
    let told: Vec<(&str, String)> = explanation
        .steps
        .iter()
        .map(|step| (&*step.route.name, step.failure.map_or("-".to_owned(), |failure| failure.to_string())))
        .collect();
    let expected = [
        ("path", "path"),
        ("method", "method"),
        ("header", "header `b` present"),
        ("query", "query `v` exact `1`"),
        ("chosen", "-"),
    ];
    assert_eq!(told, expected.map(|(name, failure)| (name, failure.to_owned())));
    assert!(explanation.to_string().contains("yes  chosen: host a.com, prefix `/x`"), "{explanation}");
    let none = table.explain(&Request::get("a.com", "/").method("POST"));
    assert_eq!(none.chosen().map(|route| &*route.name), Some("never"));
    assert!(RouteTable::<usize>::new(vec![]).explain(&Request::get("a", "/")).to_string().contains("no host matches"));
}

#[test]
fn a_dump_has_a_line_per_route_in_order() {
    let table = RouteTable::new(vec![
        route("rest", "*", "/"),
        route("api", "*.a.com", "^/api").method("GET").method("HEAD").query("v", Operator::Prefix, "2").priority(3),
    ]);
    let expected = "   1  api: host *.a.com, string prefix `/api`, method GET or HEAD, query `v` prefix `2`, priority 3\n   2  rest: host *, prefix `/`\n";
    assert_eq!(table.dump(), expected);
}
