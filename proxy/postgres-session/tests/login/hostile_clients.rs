//! Cases P1 to P9 and P21: acts that no client may do.

use proptest::prelude::*;
use weir_postgres_codec::{Version, frontend};
use weir_postgres_session::hba::Method;
use weir_postgres_session::login::{RefusalKind, Step, TlsFacts};
use weir_postgres_session::users::AUTH_QUERY;

use crate::support::{
    End, Wire, World, binding, error, feed, gss_request, messages, once, refused, ssl_request, startup,
};

/// A refusal without a word, and its reason.
fn silent(world: &World, bytes: &[u8]) -> &'static str {
    let (refusal, out) = refused(world, bytes);
    assert!(out.is_empty(), "PostgreSQL writes nothing");
    assert!(matches!(refusal.kind, RefusalKind::Violation(_)), "{refusal:?}");
    refusal.reason
}

/// A client that has been given a request for a proof, and what it has received.
fn before_proof(world: &World) -> (weir_postgres_session::login::ClientLogin, Wire) {
    let mut wire = Wire::default();
    let mut login = world.login();
    let end = feed(&mut login, world, &mut wire, &startup(Version::V3_0, &[("user", "app")]));
    assert!(matches!(end, End::More), "{end:?}");
    wire.out.clear();
    (login, wire)
}

/// The refusal of the message that follows the startup packet.
fn proof(world: &World, bytes: &[u8]) -> (String, String, String) {
    let (mut login, mut wire) = before_proof(world);
    let end = feed(&mut login, world, &mut wire, bytes);
    assert!(matches!(end, End::Refused(_)), "{end:?}");
    error(&wire.out)
}

fn sasl_initial(mechanism: &str, response: Option<&str>) -> Vec<u8> {
    let mut message = Vec::new();
    frontend::sasl_initial(&mut message, mechanism.as_bytes(), response.map(str::as_bytes));
    message
}

#[test]
fn p1_startup_lengths_out_of_range_close_with_four_bytes() {
    let world = World::new(Method::Trust);
    for claimed in [0_u32, 4, 7, 10_005, 0x7fff_ffff, u32::MAX] {
        assert_eq!(silent(&world, &claimed.to_be_bytes()), "postgres_startup_length", "{claimed}");
    }
}

#[test]
fn p2_a_cancel_request_of_another_length_is_closed() {
    let world = World::new(Method::Trust);
    for (bytes, reason) in [(3, "postgres_cancel_secret"), (257, "postgres_cancel_secret")] {
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, 7, &vec![9; bytes]);
        assert_eq!(silent(&world, &packet), reason);
    }
    let huge = [&0x7fff_ffff_u32.to_be_bytes()[..], &80_877_102_u32.to_be_bytes()].concat();
    assert_eq!(silent(&world, &huge), "postgres_startup_length");
}

#[test]
fn p3_a_second_request_for_encryption_is_refused() {
    let [ssl, gss] = [ssl_request(), gss_request()];
    for (packets, is_tls) in [
        (vec![&ssl, &ssl], false),
        (vec![&gss, &gss], false),
        (vec![&ssl, &gss, &ssl], false),
        (vec![&gss, &ssl, &gss], false),
        (vec![&ssl, &ssl], true),
    ] {
        let method = Method::Trust;
        let world = if is_tls { World::with_tls(method, TlsFacts::default()) } else { World::new(method) };
        let mut login = world.login();
        let mut wire = Wire::default();
        let (last, before) = packets.split_last().expect("packets");
        for packet in before {
            match feed(&mut login, &world, &mut wire, packet) {
                End::More => assert_eq!(wire.out, b"N"),
                End::StartTls => assert!(matches!(login.on_tls(TlsFacts::default(), &mut wire.out), Step::More)),
                end => panic!("{end:?}"),
            }
            wire.out.clear();
        }
        let end = feed(&mut login, &world, &mut wire, last);
        let End::Refused(refusal) = end else { panic!("{end:?}") };
        assert_eq!(refusal.reason, "postgres_second_encryption_request");
        let (sqlstate, text, _) = error(&wire.out);
        assert_eq!(sqlstate, "08P01");
        assert!(text.starts_with("unsupported frontend protocol 1234.56"), "{text}");
    }
}

/// CVE-2021-23214: the bytes would count as encrypted.
#[test]
fn p4_bytes_behind_a_request_for_encryption_are_never_processed() {
    let session = startup(Version::V3_0, &[("user", "app")]);
    for (request, name) in [(ssl_request(), "SSL request"), (gss_request(), "GSSAPI encryption request")] {
        for world in [World::new(Method::Trust), World::with_tls(Method::Trust, TlsFacts::default())] {
            for behind in [&session[..], &b"\x16"[..]] {
                let (refusal, out) = refused(&world, &[&request[..], behind].concat());
                assert_eq!(refusal.reason, "postgres_bytes_behind_request");
                let (sqlstate, text, detail) = error(&out);
                assert_eq!((sqlstate, text), ("08P01".to_owned(), format!("received unencrypted data after {name}")));
                assert!(detail.contains("man-in-the-middle"));
            }
        }
    }
}

#[test]
fn p5_parameters_have_a_bound_and_a_form() {
    let world = World::new(Method::Trust);
    let many: Vec<(String, String)> = (0..2_000).map(|index| (format!("p{index}"), String::new())).collect();
    let pairs: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let packet = startup(Version::V3_0, &pairs);
    assert!(packet.len() > 10_004);
    assert_eq!(silent(&world, &packet), "postgres_startup_length");
    let legal = startup(Version::V3_0, &[&[("user", "app")][..], &pairs[..1_000]].concat());
    assert!(matches!(once(&world, &legal).0, End::Done(_)));

    let mut without = startup(Version::V3_0, &[("user", "app")]);
    without.pop();
    without[3] -= 1;
    let (refusal, out) = refused(&world, &without);
    assert_eq!(refusal.reason, "postgres_startup_layout");
    let text = "invalid startup packet layout: expected terminator as last byte";
    assert_eq!((error(&out).0.as_str(), error(&out).1.as_str()), ("08P01", text));

    let text = "no PostgreSQL user name specified in startup packet";
    for parameters in [&[("database", "x")][..], &[("user", "")], &[("user", "app"), ("user", "")]] {
        let (_, out) = refused(&world, &startup(Version::V3_0, parameters));
        assert_eq!((error(&out).0.as_str(), error(&out).1.as_str()), ("28000", text));
    }
    let (refusal, out) = refused(&world, &startup(Version::V3_0, &[("user", "app"), ("options", "-c geqo")]));
    assert_eq!((refusal.sqlstate(), error(&out).1.as_str()), (Some("42601"), "-c geqo requires a value"));
}

/// A lookup knows the names alone, and its query no `search_path`.
#[test]
fn p6_no_setting_of_a_client_reaches_the_auth_query() {
    let world = World::new(Method::ScramSha256);
    let packet =
        startup(Version::V3_0, &[("user", "app"), ("search_path", "evil"), ("options", "-c search_path=evil")]);
    let mut out = Vec::new();
    let progress = world.login().on_bytes(&packet, &mut out);
    let Step::LookUp { user, is_password_needed } = progress.step else { panic!("{:?}", progress.step) };
    assert_eq!((user.as_slice(), is_password_needed), (&b"app"[..], true));
    assert!(out.is_empty(), "nothing is written before the user is looked for");
    for name in ["pg_authid", "now()", "<", "="] {
        let bare = AUTH_QUERY.replace(&format!("pg_catalog.{name}"), "");
        assert!(!bare.contains(name), "{name} without its schema");
    }
}

#[test]
fn p7_messages_before_the_login_are_bounded() {
    for world in [World::new(Method::ScramSha256), World::new(Method::Md5)] {
        for (claimed, reason) in [
            (0x4000_0000_i32, "postgres_preauth_message"),
            (i32::MAX, "postgres_message_length"),
            (-1, "postgres_message_length"),
            (0, "postgres_message_length"),
            (16 * 1024 + 5, "postgres_preauth_message"),
        ] {
            let (mut login, mut wire) = before_proof(&world);
            let head = [&b"p"[..], &claimed.to_be_bytes()].concat();
            let end = feed(&mut login, &world, &mut wire, &head);
            let End::Refused(refusal) = end else { panic!("{claimed}: {end:?}") };
            assert_eq!((refusal.reason, wire.out.len()), (reason, 0));
        }
    }
}

#[test]
fn p7_lengths_inside_of_a_sasl_message_are_checked() {
    let world = World::new(Method::ScramSha256);
    let lying = |claimed: i32| {
        let mut message = sasl_initial("SCRAM-SHA-256", Some("n,,n=,r=abc"));
        let at = message.len() - "n,,n=,r=abc".len() - 4;
        message[at..at + 4].copy_from_slice(&claimed.to_be_bytes());
        message
    };
    for claimed in [12, 0x7fff_ffff, -2] {
        let (sqlstate, text, _) = proof(&world, &lying(claimed));
        assert_eq!((sqlstate.as_str(), text.as_str()), ("08P01", "insufficient data left in message"), "{claimed}");
    }
    assert_eq!(proof(&world, &lying(3)).0, "08P01");
}

#[test]
fn refusals_of_sasl_are_those_of_postgresql() {
    let world = World::new(Method::ScramSha256);
    let mut query = Vec::new();
    frontend::query(&mut query, b"select 1");
    let cases = [
        (query, "08P01", "expected SASL response, got message type 81", ""),
        (sasl_initial("SCRAM-SHA-1", None), "08P01", "client selected an invalid SASL authentication mechanism", ""),
        (sasl_initial("PLAIN", Some("x")), "08P01", "client selected an invalid SASL authentication mechanism", ""),
        (
            sasl_initial("SCRAM-SHA-256-PLUS", Some("p=tls-server-end-point,,n=,r=abc")),
            "08P01",
            "client selected an invalid SASL authentication mechanism",
            "",
        ),
        (sasl_initial("SCRAM-SHA-256", Some("")), "08P01", "malformed SCRAM message", "The message is empty."),
        (
            sasl_initial("SCRAM-SHA-256", Some("n,,x=,r=abc")),
            "08P01",
            "malformed SCRAM message",
            "Expected attribute \"n\" but found \"x\".",
        ),
        (
            sasl_initial("SCRAM-SHA-256", Some("n,a=root,n=,r=abc")),
            "0A000",
            "client uses authorization identity, but it is not supported",
            "",
        ),
    ];
    for (message, sqlstate, text, detail) in cases {
        let found = proof(&world, &message);
        assert_eq!((found.0.as_str(), found.1.as_str(), found.2.as_str()), (sqlstate, text, detail));
    }
    let password = World { address: None, ..World::new(Method::Password) };
    let (_, text, _) = proof(&password, b"X\0\0\0\x04");
    assert_eq!(text, "expected password response, got message type 88");
    let (sqlstate, text, _) = proof(&password, b"p\0\0\0\x06ab");
    assert_eq!((sqlstate.as_str(), text.as_str()), ("08P01", "invalid password packet size"));
}

#[test]
fn a_sasl_exchange_may_begin_without_a_response() {
    let world = World::new(Method::ScramSha256);
    let (mut login, mut wire) = before_proof(&world);
    assert!(matches!(feed(&mut login, &world, &mut wire, &sasl_initial("SCRAM-SHA-256", None)), End::More));
    assert_eq!(messages(&std::mem::take(&mut wire.out)), [(b'R', vec![0, 0, 0, 11])]);
    let mut first = Vec::new();
    frontend::sasl_response(&mut first, b"n,,n=,r=abc");
    assert!(matches!(feed(&mut login, &world, &mut wire, &first), End::More));
    assert!(messages(&wire.out)[0].1.starts_with(b"\0\0\0\x0br=abc"));
}

/// A client that binds where nothing was offered, or does not see an offer.
#[test]
fn a_downgrade_of_channel_binding_is_refused() {
    let facts = TlsFacts { binding: binding(), ..TlsFacts::default() };
    let world = World::with_tls(Method::ScramSha256, facts.clone());
    let mut login = world.login();
    let mut wire = Wire::default();
    feed(&mut login, &world, &mut wire, &ssl_request());
    login.on_tls(facts, &mut wire.out);
    feed(&mut login, &world, &mut wire, &startup(Version::V3_0, &[("user", "app")]));
    wire.out.clear();
    feed(&mut login, &world, &mut wire, &sasl_initial("SCRAM-SHA-256", Some("y,,n=,r=abc")));
    let (sqlstate, text, detail) = error(&wire.out);
    assert_eq!((sqlstate.as_str(), text.as_str()), ("28000", "SCRAM channel binding negotiation error"));
    assert!(detail.contains("this server does support channel binding"));
}

#[test]
fn p9_direct_tls_needs_its_application_protocol() {
    let world = World::with_tls(Method::Trust, TlsFacts::default());
    let hello = b"\x16\x03\x01\x02\x00\x01";
    let start = || {
        let mut login = world.login();
        let mut wire = Wire::default();
        assert!(matches!(feed(&mut login, &world, &mut wire, hello), End::StartTls));
        assert_eq!((wire.input.as_slice(), wire.out.len()), (&hello[..], 0), "the handshake has the bytes");
        wire.input.clear();
        (login, wire)
    };
    let (mut login, mut wire) = start();
    let step = login.on_tls(TlsFacts::default(), &mut wire.out);
    let Step::Refuse(refusal) = step else { panic!("{step:?}") };
    assert_eq!((refusal.reason, wire.out.len()), ("postgres_direct_tls_without_alpn", 0));
    let (mut login, mut wire) = start();
    assert!(matches!(login.on_tls(TlsFacts { has_alpn: true, ..TlsFacts::default() }, &mut wire.out), Step::More));
    let end = feed(&mut login, &world, &mut wire, &startup(Version::V3_0, &[("user", "app")]));
    assert!(matches!(end, End::Done(_)), "{end:?}");
    // Without TLS at the listener, or behind a request, the byte is a length.
    assert_eq!(silent(&World::new(Method::Trust), hello), "postgres_startup_length");
    let mut login = world.login();
    let mut wire = Wire::default();
    feed(&mut login, &world, &mut wire, &gss_request());
    wire.out.clear();
    assert!(matches!(feed(&mut login, &world, &mut wire, hello), End::Refused(_)));
}

#[test]
fn p21_other_protocols_are_closed_and_counted() {
    let world = World::new(Method::Trust);
    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\n", b"*1\r\n$4\r\nPING\r\n"] {
        assert_eq!(silent(&world, bytes), "cross_protocol");
    }
    assert_eq!(silent(&world, b"\x16\x03\x01\x02\x00"), "postgres_startup_length");
}

#[test]
fn p8_a_packet_in_two_parts_is_read_as_in_one() {
    let world = World::new(Method::Trust);
    let packet = startup(Version::V3_0, &[("user", "app"), ("database", "shop"), ("options", "-c geqo=off")]);
    let (End::Done(whole), expected) = once(&world, &packet) else { panic!("no login") };
    for cut in 0..=packet.len() {
        let mut login = world.login();
        let mut wire = Wire::default();
        let first = feed(&mut login, &world, &mut wire, &packet[..cut]);
        let end = if cut < packet.len() {
            assert!(matches!(first, End::More), "{cut}: {first:?}");
            assert!(wire.out.is_empty());
            feed(&mut login, &world, &mut wire, &packet[cut..])
        } else {
            first
        };
        let End::Done(found) = end else { panic!("{cut}") };
        assert_eq!((found.start, &wire.out), (whole.start.clone(), &expected), "{cut}");
    }
}

/// Packets and messages as a client may send them, and bytes that are none.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let names = prop::sample::select(vec!["user", "database", "options", "replication", "_pq_.x", "TimeZone"]);
    let parameters = prop::collection::vec((names, "[ -~]{0,12}"), 0..5);
    let session = (prop::sample::select(vec![0x3_0000_u32, 0x3_0002, 0x3_0009, 0x2_0000]), parameters).prop_map(
        |(code, parameters)| {
            let all: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
            startup(Version::of(code), &[&[("user", "app")][..], &all].concat())
        },
    );
    let message = (prop::sample::select(b"pXQ".to_vec()), prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(tag, body)| [&[tag][..], &(body.len() as i32 + 4).to_be_bytes(), &body].concat());
    let initial = "[ny],,n=,r=[!-+]{0,9}".prop_map(|text| sasl_initial("SCRAM-SHA-256", Some(&text)));
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![Just(ssl_request()), Just(gss_request()), session, message, initial, bytes]
}

proptest! {
    #[test]
    fn p8_no_bytes_of_a_client_panic_pass_or_depend_on_their_cut(
        parts in prop::collection::vec(packets(), 1..4),
        index in 0_usize..Method::ALL.len(),
        cut: usize,
    ) {
        let method = Method::ALL[index];
        let world = World { address: None, ..World::new(method) };
        // Each packet waits for its response, as clients do: bytes behind a request are another case.
        let run = |cut: Option<usize>| {
            let (mut login, mut wire) = (world.login(), Wire::default());
            let mut end = End::More;
            for part in &parts {
                let (first, second) = part.split_at(cut.map_or(0, |cut| cut % (part.len() + 1)));
                for piece in [first, second] {
                    if matches!(end, End::More) {
                        end = feed(&mut login, &world, &mut wire, piece);
                    }
                }
            }
            (format!("{end:?}"), matches!(end, End::Done(_)), wire.out)
        };
        let whole = run(None);
        prop_assert!(!whole.1 || method == Method::Trust, "nothing here proves a password: {}", whole.0);
        prop_assert_eq!(run(Some(cut)), whole);
    }
}
