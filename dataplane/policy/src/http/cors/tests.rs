//! Preflights and responses as browsers see them.

use super::*;
use crate::http::request;

fn settings(origins: &[&str]) -> CorsSettings {
    let origins = origins.iter().map(|text| match *text {
        "*" => OriginRule::Any,
        text => text
            .strip_prefix('~')
            .map_or_else(|| OriginRule::Exact(text.to_owned()), |regex| OriginRule::Regex(regex.to_owned())),
    });
    CorsSettings { origins: origins.collect(), ..CorsSettings::default() }
}

fn head(method: &str, fields: &[(&str, &str)]) -> RequestHead {
    request(method, "/", fields)
}

fn text(fields: &Fields) -> String {
    let mut bytes = Vec::new();
    fields.write(&mut bytes);
    String::from_utf8(bytes).expect("ASCII").replace("\r\n", "|")
}

fn response(cors: &Cors, origin: &str, response: &[(&str, &str)]) -> String {
    let mut fields = head("GET", response).fields;
    cors.apply(&head("GET", &[("Origin", origin)]).fields, &mut fields);
    text(&fields)
}

const VARY: &str = "vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers, \
                    Access-Control-Request-Private-Network|";

#[test]
fn a_preflight_is_options_with_both_fields() {
    let (origin, method) = (("Origin", "https://a.example"), ("access-control-request-method", "PUT"));
    assert!(is_preflight(&head("OPTIONS", &[origin, method])));
    for (name, fields) in
        [("GET", &[origin, method][..]), ("OPTIONS", &[origin]), ("OPTIONS", &[method]), ("options", &[origin, method])]
    {
        assert!(!is_preflight(&head(name, fields)), "{name} {fields:?}");
    }
}

#[test]
fn a_preflight_gets_all_that_is_allowed() {
    let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect();
    let cors = Cors::new(&CorsSettings {
        methods: list(&["PUT", "DELETE"]),
        headers: list(&["Authorization", "X-One"]),
        expose: list(&["X-Total"]),
        max_age: Some(600),
        credentials: true,
        private_network: true,
        ..settings(&["https://a.example"])
    })
    .expect("a policy");
    let preflight = |origin, more: &[(&str, &str)]| {
        let mut fields = vec![("Origin", origin), ("Access-Control-Request-Method", "PUT")];
        fields.extend(more);
        cors.preflight(&head("OPTIONS", &fields)).expect("a preflight")
    };
    let leave = preflight("https://a.example", &[]);
    let expected = "access-control-allow-origin: https://a.example|access-control-allow-credentials: true|\
                    access-control-allow-methods: PUT, DELETE|access-control-allow-headers: Authorization, X-One|\
                    access-control-max-age: 600|";
    assert!(leave.is_allowed);
    assert_eq!(text(&leave.fields), format!("{expected}{VARY}"));
    let private = preflight("https://a.example", &[("Access-Control-Request-Private-Network", "true")]);
    assert!(text(&private.fields).contains("|access-control-allow-private-network: true|"));
    let denied = preflight("https://b.example", &[]);
    assert_eq!((denied.is_allowed, text(&denied.fields).as_str()), (false, VARY));
    let refusal = Refusal::from(denied);
    assert_eq!((refusal.status, refusal.reason), (204, "cors_origin_denied"));
    assert!(cors.preflight(&head("GET", &[("Origin", "https://a.example")])).is_none());
}

#[test]
fn responses_echo_the_origin_and_replace_the_fields_of_the_server() {
    let cors = Cors::new(&CorsSettings { expose: vec!["X-Total".into()], ..settings(&["https://a.example"]) });
    let cors = cors.expect("a policy");
    let server = [("Access-Control-Allow-Origin", "*"), ("Access-Control-Allow-Credentials", "true"), ("A", "1")];
    assert_eq!(
        response(&cors, "https://a.example", &server),
        "A: 1|access-control-allow-origin: https://a.example|access-control-expose-headers: X-Total|vary: Origin|"
    );
    assert_eq!(response(&cors, "https://b.example", &server), "A: 1|vary: Origin|");
    assert_eq!(response(&cors, "https://a.example.", &[]), "vary: Origin|");
    let mut plain = Fields::new();
    cors.apply(&Fields::new(), &mut plain);
    assert_eq!(text(&plain), "vary: Origin|", "a request without Origin: a cache may keep the response");
    for vary in ["accept, ORIGIN", "*"] {
        assert!(!response(&cors, "https://b.example", &[("Vary", vary)]).contains("vary: Origin|"), "{vary}");
    }
}

#[test]
fn any_origin_gets_a_star_and_no_vary() {
    let cors = Cors::new(&settings(&["*"])).expect("a policy");
    assert_eq!(response(&cors, "https://b.example", &[]), "access-control-allow-origin: *|");
    assert_eq!(response(&cors, "null", &[]), "access-control-allow-origin: *|");
}

#[test]
fn a_regex_matches_the_whole_origin() {
    let cors =
        Cors::new(&settings(&["~https://[a-z]+\\.example\\.com", "~a|https://x\\.org", "null"])).expect("regexes");
    for (origin, is_allowed) in [
        ("https://app.example.com", true),
        ("https://app.example.com.evil.org", false),
        ("https://evil.org/https://app.example.com", false),
        ("https://appxexample.com", false),
        ("https://x.org", true),
        ("https://x.org:8443", false),
        ("null", true),
        ("", false),
    ] {
        assert_eq!(response(&cors, origin, &[]).contains("allow-origin"), is_allowed, "{origin}");
    }
    let two = head("GET", &[("Origin", "null"), ("Origin", "https://x.org")]);
    assert_eq!(cors.allowed(origin_of(&two.fields)), None, "two origins are none");
    let long = format!("https://{}.example.com", "a".repeat(ORIGIN_BYTES_MAX));
    assert!(!response(&cors, &long, &[]).contains("allow-origin"));
}

#[test]
fn credentials_never_go_with_a_star() {
    let star = || vec!["*".to_owned()];
    for (settings, what) in [
        (settings(&["*"]), "origins"),
        (settings(&["https://a.example", "*"]), "origins"),
        (CorsSettings { methods: star(), ..settings(&["null"]) }, "methods"),
        (CorsSettings { headers: star(), ..settings(&["null"]) }, "headers"),
        (CorsSettings { expose: star(), ..settings(&["null"]) }, "expose"),
    ] {
        assert!(Cors::new(&settings).is_ok());
        let with = CorsSettings { credentials: true, ..settings };
        assert_eq!(Cors::new(&with).err(), Some(CorsError::AnyWithCredentials(what)));
    }
}

#[test]
fn origins_that_no_browser_sends_are_build_errors() {
    for (origin, word) in [
        ("https://a.example/", "no path"),
        ("a.example", "no scheme"),
        ("https://A.example", "lower case"),
        ("https://a.example:443", "default port"),
        ("http://a.example:80", "default port"),
        ("https://*.example", "regex"),
        ("https://a.example\r\nx: y", "is not"),
        ("://a", "is not"),
        ("~(", "no regex"),
        ("~a)|(?:b", "no regex"),
        ("~(a{1000}){1000}", "no regex"),
    ] {
        let error = Cors::new(&settings(&[origin])).expect_err(origin).to_string();
        assert!(error.contains(word), "{origin}: {error}");
    }
    assert!(Cors::new(&settings(&["https://a.example:8443", "http://[::1]:3000", "app://local"])).is_ok());
    assert_eq!(Cors::new(&settings(&[])).err(), Some(CorsError::NoOrigins));
    let bad = CorsSettings { headers: vec!["a b".into()], ..settings(&["*"]) };
    assert!(matches!(Cors::new(&bad), Err(CorsError::Name { what: "headers", .. })));
    let many = CorsSettings { methods: vec!["A".into(); LIST_ENTRIES_MAX + 1], ..settings(&["*"]) };
    assert!(matches!(Cors::new(&many), Err(CorsError::TooMany { .. })));
}
