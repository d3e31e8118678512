//! The exchanges that the RFCs print.

use weir_base::secret::Secret;
use weir_sasl::{
    Challenge, ChannelBinding, ClientError, ClientFirst, Derivation, Mechanism, Nonce, ScramClient, ScramVerifier,
};

struct Vector {
    mechanism: Mechanism,
    client_nonce: &'static str,
    server_nonce: &'static str,
    salt: &'static [u8],
    messages: [&'static str; 4],
}

/// RFC 5802, section 5, and RFC 7677, section 3: user `user`, password `pencil`.
const VECTORS: [Vector; 2] = [
    Vector {
        mechanism: Mechanism::ScramSha1,
        client_nonce: "fyko+d2lbbFgONRv9qkxdawL",
        server_nonce: "3rfcNHYJY1ZVvWVs7j",
        salt: &[0x41, 0x25, 0xc2, 0x47, 0xe4, 0x3a, 0xb1, 0xe9, 0x3c, 0x6d, 0xff, 0x76],
        messages: [
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ],
    },
    Vector {
        mechanism: Mechanism::ScramSha256,
        client_nonce: "rOprNGfwEbeRWgbNEkqO",
        server_nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        salt: &[0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81],
        messages: [
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ],
    },
];

#[test]
fn both_sides_write_the_messages_of_the_rfcs() {
    let nonce = |text| Nonce::from_text(text).expect("a nonce");
    for Vector { mechanism, client_nonce, server_nonce, salt, messages } in VECTORS {
        let password = Secret::from("pencil");
        let verifier = ScramVerifier::from_password(mechanism, &password, salt, 4096);
        let client = ScramClient::new(mechanism, b"user", ChannelBinding::None, nonce(client_nonce));
        assert_eq!(client.first_message(), messages[0].as_bytes());
        let first = ClientFirst::read(client.first_message(), mechanism, &ChannelBinding::None).expect("legal");
        assert_eq!(first.user(), b"user");
        let (server, challenge) = first.challenge(verifier, &nonce(server_nonce));
        assert_eq!(challenge, messages[1].as_bytes());
        let (waiting, wanted) = client.on_challenge(&challenge).expect("legal");
        assert_eq!(wanted, Challenge { salt: salt.to_vec(), iterations: 4096 });
        let keys = Derivation::new(mechanism, &password, wanted).run();
        let (client, proof) = waiting.prove(&keys);
        assert_eq!(proof, messages[2].as_bytes());
        let proven = server.finish(&proof).expect("the right password");
        assert_eq!(proven.message, messages[3].as_bytes());
        assert_eq!(proven.keys, keys);
        assert_eq!(client.finish(&proven.message), Ok(()));
        assert_eq!(client.finish(b"e=other-error"), Err(ClientError::Refused { reason: "other-error".to_owned() }));
    }
}

/// `create role` of PostgreSQL 15 with the password `pencil`, and with one that SASLprep turns into `IXa`.
#[test]
fn verifiers_that_postgresql_has_made_accept_their_passwords() {
    let verifiers = [
        (
            "SCRAM-SHA-256$4096:h4/zh78U8+5Zny0tHzXEqQ==$QfbLzdRyVhTduYZlMGc4Dv4Glmdnt7mnqCNcQnRdpl8=:\
             6njM16uniMQ1iPjA9vLajo6pKGcsl/1PjHxLXVEIkxM=",
            ["pencil", "pencil"],
        ),
        (
            "SCRAM-SHA-256$4096:2KlEOJow5UXH8zc+UZ/VHA==$H/Os9NVDZGLIy5BCefm/IaqQ+75BICNWpSuRBs8wx3s=:\
             iS8KdRi2dFfT9l5N5sm7jA86zhnuiEzO+ms3atHyyyg=",
            ["IXa", "I\u{ad}X\u{aa}"],
        ),
    ];
    for (text, passwords) in verifiers {
        let verifier = ScramVerifier::parse(text.as_bytes()).expect("a verifier");
        assert_eq!(verifier.format().expose_str(), Some(text));
        let keys = |password: &str| {
            Derivation::new(Mechanism::ScramSha256, &Secret::from(password), verifier.challenge().clone()).run()
        };
        assert!(passwords.iter().all(|password| verifier.accepts(&keys(password))));
        assert!(!verifier.accepts(&keys("pencils")));
    }
}

/// The verifier of RFC 7677's example, in PostgreSQL's form.
#[test]
fn the_text_form_is_that_of_postgresql() {
    let salt = VECTORS[1].salt;
    let verifier = ScramVerifier::from_password(Mechanism::ScramSha256, &Secret::from("pencil"), salt, 4096);
    let text = verifier.format();
    assert_eq!(
        text.expose_str(),
        Some(
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
             wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        )
    );
    assert_eq!(ScramVerifier::parse(text.expose()), Ok(verifier));
}

/// SCRAM-SHA-1 of "Driver Authentication": user `user`, password `pencil`.
#[test]
fn the_exchange_of_mongodb_is_written() {
    let mechanism = Mechanism::ScramSha1;
    let password = weir_sasl::mongodb::password(mechanism, b"user", &Secret::from("pencil"));
    let nonce = Nonce::from_text("fyko+d2lbbFgONRv9qkxdawL").expect("a nonce");
    let client = ScramClient::new(mechanism, b"user", ChannelBinding::None, nonce);
    assert_eq!(client.first_message(), b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL");
    let challenge = b"r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,s=rQ9ZY3MntBeuP3E1TDVC4w==,i=10000";
    let (waiting, wanted) = client.on_challenge(challenge).expect("legal");
    assert_eq!(wanted.iterations, weir_sasl::mongodb::iterations(mechanism));
    let keys = Derivation::new(mechanism, &password, wanted.clone()).run();
    let (client, proof) = waiting.prove(&keys);
    let expected = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,p=MC2T8BvbmWRckDw8oWl5IVghwCY=";
    assert_eq!(proof, expected);
    assert_eq!(client.finish(b"v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0="), Ok(()));

    // The server's side, with the nonce that the specification gives it.
    let verifier = ScramVerifier::from_password(mechanism, &password, &wanted.salt, wanted.iterations);
    let first = b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL";
    let first = ClientFirst::read(first, mechanism, &ChannelBinding::None).expect("legal");
    let nonce = Nonce::from_text("Ho+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE").expect("a nonce");
    let (server, message) = first.challenge(verifier, &nonce);
    assert_eq!(message, challenge);
    assert_eq!(server.finish(expected).expect("the password").message, b"v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0=");
}
