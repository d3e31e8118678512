//! Credentials as clients send them, right, wrong and odd.

use proptest::prelude::*;

use super::*;

/// Hash of `secret`, made with Python's hashlib and the crypt of glibc.
const FAST: &str = "{SSHA}o8knsqoeF6dfrPOYBJ37h3y7MHYAAQIDBAUGBwgJCgsMDQ4P";
const SLOW: &str = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";

fn policy(users: &[(&str, &str)]) -> Basic {
    let lines: String = users.iter().map(|(name, hash)| format!("{name}:{hash}\n")).collect();
    Basic::new(parse_htpasswd(&lines).expect("a file"), "staff \"only\"", true).expect("a policy")
}

fn fields(line: &[u8]) -> Fields {
    let mut fields = Fields::new();
    fields.push(b"Authorization", line);
    fields
}

fn credentials(text: &str) -> Fields {
    fields(format!("Basic {}", STANDARD.encode(text)).as_bytes())
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

/// Asks, and runs the slow check if there is one; the user or the reason, and whether it was slow.
fn ask(basic: &Basic, fields: &Fields, seen: &mut SeenCredentials, now: Time) -> (Result<String, &'static str>, bool) {
    let told = |response: Result<Arc<str>, Refusal>| response.map(|user| user.to_string()).map_err(|no| no.reason);
    match basic.check(fields, seen, now) {
        BasicCheck::Granted(user) => (told(Ok(user)), false),
        BasicCheck::Refused(refusal) => (told(Err(refusal)), false),
        BasicCheck::Slow(check) => (told(basic.finish(check.run(), seen, now)), true),
    }
}

#[test]
fn the_example_of_the_rfc_is_understood() {
    // RFC 7617 2: user `Aladdin`, password `open sesame`.
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"open sesame");
    let basic = policy(&[("Aladdin", &format!("{{SHA256}}{}", STANDARD.encode(hash)))]);
    let mut seen = SeenCredentials::default();
    for line in ["Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "bASIC   QWxhZGRpbjpvcGVuIHNlc2FtZQ=="] {
        assert_eq!(ask(&basic, &fields(line.as_bytes()), &mut seen, at(1)), (Ok("Aladdin".to_owned()), false));
    }
}

#[test]
fn a_refusal_has_the_challenge_and_names_nobody() {
    let basic = policy(&[("alice", FAST)]);
    let mut seen = SeenCredentials::default();
    let mut two = credentials("alice:secret");
    two.push(b"authorization", b"Basic x");
    for (fields, reason) in [
        (Fields::new(), "basic_missing"),
        (two, "basic_malformed"),
        (fields(b""), "basic_malformed"),
        (fields(b"Basic"), "basic_malformed"),
        (fields(b"Basic "), "basic_malformed"),
        (fields(b"Bearer abcdef"), "basic_malformed"),
        (fields(b"Basic !!!!"), "basic_malformed"),
        (fields(b"Basic YWxpY2U6c2VjcmV0IA"), "basic_malformed"),
        (fields("Basic \u{e9}\u{e9}".as_bytes()), "basic_malformed"),
        (credentials("alice"), "basic_malformed"),
        (credentials("alice:sec\nret"), "basic_malformed"),
        (credentials("alice:secret\0"), "basic_malformed"),
        (credentials(&format!("alice:{}", "x".repeat(PASSWORD_BYTES_MAX + 1))), "basic_malformed"),
        (credentials(&format!("{}:x", "x".repeat(USER_BYTES_MAX + 1))), "basic_malformed"),
        (credentials(&"x".repeat(60_000)), "basic_malformed"),
        (credentials("alice:wrong"), "basic_wrong"),
        (credentials("alice:"), "basic_wrong"),
        (credentials("ALICE:secret"), "basic_wrong"),
        (credentials(":secret"), "basic_wrong"),
        (credentials("bob:secret"), "basic_wrong"),
    ] {
        let BasicCheck::Refused(refusal) = basic.check(&fields, &mut seen, at(1)) else { panic!("refused") };
        assert_eq!((refusal.status, refusal.reason), (401, reason));
        let challenge = refusal.fields.get(Known::WwwAuthenticate).expect("a challenge");
        assert_eq!(challenge, b"Basic realm=\"staff \\\"only\\\"\", charset=\"UTF-8\"");
    }
}

#[test]
fn a_slow_check_is_done_once_and_remembered_for_a_while() {
    let basic = policy(&[("alice", SLOW), ("bob", FAST)]);
    let mut seen = SeenCredentials::default();
    let right = credentials("alice:secret");
    assert_eq!(ask(&basic, &right, &mut seen, at(1)), (Ok("alice".to_owned()), true));
    assert_eq!(ask(&basic, &right, &mut seen, at(300)), (Ok("alice".to_owned()), false));
    assert_eq!(ask(&basic, &right, &mut seen, at(301)), (Ok("alice".to_owned()), true), "it ends");
    assert_eq!(ask(&basic, &credentials("bob:secret"), &mut seen, at(301)), (Ok("bob".to_owned()), false));
    for wrong in [credentials("alice:wrong"), credentials("nobody:secret")] {
        assert_eq!(
            ask(&basic, &wrong, &mut seen, at(1)),
            (Err("basic_wrong"), true),
            "who is not there costs the same"
        );
        assert_eq!(ask(&basic, &wrong, &mut seen, at(10)), (Err("basic_wrong"), false));
        assert_eq!(ask(&basic, &wrong, &mut seen, at(11)), (Err("basic_wrong"), true));
    }
}

#[test]
fn a_reload_forgets_accepted_credentials() {
    let mut seen = SeenCredentials::default();
    let right = credentials("alice:secret");
    assert!(ask(&policy(&[("alice", SLOW)]), &right, &mut seen, at(1)).0.is_ok());
    let other = "$2b$04$abcdefghijklmnopqrstuubyCG3zY1GIXMyxfivm.ClDiInHzxjiq";
    assert_eq!(ask(&policy(&[("alice", other)]), &right, &mut seen, at(2)), (Err("basic_wrong"), true));
}

#[test]
fn so_many_checks_are_under_way_and_no_more() {
    let basic = policy(&[("alice", SLOW)]);
    let mut seen = SeenCredentials::default();
    let mut checks = Vec::new();
    for index in 0..CHECKS_MAX {
        let BasicCheck::Slow(check) = basic.check(&credentials(&format!("alice:{index}")), &mut seen, at(1)) else {
            panic!("slow")
        };
        assert!(!format!("{check:?}").contains(&format!("\"{index}")));
        checks.push(check);
    }
    let BasicCheck::Refused(busy) = basic.check(&credentials("alice:x"), &mut seen, at(1)) else { panic!("busy") };
    assert_eq!((busy.status, busy.reason, busy.fields.get(Known::RetryAfter)), (503, "basic_busy", Some(&b"1"[..])));
    let outcome = checks.pop().expect("one").run();
    assert!(matches!(basic.check(&credentials("alice:x"), &mut seen, at(1)), BasicCheck::Refused(_)));
    assert!(basic.finish(outcome, &mut seen, at(1)).is_err());
    drop(checks);
    assert_eq!(basic.checks.in_use(), 0, "a check that is dropped gives its place back");
    assert!(matches!(basic.check(&credentials("alice:x"), &mut seen, at(1)), BasicCheck::Slow(_)));
}

#[test]
fn credentials_are_stripped_if_the_policy_says_so() {
    let mut stripped = credentials("alice:secret");
    policy(&[("alice", FAST)]).strip(&mut stripped);
    assert!(stripped.is_empty());
    let users = parse_htpasswd(&format!("alice:{FAST}")).expect("a file");
    let mut kept = credentials("alice:secret");
    Basic::new(users, "x", false).expect("a policy").strip(&mut kept);
    assert_eq!(kept.len(), 1);
}

#[test]
fn a_file_tells_every_line_that_is_wrong() {
    let text = format!("# staff\n\nalice:{FAST}\nbob:$apr1$x$y\ncarol\n dave:{SLOW} \n");
    let errors = parse_htpasswd(&text).expect_err("two lines");
    let shown: Vec<String> = errors.iter().map(|error| format!("{}: {}", error.line, error.error)).collect();
    assert_eq!(errors.len(), 2);
    assert!(shown[0].starts_with("4: user `bob`: ") && shown[0].contains("htpasswd -B"), "{shown:?}");
    assert_eq!(shown[1], "5: a line is `name:hash`, as `htpasswd -B` writes it");
}

#[test]
fn a_policy_that_cannot_work_is_a_build_error() {
    let users = |text: &str| parse_htpasswd(text).expect("a file");
    let error = |text: &str, realm| Basic::new(users(text), realm, false).err();
    assert_eq!(error("", "x"), Some(BasicError::NoUsers));
    assert_eq!(error(&format!("a:{FAST}\na:{SLOW}"), "x"), Some(BasicError::Twice("a".into())));
    assert_eq!(error(&format!(":{FAST}"), "x"), Some(BasicError::Name(String::new())));
    for realm in ["", "a\r\nb", "\u{e9}", &"x".repeat(REALM_BYTES_MAX + 1)] {
        assert_eq!(error(&format!("a:{FAST}"), realm), Some(BasicError::Realm), "{realm}");
    }
    let many = users(&(0..=USERS_MAX).map(|index| format!("u{index}:{FAST}\n")).collect::<String>());
    assert_eq!(Basic::new(many, "x", false).err(), Some(BasicError::TooManyUsers(USERS_MAX + 1)));
}

proptest! {
    #[test]
    fn no_field_makes_it_fail_or_lets_it_in(line in "[ -~]{0,100}", text in "\\PC{0,40}") {
        let basic = policy(&[("alice", FAST)]);
        let mut seen = SeenCredentials::default();
        prop_assert!(ask(&basic, &fields(line.as_bytes()), &mut seen, at(1)).0.is_err());
        prop_assert!(ask(&basic, &credentials(&text), &mut seen, at(1)).0.is_err());
    }
}
