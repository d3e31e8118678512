//! Mistakes of a message, in the words of PostgreSQL.

use std::fmt;

/// Why a server refuses the message of a client. `Display` is PostgreSQL's primary text; [`ServerError::detail`] its detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// The text breaks the grammar of RFC 5802.
    Malformed(Malformed),
    /// The client wants to act as another user (`a=`).
    AuthorizationIdentity,
    /// The client demands an extension (`m=`).
    MandatoryExtension,
    /// The nonce has a byte that it may not have.
    NonceNotPrintable,
    /// The client binds to something else than `tls-server-end-point`.
    BindingType {
        /// Its name, made printable and cut.
        name: String,
    },
    /// The client can bind the exchange but thinks that the server cannot, and the server has offered it: a party between
    /// them has removed the offer.
    Downgrade,
    /// The exchange is bound to another TLS connection.
    BindingMismatch,
    /// The `c` attribute is not that of the first message.
    BindingAttribute,
    /// The nonce of the second message is another.
    NonceMismatch,
    /// The proof is wrong, or there is no such user.
    WrongProof,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerError::Malformed(_) => "malformed SCRAM message",
            ServerError::AuthorizationIdentity => "client uses authorization identity, but it is not supported",
            ServerError::MandatoryExtension => "client requires an unsupported SCRAM extension",
            ServerError::NonceNotPrintable => "non-printable characters in SCRAM nonce",
            ServerError::BindingType { name } => {
                return write!(f, "unsupported SCRAM channel-binding type \"{name}\"");
            }
            ServerError::Downgrade => "SCRAM channel binding negotiation error",
            ServerError::BindingMismatch => "SCRAM channel binding check failed",
            ServerError::BindingAttribute => "unexpected SCRAM channel-binding attribute in client-final-message",
            ServerError::NonceMismatch => "invalid SCRAM response",
            ServerError::WrongProof => "wrong proof",
        })
    }
}

impl std::error::Error for ServerError {}

impl ServerError {
    /// PostgreSQL's detail of this error, if it has one.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            ServerError::Malformed(malformed) => Some(malformed.to_string()),
            ServerError::Downgrade => Some(
                "The client supports SCRAM channel binding but thinks the server does not.  \
                 However, this server does support channel binding."
                    .to_owned(),
            ),
            ServerError::NonceMismatch => Some("Nonce does not match.".to_owned()),
            _ => None,
        }
    }
}

impl From<Malformed> for ServerError {
    fn from(malformed: Malformed) -> ServerError {
        ServerError::Malformed(malformed)
    }
}

/// How a text breaks the grammar. `Display` is PostgreSQL's detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// No byte at all.
    Empty,
    /// More than [`MESSAGE_BYTES_MAX`](crate::limits::MESSAGE_BYTES_MAX).
    TooLong,
    /// A zero byte inside.
    ZeroByte,
    /// The mechanism is bound, the message is not.
    BindingMissing,
    /// The message is bound, the mechanism is not.
    BindingUnexpected,
    /// Neither `n`, `y` nor `p`.
    BindingFlag(u8),
    /// No comma where one must be; `None`: the end of the text.
    NoComma(Option<u8>),
    /// Something else than an empty authorization identity.
    Attribute(Option<u8>),
    /// Another attribute than expected.
    OtherAttribute {
        /// The attribute of the grammar.
        expected: u8,
        /// The byte in its place; `None`: the end of the text.
        found: Option<u8>,
    },
    /// No `=` behind the name of an attribute.
    NoEquals(u8),
    /// A name that is not a letter; `None`: the end of the text.
    NotAnAttribute(Option<u8>),
    /// A proof of another length, or one that is not base64.
    Proof,
    /// Bytes behind the proof.
    Garbage,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Empty => f.write_str("The message is empty."),
            Malformed::TooLong => f.write_str("The message is too long."),
            Malformed::ZeroByte => f.write_str("Message length does not match input length."),
            Malformed::BindingMissing => f.write_str(
                "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.",
            ),
            Malformed::BindingUnexpected => f.write_str(
                "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding \
                 data.",
            ),
            Malformed::BindingFlag(byte) => {
                write!(f, "Unexpected channel-binding flag \"{}\".", Printable(Some(*byte)))
            }
            Malformed::NoComma(byte) => write!(f, "Comma expected, but found character \"{}\".", Printable(*byte)),
            Malformed::Attribute(byte) => {
                write!(f, "Unexpected attribute \"{}\" in client-first-message.", Printable(*byte))
            }
            Malformed::OtherAttribute { expected, found } => {
                write!(f, "Expected attribute \"{}\" but found \"{}\".", char::from(*expected), Printable(*found))
            }
            Malformed::NoEquals(name) => {
                write!(f, "Expected character \"=\" for attribute \"{}\".", char::from(*name))
            }
            Malformed::NotAnAttribute(None) => f.write_str("Attribute expected, but found end of string."),
            Malformed::NotAnAttribute(byte) => {
                write!(f, "Attribute expected, but found invalid character \"{}\".", Printable(*byte))
            }
            Malformed::Proof => f.write_str("Malformed proof in client-final-message."),
            Malformed::Garbage => f.write_str("Garbage found at the end of client-final-message."),
        }
    }
}

/// A byte of a peer in a message: itself if printable, otherwise in hexadecimal. The end of the text is a zero byte, as in C.
struct Printable(Option<u8>);

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.unwrap_or(0) {
            byte @ 0x21..=0x7e => write!(f, "{}", char::from(byte)),
            byte => write!(f, "0x{byte:02x}"),
        }
    }
}

/// Why a client gives up on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The text breaks the grammar of RFC 5802; it has a word for the place.
    Malformed(&'static str),
    /// More than [`MESSAGE_BYTES_MAX`](crate::limits::MESSAGE_BYTES_MAX).
    TooLong,
    /// The server's nonce does not begin with ours, or adds nothing.
    NonceMismatch,
    /// 0, or more than [`ITERATIONS_MAX`](crate::limits::ITERATIONS_MAX).
    Iterations {
        /// The server's number, or the largest one if it is even larger.
        claimed: u32,
    },
    /// The server demands an extension (`m=`).
    MandatoryExtension,
    /// The server ended the exchange (`e=`).
    Refused {
        /// Its reason, made printable and cut.
        reason: String,
    },
    /// The server does not know the keys of this user: it is not the one that it claims to be.
    WrongSignature,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Malformed(place) => write!(f, "malformed SCRAM message ({place})"),
            ClientError::TooLong => f.write_str("malformed SCRAM message (too long)"),
            ClientError::NonceMismatch => f.write_str("invalid SCRAM response (nonce mismatch)"),
            ClientError::Iterations { claimed } => {
                let max = crate::limits::ITERATIONS_MAX;
                write!(f, "invalid SCRAM iteration count ({claimed}; 1 to {max} are accepted)")
            }
            ClientError::MandatoryExtension => f.write_str("the server requires an unsupported SCRAM extension"),
            ClientError::Refused { reason } => write!(f, "error received from server in SCRAM exchange: {reason}"),
            ClientError::WrongSignature => f.write_str("incorrect server signature"),
        }
    }
}

impl std::error::Error for ClientError {}

/// Why a text is not a verifier. It never has the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifierError(pub(crate) &'static str);

impl fmt::Display for VerifierError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a SCRAM verifier: {}", self.0)
    }
}

impl std::error::Error for VerifierError {}

/// At most 30 bytes of a peer's text, with `?` for each that is not printable ASCII.
pub(crate) fn printable(text: &[u8]) -> String {
    let byte = |byte: &u8| if matches!(byte, 0x21..=0x7e) { char::from(*byte) } else { '?' };
    text.iter().take(30).map(byte).collect()
}
