//! The table against a router that anyone can check by reading it: of the hosts that match, the best; of its routes, in
//! order, the first that takes the request.

use crate::support::{Request, With, route};
use proptest::{collection::vec, prelude::*, sample::select};
use weir_route::{RequestFacts, Route, RouteTable, text::Operator};

const HOSTS: &[&str] = &[
    "*",
    "a.com",
    "b.a.com",
    "c.b.a.com",
    "*.a.com",
    "**.a.com",
    "*.b.a.com",
    "**.b.a.com",
    "*.com",
    "**.com",
    "[::1]",
];

const NAMES: &[&str] = &["a.com", "b.a.com", "c.b.a.com", "d.c.b.a.com", "x.com", "com", "x.org", "[::1]", ""];

const PATHS: &[&str] = &[
    "/",
    "^/",
    "=/",
    "/a",
    "^/a",
    "=/a",
    "/a/b",
    "^/a/b",
    "=/a/b",
    "/ab",
    "^/ab",
    "/a/b/c",
    "^/a/b/",
    "/b",
    "^/b",
    "=/b/",
    "~/a.*",
    "~/a/b",
    "~/[a-b]/.*",
    "~/.+/c",
    "~/b?",
];

const REQUESTED: &[&str] =
    &["/", "/a", "/a/", "/ab", "/abc", "/a/b", "/a/b/", "/a/b/c", "/a/bc", "/b", "/b/", "/b/c", "/c"];

fn routes() -> impl Strategy<Value = Vec<Route<usize>>> {
    let condition = || {
        let operator =
            select(&[Operator::Exact, Operator::Regex, Operator::Prefix, Operator::Contains, Operator::Present][..]);
        (select(&["p", "q"][..]), operator, select(&["1", "2"][..]))
    };
    let one = (
        select(HOSTS),
        select(PATHS),
        vec(select(&["GET", "POST"][..]), 0..2),
        vec(condition(), 0..3),
        vec(condition(), 0..3),
        0..3_i32,
    );
    vec(one, 0..40).prop_map(|all| {
        let made = all.into_iter().enumerate().map(|(number, (host, path, methods, headers, queries, priority))| {
            let mut made = route(&number.to_string(), host, path).priority(priority);
            made.action = number;
            made = methods.into_iter().fold(made, |route, method| route.method(method));
            made = headers.into_iter().fold(made, |route, (name, operator, text)| route.header(name, operator, text));
            queries.into_iter().fold(made, |route, (name, operator, text)| route.query(name, operator, text))
        });
        made.collect()
    })
}

fn request() -> impl Strategy<Value = Request> {
    let values = || vec((select(&["p", "q"][..]), select(&["1", "2", "12", ""][..])), 0..3);
    (select(NAMES), select(REQUESTED), select(&["GET", "POST"][..]), values(), values()).prop_map(
        |(host, path, method, headers, queries)| {
            let queries: Vec<String> = queries.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let request = Request::get(host, path).method(method).query(&queries.join("&"));
            headers.into_iter().fold(request, |request, (name, value)| request.header(name, value))
        },
    )
}

fn find<'a>(table: &'a RouteTable<usize>, request: &Request) -> Option<&'a Route<usize>> {
    // Routes are in order, so the first whose host matches has the best of the hosts.
    let best = &table.routes().iter().find(|route| route.host.matches(request.host()))?.host;
    table.routes().iter().find(|route| route.host == *best && route.check(request).is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_table_agrees_with_a_plain_search(routes in routes(), requests in vec(request(), 20)) {
        let table = RouteTable::new(routes);
        for request in &requests {
            let expected = find(&table, request).map(|route| route.action);
            prop_assert_eq!(table.find(request).map(|route| route.action), expected, "{:?}\n{}", request, table.dump());
            let explained = table.explain(request);
            prop_assert_eq!(explained.chosen().map(|route| route.action), expected, "{}", explained);
        }
    }

    #[test]
    fn precedence_is_an_order(routes in routes()) {
        let table = RouteTable::new(routes);
        for (at, one) in table.routes().iter().enumerate() {
            for other in &table.routes()[at..] {
                prop_assert!(one.precedence(other).is_le(), "{} before {}", one, other);
                prop_assert_eq!(one.precedence(other), other.precedence(one).reverse());
            }
        }
    }
}
