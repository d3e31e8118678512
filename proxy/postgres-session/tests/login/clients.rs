//! Clients that mean well, method by method, and the words for those that may not enter.

use weir_base::secret::Secret;
use weir_postgres_codec::backend::{Authentication, NegotiateProtocolVersion, tag};
use weir_postgres_codec::{Version, frontend};
use weir_postgres_session::hba::{Method, Name, Rule, Rules, Transport};
use weir_postgres_session::login::{LoginPolicy, RefusalKind, Step, TlsFacts};
use weir_postgres_session::users::Credential;

use crate::support::{End, PASSWORD, Wire, World, binding, error, feed, messages, once, refused, ssl_request, startup};

fn app(user: &str) -> Vec<u8> {
    startup(Version::V3_0, &[("user", user), ("database", "shop")])
}

/// A client that sends its packet and then a password.
fn with_password(world: &World, user: &str, password: &[u8]) -> (End, Vec<u8>) {
    let mut wire = Wire::default();
    let mut login = world.login();
    let end = feed(&mut login, world, &mut wire, &app(user));
    assert!(matches!(end, End::More), "{end:?}");
    let mut message = Vec::new();
    frontend::password(&mut message, password);
    let out = std::mem::take(&mut wire.out);
    let end = feed(&mut login, world, &mut wire, &message);
    (end, [out, wire.out].concat())
}

#[test]
fn trust_needs_nothing_and_every_startup_parameter_reaches_the_session() {
    let world = World::new(Method::Trust);
    let packet = startup(
        Version::V3_0,
        &[
            ("user", "eve"),
            ("application_name", "first"),
            ("options", r"-c geqo=off --search-path=a\ b -c DateStyle=ISO"),
            ("datestyle", "German"),
            ("user", "app"),
            ("application_name", "last"),
        ],
    );
    let (End::Done(logged_in), out) = once(&world, &packet) else { panic!("no login") };
    assert_eq!(messages(&out), [(tag::AUTHENTICATION, vec![0; 4])]);
    let start = &logged_in.start;
    assert_eq!((start.user.as_slice(), start.database.as_slice()), (&b"app"[..], &b"app"[..]), "the last user");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let settings: Vec<_> = start.settings.iter().map(|(name, value)| (text(name), text(value))).collect();
    let expected = [("geqo", "off"), ("search_path", "a b"), ("datestyle", "German"), ("application_name", "last")];
    assert_eq!(settings, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let known = Credential::Password(Secret::from(PASSWORD));
    assert_eq!((logged_in.method, &logged_in.credential), (Method::Trust, &known), "the server may want a password");
    let (End::Done(unknown), _) = once(&world, &app("anyone")) else { panic!("no login") };
    assert_eq!((unknown.credential, unknown.user.is_none()), (Credential::None, true));
}

#[test]
fn a_password_in_clear_text_is_accepted_over_tls_or_a_unix_socket_alone() {
    let world = World::new(Method::Password);
    let (refusal, out) = refused(&world, &app("app"));
    assert_eq!(refusal.kind, RefusalKind::Policy);
    assert_eq!(error(&out).0, "28000");
    let local = World { address: None, ..World::new(Method::Password) };
    for user in ["app", "verified", "hashed"] {
        let (end, _) = with_password(&local, user, PASSWORD.as_bytes());
        let End::Done(logged_in) = end else { panic!("{user}: {end:?}") };
        assert_eq!(logged_in.credential, Credential::Password(Secret::from(PASSWORD)), "{user}");
        for wrong in ["pen", "pencilx", "PENCIL"] {
            assert!(matches!(with_password(&local, user, wrong.as_bytes()).0, End::Refused(_)), "{user} {wrong}");
        }
    }
    let mut wire = Wire::default();
    let tls = World::with_tls(Method::Password, TlsFacts::default());
    let mut login = tls.login();
    assert!(matches!(feed(&mut login, &tls, &mut wire, &ssl_request()), End::StartTls));
    assert_eq!(wire.out, b"S");
    assert!(matches!(login.on_tls(TlsFacts::default(), &mut wire.out), Step::More));
    assert!(matches!(feed(&mut login, &tls, &mut wire, &app("app")), End::More));
    assert_eq!(messages(&wire.out[1..]), [(tag::AUTHENTICATION, vec![0, 0, 0, 3])]);
}

#[test]
fn md5_lets_in_with_the_hash_and_with_the_plain_password() {
    let world = World::new(Method::Md5);
    for user in ["app", "hashed"] {
        let response = weir_sasl::md5::password(user.as_bytes(), &Secret::from(PASSWORD), *b"salt");
        let (end, out) = with_password(&world, user, &response);
        assert!(matches!(end, End::Done(_)), "{user}: {end:?}");
        assert_eq!(messages(&out)[0], (tag::AUTHENTICATION, [&[0, 0, 0, 5][..], b"salt"].concat()));
        let other = weir_sasl::md5::password(user.as_bytes(), &Secret::from(PASSWORD), *b"SALT");
        assert!(matches!(with_password(&world, user, &other).0, End::Refused(_)), "the response to another salt");
    }
}

/// As in PostgreSQL: `md5` in a rule accepts a user with a verifier, by SCRAM.
#[test]
fn md5_is_scram_for_a_user_with_a_verifier() {
    let (end, out) = once(&World::new(Method::Md5), &app("verified"));
    assert!(matches!(end, End::More), "{end:?}");
    let (_, body) = &messages(&out)[0];
    assert!(matches!(Authentication::read(body), Ok(Authentication::Sasl(_))));
}

/// Every way to fail a password looks the same.
#[test]
fn unknown_users_fail_like_wrong_passwords() {
    let local = |method| World { address: None, ..World::new(method) };
    for method in [Method::Password, Method::Md5] {
        let mut texts = Vec::new();
        for user in ["app", "none", "nobody"] {
            let (end, out) = with_password(&local(method), user, b"wrong");
            let End::Refused(refusal) = end else { panic!("{end:?}") };
            assert_eq!((refusal.kind, refusal.reason), (RefusalKind::WrongPassword, "postgres_wrong_password"));
            let (sqlstate, text, detail) = error(&out);
            assert_eq!((sqlstate.as_str(), detail.as_str()), ("28P01", ""));
            texts.push(text.replace(user, "?"));
            let bodies: Vec<_> = messages(&out).into_iter().map(|(tag, _)| tag).collect();
            assert_eq!(bodies, [tag::AUTHENTICATION, tag::ERROR], "{user}");
        }
        assert_eq!(texts, vec!["password authentication failed for user \"?\""; 3]);
    }
    // MD5 of nothing must not open a user without a hash.
    let response = weir_sasl::md5::response(&Secret::from("md5"), *b"salt");
    assert!(matches!(with_password(&World::new(Method::Md5), "none", &response).0, End::Refused(_)));
}

/// The method and the iterations that strangers see are those of users.
#[test]
fn an_unknown_user_has_the_form_of_one_that_exists() {
    let mut world = World::new(Method::Md5);
    world.policy.mock_forms = world.users.forms();
    let seen = |user: &str| {
        let mut wire = Wire::default();
        let mut login = world.login();
        feed(&mut login, &world, &mut wire, &app(user));
        if messages(&wire.out)[0].1.starts_with(&[0, 0, 0, 5]) {
            return "md5".to_owned();
        }
        wire.out.clear();
        let mut message = Vec::new();
        frontend::sasl_initial(&mut message, b"SCRAM-SHA-256", Some(b"n,,n=,r=abcdefghijkl"));
        feed(&mut login, &world, &mut wire, &message);
        let challenge = String::from_utf8_lossy(&messages(&wire.out)[0].1).into_owned();
        challenge[challenge.rfind("i=").expect("iterations")..].to_owned()
    };
    let forms: std::collections::HashSet<String> = (0..64).map(|number| seen(&format!("stranger{number}"))).collect();
    // `app` and `hashed` have MD5, `verified` a verifier of 16 iterations.
    assert_eq!(forms, ["md5", "i=16"].map(str::to_owned).into());
    assert_eq!(seen("stranger7"), seen("stranger7"));
}

/// The time of a login says nothing about its user: each costs the same work.
#[test]
fn a_password_in_clear_text_costs_a_derivation_for_every_user() {
    let local = World { address: None, ..World::new(Method::Password) };
    for user in ["app", "verified", "hashed", "none", "stranger"] {
        let (mut wire, mut login, mut message) = (Wire::default(), local.login(), Vec::new());
        feed(&mut login, &local, &mut wire, &app(user));
        frontend::password(&mut message, b"wrong");
        let step = login.on_bytes(&message, &mut wire.out).step;
        assert!(matches!(step, Step::Derive(_)), "{user}: {step:?}");
    }
}

#[test]
fn an_empty_password_is_refused_with_the_text_of_postgresql() {
    let local = World { address: None, ..World::new(Method::Password) };
    let (end, out) = with_password(&local, "app", b"");
    assert!(matches!(end, End::Refused(_)));
    let (sqlstate, text, _) = error(&out);
    assert_eq!((sqlstate.as_str(), text.as_str()), ("28P01", "empty password returned by client"));
}

#[test]
fn a_certificate_lets_in_the_user_that_it_names() {
    let names = |names: &[&str]| TlsFacts {
        client_names: names.iter().map(|name| name.as_bytes().to_vec()).collect(),
        ..TlsFacts::default()
    };
    let enter = |facts: TlsFacts, user: &str| {
        let world = World::with_tls(Method::Cert, facts.clone());
        let mut wire = Wire::default();
        let mut login = world.login();
        feed(&mut login, &world, &mut wire, &ssl_request());
        login.on_tls(facts, &mut wire.out);
        let end = feed(&mut login, &world, &mut wire, &app(user));
        (end, wire.out[1..].to_vec())
    };
    assert!(matches!(enter(names(&["robot"]), "robot").0, End::Done(_)));
    let (_, out) = enter(names(&["robot"]), "app");
    assert_eq!(error(&out).1, "certificate authentication failed for user \"app\"");
    let (_, out) = enter(names(&[]), "robot");
    assert_eq!(
        (error(&out).0.as_str(), error(&out).1.as_str()),
        ("28000", "connection requires a valid client certificate")
    );
    let (_, out) = refused(&World::new(Method::Cert), &app("robot"));
    assert_eq!(error(&out).1, "connection requires a valid client certificate");
}

#[test]
fn rules_refuse_in_the_words_of_postgresql() {
    let world = World::new(Method::Trust);
    let without = World { policy: LoginPolicy { rules: Rules::default(), ..world.policy }, ..world };
    let (refusal, out) = refused(&without, &app("app"));
    assert_eq!((refusal.kind, refusal.reason), (RefusalKind::Policy, "postgres_no_rule"));
    let text = "no pg_hba.conf entry for host \"127.0.0.1\", user \"app\", database \"shop\", no encryption";
    assert_eq!((error(&out).0.as_str(), error(&out).1.as_str()), ("28000", text));
    let local = World { address: None, ..World::new(Method::Reject) };
    let (_, out) = refused(&local, &app("app"));
    let text = "pg_hba.conf rejects connection for host \"[local]\", user \"app\", database \"shop\", no encryption";
    assert_eq!(error(&out).1, text);
}

#[test]
fn a_rule_for_tls_alone_decides_by_the_connection_and_not_by_the_request() {
    let facts = TlsFacts { binding: binding(), ..TlsFacts::default() };
    let mut world = World::with_tls(Method::Trust, facts.clone());
    world.policy.rules = Rules(vec![Rule {
        transport: Transport::HostTls,
        databases: vec![Name::Is(b"shop".to_vec())],
        ..Rules::of(Method::Trust).0.remove(0)
    }]);
    let mut wire = Wire::default();
    let mut login = world.login();
    assert!(matches!(feed(&mut login, &world, &mut wire, &ssl_request()), End::StartTls));
    login.on_tls(facts, &mut wire.out);
    assert!(matches!(feed(&mut login, &world, &mut wire, &app("app")), End::Done(_)));
    let (_, out) = refused(&world, &app("app"));
    assert!(error(&out).1.ends_with("no encryption"));
}

#[test]
fn tls_is_refused_with_n_where_there_is_none_and_the_login_goes_on() {
    let local = World { address: None, ..World::with_tls(Method::Trust, TlsFacts::default()) };
    for world in [World::new(Method::Trust), local] {
        let mut wire = Wire::default();
        let mut login = world.login();
        assert!(matches!(feed(&mut login, &world, &mut wire, &ssl_request()), End::More));
        assert_eq!(wire.out, b"N");
        assert!(matches!(feed(&mut login, &world, &mut wire, &app("app")), End::Done(_)));
    }
}

#[test]
fn p20_versions_and_options_are_negotiated() {
    let world = World::new(Method::Trust);
    let none: &[(&str, &str)] = &[];
    // The newest version of a NegotiateProtocolVersion, and the options that it lists.
    let cases = [
        (0x3_0000, none, Version::V3_0, None),
        (0x3_0001, none, Version::of(0x3_0001), None),
        (0x3_0002, none, Version::V3_2, None),
        (0x3_0003, none, Version::V3_2, Some((Version::V3_2, vec![]))),
        (0x3_270f, &[("_pq_.grease", "")], Version::V3_2, Some((Version::V3_2, vec!["_pq_.grease"]))),
        (0x3_0000, &[("_pq_.a", "1"), ("_pq_.b", "2")], Version::V3_0, Some((Version::V3_0, vec!["_pq_.a", "_pq_.b"]))),
    ];
    for (code, options, spoken, negotiated) in cases {
        let parameters = [&[("user", "app")][..], options].concat();
        let (End::Done(logged_in), out) = once(&world, &startup(Version::of(code), &parameters)) else {
            panic!("{code}")
        };
        assert_eq!(logged_in.start.version, spoken, "{code:x}");
        assert_eq!(logged_in.start.settings, [], "options of the protocol are no settings");
        let messages = messages(&out);
        let found = messages.iter().find(|(tag, _)| *tag == tag::NEGOTIATE_PROTOCOL_VERSION);
        assert_eq!(found.is_some(), negotiated.is_some(), "{code:x}");
        if let (Some((_, body)), Some((newest, unknown))) = (found, negotiated) {
            let message = NegotiateProtocolVersion::read(body).expect("legal");
            assert_eq!(message.version, newest);
            assert_eq!(
                message.options().collect::<Vec<_>>(),
                unknown.iter().map(|name| name.as_bytes()).collect::<Vec<_>>()
            );
        }
    }
    for (code, text) in [(0x2_0000_u32, "2.0"), (0x4_0000, "4.0")] {
        let (refusal, out) = refused(&world, &startup(Version::of(code), &[("user", "app")]));
        assert_eq!(refusal.sqlstate(), Some("0A000"));
        assert_eq!(error(&out).1, format!("unsupported frontend protocol {text}: server supports 3.0 to 3.2"));
    }
}

#[test]
fn p20_replication_is_refused() {
    let packet = |value: &str| startup(Version::V3_0, &[("user", "app"), ("replication", value)]);
    let world = World::new(Method::Trust);
    for value in ["true", "database", "1", "on"] {
        let (refusal, out) = refused(&world, &packet(value));
        assert_eq!((refusal.kind, refusal.reason), (RefusalKind::Policy, "postgres_replication"));
        assert_eq!(error(&out).0, "0A000");
    }
    for value in ["false", "0"] {
        let (End::Done(_), _) = once(&world, &packet(value)) else { panic!("{value}") };
    }
    let (_, out) = refused(&world, &packet("maybe"));
    let (sqlstate, text, _) = error(&out);
    assert_eq!((sqlstate.as_str(), text.as_str()), ("22023", "invalid value for parameter \"replication\": \"maybe\""));
}

#[test]
fn a_cancel_request_yields_its_key_and_no_response() {
    let mut packet = Vec::new();
    frontend::cancel_request(&mut packet, 7, &[9; 32]);
    for world in [World::new(Method::ScramSha256), World::with_tls(Method::Reject, TlsFacts::default())] {
        let (End::Cancel(pid, secret), out) = once(&world, &packet) else { panic!("no cancel request") };
        assert_eq!((pid, secret, out), (7, vec![9; 32], Vec::new()));
    }
    // libpq 17 requests TLS for a cancel request too.
    let world = World::with_tls(Method::Trust, TlsFacts::default());
    let mut wire = Wire::default();
    let mut login = world.login();
    feed(&mut login, &world, &mut wire, &ssl_request());
    login.on_tls(TlsFacts::default(), &mut wire.out);
    assert!(matches!(feed(&mut login, &world, &mut wire, &packet), End::Cancel(7, _)));
}
