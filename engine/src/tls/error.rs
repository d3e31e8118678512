//! Why a TLS session ended, for counters (a stable reason), for the operator (a sentence with the next step) and for
//! the retry decision (whose fault).

use std::fmt;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use weir_base::{Culprit, Violation};

use super::session::{HANDSHAKE_BYTES_MAX, RESIDUE_BYTES_MAX, TlsRole};

/// Failure found by rustls or the session itself, before the role is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TlsFailure {
    Rustls(Error),
    Handshaking,
    Closed,
    Truncated,
    KeysExhausted,
    HandshakeTooLong(usize),
    MessageTooLong(usize),
    Internal(&'static str),
}

/// The kind of a [`TlsError`]; [`as_str`](TlsErrorKind::as_str) is its label value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsErrorKind {
    /// The peer sent a fatal alert: it refused us.
    AlertReceived,
    /// A client certificate is required and none was presented.
    CertificateMissing,
    /// The peer's certificate does not chain to an authority that we trust.
    CertificateUntrusted,
    /// The peer's certificate is expired or not valid yet.
    CertificateDates,
    /// The peer's certificate is for another name.
    CertificateName,
    /// The peer's certificate is wrong in another way.
    CertificateInvalid,
    /// No common version, cipher suite, key exchange or application protocol.
    Incompatible,
    /// The first bytes are no TLS record; most likely the peer speaks plain text.
    NotTls,
    /// A record or message that cannot be parsed.
    Malformed,
    /// A record that does not decrypt: altered on the way, or a broken peer.
    BadRecord,
    /// A well-formed message at the wrong time, or too many of a harmless kind.
    Misbehaved,
    /// More than [`HANDSHAKE_BYTES_MAX`] before the handshake was complete.
    HandshakeTooLong,
    /// A fragmented message above [`RESIDUE_BYTES_MAX`].
    MessageTooLong,
    /// The connection ended without close_notify.
    Truncated,
    /// The keys of a TLS 1.2 connection reached their limit.
    KeysExhausted,
    /// `seal` before the handshake was complete: a mistake of the caller.
    Handshaking,
    /// `seal` after `close`: a mistake of the caller.
    Closed,
    /// The configuration asks for what rustls refuses.
    Settings,
    /// Anything else.
    Internal,
}

impl TlsErrorKind {
    /// Every kind, in declaration order.
    pub const ALL: [TlsErrorKind; 19] = [
        Self::AlertReceived,
        Self::CertificateMissing,
        Self::CertificateUntrusted,
        Self::CertificateDates,
        Self::CertificateName,
        Self::CertificateInvalid,
        Self::Incompatible,
        Self::NotTls,
        Self::Malformed,
        Self::BadRecord,
        Self::Misbehaved,
        Self::HandshakeTooLong,
        Self::MessageTooLong,
        Self::Truncated,
        Self::KeysExhausted,
        Self::Handshaking,
        Self::Closed,
        Self::Settings,
        Self::Internal,
    ];

    /// The stable snake_case word used as the `reason` label and in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AlertReceived => "tls_alert_received",
            Self::CertificateMissing => "tls_certificate_missing",
            Self::CertificateUntrusted => "tls_certificate_untrusted",
            Self::CertificateDates => "tls_certificate_dates",
            Self::CertificateName => "tls_certificate_name",
            Self::CertificateInvalid => "tls_certificate_invalid",
            Self::Incompatible => "tls_incompatible",
            Self::NotTls => "tls_not_tls",
            Self::Malformed => "tls_malformed",
            Self::BadRecord => "tls_bad_record",
            Self::Misbehaved => "tls_misbehaved",
            Self::HandshakeTooLong => "tls_handshake_too_long",
            Self::MessageTooLong => "tls_message_too_long",
            Self::Truncated => "tls_truncated",
            Self::KeysExhausted => "tls_keys_exhausted",
            Self::Handshaking => "tls_handshaking",
            Self::Closed => "tls_closed",
            Self::Settings => "tls_settings",
            Self::Internal => "tls_internal",
        }
    }
}

/// Why a TLS session ended. The text never quotes what the peer sent.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsError {
    role: TlsRole,
    kind: TlsErrorKind,
    // Boxed: the error travels in every `Result` of the record path, the failure itself only once per connection.
    failure: Box<TlsFailure>,
}

impl TlsError {
    pub(super) fn new(role: TlsRole, failure: TlsFailure) -> Self {
        Self { role, kind: kind_of(&failure), failure: Box::new(failure) }
    }

    /// The kind; its `as_str` is the reason for counters and logs.
    pub fn kind(&self) -> TlsErrorKind {
        self.kind
    }

    /// The party that has to change something: the peer of the connection, except where we misused the session or the settings
    /// are wrong.
    pub fn culprit(&self) -> Culprit {
        match (self.kind, self.role) {
            (TlsErrorKind::Settings, _) => Culprit::Config,
            (
                TlsErrorKind::Handshaking | TlsErrorKind::Closed | TlsErrorKind::Internal | TlsErrorKind::KeysExhausted,
                _,
            ) => Culprit::Gateway,
            (_, TlsRole::Server) => Culprit::Client,
            (_, TlsRole::Client) => Culprit::Upstream,
        }
    }

    /// The error as the one value from which counter, log line and refusal derive.
    pub fn violation(&self) -> Violation {
        let (count, limit) = match *self.failure {
            TlsFailure::HandshakeTooLong(bytes) => (bytes, HANDSHAKE_BYTES_MAX),
            TlsFailure::MessageTooLong(bytes) => (bytes, RESIDUE_BYTES_MAX),
            _ => (0, 0),
        };
        let (count, limit) = (count as u64, limit as u64);
        Violation::limit(self.kind.as_str(), self.culprit(), self.to_string(), count, limit)
    }

    /// The operator's way to fix it.
    fn remedy(&self) -> Option<&'static str> {
        use TlsErrorKind as Kind;
        Some(match (self.kind, self.role) {
            (Kind::CertificateMissing, _) => "give the client a certificate, or set client_auth to \"optional\"",
            (Kind::CertificateUntrusted, TlsRole::Server) => {
                "the client certificate must chain to an authority in client_ca_file"
            }
            (Kind::CertificateUntrusted, TlsRole::Client) => {
                "set ca_file to the authority that signed the upstream's certificate"
            }
            (Kind::CertificateDates, _) => "renew the peer's certificate, or set this machine's clock",
            (Kind::CertificateName, _) => "set server_name to a name that the upstream's certificate carries",
            (Kind::NotTls, TlsRole::Server) => {
                "the client speaks plain text: switch TLS on there, or off on the listener"
            }
            (Kind::NotTls, TlsRole::Client) => {
                "the upstream speaks plain text: remove its tls table, or use its TLS port"
            }
            (Kind::Incompatible, _) => "both ends need TLS 1.2 or 1.3 with a common cipher suite",
            (Kind::AlertReceived, _) => return self.alert_remedy(),
            (Kind::KeysExhausted, _) => "the connection is renewed; TLS 1.3 updates keys in place",
            _ => return None,
        })
    }

    /// An alert names the peer's reason, seen from its side.
    fn alert_remedy(&self) -> Option<&'static str> {
        use AlertDescription as Alert;
        let TlsFailure::Rustls(Error::AlertReceived(alert)) = *self.failure else {
            return None;
        };
        match (alert, self.role) {
            (Alert::CertificateRequired, TlsRole::Client) => {
                Some("the upstream wants a client certificate: set cert_file and key_file")
            }
            (Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown, TlsRole::Client) => {
                Some("the upstream does not trust our certificate: check cert_file")
            }
            (Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown, TlsRole::Server) => Some(
                "the client does not trust our certificate: give it the authority, or check the chain in cert_file",
            ),
            (Alert::CertificateExpired, TlsRole::Server) => Some("renew the certificate in cert_file"),
            (Alert::CertificateExpired, TlsRole::Client) => Some("renew the certificate in the upstream's cert_file"),
            (Alert::UnrecognisedName, TlsRole::Client) => Some("set server_name to a name that the upstream serves"),
            (Alert::ProtocolVersion | Alert::HandshakeFailure, _) => {
                Some("both ends need TLS 1.2 or 1.3 with a common cipher suite")
            }
            _ => None,
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = match self.role {
            TlsRole::Server => "client",
            TlsRole::Client => "upstream",
        };
        match &*self.failure {
            TlsFailure::Rustls(error) => write!(f, "TLS with the {peer} failed: {}", Bounded(error))?,
            TlsFailure::Handshaking => f.write_str("TLS: data to seal before the handshake is complete")?,
            TlsFailure::Closed => f.write_str("TLS: data to seal after close_notify")?,
            TlsFailure::Truncated => write!(f, "TLS: the {peer} ended the connection without close_notify")?,
            TlsFailure::KeysExhausted => write!(f, "TLS: the keys with the {peer} reached their limit")?,
            TlsFailure::HandshakeTooLong(_) => {
                write!(f, "TLS: the {peer} sent too many bytes before its handshake was complete")?
            }
            TlsFailure::MessageTooLong(_) => write!(f, "TLS: a fragmented message of the {peer} is too long")?,
            TlsFailure::Internal(what) => write!(f, "TLS with the {peer} failed: {what}")?,
        }
        match self.remedy() {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TlsError {}

/// A rustls error without the names from the peer's certificate, which a hostile peer chooses.
struct Bounded<'a>(&'a Error);

impl fmt::Display for Bounded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }) => {
                f.write_str("the certificate is for another name")
            }
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                f.write_str("the certificate is signed by an unknown authority")
            }
            Error::PeerIncompatible(why) => write!(f, "no common ground: {why:?}"),
            error => write!(f, "{error}"),
        }
    }
}

fn kind_of(failure: &TlsFailure) -> TlsErrorKind {
    match failure {
        TlsFailure::Rustls(error) => rustls_kind(error),
        TlsFailure::Handshaking => TlsErrorKind::Handshaking,
        TlsFailure::Closed => TlsErrorKind::Closed,
        TlsFailure::Truncated => TlsErrorKind::Truncated,
        TlsFailure::KeysExhausted => TlsErrorKind::KeysExhausted,
        TlsFailure::HandshakeTooLong(_) => TlsErrorKind::HandshakeTooLong,
        TlsFailure::MessageTooLong(_) => TlsErrorKind::MessageTooLong,
        TlsFailure::Internal(_) => TlsErrorKind::Internal,
    }
}

fn rustls_kind(error: &Error) -> TlsErrorKind {
    match error {
        Error::AlertReceived(_) => TlsErrorKind::AlertReceived,
        Error::NoCertificatesPresented => TlsErrorKind::CertificateMissing,
        Error::InvalidCertificate(why) => certificate_kind(why),
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => TlsErrorKind::Incompatible,
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            TlsErrorKind::NotTls
        }
        Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => TlsErrorKind::Malformed,
        Error::DecryptError => TlsErrorKind::BadRecord,
        Error::PeerMisbehaved(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            TlsErrorKind::Misbehaved
        }
        Error::BadMaxFragmentSize | Error::InconsistentKeys(_) | Error::UnsupportedNameType => TlsErrorKind::Settings,
        _ => TlsErrorKind::Internal,
    }
}

fn certificate_kind(error: &CertificateError) -> TlsErrorKind {
    match error {
        CertificateError::UnknownIssuer => TlsErrorKind::CertificateUntrusted,
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => TlsErrorKind::CertificateDates,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            TlsErrorKind::CertificateName
        }
        _ => TlsErrorKind::CertificateInvalid,
    }
}
