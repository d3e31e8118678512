//! Servers that mean no good (P19): the login ends, whatever they send, and nothing of ours goes to them that they must not
//! have.

use proptest::prelude::*;
use weir_base::secret::Secret;
use weir_postgres_codec::backend::{self, ErrorReport};
use weir_postgres_codec::{TransactionStatus, Version};
use weir_postgres_session::server_login::{
    Failure, LOGIN_BYTES_MAX, MESSAGE_BYTES_MAX, ServerIdentity, ServerLogin, Step, TlsMode,
};
use weir_postgres_session::users::Credential;
use weir_sasl::ClientError;

fn identity() -> ServerIdentity {
    ServerIdentity::new(b"app", b"shop", Credential::Password(Secret::from("pencil")))
}

fn started(identity: ServerIdentity) -> (ServerLogin, Vec<u8>) {
    let mut login = ServerLogin::new(identity, &[1; 18]);
    let mut out = Vec::new();
    login.start(&mut out);
    out.clear();
    (login, out)
}

/// The output and the end of a login whose server sends these messages at once.
fn run(identity: ServerIdentity, bytes: &[u8]) -> (Step, Vec<u8>) {
    let (mut login, mut out) = started(identity);
    let mut progress = login.on_bytes(bytes, &mut out);
    if let Step::Derive(derivation) = progress.step {
        progress.step = login.on_keys(&derivation.run(), &mut out);
        let rest = &bytes[progress.consumed..];
        if matches!(progress.step, Step::More) && !rest.is_empty() {
            progress = login.on_bytes(rest, &mut out);
        }
    }
    (progress.step, out)
}

fn failure(bytes: &[u8]) -> Failure {
    match run(identity(), bytes).0 {
        Step::Failed(failure) => *failure,
        step => panic!("{step:?}"),
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

fn sasl(bytes: &mut Vec<u8>) {
    backend::authentication_sasl(bytes, [&b"SCRAM-SHA-256"[..]]);
}

/// The challenge of a server that has seen our nonce.
fn challenge(bytes: &mut Vec<u8>) {
    backend::authentication_sasl_continue(bytes, b"r=AQEBAQEBAQEBAQEBAQEBAQEBxyz,s=c2FsdA==,i=1");
}

#[test]
fn p19_lengths_and_codes_that_do_not_exist_end_the_login() {
    for (bytes, reason) in [
        (&b"R\0\0\0\x03"[..], "postgres_message_length"),
        (b"R\xff\xff\xff\xff", "postgres_message_length"),
        (b"R\x7f\xff\xff\xff", "postgres_message_length"),
        (b"E\0\x01\0\0", "postgres_login_bytes"),
        (b"R\0\0\0\x08\0\0\0\x63", "postgres_authentication_code"),
        (b"R\0\0\0\x06\0\0", "postgres_message_short"),
        (b"D\0\0\0\x06\0\0", "postgres_login_order"),
        (b"Z\0\0\0\x05I", "postgres_login_order"),
        (b"S\0\0\0\x08a\0b\0", "postgres_login_order"),
        (b"HTTP/1.1 400 Bad Request\r\n", "postgres_message_length"),
        (b"R\0\0\0\x08\0\0\0\x07", "postgres_unsupported_authentication"),
    ] {
        assert_eq!(failure(bytes).reason(), reason, "{bytes:?}");
    }
}

#[test]
fn a_password_in_clear_text_is_never_sent_without_tls() {
    let (step, out) = run(identity(), &written(backend::authentication_cleartext));
    assert!(matches!(step, Step::Failed(failure) if matches!(*failure, Failure::Unsupported(_))));
    assert!(out.is_empty());
}

#[test]
fn a_server_that_skips_its_own_proof_is_refused() {
    let early = written(|bytes| {
        sasl(bytes);
        challenge(bytes);
        backend::authentication_ok(bytes);
    });
    assert_eq!(failure(&early).reason(), "postgres_login_order");
    let before = written(|bytes| {
        sasl(bytes);
        backend::authentication_ok(bytes);
    });
    assert_eq!(failure(&before).reason(), "postgres_login_order");
    let wrong = written(|bytes| {
        sasl(bytes);
        challenge(bytes);
        backend::authentication_sasl_final(bytes, format!("v={}=", "A".repeat(43)).as_bytes());
        backend::authentication_ok(bytes);
    });
    assert_eq!(failure(&wrong), Failure::Scram(ClientError::WrongSignature));
}

#[test]
fn a_server_that_demands_too_much_work_or_another_nonce_is_refused() {
    let with = |text: &str| {
        written(|bytes| {
            sasl(bytes);
            backend::authentication_sasl_continue(bytes, text.as_bytes());
        })
    };
    let nonce = "r=AQEBAQEBAQEBAQEBAQEBAQEBxyz";
    let huge = failure(&with(&format!("{nonce},s=c2FsdA==,i=2147483647")));
    assert_eq!(huge, Failure::Scram(ClientError::Iterations { claimed: i32::MAX as u32 }));
    assert_eq!(failure(&with("r=other,s=c2FsdA==,i=1")), Failure::Scram(ClientError::NonceMismatch));
    let long = format!("{nonce}{},s=c2FsdA==,i=1", "x".repeat(8_000));
    assert_eq!(failure(&with(&long)), Failure::Scram(ClientError::TooLong));
    let none = written(|bytes| backend::authentication_sasl(bytes, [&b"OAUTHBEARER"[..]]));
    assert_eq!(failure(&none).reason(), "postgres_unsupported_authentication");
}

#[test]
fn an_endless_stream_of_notices_or_settings_ends() {
    let long = "x".repeat(1_000);
    let notice = written(|bytes| backend::notice(bytes, &ErrorReport::fatal("00000", &long)));
    let setting = written(|bytes| backend::parameter_status(bytes, b"a", long.as_bytes()));
    let ok = written(backend::authentication_ok);
    for (before, message) in [(&b""[..], &notice), (&ok, &notice), (&ok, &setting)] {
        let (mut login, mut out) = started(identity());
        login.on_bytes(before, &mut out);
        let mut sent = 0;
        let failure = loop {
            let progress = login.on_bytes(message, &mut out);
            sent += message.len();
            match progress.step {
                Step::More => assert!(sent <= LOGIN_BYTES_MAX, "{sent} bytes without an end"),
                Step::Failed(failure) => break failure,
                step => panic!("{step:?}"),
            }
        };
        assert_eq!(failure.reason(), "postgres_login_bytes");
    }
    let many = written(|bytes| {
        backend::authentication_ok(bytes);
        (0..1_000).for_each(|index| backend::parameter_status(bytes, index.to_string().as_bytes(), b""));
    });
    assert_eq!(failure(&many).reason(), "postgres_login_parameters");
    let head = [&b"N"[..], &(MESSAGE_BYTES_MAX as i32 + 5).to_be_bytes()].concat();
    assert_eq!(failure(&head).reason(), "postgres_login_bytes", "the claim alone is enough");
}

#[test]
fn an_error_is_kept_whole_for_the_client() {
    for (sqlstate, is_authenticated, is_transient) in
        [("28P01", false, false), ("3D000", true, false), ("53300", true, true), ("57P03", false, true)]
    {
        let report = ErrorReport::fatal(sqlstate, "no").with_detail("because").with_hint("try");
        let message = written(|bytes| backend::error(bytes, &report));
        let ok = if is_authenticated { written(backend::authentication_ok) } else { Vec::new() };
        let found = failure(&[ok, message.clone(), b"behind".to_vec()].concat());
        assert_eq!(found.is_transient(), is_transient, "{sqlstate}");
        let Failure::Refused(error) = found else { panic!("{found:?}") };
        assert_eq!((error.message, error.sqlstate.as_deref()), (message, Some(sqlstate)));
        assert_eq!((error.is_authenticated, error.text.as_str()), (is_authenticated, "no"));
    }
    let Failure::Refused(error) = failure(b"E\0\0\0\x09Mno\0\0") else { panic!("no error") };
    assert_eq!((error.sqlstate, error.text.as_str()), (None, "no"), "an error without a code");
    assert_eq!(failure(b"E\0\0\0\x08Mno\0").reason(), "postgres_message_short", "one without an end is none");
}

/// CVE-2021-23222.
#[test]
fn bytes_behind_the_acceptance_of_tls_are_refused() {
    let tls = || ServerIdentity { tls: TlsMode::Prefer, ..identity() };
    for (bytes, reason) in [
        (&b"SR\0\0\0\x08\0\0\0\0"[..], "postgres_bytes_behind_tls_response"),
        (b"NR\0\0\0\x08\0\0\0\0", "postgres_tls_response"),
        (b"E\0\0\0\x09Mno\0\0", "postgres_tls_response"),
        (b"X", "postgres_tls_response"),
    ] {
        let (mut login, mut out) = started(tls());
        let progress = login.on_bytes(bytes, &mut out);
        let Step::Failed(failure) = progress.step else { panic!("{:?}", progress.step) };
        assert_eq!((failure.reason(), out.len()), (reason, 0), "{bytes:?}");
    }
}

#[test]
fn a_server_may_not_choose_a_version_that_was_not_requested() {
    for (version, options, is_legal) in [
        (Version::V3_0, &[][..], true),
        (Version::V3_2, &[], false),
        (Version::of(0x2_0000), &[], false),
        (Version::V3_0, &[&b"_pq_.x"[..]], false),
    ] {
        let bytes = written(|bytes| {
            backend::negotiate_protocol_version(bytes, version, options.iter().copied());
            backend::authentication_ok(bytes);
            backend::ready_for_query(bytes, TransactionStatus::Idle);
        });
        let (step, _) = run(identity(), &bytes);
        assert_eq!(matches!(step, Step::Done(_)), is_legal, "{version} {options:?}: {step:?}");
    }
    let late = written(|bytes| {
        backend::authentication_ok(bytes);
        backend::negotiate_protocol_version(bytes, Version::V3_0, [].into_iter());
    });
    assert_eq!(failure(&late).reason(), "postgres_login_order");
}

#[test]
fn a_login_that_ends_inside_of_a_transaction_is_refused() {
    let bytes = written(|bytes| {
        backend::authentication_ok(bytes);
        backend::ready_for_query(bytes, TransactionStatus::InBlock);
    });
    assert_eq!(failure(&bytes).reason(), "postgres_login_order");
}

proptest! {
    #[test]
    fn no_bytes_of_a_server_panic_and_cuts_change_nothing(bytes: Vec<u8>, tags in "[RENSKZv]{0,6}", cut: usize) {
        // Frames with the tags of a login and random bodies reach further than random bytes.
        let framed: Vec<u8> = tags.bytes().zip(bytes.chunks(7)).flat_map(|(tag, body)| {
            [&[tag][..], &(body.len() as i32 + 4).to_be_bytes(), body].concat()
        }).collect();
        for input in [&bytes, &framed] {
            let (mut login, mut out) = started(identity());
            let whole = format!("{:?}", login.on_bytes(input, &mut out).step);
            let cut = cut % (input.len() + 1);
            let (mut login, mut parts) = started(identity());
            let first = login.on_bytes(&input[..cut], &mut parts);
            let step = match first.step {
                Step::More => format!("{:?}", login.on_bytes(&input[first.consumed..], &mut parts).step),
                step => format!("{step:?}"),
            };
            prop_assert_eq!((whole, out), (step, parts));
        }
    }
}
