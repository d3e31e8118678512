//! Both sides against each other.

use proptest::prelude::*;
use weir_base::secret::Secret;
use weir_sasl::{
    ChannelBinding, ClientError, ClientFirst, Derivation, KeyCache, Malformed, Mechanism, Nonce, ScramClient,
    ScramKeys, ScramServer, ScramVerifier, ServerError,
};

const SALT: &[u8] = b"salt of 16 bytes";

fn nonces() -> [Nonce; 2] {
    [Nonce::from_random(&[1; 18]), Nonce::from_random(&[2; 18])]
}

fn bound(hash: &[u8]) -> ChannelBinding {
    ChannelBinding::TlsServerEndPoint(hash.to_vec())
}

/// An exchange between a client with a password and a server with a verifier; each has its own view of the connection.
fn exchange(
    mechanism: Mechanism,
    password: &Secret,
    verifier: ScramVerifier,
    bindings: [ChannelBinding; 2],
) -> Result<(ScramKeys, Result<(), ClientError>), ServerError> {
    let [client_nonce, server_nonce] = nonces();
    let [client_binding, server_binding] = bindings;
    let client = ScramClient::new(mechanism, b"", client_binding, client_nonce);
    let first = ClientFirst::read(client.first_message(), mechanism, &server_binding)?;
    let (server, challenge) = first.challenge(verifier, &server_nonce);
    let (waiting, wanted) = client.on_challenge(&challenge).expect("a legal challenge");
    let (client, proof) = waiting.prove(&Derivation::new(mechanism, password, wanted).run());
    let proven = server.finish(&proof)?;
    Ok((proven.keys, client.finish(&proven.message)))
}

fn none() -> [ChannelBinding; 2] {
    [ChannelBinding::None, ChannelBinding::None]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_the_right_password_passes_and_both_sides_have_the_same_keys(
        password in any::<String>(),
        other in any::<Vec<u8>>(),
        salt in proptest::collection::vec(any::<u8>(), 1..40),
        iterations in 1_u32..50,
        index in 0_usize..3,
    ) {
        let mechanism = Mechanism::ALL[index];
        let bindings = || if mechanism.is_bound() { [bound(b"hash"), bound(b"hash")] } else { none() };
        let password = Secret::from(password);
        let verifier = ScramVerifier::from_password(mechanism, &password, &salt, iterations);
        let (keys, client) = exchange(mechanism, &password, verifier.clone(), bindings()).expect("the right password");
        prop_assert_eq!(client, Ok(()));
        prop_assert!(verifier.accepts(&keys));
        let other = Secret::new(other);
        if weir_sasl::prepare(other.expose()) != weir_sasl::prepare(password.expose()) {
            let wrong = exchange(mechanism, &other, verifier, bindings());
            prop_assert_eq!(wrong.map(|(_, client)| client), Err(ServerError::WrongProof));
        }
    }

    #[test]
    fn any_verifier_is_read_back_from_its_text(
        password in any::<Vec<u8>>(),
        salt in proptest::collection::vec(any::<u8>(), 1..40),
        iterations in 1_u32..50,
        index in 0_usize..2,
    ) {
        let verifier = ScramVerifier::from_password(Mechanism::ALL[index], &Secret::new(password), &salt, iterations);
        prop_assert_eq!(ScramVerifier::parse(verifier.format().expose()), Ok(verifier));
    }
}

#[test]
fn keys_of_a_proof_open_a_server_with_the_same_verifier() {
    let mechanism = Mechanism::ScramSha256;
    let password = Secret::from("pencil");
    let verifier = ScramVerifier::from_password(mechanism, &password, SALT, 16);
    let (keys, _) = exchange(mechanism, &password, verifier.clone(), none()).expect("the right password");
    let [client_nonce, server_nonce] = nonces();
    let client = ScramClient::new(mechanism, b"", ChannelBinding::None, client_nonce);
    let first = ClientFirst::read(client.first_message(), mechanism, &ChannelBinding::None).expect("legal");
    let (server, challenge) = first.challenge(verifier, &server_nonce);
    let (waiting, _) = client.on_challenge(&challenge).expect("legal");
    let (client, proof) = waiting.prove(&keys);
    let proven = server.finish(&proof).expect("the recovered keys");
    assert_eq!(client.finish(&proven.message), Ok(()));
}

#[test]
fn an_unknown_user_sees_a_stable_salt_and_fails_at_the_proof() {
    let secret = Secret::from("of the process");
    let mock = |user: &[u8]| ScramVerifier::mock(Mechanism::ScramSha256, user, &secret, 16);
    assert_eq!(mock(b"eve").challenge(), mock(b"eve").challenge());
    assert_ne!(mock(b"eve").challenge(), mock(b"mallory").challenge());
    assert_eq!(mock(b"eve").challenge().salt.len(), SALT.len());
    let other = ScramVerifier::mock(Mechanism::ScramSha256, b"eve", &Secret::from("of another"), 16);
    assert_ne!(other.challenge(), mock(b"eve").challenge());
    let result = exchange(Mechanism::ScramSha256, &Secret::from("x"), mock(b"eve"), none());
    assert_eq!(result.map(|(_, client)| client), Err(ServerError::WrongProof));
}

/// The keys of a mock are zeros. A proof that fits them must not pass.
#[test]
fn no_proof_passes_for_an_unknown_user() {
    let mock = ScramVerifier::mock(Mechanism::ScramSha256, b"eve", &Secret::from("of the process"), 1);
    let derivation = Derivation::new(Mechanism::ScramSha256, &Secret::from(""), mock.challenge().clone());
    assert!(!mock.accepts(&derivation.run()));
    let text = mock.format();
    let copy = ScramVerifier::parse(text.expose()).expect("a verifier");
    assert_ne!(copy, mock, "the text form of a mock is not one");
}

#[test]
fn a_bound_exchange_needs_the_same_certificate_on_both_sides() {
    let mechanism = Mechanism::ScramSha256Plus;
    let password = Secret::from("pencil");
    let verifier = ScramVerifier::from_password(mechanism, &password, SALT, 16);
    let run = |bindings| exchange(mechanism, &password, verifier.clone(), bindings).map(|(_, client)| client);
    assert_eq!(run([bound(b"one"), bound(b"one")]), Ok(Ok(())));
    assert_eq!(run([bound(b"one"), bound(b"two")]), Err(ServerError::BindingMismatch));
}

#[test]
fn a_client_that_misses_the_offer_of_plus_is_refused_as_a_downgrade() {
    let mechanism = Mechanism::ScramSha256;
    let password = Secret::from("pencil");
    let verifier = ScramVerifier::from_password(mechanism, &password, SALT, 16);
    let run = |bindings| exchange(mechanism, &password, verifier.clone(), bindings).map(|(_, client)| client);
    assert_eq!(run([bound(b"one"), bound(b"one")]), Err(ServerError::Downgrade));
    assert_eq!(run([bound(b"one"), ChannelBinding::None]), Ok(Ok(())), "the server has no TLS: nothing was removed");
    assert_eq!(run([ChannelBinding::None, bound(b"one")]), Ok(Ok(())), "the client knows no binding");
}

fn started(mechanism: Mechanism, message: &[u8]) -> Result<ClientFirst, ServerError> {
    let binding = if mechanism.is_bound() { bound(b"hash") } else { ChannelBinding::None };
    ClientFirst::read(message, mechanism, &binding)
}

#[test]
fn refusals_of_the_first_message_are_those_of_postgresql() {
    use Malformed::{
        Attribute, BindingFlag, BindingMissing, BindingUnexpected, Empty, NoComma, NoEquals, NotAnAttribute,
        OtherAttribute, ZeroByte,
    };
    let malformed: [(&[u8], Malformed); 12] = [
        (b"", Empty),
        (b"n,,n=,r=a\0b", ZeroByte),
        (b"x,,n=,r=abc", BindingFlag(b'x')),
        (b"p=tls-unique,,n=,r=abc", BindingUnexpected),
        (b"n", NoComma(None)),
        (b"n;,n=,r=abc", NoComma(Some(b';'))),
        (b"n,b=c,n=,r=abc", Attribute(Some(b'b'))),
        (b"n,", Attribute(None)),
        (b"n,,r=abc", OtherAttribute { expected: b'n', found: Some(b'r') }),
        (b"n,,n=", OtherAttribute { expected: b'r', found: None }),
        (b"n,,n,r=abc", NoEquals(b'n')),
        (b"n,,n=,r=abc,=", NotAnAttribute(Some(b'='))),
    ];
    for (message, expected) in malformed {
        let text = String::from_utf8_lossy(message).into_owned();
        let error = started(Mechanism::ScramSha256, message).expect_err(&text);
        assert_eq!(error, ServerError::Malformed(expected), "{text}");
        assert_eq!(error.to_string(), "malformed SCRAM message");
        assert!(error.detail().is_some_and(|detail| detail.ends_with('.')), "{text}");
    }
    let others: [(&[u8], ServerError, &str); 3] = [
        (
            b"n,a=admin,n=,r=abc",
            ServerError::AuthorizationIdentity,
            "client uses authorization identity, but it is not supported",
        ),
        (b"n,,m=x,n=,r=abc", ServerError::MandatoryExtension, "client requires an unsupported SCRAM extension"),
        (b"n,,n=,r=a\x7fc", ServerError::NonceNotPrintable, "non-printable characters in SCRAM nonce"),
    ];
    for (message, expected, text) in others {
        let error = started(Mechanism::ScramSha256, message).expect_err(text);
        assert_eq!((&error, error.to_string().as_str()), (&expected, text));
    }
    let plus = |message: &[u8]| started(Mechanism::ScramSha256Plus, message).err();
    assert_eq!(plus(b"n,,n=,r=abc"), Some(ServerError::Malformed(BindingMissing)));
    assert_eq!(plus(b"p=tls-unique,,n=,r=abc"), Some(ServerError::BindingType { name: "tls-unique".to_owned() }));
    assert_eq!(plus(b"p=\xff\n,,n=,r=abc"), Some(ServerError::BindingType { name: "??".to_owned() }));
    assert_eq!(plus(b"p=tls-server-end-point,,n=,r=abc"), None);
}

fn waiting(password: &Secret) -> ScramServer {
    let verifier = ScramVerifier::from_password(Mechanism::ScramSha256, password, SALT, 1);
    let first = started(Mechanism::ScramSha256, b"n,,n=,r=abc").expect("legal");
    first.challenge(verifier, &Nonce::from_text("xyz").expect("a nonce")).0
}

#[test]
fn refusals_of_the_second_message_are_those_of_postgresql() {
    let server = waiting(&Secret::from("pencil"));
    let proof = "A".repeat(43);
    let cases = [
        ("c=eSws,r=abcxyz,p=AAAA".to_owned(), ServerError::BindingAttribute),
        (format!("c=biws,r=abcxyzz,p={proof}="), ServerError::NonceMismatch),
        (format!("c=biws,r=abc,p={proof}="), ServerError::NonceMismatch),
        ("c=biws,r=abcxyz,p=AAAA".to_owned(), ServerError::Malformed(Malformed::Proof)),
        (format!("c=biws,r=abcxyz,p={proof}"), ServerError::Malformed(Malformed::Proof)),
        (format!("c=biws,r=abcxyz,p={proof}=,x=y"), ServerError::Malformed(Malformed::Garbage)),
        ("c=biws,r=abcxyz".to_owned(), ServerError::Malformed(Malformed::NotAnAttribute(None))),
        (
            "r=abcxyz".to_owned(),
            ServerError::Malformed(Malformed::OtherAttribute { expected: b'c', found: Some(b'r') }),
        ),
        (format!("c=biws,r=abcxyz,p={proof}="), ServerError::WrongProof),
    ];
    for (message, expected) in cases {
        assert_eq!(server.finish(message.as_bytes()).err(), Some(expected), "{message}");
    }
}

#[test]
fn an_optional_extension_is_signed_and_ignored() {
    let password = Secret::from("pencil");
    let verifier = ScramVerifier::from_password(Mechanism::ScramSha256, &password, SALT, 1);
    let client = ScramClient::new(Mechanism::ScramSha256, b"", ChannelBinding::None, nonces()[0].clone());
    let message = [client.first_message(), b",x=1"].concat();
    let first = started(Mechanism::ScramSha256, &message).expect("legal");
    let (server, challenge) = first.challenge(verifier, &nonces()[1]);
    let (waiting, wanted) = client.on_challenge(&challenge).expect("legal");
    let keys = Derivation::new(Mechanism::ScramSha256, &password, wanted).run();
    let proof = waiting.prove(&keys).1;
    assert_eq!(server.finish(&proof).err(), Some(ServerError::WrongProof), "the client did not sign the extension");
}

#[test]
fn names_with_commas_and_equals_signs_reach_the_server() {
    let client = ScramClient::new(Mechanism::ScramSha1, b"a,b=c=2C", ChannelBinding::None, nonces()[0].clone());
    let first = ClientFirst::read(client.first_message(), Mechanism::ScramSha1, &ChannelBinding::None).expect("legal");
    assert_eq!(first.user(), b"a,b=c=2C");
}

#[test]
fn a_storm_of_logins_derives_once() {
    let password = Secret::from("pencil");
    let verifier = ScramVerifier::from_password(Mechanism::ScramSha256, &password, SALT, 16);
    let mut cache = KeyCache::new(4, [0; 32]);
    for _ in 0..100 {
        let derivation = Derivation::new(Mechanism::ScramSha256, &password, verifier.challenge().clone());
        assert!(verifier.accepts(&cache.get_or_run(&derivation)));
    }
    assert_eq!(cache.len(), 1);
}
