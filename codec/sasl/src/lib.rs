//! Proofs of a password: SCRAM (RFC 5802, 7677) for both sides, in the dialects of PostgreSQL and MongoDB; the MD5 passwords of
//! PostgreSQL; PLAIN.
//!
//! Bytes in, bytes out: no sockets, no clock. Randomness is an argument ([`Nonce`]), so that a test repeats an exchange byte
//! for byte. Every comparison with a secret takes the same time for each candidate. The two slow steps have a type of their
//! own, [`Derivation`]: a caller runs it where it may wait, or finds its result in a [`KeyCache`].
//!
//! | file | concept |
//! |---|---|
//! | `mechanism` | names of the mechanisms, and their hash |
//! | `hash` | digest, HMAC and PBKDF2 of the one provider of hashes |
//! | `keys` | ClientKey and ServerKey of a user, made of its password |
//! | `derivation` / `key_cache` | the slow way from password to keys; results that are kept |
//! | `verifier` | the record that a server stores, in PostgreSQL's form; a false one for unknown users |
//! | `binding` | the TLS connection below an exchange |
//! | `nonce` | random text of both sides |
//! | `attributes` | `a=value` pairs of a message |
//! | `server` / `client` | the two sides |
//! | `error` | mistakes of a message |
//! | `prepare` | SASLprep, as PostgreSQL applies it |
//! | `md5` | MD5 passwords of PostgreSQL |
//! | `mongodb` | the password below SCRAM-SHA-1 in MongoDB, and its counts of iterations |
//! | `plain` | PLAIN |
//!
//! `PROTOCOL.md` names the rule and the test of each.
//!
//! ```
//! use weir_base::secret::Secret;
//! use weir_sasl::{ChannelBinding, ClientFirst, Derivation, Mechanism, Nonce, ScramClient, ScramVerifier};
//!
//! let password = Secret::from("pencil");
//! let verifier = ScramVerifier::from_password(Mechanism::ScramSha256, &password, b"salt of 16 bytes", 4096);
//! let client = ScramClient::new(Mechanism::ScramSha256, b"", ChannelBinding::None, Nonce::from_random(&[1; 18]));
//!
//! let first = ClientFirst::read(client.first_message(), Mechanism::ScramSha256, &ChannelBinding::None).unwrap();
//! let (server, challenge) = first.challenge(verifier, &Nonce::from_random(&[2; 18]));
//! let (waiting, wanted) = client.on_challenge(&challenge).unwrap();
//! let keys = Derivation::new(Mechanism::ScramSha256, &password, wanted).run();
//! let (client, proof) = waiting.prove(&keys);
//! let proven = server.finish(&proof).unwrap();
//! assert_eq!(proven.keys, keys, "the server now has the keys of the client");
//! client.finish(&proven.message).unwrap();
//! ```
#![forbid(unsafe_code)]

mod attributes;
mod binding;
mod client;
mod derivation;
mod error;
mod hash;
mod key_cache;
mod keys;
pub mod limits;
pub mod md5;
mod mechanism;
pub mod mongodb;
mod nonce;
mod plain;
mod prepare;
mod server;
mod verifier;

pub use binding::ChannelBinding;
pub use client::{Proven as ClientProven, ScramClient, Waiting};
pub use derivation::{Challenge, Derivation};
pub use error::{ClientError, Malformed, ServerError, VerifierError};
pub use key_cache::KeyCache;
pub use keys::{Key, ScramKeys};
pub use mechanism::Mechanism;
pub use nonce::Nonce;
pub use plain::Plain;
pub use prepare::prepare;
pub use server::{ClientFirst, Proven, ScramServer};
pub use verifier::ScramVerifier;
