//! Logins by SCRAM: at a server, at the gateway, and through it.

use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::mongodb::drivers::{Checks, Driver, run};
use weir_tests::mongodb::{FerretDb, PASSWORD, USER, url_with_login};

use crate::drivers::holds;

const CHECKS_MIN: usize = 15;

fn config(server: &FerretDb, listener: &str, upstream: &str) -> Config {
    Config { protocol: "mongodb", ..Config::to(&server.address) }
        .workers(2)
        .listener(&format!("[listener.mongodb]\n{listener}"))
        .upstream(&format!("[upstream.mongodb]\npool_size = 20\n{upstream}"))
}

#[test]
fn every_check_of_logins_holds_directly() {
    let server = FerretDb::start_with_logins();
    let url = url_with_login(&server.address, USER, PASSWORD, "");
    holds("directly", &run(&Driver::WITH_LOGINS, &url, Checks::Login), CHECKS_MIN);
}

/// Clients prove the password of a user of the listener; the gateway logs in with its own.
#[test]
fn every_check_of_logins_holds_with_users_of_the_gateway() {
    let server = FerretDb::start_with_logins();
    let folder = tempfile::tempdir().expect("a folder");
    let own = secret_file(folder.path(), "server-password", PASSWORD);
    let theirs = secret_file(folder.path(), "client-password", "another password");
    let user = format!("[[listener.user]]\nname = \"client\"\npassword = {{ file = \"{theirs}\" }}");
    let upstream = format!("user = \"{USER}\"\npassword = {{ file = \"{own}\" }}");
    let gateway = Gateway::start(config(&server, &user, &upstream));
    let url = url_with_login(&gateway.address, "client", "another%20password", "");
    holds("at the gateway", &run(&Driver::WITH_LOGINS, &url, Checks::Login), CHECKS_MIN);
    assert!(gateway.metric("weir_auth_failures_total") >= 4.0);
    gateway.finish();
}

/// The server checks the password, and the gateway knows none.
#[test]
fn every_check_of_logins_holds_when_the_server_checks_them() {
    let server = FerretDb::start_with_logins();
    let gateway = Gateway::start(config(&server, "auth = \"passthrough\"", ""));
    let url = url_with_login(&gateway.address, USER, PASSWORD, "");
    holds("through the gateway", &run(&Driver::WITH_LOGINS, &url, Checks::Login), CHECKS_MIN);
    gateway.finish();
}
