//! Real clients of libpq log in at the machine.

use std::process::Command;

use weir_base::secret::Secret;
use weir_postgres_codec::Version;
use weir_postgres_session::hba::Method;
use weir_postgres_session::login::RefusalKind;
use weir_postgres_session::users::{User, Users};
use weir_tests::certificate::Certificates;
use weir_tests::postgres::Major;

use super::shell::{End, Listener, Tls};

/// A password that SASLprep turns into `IXa`.
const UNPREPARED: &str = "I\u{ad}X\u{aa}";

fn users() -> Users {
    let user = |name: &str, password: &str| User::new(name.as_bytes(), &Secret::from(password), &[7; 16]);
    [user("app", "pencil"), user("ünï", UNPREPARED)].into_iter().collect()
}

/// A login of psql over TCP unless `words` has a host. The output of psql, or its errors.
pub fn psql(major: Major, listener: &Listener, words: &str, (user, password): (&str, &str)) -> Result<String, String> {
    let target = format!("host=127.0.0.1 port={} user='{user}' dbname=shop {words}", listener.port);
    let mut command = Command::new(major.program("psql"));
    command.args(["-XAtq", &target, "-c", "anything"]).env("PGPASSWORD", password).env_remove("PGOPTIONS");
    command.env("PGCONNECT_TIMEOUT", "30");
    let output = command.output().expect("psql starts: `cargo xtask setup postgres` installs it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn psql_logs_in_with_every_method_over_every_transport() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Certificates::create(folder.path());
    let local = format!("host={}", folder.path().display());
    let tls =
        format!("sslmode=verify-full host=localhost hostaddr=127.0.0.1 sslrootcert={}", files.authority.display());
    let bound = format!("{tls} channel_binding=require");
    let plain = "sslmode=disable gssencmode=disable";
    for (method, transports) in [
        (Method::ScramSha256, &[plain, &local, &tls, &bound][..]),
        (Method::Md5, &[plain, &local, &tls]),
        (Method::Password, &[&local, &tls]),
        (Method::Trust, &[plain, &local, &tls]),
    ] {
        let listener = Listener::start(method, users(), Some(Tls::new(&files)), folder.path());
        for transport in transports {
            let result = psql(Major::Fifteen, &listener, transport, ("app", "pencil"));
            assert!(result.is_ok(), "{method:?} {transport}: {result:?}");
            let End::In(logged_in) = listener.next() else { panic!("{method:?} {transport}: no login") };
            assert_eq!((logged_in.method, logged_in.start.user.as_slice()), (method, &b"app"[..]));
            assert_eq!(logged_in.start.database, b"shop");
        }
    }
}

#[test]
fn psql_prints_the_refusals_of_postgresql() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = Listener::start(Method::ScramSha256, users(), None, folder.path());
    for (user, password) in [("app", "pen"), ("nobody", "pencil")] {
        let error = psql(Major::Fifteen, &listener, "", (user, password)).expect_err("a refusal");
        let text = format!("FATAL:  password authentication failed for user \"{user}\"");
        assert!(error.contains(&text), "{error}");
        assert!(matches!(listener.next(), End::Refused(refusal) if refusal.kind == RefusalKind::WrongPassword));
    }
    let error = psql(Major::Fifteen, &listener, "sslmode=require", ("app", "pencil")).expect_err("no TLS");
    assert!(error.contains("server does not support SSL"), "{error}");
    let listener = Listener::start(Method::Reject, users(), None, folder.path());
    let error = psql(Major::Fifteen, &listener, "", ("app", "pencil")).expect_err("a refusal");
    let text =
        "FATAL:  pg_hba.conf rejects connection for host \"127.0.0.1\", user \"app\", database \"shop\", no encryption";
    assert!(error.contains(text), "{error}");
}

#[test]
fn passwords_are_prepared_as_libpq_prepares_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = Listener::start(Method::ScramSha256, users(), None, folder.path());
    for password in ["IXa", UNPREPARED] {
        psql(Major::Fifteen, &listener, "", ("ünï", password)).expect("a login");
        assert!(matches!(listener.next(), End::In(_)));
    }
}

#[test]
fn options_of_psql_become_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = Listener::start(Method::Trust, users(), None, folder.path());
    let words = r"options='-c geqo=off --search-path=a\\ b' application_name=probe";
    psql(Major::Fifteen, &listener, words, ("app", "")).expect("a login");
    let End::In(logged_in) = listener.next() else { panic!("no login") };
    let settings = [("geqo", "off"), ("search_path", "a b"), ("application_name", "probe")];
    let settings = settings.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    for setting in settings {
        assert!(logged_in.start.settings.contains(&setting), "{setting:?} in {:?}", logged_in.start.settings);
    }
}

#[test]
fn psql_18_speaks_protocol_3_2_where_it_is_demanded() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = Listener::start(Method::ScramSha256, users(), None, folder.path());
    for (words, version) in
        [("", Version::V3_0), ("min_protocol_version=3.2 max_protocol_version=latest", Version::V3_2)]
    {
        psql(Major::Eighteen, &listener, words, ("app", "pencil")).expect("a login");
        let End::In(logged_in) = listener.next() else { panic!("{words}: no login") };
        assert_eq!(logged_in.start.version, version, "{words}");
    }
}
