//! S9: optional parts that are absent, empty, repeated or in unusual case, in startup packets and in statements that change a session.
//! The gateway reads each as the server does, or refuses it.

use weir_tests::gateway::Gateway;
use weir_tests::postgres::torture::wire::{V3_0, Wire, query};
use weir_tests::postgres::{Major, Options, Postgres, USER};

use crate::gateway::before;
use crate::hostile::value;

/// Everything that the forms below can change, and who the session is.
const PROBE: &str = "select concat_ws('|', current_user, session_user, current_database(), current_setting('search_path'), \
    current_setting('TimeZone'), current_setting('DateStyle'), current_setting('statement_timeout'), \
    current_setting('work_mem'), current_setting('client_encoding'), current_setting('default_transaction_isolation'), \
    current_setting('default_transaction_read_only'), current_setting('IntervalStyle'), current_setting('bytea_output'), \
    nullif(current_setting('weir.mark', true), ''), current_setting('transaction_isolation'))";

/// Statements that change a session, in forms that a reader of SQL may miss. Each runs in a session of its own.
const STATEMENTS: &[&[&str]] = &[
    &["set statement_timeout = 71000"],
    &["SET SESSION Statement_Timeout TO '71s'"],
    &["set\n/* c /* nested */ */ \"statement_timeout\" -- to the end\n= '71s' ;"],
    &["set statement_timeout to default"],
    &["set statement_timeout = 71000; set statement_timeout to default"],
    &["set statement_timeout = 71000; reset STATEMENT_TIMEOUT"],
    &["set statement_timeout = 71000;;; ;"],
    &["", ";", "set work_mem = '5MB'"],
    &["set local statement_timeout = 71000"],
    &["begin; set local statement_timeout = 71000; commit"],
    &["begin; set statement_timeout = 71000; rollback"],
    &[
        "begin",
        "set statement_timeout = 71000",
        "savepoint s",
        "set statement_timeout = 72000",
        "rollback to s",
        "commit",
    ],
    &["begin; set statement_timeout = 71000; commit and chain; set statement_timeout = 72000; rollback"],
    &["set search_path = pg_catalog, \"Odd\"\"Name\", public"],
    &["set search_path to ''"],
    &["set search_path = DEFAULT"],
    &["set schema 'pg_catalog'"],
    &["set time zone 'Europe/Rome'"],
    &["set time zone -7"],
    &["set time zone interval '-08:00' hour to minute"],
    &["set time zone local"],
    &["set timezone = 'UTC'; set time zone default"],
    &["set names 'LATIN1'"],
    &["set names"],
    &["set client_encoding to utf8"],
    &["set datestyle = german", "set datestyle = iso, ymd"],
    &["set datestyle to 'SQL, DMY'"],
    &["set session characteristics as transaction isolation level serializable, read only"],
    &["set session characteristics as transaction read write"],
    &["set default_transaction_isolation = 'repeatable read'"],
    &["set intervalstyle = 'iso_8601'"],
    &["set bytea_output = E'esc\\141pe'"],
    &["set weir.mark = 'a''b'"],
    &["set weir.mark = $$it's$$"],
    &["set weir.mark to U&'\\0041'"],
    &["select set_config('statement_timeout', '71s', false)"],
    &["select pg_catalog.set_config('statement_timeout', '71s', true)"],
    &["select \"set_config\"('STATEMENT_TIMEOUT'::text, '7'||'1s', false)"],
    &["update pg_settings set setting = '71000' where name = 'statement_timeout'"],
    &["set role pg_monitor", "reset role"],
    &["set role none"],
    &["set session authorization default"],
    &["reset all"],
    &["set statement_timeout = 71000", "RESET\tALL"],
    &["set statement_timeout = 71000", "discard all"],
    &["set statement_timeout = 71000", "DISCARD PLANS"],
    &["set statement_timeout = 71000; select 1/0"],
    &["set statement_timeout = 71000", "set nothing.there", "set"],
    &["set statement_timeout = '1 fortnight'"],
    &["update pg_catalog.\"pg_settings\" set setting = '71000' where name = 'statement_timeout'"],
    &["with u as (update pg_settings set setting = '71000' where name = 'statement_timeout') select 1"],
    &["create function pg_temp.quiet() returns void language sql set statement_timeout = 71000 as 'select 1'"],
    &["prepare transaction 'none'"],
    &["start transaction read only; end"],
    &["begin isolation level serializable, read only, deferrable; abort"],
];

/// A setting made by these is gone for the client behind its transaction, and reaches no other: nothing of them can be seen.
const OPAQUE: &str = "do $$ begin perform set_config('statement_timeout', '71s', false); end $$";

/// A direct session and one through the gateway, behind which other clients work at the same server.
struct Sides<'a> {
    server: &'a Postgres,
    gateway: &'a Gateway,
}

impl Sides<'_> {
    fn both(&self, words: &[&str]) -> [Result<Wire, String>; 2] {
        [self.server.port(), self.gateway.address.tcp().port()].map(|port| Wire::connect_with(port, V3_0, words))
    }

    /// Another client runs at the only server; what it sees there.
    fn other(&self) -> String {
        value(&mut crate::hostile::login(self.gateway), PROBE)
    }
}

/// Codes of all errors, and the tags.
fn outcome(wire: &mut Wire, text: &str) -> String {
    match wire.query(text) {
        Ok(reply) => {
            let states: Vec<&str> = reply.errors.iter().map(|(state, _)| state.as_str()).collect();
            format!("{states:?} {:?} {}", reply.tags, char::from(wire.status))
        }
        Err(error) => error,
    }
}

fn start() -> (Postgres, tempfile::TempDir) {
    let hba = vec!["host all all 127.0.0.1/32 trust".to_owned()];
    let server = Postgres::start_with(Major::Fifteen, Options { hba, ..Options::default() });
    server.sql("grant pg_monitor to app");
    (server, tempfile::tempdir().expect("a folder"))
}

#[test]
fn s9_statements_that_change_a_session_are_read_as_the_server_reads_them() {
    let (server, folder) = start();
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let sides = Sides { server: &server, gateway: &gateway };
    let fresh = sides.other();
    let mut differences = Vec::new();
    for statements in STATEMENTS {
        let [direct, through] = sides.both(&["user", USER, "database", USER]);
        let (mut direct, mut through) = (direct.expect("a login"), through.expect("a login"));
        for text in *statements {
            let ends = [outcome(&mut direct, text), outcome(&mut through, text)];
            if ends[0] != ends[1] {
                differences.push(format!("{text}: directly {}, through the gateway {}", ends[0], ends[1]));
            }
        }
        // One within a block, or with a pin, keeps the only server.
        let is_free = through.status == b'I' && super::pins(&gateway).is_empty();
        let foreign = if is_free { sides.other() } else { fresh.clone() };
        if foreign != fresh {
            differences.push(format!("{statements:?} reaches another client: {foreign}"));
        }
        let probes = [value(&mut direct, PROBE), value(&mut through, PROBE)];
        if probes[0] != probes[1] {
            differences.push(format!("{statements:?}: directly {}, through the gateway {}", probes[0], probes[1]));
        }
        [direct, through].into_iter().for_each(|wire| wire.leave(2));
        let after = sides.other();
        if after != fresh {
            differences.push(format!("{statements:?} stays behind: {after}"));
        }
    }
    assert!(differences.is_empty(), "{}\n{}", differences.join("\n"), gateway.log());
    let mut opaque = crate::hostile::login(&gateway);
    value(&mut opaque, OPAQUE);
    assert_eq!((sides.other(), value(&mut opaque, PROBE)), (fresh.clone(), fresh));
}

/// The first row of a response, or the code of its error.
fn first_row_or_code(wire: &mut Wire) -> String {
    loop {
        match wire.message() {
            Ok((b'E', body)) => {
                let fields = body.split(|byte| *byte == 0);
                let code = fields.filter_map(|field| field.strip_prefix(b"C")).next().unwrap_or_default();
                return String::from_utf8_lossy(code).into_owned();
            }
            Ok((b'D', body)) => return String::from_utf8_lossy(&body[6..]).into_owned(),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

/// Words of startup packets.
const STARTUPS: &[&[&str]] = &[
    &["user", USER],
    &["user", USER, "database", ""],
    &["user", USER, "database", "nothing"],
    &["user", USER, "database", USER, "user", USER],
    &["user", "postgres", "user", USER],
    &["user", USER, "database", "postgres", "database", USER],
    &["user", "", "database", USER],
    &["database", USER],
    &["user", USER, "application_name", ""],
    &["user", USER, "statement_timeout", "71s", "STATEMENT_TIMEOUT", "72s"],
    &["user", USER, "statement_timeout", ""],
    &["user", USER, "statement_timeout", "1 fortnight"],
    &["user", USER, "no_such_parameter", "1"],
    &["user", USER, "weir.mark", "x"],
    &["user", USER, "options", ""],
    &["user", USER, "options", "-c statement_timeout=71s"],
    &["user", USER, "options", "-c statement_timeout=71s -c work_mem=5MB"],
    &["user", USER, "options", "-cstatement_timeout=71s"],
    &["user", USER, "options", "--statement-timeout=71s"],
    &["user", USER, "options", "--statement_timeout=71s --search_path=pg_catalog,\\ public"],
    &["user", USER, "options", "-c weir.mark=a\\\\b"],
    &["user", USER, "options", "-c statement_timeout"],
    &["user", USER, "options", "-x"],
    &["user", USER, "options", "-c statement_timeout=71s", "statement_timeout", "72s"],
    &["user", USER, "TimeZone", "Europe/Rome", "datestyle", "German"],
    &["user", USER, "timezone", "Nowhere/Never"],
    &["user", USER, "client_encoding", "latin1"],
    &["user", USER, "client_encoding", "'utf-8'"],
    &["user", USER, "client_encoding", "no_encoding"],
    &["user", USER, "replication", "false"],
    &["user", USER, "replication", "off"],
    &["user", USER, "replication", "0"],
    &["user", USER, "replication", "maybe"],
    &["user", USER, "max_connections", "5"],
    &["user", USER, "log_statement", "all"],
    &["user", USER, "session_authorization", "postgres"],
    &["user", USER, "role", "pg_monitor"],
    &["user", USER, "role", "postgres"],
    &["user", USER, "search_path", "pg_catalog, \"Odd\""],
    &["user", USER, "default_transaction_read_only", "on"],
    &["user", USER, "_pq_.unknown", "1"],
];

#[test]
fn s9_startup_packets_are_read_as_the_server_reads_them() {
    let (server, folder) = start();
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 1"));
    let sides = Sides { server: &server, gateway: &gateway };
    let fresh = sides.other();
    let mut differences = Vec::new();
    for words in STARTUPS {
        let seen = sides.both(words).map(|wire| match wire {
            // The gateway may learn from the first server what is wrong with a parameter: a statement later.
            Err(error) => error.split_whitespace().find(|word| word.len() == 5).unwrap_or("closed").to_owned(),
            Ok(mut wire) => {
                wire.send(&query(PROBE)).expect("sent");
                first_row_or_code(&mut wire)
            }
        });
        if seen[0] != seen[1] {
            differences.push(format!("{words:?}: directly {}, through the gateway {}", seen[0], seen[1]));
        }
        let after = sides.other();
        if after != fresh {
            differences.push(format!("{words:?} stays behind: {after}"));
        }
    }
    assert!(differences.is_empty(), "{}\n{}", differences.join("\n"), gateway.log());
}
