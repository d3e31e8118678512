//! The servers that the other tests stand on: each does what its fixture says.

use weir_tests::postgres::{Major, Options, Pgbench, Pgbouncer, PoolMode, Postgres, Protocol, prepare};

#[test]
fn every_major_serves_its_user_with_scram() {
    for major in Major::ALL {
        let server = Postgres::start(major);
        assert!(server.sql("show server_version").starts_with(&format!("{}.", major.number())), "{major:?}");
        let verifier = server.sql("select rolpassword from pg_authid where rolname = 'app'");
        assert!(verifier.starts_with("SCRAM-SHA-256$"), "{major:?}: {verifier}");
        assert_eq!(
            server.sql_in("app", "select pg_get_userbyid(datdba) from pg_database where datname = 'app'"),
            "app"
        );
        assert!(server.try_sql("app", "select 1/0").expect_err("an error").contains("division by zero"));
    }
}

#[test]
fn a_stopped_and_a_killed_server_start_again_with_their_data() {
    let mut server = Postgres::start(Major::Fifteen);
    server.sql_in("app", "create table kept (n int); insert into kept values (7)");
    server.stop();
    assert!(server.try_sql("app", "select 1").is_err());
    server.start_again();
    assert_eq!(server.sql_in("app", "select n from kept"), "7");
    server.sql("checkpoint");
    server.kill();
    assert!(server.try_sql("app", "select 1").is_err());
    server.start_again();
    assert_eq!(server.sql_in("app", "select n from kept"), "7");
}

#[test]
fn a_standby_follows_and_takes_over() {
    for major in [Major::Fifteen, Major::Eighteen] {
        let mut primary = Postgres::start(major);
        let standby = primary.standby();
        assert!(standby.is_standby() && !primary.is_standby());
        primary.sql_in("app", "create table followed (n int); insert into followed values (1)");
        standby.catch_up(&primary);
        assert_eq!(standby.sql_in("app", "select n from followed"), "1");
        assert!(
            standby.try_sql("app", "insert into followed values (2)").expect_err("read only").contains("read-only")
        );
        primary.kill();
        standby.promote();
        standby.sql_in("app", "insert into followed values (2)");
        assert_eq!(standby.sql_in("app", "select count(*) from followed"), "2");
    }
}

#[test]
fn tls_is_there_where_it_is_wanted() {
    let server = Postgres::start_with(Major::Fifteen, Options { tls: true, ..Options::default() });
    assert_eq!(server.sql("show ssl"), "on");
    let authority = &server.certificates.as_ref().expect("certificates").authority;
    let url = format!("{}?sslmode=verify-full&sslrootcert={}", server.url("app"), authority.display());
    let url = url.replace("127.0.0.1", "localhost");
    let query = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let output = std::process::Command::new("psql").args(["-XAtq", &url, "-c", query]).output().expect("psql");
    let (rows, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(rows.trim(), "t", "{errors}");
}

/// In transaction mode PgBouncer 1.18 keeps no prepared statements: the protocol that a comparison must leave out.
#[test]
fn pgbench_runs_directly_and_through_pgbouncer_in_the_protocols_that_it_has() {
    let server = Postgres::start(Major::Fifteen);
    prepare(&server, "app", 1);
    let peer = Pgbouncer::before(&server, PoolMode::Transaction, 2, "");
    for protocol in Protocol::ALL {
        let run = Pgbench { protocol, clients: 4, transactions: 25, words: Vec::new() };
        let direct = run.run(server.port(), "app").expect("pgbench against the server");
        assert_eq!((direct.transactions, direct.failed), (100, 0), "{protocol:?}");
        if protocol != Protocol::Prepared {
            let pooled = run.run(peer.address.tcp().port(), "app");
            assert_eq!(pooled.expect("pgbench through PgBouncer").transactions, 100, "{protocol:?}");
        }
    }
    // A thread of pgbench waits for each PREPARE, also while another of its clients holds the server that this one needs. So each
    // client has a thread of its own here.
    let peer = Pgbouncer::before(&server, PoolMode::Transaction, 1, "");
    let run = Pgbench { protocol: Protocol::Prepared, clients: 2, transactions: 25, words: Vec::new() };
    let error = run.run(peer.address.tcp().port(), "app").expect_err("PgBouncer 1.18 knows no prepared statements");
    assert!(error.contains("prepared statement"), "{error}");
}
