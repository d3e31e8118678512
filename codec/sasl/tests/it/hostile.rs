//! Servers that mean no good, and texts that are no verifiers.

use proptest::prelude::*;
use weir_base::secret::Secret;
use weir_sasl::limits::{ITERATIONS_MAX, MESSAGE_BYTES_MAX};
use weir_sasl::{
    ChannelBinding, ClientError, ClientFirst, Derivation, Mechanism, Nonce, ScramClient, ScramVerifier, ServerError,
};

fn client() -> ScramClient {
    let nonce = Nonce::from_text("abc").expect("a nonce");
    ScramClient::new(Mechanism::ScramSha256, b"", ChannelBinding::None, nonce)
}

fn refusal(message: &str) -> Option<ClientError> {
    client().on_challenge(message.as_bytes()).err()
}

#[test]
fn challenges_that_a_server_may_not_send_are_refused() {
    let cases = [
        ("", ClientError::Malformed("empty")),
        ("r=abc\0d,s=AAAA,i=1", ClientError::Malformed("zero byte")),
        ("s=AAAA,i=1", ClientError::Malformed("nonce")),
        ("r=xyz,s=AAAA,i=1", ClientError::NonceMismatch),
        ("r=abc,s=AAAA,i=1", ClientError::NonceMismatch),
        ("r=abcd e,s=AAAA,i=1", ClientError::NonceMismatch),
        ("r=abcd,s=,i=1", ClientError::Malformed("salt")),
        ("r=abcd,s=A,i=1", ClientError::Malformed("salt")),
        ("r=abcd,s=AAAA", ClientError::Malformed("iterations")),
        ("r=abcd,s=AAAA,i=", ClientError::Malformed("iterations")),
        ("r=abcd,s=AAAA,i=-1", ClientError::Malformed("iterations")),
        ("r=abcd,s=AAAA,i=+1", ClientError::Malformed("iterations")),
        ("r=abcd,s=AAAA,i=0", ClientError::Iterations { claimed: 0 }),
        ("r=abcd,s=AAAA,i=2147483647", ClientError::Iterations { claimed: 2_147_483_647 }),
        ("r=abcd,s=AAAA,i=99999999999", ClientError::Iterations { claimed: u32::MAX }),
        ("r=abcd,s=AAAA,i=1,!", ClientError::Malformed("end of server-first-message")),
        ("m=x,r=abcd,s=AAAA,i=1", ClientError::MandatoryExtension),
        ("e=unknown-user", ClientError::Refused { reason: "unknown-user".to_owned() }),
    ];
    for (message, expected) in cases {
        assert_eq!(refusal(message), Some(expected), "{message}");
    }
    assert_eq!(refusal("r=abcd,s=AAAA,i=1"), None);
    assert_eq!(refusal("r=abcd,s=AAAA,i=1,x=y"), None, "an optional extension");
    assert_eq!(refusal(&format!("r=abcd,s=AAAA,i={ITERATIONS_MAX}")), None);
}

#[test]
fn a_nonce_without_end_is_refused_on_both_sides() {
    let long = "x".repeat(MESSAGE_BYTES_MAX);
    assert_eq!(refusal(&format!("r=abc{long},s=AAAA,i=1")), Some(ClientError::TooLong));
    let first = format!("n,,n=,r={long}");
    let refused = ClientFirst::read(first.as_bytes(), Mechanism::ScramSha256, &ChannelBinding::None);
    assert!(matches!(refused, Err(ServerError::Malformed(_))));
}

#[test]
fn a_server_without_the_verifier_cannot_end_the_exchange() {
    let (waiting, wanted) = client().on_challenge(b"r=abcd,s=AAAA,i=1").expect("legal");
    let keys = Derivation::new(Mechanism::ScramSha256, &Secret::from("pencil"), wanted).run();
    let (client, _) = waiting.prove(&keys);
    let signature = "A".repeat(43);
    let cases = [
        ("", ClientError::Malformed("empty")),
        ("v=", ClientError::Malformed("server signature")),
        ("v=AAAA", ClientError::Malformed("server signature")),
        ("x=AAAA", ClientError::Malformed("server signature")),
        ("e=other\nline", ClientError::Refused { reason: "other?line".to_owned() }),
    ];
    for (message, expected) in cases {
        assert_eq!(client.finish(message.as_bytes()), Err(expected), "{message}");
    }
    assert_eq!(client.finish(format!("v={signature}=").as_bytes()), Err(ClientError::WrongSignature));
    let garbage = client.finish(format!("v={signature}=,!").as_bytes());
    assert_eq!(garbage, Err(ClientError::Malformed("end of server-final-message")));
}

#[test]
fn texts_that_are_no_verifiers_are_refused_without_a_word_of_them() {
    let key = "A".repeat(43);
    let texts = [
        String::new(),
        "canary".to_owned(),
        "md520c46e3762c864548e296b33c3406aa9".to_owned(),
        "SCRAM-SHA-256$".to_owned(),
        format!("SCRAM-SHA-256-PLUS$4096:AAAA${key}=:{key}="),
        format!("SCRAM-SHA-512$4096:AAAA${key}=:{key}="),
        format!("SCRAM-SHA-256$0:AAAA${key}=:{key}="),
        format!("SCRAM-SHA-256$4294967296:AAAA${key}=:{key}="),
        format!("SCRAM-SHA-256$-1:AAAA${key}=:{key}="),
        format!("SCRAM-SHA-256$4096:canary!${key}=:{key}="),
        format!("SCRAM-SHA-256$4096:${key}=:{key}="),
        format!("SCRAM-SHA-256$4096:AAAA${key}=:"),
        format!("SCRAM-SHA-256$4096:AAAA${key}=:{key}=:{key}="),
        format!("SCRAM-SHA-256$4096:AAAA${key}=:{key}=$"),
        format!("SCRAM-SHA-256$4096:AAAA$AAAA:{key}="),
        format!("SCRAM-SHA-256$4096:{}${key}=:{key}=", "A".repeat(8192)),
    ];
    for text in texts {
        let error = ScramVerifier::parse(text.as_bytes()).expect_err(&text);
        assert!(!error.to_string().contains("canary"), "{error}");
        assert!(!ScramVerifier::is_verifier(text.as_bytes()));
    }
    assert!(ScramVerifier::is_verifier(format!("SCRAM-SHA-256$4096:AAAA${key}=:{key}=").as_bytes()));
}

proptest! {
    #[test]
    fn no_bytes_of_a_peer_panic_or_pass(first: Vec<u8>, second: Vec<u8>) {
        for mechanism in Mechanism::ALL {
            let binding = ChannelBinding::TlsServerEndPoint(b"hash".to_vec());
            if let Ok(read) = ClientFirst::read(&first, mechanism, &binding) {
                let verifier = ScramVerifier::mock(mechanism, read.user(), &Secret::from("x"), 1);
                let (server, _) = read.challenge(verifier, &Nonce::from_random(&[0; 18]));
                prop_assert!(server.finish(&second).is_err());
            }
        }
        let _ = client().on_challenge(&first);
        let _ = ScramVerifier::parse(&first);
    }
}
