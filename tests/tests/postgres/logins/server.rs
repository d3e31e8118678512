//! Logins at real servers.

use weir_base::secret::Secret;
use weir_postgres_codec::Version;
use weir_postgres_session::hba::Method;
use weir_postgres_session::server_login::{BindingMode, Failure, ServerIdentity, TlsMode};
use weir_postgres_session::users::{Credential, User};
use weir_sasl::{ChannelBinding, KeyCache};
use weir_tests::postgres::{Major, Options, PASSWORD, Postgres, USER};

use super::client::psql;
use super::shell::{End, Listener, log_in};

fn cache() -> KeyCache {
    KeyCache::new(16, [0; 32])
}

fn identity(user: &str, password: &str) -> ServerIdentity {
    let credential = Credential::Password(Secret::from(password));
    ServerIdentity::new(user.as_bytes(), USER.as_bytes(), credential)
}

#[test]
fn every_major_accepts_the_gateway_by_scram_and_negotiates_its_version() {
    for major in Major::ALL {
        let server = Postgres::start(major);
        let mut cache = cache();
        for _ in 0..3 {
            let identity = ServerIdentity { version: Version::V3_2, ..identity(USER, PASSWORD) };
            let facts = log_in(server.port(), identity, None, None, &mut cache);
            let facts = facts.unwrap_or_else(|failure| panic!("{major:?}: {failure}"));
            let expected = if major == Major::Eighteen { (Version::V3_2, 32) } else { (Version::V3_0, 4) };
            assert_eq!((facts.version.expect("a version"), facts.secret.len()), expected, "{major:?}");
            let number = major.number().to_string();
            let is_number =
                |(name, value): &&(Vec<u8>, Vec<u8>)| name == b"server_version" && value.starts_with(number.as_bytes());
            assert!(facts.parameters.iter().find(is_number).is_some(), "{major:?}: {:?}", facts.parameters);
        }
        assert_eq!(cache.len(), 1, "keys are derived once");
    }
}

#[test]
fn scram_is_bound_to_the_certificate_of_a_real_server() {
    let server = Postgres::start_with(Major::Fifteen, Options { tls: true, ..Options::default() });
    let files = server.certificates.as_ref();
    let bound = |binding| ServerIdentity { tls: TlsMode::Require, binding, ..identity(USER, PASSWORD) };
    for mode in [BindingMode::Require, BindingMode::Prefer, BindingMode::Disable] {
        let facts = log_in(server.port(), bound(mode), files, None, &mut cache());
        assert!(facts.is_ok(), "{mode:?}: {facts:?}");
    }
    let other = ChannelBinding::TlsServerEndPoint(vec![7; 32]);
    let failure = log_in(server.port(), bound(BindingMode::Require), files, Some(other), &mut cache());
    let Err(Failure::Refused(error)) = failure else { panic!("{failure:?}") };
    assert_eq!((error.sqlstate.as_deref(), error.text.as_str()), (Some("28000"), "SCRAM channel binding check failed"));
}

#[test]
fn md5_and_clear_text_work_where_a_server_demands_them() {
    let hba = ["host all hashed 127.0.0.1/32 md5", "host all clear 127.0.0.1/32 password"].map(str::to_owned);
    let server = Postgres::start_with(Major::Fifteen, Options { tls: true, hba: hba.to_vec(), ..Options::default() });
    server.sql("set password_encryption = 'md5'; create role hashed login password 'pencil'");
    server.sql("create role clear login password 'pencil'");
    let files = server.certificates.as_ref();
    let enter = |identity| log_in(server.port(), identity, files, None, &mut cache());
    assert!(enter(identity("hashed", "pencil")).is_ok());
    let stored = server.sql("select rolpassword from pg_authid where rolname = 'hashed'");
    let stolen = Credential::Md5(Secret::from(stored));
    assert!(enter(ServerIdentity { credential: stolen, ..identity("hashed", "") }).is_ok());
    assert!(enter(ServerIdentity { tls: TlsMode::Prefer, ..identity("clear", "pencil") }).is_ok());
    assert!(matches!(enter(identity("clear", "pencil")), Err(Failure::Unsupported(_))), "not without TLS");
}

#[test]
fn errors_of_a_real_server_are_kept_whole() {
    let server = Postgres::start(Major::Fifteen);
    let enter = |identity| match log_in(server.port(), identity, None, None, &mut cache()) {
        Err(Failure::Refused(error)) => error,
        other => panic!("{other:?}"),
    };
    let wrong = enter(identity(USER, "wrong"));
    let text = format!("password authentication failed for user \"{USER}\"");
    assert_eq!((wrong.sqlstate.as_deref(), wrong.text, wrong.is_authenticated), (Some("28P01"), text, false));
    let missing = enter(ServerIdentity { database: b"missing".to_vec(), ..identity(USER, PASSWORD) });
    assert_eq!((missing.sqlstate.as_deref(), missing.is_authenticated), (Some("3D000"), true));
    assert_eq!(missing.message[0], b'E');
}

/// The gateway holds the verifier and no password: a client's own proof opens the server.
#[test]
fn the_proof_of_a_real_client_opens_the_real_server() {
    let server = Postgres::start(Major::Fifteen);
    let verifier = Secret::from(server.sql(&format!("select rolpassword from pg_authid where rolname = '{USER}'")));
    let users = [User::new(USER.as_bytes(), &verifier, &[0; 16])].into_iter().collect();
    let folder = tempfile::tempdir().expect("a folder");
    let listener = Listener::start(Method::ScramSha256, users, None, folder.path());
    psql(Major::Fifteen, &listener, "", (USER, PASSWORD)).expect("a login");
    let End::In(logged_in) = listener.next() else { panic!("no login") };
    assert!(matches!(logged_in.credential, Credential::Keys { .. }));
    let identity = ServerIdentity::new(USER.as_bytes(), USER.as_bytes(), logged_in.credential);
    let mut cache = cache();
    log_in(server.port(), identity.clone(), None, None, &mut cache).expect("the keys open the server");
    assert!(cache.is_empty(), "without PBKDF2");
    server.sql(&format!("alter role {USER} password '{PASSWORD}'"));
    let failure = log_in(server.port(), identity, None, None, &mut cache).expect_err("a new salt");
    assert_eq!(failure, Failure::OtherVerifier);
}
