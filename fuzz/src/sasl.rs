//! SCRAM: a hostile client and a hostile server.

use weir_base::secret::Secret;
use weir_sasl::limits::ITERATIONS_MAX;
use weir_sasl::{
    ChannelBinding, ClientError, ClientFirst, Derivation, Mechanism, Nonce, Proven, ScramClient, ScramKeys,
    ScramServer, ScramVerifier,
};

/// Text of the client's nonce in the corpus of the client.
const NONCE: &str = "abc";

/// Two messages: the bytes up to the first line feed, and those behind it.
fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    (&data[..end], data.get(end + 1..).unwrap_or_default())
}

fn keys(mechanism: Mechanism, verifier: &ScramVerifier) -> ScramKeys {
    Derivation::new(mechanism, &Secret::from("pencil"), verifier.challenge().clone()).run()
}

/// The first byte chooses the mechanism and whether PLUS was offered; a client's two messages follow.
///
/// # Panics
/// An invariant does not hold: see `README.md`.
pub fn sasl_scram_server(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let mechanism = Mechanism::ALL[usize::from(*choice) % 3];
    let is_offered = mechanism.is_bound() || choice & 0x40 == 0;
    let binding = if is_offered { ChannelBinding::TlsServerEndPoint(vec![7; 32]) } else { ChannelBinding::None };
    let (first, second) = halves(rest);
    let Ok(read) = ClientFirst::read(first, mechanism, &binding) else { return };
    let nonce = Nonce::from_random(&[9; 18]);
    let mock = ScramVerifier::mock(mechanism, read.user(), &Secret::from("of the process"), 1);
    let (server, challenge) = read.clone().challenge(mock, &nonce);
    assert!(server.finish(second).is_err(), "a user that does not exist has no proof");
    assert!(challenge.starts_with(b"r=") && challenge.is_ascii());

    let verifier = ScramVerifier::from_password(mechanism, &Secret::from("pencil"), b"salt of 16 bytes", 1);
    let keys = keys(mechanism, &verifier);
    let (server, _) = read.challenge(verifier, &nonce);
    if let Ok(Proven { keys: proven, .. }) = server.finish(second) {
        assert_eq!(proven, keys, "only these keys make the proof");
    }
}

/// A server's two messages to a client whose nonce is `abc`.
///
/// # Panics
/// An invariant does not hold: see `README.md`.
pub fn sasl_scram_client(data: &[u8]) {
    let (first, second) = halves(data);
    let mechanism = Mechanism::ScramSha256;
    let nonce = Nonce::from_text(NONCE).expect("a nonce");
    let client = ScramClient::new(mechanism, b"", ChannelBinding::None, nonce);
    let (waiting, challenge) = match client.on_challenge(first) {
        Ok(found) => found,
        Err(ClientError::Iterations { claimed }) => {
            assert!(claimed == 0 || claimed > ITERATIONS_MAX);
            return;
        }
        Err(_) => return,
    };
    assert!((1..=ITERATIONS_MAX).contains(&challenge.iterations) && !challenge.salt.is_empty());
    // The keys of another salt: an input must not decide how long a run takes.
    let verifier = ScramVerifier::from_password(mechanism, &Secret::from("pencil"), b"salt of 16 bytes", 1);
    let (proven, proof) = waiting.prove(&keys(mechanism, &verifier));
    assert!(proof.starts_with(b"c=biws,r=abc"));
    assert!(proven.finish(second).is_err(), "the server does not know these keys");
    if let Some((server, same)) = server_with(&client, &challenge_nonce(first), verifier)
        && same.starts_with(b"r=")
    {
        let (waiting, _) = client.on_challenge(&same).expect("a challenge of our own server");
        let (proven, proof) = waiting.prove(&keys_of(mechanism));
        let message = server.finish(&proof).expect("the right keys").message;
        assert_eq!(proven.finish(&message), Ok(()));
    }
}

fn keys_of(mechanism: Mechanism) -> ScramKeys {
    let verifier = ScramVerifier::from_password(mechanism, &Secret::from("pencil"), b"salt of 16 bytes", 1);
    keys(mechanism, &verifier)
}

/// The part of the nonce that the input's server has added.
fn challenge_nonce(challenge: &[u8]) -> Vec<u8> {
    let value = challenge.get("r=".len() + NONCE.len()..).unwrap_or_default();
    value.split(|byte| *byte == b',').next().unwrap_or_default().to_vec()
}

/// Our own server with the nonce of the input's server.
fn server_with(client: &ScramClient, nonce: &[u8], verifier: ScramVerifier) -> Option<(ScramServer, Vec<u8>)> {
    let nonce = Nonce::from_text(std::str::from_utf8(nonce).ok()?)?;
    let first = ClientFirst::read(client.first_message(), Mechanism::ScramSha256, &ChannelBinding::None).ok()?;
    Some(first.challenge(verifier, &nonce))
}
