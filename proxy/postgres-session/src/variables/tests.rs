use super::*;

fn literal(text: &str) -> Value {
    Value::Literal(text.as_bytes().into())
}

fn expression(text: &str) -> Value {
    Value::Expression(text.as_bytes().into())
}

fn server(sets: &mut VariableSets) -> ServerVariables {
    let mut reported = Variables::default();
    for (name, value) in [("DateStyle", "ISO, MDY"), ("TimeZone", "Etc/UTC"), ("server_version", "15.1")] {
        reported.set(name.as_bytes(), literal(value));
    }
    ServerVariables::new(reported, sets.intern(Variables::default()))
}

fn text_for(server: &ServerVariables, wanted: &Variables) -> String {
    String::from_utf8(difference(server, wanted).text).unwrap()
}

#[test]
fn what_a_client_sent_at_startup_cannot_become_sql() {
    let sets = &mut VariableSets::default();
    let wanted = Variables::from_startup([
        (&b"user"[..], &b"me"[..]),
        (b"application_name", b"it's'; drop table t; --"),
        (b"a\"; select 1; --", b"x"),
        (b"search_path", b"\"A\"\"b\", public; drop table t"),
        (b"local.backslash", b"a\\'; select 2"),
    ]);
    assert_eq!(
        text_for(&server(sets), &wanted),
        "SET \"a\"\"; select 1; --\" = 'x';SET \"application_name\" = 'it''s''; drop table t; --';\
         SET \"local\".\"backslash\" =  E'a\\\\''; select 2';SET \"search_path\" = \"A\"\"b\",\"public; drop table t\";"
    );
}

#[test]
fn options_are_read_as_the_server_reads_them() {
    let wanted = Variables::from_startup([(&b"options"[..], &b"-c a=1 --b-c=2 -cd=x\\ y"[..])]);
    let all: Vec<_> = wanted.iter().map(|(name, value)| (name.to_vec(), value.clone())).collect();
    assert_eq!(all, [(b"a".to_vec(), literal("1")), (b"b_c".to_vec(), literal("2")), (b"d".to_vec(), literal("x y"))]);
}

#[test]
fn a_default_that_a_client_asks_for_is_no_difference() {
    let sets = &mut VariableSets::default();
    let wanted = Variables::from_startup([(&b"timezone"[..], &b"Etc/UTC"[..])]);
    assert_eq!(text_for(&server(sets), &wanted), "");
}

#[test]
fn reported_parameters_follow_the_reports_and_others_the_statements() {
    let sets = &mut VariableSets::default();
    let mut server = server(sets);
    server.on_set(b"TimeZone", expression("'Europe/Berlin'"), sets);
    assert_eq!(server.now().get(b"timezone"), None, "the report follows");
    server.on_report(b"TimeZone", b"Europe/Berlin", sets);
    server.on_set(b"work_mem", expression("'1MB'"), sets);
    server.on_commit();
    assert_eq!(
        text_for(&server, &Variables::default()),
        "RESET \"timezone\";RESET \"work_mem\";",
        "another client gets the defaults"
    );
    server.on_report(b"TimeZone", b"Etc/UTC", sets);
    assert_eq!(text_for(&server, &Variables::default()), "RESET \"work_mem\";");
}

#[test]
fn a_rollback_undoes_statements_and_keeps_reports() {
    let sets = &mut VariableSets::default();
    let mut server = server(sets);
    server.on_set(b"a.b", expression("1"), sets);
    server.on_commit();
    server.on_set(b"a.b", expression("2"), sets);
    server.on_report(b"DateStyle", b"German", sets);
    server.on_savepoint(b"s");
    server.on_set(b"a.b", expression("3"), sets);
    server.on_rollback_to(b"s", sets);
    assert_eq!(server.now().get(b"a.b"), Some(&Value::Expression(b"2"[..].into())));
    server.on_rollback(sets);
    assert_eq!(server.now().get(b"a.b"), Some(&Value::Expression(b"1"[..].into())));
    assert_eq!(server.now().get(b"datestyle"), Some(&literal("German")), "the server reports the end itself");
}

#[test]
fn a_role_is_taken_last_and_waits_for_its_response() {
    let sets = &mut VariableSets::default();
    let server = server(sets);
    let mut wanted = Variables::default();
    wanted.set(ROLE, Value::Expression(b"weak"[..].into()));
    wanted.set(b"work_mem", Value::Expression(b"1".as_slice().into()));
    let difference = difference(&server, &wanted);
    assert!(difference.may_fail);
    assert_eq!(difference.text, b"RESET ROLE;SET \"work_mem\" = 1;SET ROLE weak;");
}

/// The requests of a client follow such statements at once.
#[test]
fn only_what_every_user_may_set_to_the_same_values_is_sure_to_work() {
    let sets = &mut VariableSets::default();
    let may_fail = |server: &ServerVariables, name: &str, value: Value| {
        let mut wanted = Variables::default();
        wanted.set(name.as_bytes(), value);
        difference(server, &wanted).may_fail
    };
    let fresh = server(sets);
    assert!(!may_fail(&fresh, "search_path", expression("a, b")));
    assert!(!may_fail(&fresh, "timezone", literal("Europe/Berlin")));
    assert!(may_fail(&fresh, "log_statement", expression("'all'")), "a right that may be gone");
    assert!(may_fail(&fresh, "app.x", expression("'1'")), "a library may know the name elsewhere");
    assert!(may_fail(&fresh, "temp_buffers", expression("100")), "too late behind a temporary table");
    assert!(may_fail(&fresh, "search_path", expression("'a\\\\b'")), "read in two ways");
    let mut timed = server(sets);
    timed.on_set(b"statement_timeout", expression("1"), sets);
    assert!(may_fail(&timed, "search_path", expression("a")), "cut short by the last client's limit");
    let mut of_library = server(sets);
    of_library.on_set(b"lib.x", expression("1"), sets);
    assert!(difference(&of_library, &Variables::default()).may_fail, "RESET of a name that a library has removed");
}

#[test]
fn equal_sets_are_one_object() {
    let sets = &mut VariableSets::default();
    let mut one = server(sets);
    let mut other = server(sets);
    one.on_set(b"x.y", expression("1"), sets);
    other.on_set(b"X.Y", expression("1"), sets);
    assert!(Rc::ptr_eq(one.now(), other.now()));
}

/// Each SET copies them all.
#[test]
fn parameters_of_a_client_are_bounded() {
    let sets = &mut VariableSets::default();
    let mut server = server(sets);
    let mut set = |name: &str, value: &str| {
        let has_room = server.has_room_for(name.as_bytes(), value.len());
        if has_room {
            server.on_set(name.as_bytes(), expression(value), sets);
        }
        has_room
    };
    for number in 0..NAMES_MAX {
        assert!(set(&format!("app.k{number}"), "1"));
    }
    assert!(!set("app.more", "1"));
    assert!(set("APP.K1", "2"), "another value of one that it has");
    assert!(!set("app.k1", &"x".repeat(BYTES_MAX)));
    assert!(!server.on_report(b"TimeZone", b"Europe/Berlin", sets), "the value is not known");
    assert!(server.on_report(b"TimeZone", b"Etc/UTC", sets), "the default takes no room");
    let bytes = |server: &ServerVariables| {
        server.now().iter().map(|(name, value)| name.len() + value.text().len()).sum::<usize>()
    };
    assert!(server.now().iter().count() <= NAMES_MAX && bytes(&server) <= BYTES_MAX);
}

/// A server reads a text in the encoding that it has when the text comes, whatever the text sets.
#[test]
fn the_encoding_goes_in_front_of_texts_that_it_decides_about() {
    let sets = &mut VariableSets::default();
    let mut wanted = Variables::from_startup([(&b"client_encoding"[..], &b"LATIN1"[..]), (b"app.x", b"caf\xe9")]);
    let fresh = server(sets);
    let ahead = difference(&fresh, &wanted);
    assert_eq!(ahead.encoding, b"SET \"client_encoding\" = 'LATIN1';");
    assert!(ahead.text.windows(4).any(|part| part == b"caf\xe9"));
    wanted.set(b"app.x", literal("cafe"));
    assert!(difference(&fresh, &wanted).encoding.is_empty(), "one text does");
    let mut latin = server(sets);
    latin.on_set(b"client_encoding", expression("LATIN1"), sets);
    let mut utf8 = Variables::default();
    utf8.set(b"app.x", expression("'Zo\u{eb}'"));
    assert_eq!(difference(&latin, &utf8).encoding, b"RESET \"client_encoding\";");
}

/// Texts outlive the clients that had them prepared.
#[test]
fn proofs_keep_no_set_and_sets_in_use_leave_room_for_others() {
    let share = crate::WorkerShare::new();
    let make = |number: usize| {
        let mut variables = Variables::default();
        variables.set(b"app.tenant", literal(&number.to_string()));
        share.variables(variables)
    };
    for number in 0..2 * SETS_MAX {
        share.statement(format!("select {number}\0\0\0").as_bytes()).prove(&"pool".into(), &make(number));
    }
    let held: Vec<_> = (0..3 * SETS_MAX).map(|number| make(10_000 + number)).collect();
    assert!(share.variables.borrow().sets.len() <= held.len() + 2 * SETS_MAX);
    let statement = share.statement(b"select 1\0\0\0");
    let one = make(99_999);
    statement.prove(&"pool".into(), &one);
    assert!(Rc::ptr_eq(&one, &make(99_999)) && statement.is_proven("pool", &one));
    drop(one);
    drop(held);
    (0..10 * SETS_MAX).for_each(|number| drop(make(200_000 + number)));
    assert!(share.variables.borrow().sets.len() <= 6 * SETS_MAX);
    assert!(!statement.is_proven("pool", &make(99_998)));
}
