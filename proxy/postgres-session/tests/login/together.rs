//! The gateway's own login at the gateway: both machines against each other, in pieces of every size.

use weir_base::secret::Secret;
use weir_postgres_codec::Version;
use weir_postgres_session::hba::Method;
use weir_postgres_session::login::{RefusalKind, TlsFacts};
use weir_postgres_session::server_login::{BindingMode, Failure, ServerIdentity, TlsMode};
use weir_postgres_session::users::Credential;
use weir_sasl::{KeyCache, md5};

use crate::support::{Both, PASSWORD, World, binding, together, verifier};

fn cache() -> KeyCache {
    KeyCache::new(16, [0; 32])
}

fn identity(user: &str, credential: Credential) -> ServerIdentity {
    ServerIdentity::new(user.as_bytes(), b"shop", credential)
}

fn password(text: &str) -> Credential {
    Credential::Password(Secret::from(text))
}

fn facts() -> TlsFacts {
    TlsFacts { binding: binding(), ..TlsFacts::default() }
}

#[test]
fn p8_every_method_works_in_pieces_of_every_size() {
    let hashed = Credential::Md5(md5::stored(b"hashed", &Secret::from(PASSWORD)));
    let tls = |method| World::with_tls(method, facts());
    let cases: [(World, ServerIdentity); 7] = [
        (World::new(Method::Trust), identity("anyone", Credential::None)),
        (World::new(Method::Md5), identity("app", password(PASSWORD))),
        (World::new(Method::Md5), identity("hashed", hashed)),
        (World::new(Method::ScramSha256), identity("app", password(PASSWORD))),
        (World::new(Method::ScramSha256), identity("verified", password(PASSWORD))),
        (tls(Method::ScramSha256), ServerIdentity { tls: TlsMode::Require, ..identity("app", password(PASSWORD)) }),
        (tls(Method::Password), ServerIdentity { tls: TlsMode::Prefer, ..identity("verified", password(PASSWORD)) }),
    ];
    for (index, (world, identity)) in cases.into_iter().enumerate() {
        let mut results = Vec::new();
        for piece in [usize::MAX, 1, 2, 3, 5, 7, 11] {
            let both = together(&world, identity.clone(), piece, &mut cache());
            let facts = both.client.unwrap_or_else(|failure| panic!("{index} {piece}: {failure}"));
            let logged_in = both.server.unwrap_or_else(|refusal| panic!("{index} {piece}: {refusal:?}"));
            assert_eq!(
                (logged_in.start.user.as_slice(), logged_in.start.database.as_slice()),
                (&*identity.user, &b"shop"[..])
            );
            assert_eq!((facts.secret.len(), facts.version), (4, Some(Version::V3_0)));
            assert_eq!(facts.parameters.len(), 2);
            results.push((facts, logged_in.start, logged_in.credential));
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{index}");
    }
}

#[test]
fn keys_of_a_scram_client_open_the_next_server() {
    let world = World::new(Method::ScramSha256);
    let first = together(&world, identity("verified", password(PASSWORD)), 64, &mut cache());
    let credential = first.server.expect("logged in").credential;
    assert!(matches!(&credential, Credential::Keys(proven) if proven.challenge == *verifier().challenge()));
    let second = together(&world, identity("verified", credential.clone()), 64, &mut cache());
    assert!(second.client.is_ok() && second.server.is_ok());
    assert_eq!(second.derivations, 0, "no password, no PBKDF2");
    // The verifier of `app` has other iterations: the keys are worth nothing there.
    let other = together(&world, identity("app", credential.clone()), 64, &mut cache());
    assert_eq!(other.client.err(), Some(Failure::OtherVerifier));
    let md5 = together(&World::new(Method::Md5), identity("app", credential), 64, &mut cache());
    assert_eq!(md5.client.err(), Some(Failure::NoCredential { has_keys: true }));
}

/// Keys of a verifier that the gateway has made itself fit no server; the password does.
#[test]
fn a_known_password_is_the_credential_also_after_scram() {
    let world = World::new(Method::ScramSha256);
    let logged_in = together(&world, identity("app", password(PASSWORD)), 64, &mut cache()).server.expect("logged in");
    assert_eq!(logged_in.credential, password(PASSWORD));
}

#[test]
fn a_storm_of_logins_derives_keys_once() {
    let world = World::new(Method::ScramSha256);
    let mut cache = cache();
    let mut derivations = 0;
    for _ in 0..50 {
        let both = together(&world, identity("app", password(PASSWORD)), usize::MAX, &mut cache);
        assert!(both.client.is_ok());
        derivations += both.derivations;
    }
    assert_eq!(derivations, 1);
}

#[test]
fn a_wrong_password_reaches_the_other_side_as_the_error_of_postgresql() {
    for (method, user) in [(Method::ScramSha256, "app"), (Method::ScramSha256, "nobody"), (Method::Md5, "app")] {
        let Both { client, server, .. } =
            together(&World::new(method), identity(user, password("pen")), 3, &mut cache());
        let Err(Failure::Refused(error)) = client else { panic!("{client:?}") };
        assert_eq!(error.sqlstate.as_deref(), Some("28P01"));
        assert_eq!(error.text, format!("password authentication failed for user \"{user}\""));
        assert!(!error.is_authenticated);
        assert_eq!(error.message[0], b'E');
        assert_eq!(server.expect_err("a refusal").expect("its reason").kind, RefusalKind::WrongPassword);
    }
}

#[test]
fn scram_is_bound_to_tls_where_both_sides_can() {
    let world = World::with_tls(Method::ScramSha256, facts());
    let bound = |binding, tls| ServerIdentity { binding, tls, ..identity("app", password(PASSWORD)) };
    for mode in [BindingMode::Require, BindingMode::Prefer, BindingMode::Disable] {
        let both = together(&world, bound(mode, TlsMode::Require), 9, &mut cache());
        assert!(both.client.is_ok() && both.server.is_ok(), "{mode:?}: {both:?}");
    }
    let plain =
        together(&World::new(Method::ScramSha256), bound(BindingMode::Require, TlsMode::Prefer), 9, &mut cache());
    let failure = plain.client.expect_err("no binding");
    assert!(matches!(failure, Failure::Unsupported(text) if text.starts_with("channel binding")), "{failure}");
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_required() {
    let identity = ServerIdentity { tls: TlsMode::Require, ..identity("app", password(PASSWORD)) };
    let mut out = Vec::new();
    let mut login = weir_postgres_session::server_login::ServerLogin::new(identity, &[1; 18]);
    login.start(&mut out);
    let progress = login.on_bytes(b"N", &mut out);
    let weir_postgres_session::server_login::Step::Failed(failure) = progress.step else {
        panic!("{:?}", progress.step)
    };
    assert_eq!(*failure, Failure::NoTls);
}

#[test]
fn a_session_of_protocol_3_2_has_a_long_key() {
    let identity = ServerIdentity { version: Version::V3_2, ..identity("app", Credential::None) };
    let both = together(&World::new(Method::Trust), identity, 4, &mut cache());
    let facts = both.client.expect("logged in");
    assert_eq!((facts.secret.len(), facts.version), (32, Some(Version::V3_2)));
}

#[test]
fn the_authorised_identity_is_the_one_that_reaches_the_server() {
    let parameters = vec![
        (b"user".to_vec(), b"postgres".to_vec()),
        (b"application_name".to_vec(), b"test".to_vec()),
        (b"database".to_vec(), b"postgres".to_vec()),
        (Vec::new(), b"x".to_vec()),
    ];
    let identity = ServerIdentity { parameters, ..identity("app", Credential::None) };
    let logged_in = together(&World::new(Method::Trust), identity, 64, &mut cache()).server.expect("logged in");
    assert_eq!(logged_in.start.user, b"app");
    assert_eq!(logged_in.start.database, b"shop");
    assert_eq!(logged_in.start.settings, [(b"application_name".to_vec(), b"test".to_vec())]);
}
