//! PgBouncer: security, users and databases.

use super::*;

const HEAD: &str = "[databases]\n* = host=10.0.0.1\n[pgbouncer]\nunix_socket_dir =\nlisten_addr = 10.0.0.9\n";

/// The import of PgBouncer's keys in front of one server.
fn with(lines: &str) -> Imported {
    import(Format::Pgbouncer, "f", &format!("{HEAD}{lines}"), &Beside(Format::Pgbouncer))
        .unwrap_or_else(|mistake| panic!("{mistake}\n{lines}"))
}

/// The import of these databases.
fn databases(lines: &str) -> Imported {
    let text = format!("[databases]\n{lines}\n[pgbouncer]\nunix_socket_dir = /run\nauth_type = trust\n");
    import(Format::Pgbouncer, "f", &text, &NoFiles).unwrap_or_else(|mistake| panic!("{mistake}\n{lines}"))
}

#[test]
fn trust_beyond_this_machine_becomes_a_password_and_says_so() {
    for method in ["trust", "any"] {
        let far = with(&format!("auth_type = {method}\n"));
        let has = |imported: &Imported, line: &str| meaning(&imported.toml).contains(&line);
        let (believed, proven) = ("auth = \"trust\"", "auth = \"scram-sha-256\"");
        assert!(has(&far, proven) && !has(&far, believed), "{}", far.toml);
        let (near, notes) = (with(&format!("auth_type = {method}\nlisten_addr = ::1\n")), notes(&far));
        assert!(notes.contains("clients need a password") && notes.contains("every client is trusted"), "{notes}");
        assert!(has(&near, believed) && !has(&near, proven), "{}", near.toml);
        assert!(!has(&far, "allow_trust = true") && !has(&near, "allow_trust = true"));
        assert!(super::notes(&near).contains("every client is trusted"));
    }
}

#[test]
fn methods_that_weir_does_not_have_become_scram_and_say_so() {
    for (method, words) in [("hba", "no auth_hba_file"), ("pam", "other programs"), ("plain", "clear text")] {
        let imported = with(&format!("auth_type = {method}\n"));
        assert!(imported.toml.contains("auth = \"scram-sha-256\""), "{}", imported.toml);
        assert!(notes(&imported).contains(words), "{}", notes(&imported));
    }
    let imported = with("auth_type = pam\nauth_file = users.txt\n");
    let has_list = meaning(&imported.toml).iter().any(|line| line.starts_with("userlist"));
    assert!(!has_list && notes(&imported).contains("ignores the file"), "{}", imported.toml);
    let imported = with("auth_file = none.txt\n");
    assert!(notes(&imported).contains("the file cannot be read here"), "{}", notes(&imported));
    assert!(imported.toml.contains("userlist = \"none.txt\""), "{}", imported.toml);
    let imported = with("");
    assert!(notes(&imported).contains("no client can log in"), "{}", notes(&imported));
}

#[test]
fn lookups_at_the_server_become_keys_of_the_listener() {
    let lines = "auth_file = users.txt\nauth_user = app\n";
    let imported = with(&format!("{lines}auth_query = select * from public.look($1)\nauth_dbname = users\n"));
    let keys = ["auth_user = \"app\"", "auth_query = \"select * from public.look($1)\"", "auth_dbname = \"users\""];
    for key in keys {
        assert!(meaning(&imported.toml).contains(&key), "{key}: {}", imported.toml);
    }
    assert!(notes(&imported).contains("search_path = pg_catalog"), "{}", notes(&imported));
    check(&imported.toml);
    assert!(notes(&with(lines)).contains("in the database of the client"));
    let without = with("auth_query = select 1\n");
    assert!(notes(&without).contains("no effect without auth_user") && !without.toml.contains("auth_query ="));
}

#[test]
fn rules_by_address_become_tables_and_none_of_them_opens_more() {
    let files = "client_tls_sslmode = verify-full\nclient_tls_cert_file = /etc/tls/shop.crt\n\
                 client_tls_key_file = /etc/tls/shop.key\nclient_tls_ca_file = /etc/tls/ca.crt\n";
    let lines = "auth_type = hba\nauth_hba_file = /etc/pgbouncer/hba.conf\nauth_file = users.txt\n";
    let imported = with(&format!("{lines}{files}"));
    let rules: Vec<Vec<String>> = imported
        .toml
        .split("[[listener.postgres.hba]]\n")
        .skip(1)
        .map(|rule| {
            let lines = rule.lines().take_while(|line| !line.is_empty());
            lines.map(|line| line.split_once(" = ").expect("a key").1.trim_matches(['"', '\'']).to_owned()).collect()
        })
        .collect();
    let wanted = [
        &["local", "all", "all", "reject"][..],
        &["hostssl", "pgbouncer", "admin", "127.0.0.1/32", "trust"],
        &["hostssl", "shop,\"my shop", "app,batch", "10.0.0.0/8", "md5"],
        &["hostssl", "all", "robot", "0.0.0.0/0", "cert"],
        &["hostssl", "all", "root,carol,dave", "md5"],
        &["hostssl", "all", "guest", "192.0.2.0/24", "scram-sha-256"],
        &["hostssl", "all", "eve,mallory,trudy", "reject"],
        &["hostssl", "sameuser", "all", "scram-sha-256"],
    ];
    assert_eq!(rules, wanted, "{}", imported.toml);
    assert!(!meaning(&imported.toml).iter().any(|line| line.starts_with("auth =")), "{}", imported.toml);
    check(&imported.toml);
    for words in ["hba.conf:2: `local", "the line is left out", "clients of other machines need a password"] {
        assert!(notes(&imported).contains(words), "{words}: {}", notes(&imported));
    }
    let without = with(lines);
    assert!(notes(&without).contains("the listener requests no certificate"), "{}", notes(&without));
    for rule in ["type = \"host\"\n", "type = \"hostnossl\"\n"] {
        assert!(without.toml.contains(rule), "TLS is not demanded: {}", without.toml);
    }
    check(&without.toml);
    // A file of names that cannot be read: its line may be the one that keeps someone out.
    let lost = "auth_type = hba\nauth_hba_file = /etc/pgbouncer/lost.conf\n";
    let refused = import(Format::Pgbouncer, "f", &format!("{HEAD}{lost}"), &Beside(Format::Pgbouncer));
    let refused = refused.expect_err("its names are not there").to_string();
    assert!(refused.contains("lost.conf:1") && refused.contains("the names of `@"), "{refused}");
}

#[test]
fn every_mode_of_server_tls_below_verify_full_says_what_weir_does() {
    let cases = [
        ("", "newer versions of PgBouncer take TLS", ""),
        ("server_tls_sslmode = prefer\n", "are in clear text", ""),
        ("server_tls_sslmode = allow\n", "are in clear text", ""),
        ("server_tls_sslmode = require\n", "any certificate", "insecure_skip_verify = true"),
        ("server_tls_sslmode = verify-ca\n", "name in the server's certificate", "[upstream.tls]\n"),
    ];
    for (lines, words, toml) in cases {
        let imported = with(lines);
        assert!(notes(&imported).contains(words), "{lines}{}", notes(&imported));
        assert!(imported.toml.contains(toml), "{lines}{}", imported.toml);
    }
    let (full, off) = (with("server_tls_sslmode = verify-full\n"), with("server_tls_sslmode = disable\n"));
    assert!(full.toml.contains("[upstream.tls]") && !full.toml.contains("insecure"), "{}", full.toml);
    for imported in [&full, &off] {
        assert!(!notes(imported).contains("server_tls") && !notes(imported).contains("clear text"));
    }
    assert!(!off.toml.contains("[upstream.tls]"));
}

#[test]
fn a_demand_for_tls_of_clients_becomes_a_rule_at_addresses() {
    let files =
        "unix_socket_dir = /run\nclient_tls_cert_file = /etc/tls/shop.crt\nclient_tls_key_file = /etc/tls/shop.key\n";
    let authority = "client_tls_ca_file = /etc/tls/ca.crt\n";
    let rule = "[[listener.postgres.hba]]\ntype = \"hostssl\"\ndatabase = \"all\"\nuser = \"all\"\n";
    for mode in ["require", "verify-ca", "verify-full"] {
        let imported = with(&format!(
            "client_tls_sslmode = {mode}\nauth_type = scram-sha-256\nauth_file = users.txt\n{files}{authority}"
        ));
        let (first, second) = imported.toml.split_once("name = \"pgbouncer-unix\"").expect("a listener at the socket");
        assert!(first.contains(&format!("{rule}method = \"scram-sha-256\"")) && !first.contains("\nauth ="), "{first}");
        assert!(second.contains("auth = \"scram-sha-256\"") && !second.contains("hba"), "{second}");
        assert_eq!(first.contains("client_auth = \"required\""), mode != "require", "{first}");
        assert!(!notes(&imported).contains("client_tls"), "{}", notes(&imported));
        check(&imported.toml);
    }
    for mode in ["allow", "prefer"] {
        let imported = with(&format!("client_tls_sslmode = {mode}\n{files}"));
        assert!(!imported.toml.contains("hostssl"), "{}", imported.toml);
    }
    let cert = with(&format!("client_tls_sslmode = verify-full\nauth_type = cert\n{files}{authority}"));
    assert!(cert.toml.contains("auth = \"cert\"") && !cert.toml.contains("hba"), "{}", cert.toml);
    let lacks = mistake(Format::Pgbouncer, &format!("{HEAD}client_tls_sslmode = verify-ca\n{files}"));
    assert!(lacks.ends_with("Weir trusts no authority by itself"), "{lacks}");
}

/// The table of a database at the first listener.
fn database<'t>(toml: &'t str, name: &str) -> &'t str {
    let begin = format!("[[listener.postgres.database]]\nname = \"{name}\"\n");
    let rest = &toml[toml.find(&begin).unwrap_or_else(|| panic!("no {name}: {toml}")) + begin.len()..];
    rest[..rest.find("\n[").unwrap_or(rest.len())].trim_end()
}

#[test]
fn each_database_has_its_upstream() {
    let imported = databases("app = host=10.0.0.1\nreport = host=10.0.0.2\n* = host=10.0.0.3\nsame = host=10.0.0.3");
    assert!(table(&imported.toml, "listener", "pgbouncer-unix").contains("upstream = \"default\""));
    for (name, host) in [("app", "10.0.0.1"), ("report", "10.0.0.2"), ("default", "10.0.0.3")] {
        assert!(table(&imported.toml, "upstream", name).contains(host), "{}", imported.toml);
    }
    for (name, table) in [("app", "upstream = \"app\""), ("report", "upstream = \"report\""), ("*", ""), ("same", "")] {
        assert_eq!(database(&imported.toml, name), table, "{}", imported.toml);
    }
    check(&imported.toml);
}

#[test]
fn databases_share_an_upstream_by_what_they_need_of_it() {
    let line = "host=10.0.0.1 user=app password=not-to-be-repeated";
    let text = format!(
        "a = {line}\nb = {line} dbname=real pool_mode=transaction\n* = host=10.0.0.2\nc = host=10.0.0.2 pool_size=2\n\
         d = host=10.0.0.2 user=other password=second"
    );
    let imported = databases(&text);
    assert_eq!(imported.toml.matches("[[upstream]]").count(), 3, "{}", imported.toml);
    assert!(table(&imported.toml, "upstream", "a").contains("{ env = \"A_SERVER_PASSWORD\" }"), "{}", imported.toml);
    let b = "upstream = \"a\"\npool_mode = \"transaction\"\ndatabase = \"real\"";
    let d = "user = \"other\"\npassword = { env = \"D_SERVER_PASSWORD\" }";
    for (name, table) in [("a", "upstream = \"a\""), ("b", b), ("c", "upstream = \"c\""), ("d", d)] {
        assert_eq!(database(&imported.toml, name), table, "{}", imported.toml);
    }
}

#[test]
fn databases_that_are_not_listed_are_refused_and_a_star_alone_needs_no_table() {
    let imported = databases("app = host=10.0.0.1\nreport = host=10.0.0.2");
    assert!(
        imported.toml.contains("upstream = \"app\"") && !imported.toml.contains("name = \"*\""),
        "{}",
        imported.toml
    );
    let imported = databases("app = host=10.0.0.1 dbname=app_prod");
    assert_eq!(database(&imported.toml, "app"), "database = \"app_prod\"");
    assert!(!databases("* = host=10.0.0.1").toml.contains("listener.postgres.database"));
}

#[test]
fn forms_of_hosts() {
    let hosts = [
        ("", "unix:/run/.s.PGSQL.5432"),
        ("host=/tmp port=6000", "unix:/tmp/.s.PGSQL.6000"),
        ("host=2001:db8::7", "[2001:db8::7]:5432"),
        ("host='db.internal'", "db.internal:5432"),
        ("host=10.0.0.1,10.0.0.2,10.0.0.1", "10.0.0.1:5432\", \"10.0.0.2:5432"),
    ];
    for (text, endpoints) in hosts {
        let imported = databases(&format!("* = {text}"));
        assert!(imported.toml.contains(&format!("endpoints = [\"{endpoints}\"]")), "{text}\n{}", imported.toml);
        check(&imported.toml);
    }
    let abstract_socket = databases("* = host=@name");
    assert!(abstract_socket.toml.contains("127.0.0.1:9") && notes(&abstract_socket).contains("no path"));
}

#[test]
fn a_user_for_the_servers_has_the_password_of_its_line_or_of_the_file() {
    let text = |line: &str| {
        let text = format!("[databases]\n{line}\n[pgbouncer]\nunix_socket_dir = /run\nauth_file = users.txt\n");
        import(Format::Pgbouncer, "f", &text, &Beside(Format::Pgbouncer)).unwrap_or_else(|mistake| panic!("{mistake}"))
    };
    let own = text("* = user=app password=not-to-be-repeated");
    assert!(own.toml.contains("password = { env = \"DEFAULT_SERVER_PASSWORD\" }"), "{}", own.toml);
    let listed = text("* = user=app");
    assert!(table(&listed.toml, "upstream", "default").contains("password = { env = \"APP_PASSWORD\" }"));
    let hashed = text("* = user=batch");
    assert!(notes(&hashed).contains("set BATCH_PASSWORD to it"), "{}", notes(&hashed));
    assert!(!table(&text("* = user=nobody").toml, "upstream", "default").contains("password"));
}

#[test]
fn limits_of_pgbouncer_are_written_where_weir_has_others() {
    let toml = with("").toml;
    for line in [
        "connections = 100",
        "connections_per_source = 100",
        "backlog = 128",
        "pool_mode = \"session\"",
        "client_login_timeout = \"1m\"",
        "query_wait_timeout = \"2m\"",
        "idle_transaction_timeout = \"0s\"",
        "connect_timeout = \"15s\"",
        "auth = \"md5\"",
    ] {
        assert!(toml.lines().any(|one| one == line), "{line}:\n{toml}");
    }
    let toml =
        with("query_wait_timeout = 0\nreserve_pool_size = 2\nreserve_pool_timeout = 0\nmin_pool_size = 99\n").toml;
    assert!(toml.contains("query_wait_timeout = \"1h\"") && !toml.contains("reserve_pool"), "{toml}");
    assert!(toml.contains("min_pool_size = 20"), "{toml}");
}

#[test]
fn mistakes_have_their_line_and_no_password() {
    let cases = [
        ("a = b\n".to_owned(), "f:1: the line stands before the first section"),
        ("[pgbouncer]\n[peeers]\n".to_owned(), "f:2: `[peeers]` is no section: databases, users, pgbouncer or peers"),
        ("[pgbouncer\n".to_owned(), "f:1: the section has no `]`"),
        ("[databases]\n".to_owned(), "f:1: there is no section [pgbouncer] with entries"),
        (
            format!("{HEAD}pool_mode = sesion\n"),
            "f:6: `pool_mode = sesion` is no mode: session, transaction or statement",
        ),
        (format!("{HEAD}max_client_con = 1\n"), "f:6: `max_client_con` is no key of [pgbouncer]"),
        (
            format!("{HEAD}auth_user = app\nauth_query = select 1\n"),
            "f:7: `auth_query = select 1` has no $1, the user that is looked for",
        ),
        (format!("{HEAD}query_timeout = soon\n"), "f:6: `query_timeout = soon` is no number of seconds"),
        (
            format!("{HEAD}listen_addr =\n"),
            "f:1: there is no address: listen_addr or unix_socket_dir with an address to bind",
        ),
        (
            format!("{HEAD}[databases]\napp = host=a password=x canary\n"),
            "f:7: the connection string of `app`: a parameter has no `=`",
        ),
        (
            format!("{HEAD}[databases]\napp = host=a pasword=canary\n"),
            "f:7: the connection string of `app` has a parameter that PgBouncer does not know",
        ),
        (
            format!("{HEAD}[databases]\napp host=a password=canary\n"),
            "f:7: the line is neither a comment nor a section, and has no `name = value`",
        ),
        (format!("{HEAD}[databases]\napp = port=x\n"), "f:7: port of `app` is no port"),
        (format!("{HEAD}%include none.ini\n"), "f:6: %include none.ini: none.ini is not there"),
    ];
    for (text, wanted) in cases {
        assert_eq!(mistake(Format::Pgbouncer, &text), wanted, "{text}");
    }
}

#[test]
fn many_databases_and_users_end_soon() {
    let distinct: String = (0..5_000).map(|n| format!("d{n} = host=h{n}\n")).collect();
    let text = format!("[databases]\n{distinct}[pgbouncer]\nunix_socket_dir = /run\n");
    assert_eq!(mistake(Format::Pgbouncer, &text), "f:1026: there are more than 1024 different servers");
    let alike: String = (0..50_000).map(|n| format!("\"d!{n}\" = host=h\n")).collect();
    let text = format!("[databases]\n{alike}[pgbouncer]\nunix_socket_dir = /run\n");
    let imported = read(Format::Pgbouncer, &text);
    assert!(imported.toml.contains("\"h:5432\"") && imported.toml.contains("name = \"d!49999\""));
    let addresses: String = (0..100).map(|n| format!("10.0.0.{n},")).collect();
    let text = format!("[pgbouncer]\nlisten_addr = {addresses}\n");
    assert_eq!(mistake(Format::Pgbouncer, &text), "f:2: there are more than 64 addresses");
}
