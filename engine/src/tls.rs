//! TLS on both sides of the gateway: a sans-IO session over rustls, and the configuration built from PEM files.
//!
//! A [`TlsSession`] takes ciphertext and gives plaintext and ciphertext; it does no I/O and reads no socket. The only
//! clock it sees is the one rustls reads during a handshake, to judge the dates of certificates and tickets.
//! The crypto provider is aws-lc-rs for the whole tree, always named explicitly, so that no process-wide default is
//! needed.
//!
//! ```text
//! client role: start ─▶ on_wire … ─▶ Open ─▶ seal / on_wire ─▶ close
//! server role:          on_wire … ─▶ Open ─▶ seal / on_wire ─▶ close
//! ```
//!
//! Limits: [`HANDSHAKE_BYTES_MAX`], [`RESIDUE_BYTES_MAX`], [`PEM_BYTES_MAX`], [`SERVER_SESSIONS_MAX`],
//! [`CLIENT_SESSIONS_MAX`]. The handshake deadline belongs to the stream that owns the session.

mod config;
mod error;
mod hello;
#[cfg(test)]
mod hostile_tests;
mod identity;
mod records;
mod session;
#[cfg(test)]
mod test_peers;
#[cfg(test)]
mod tests;
mod verify;

pub use config::{
    CLIENT_SESSIONS_MAX, PEM_BYTES_MAX, SERVER_SESSIONS_MAX, TlsClient, TlsConfigError, client_config, server_config,
    server_name,
};
pub use error::{TlsError, TlsErrorKind};
pub use hello::{ClientHello, FirstMessage, UNEXPECTED_MESSAGE_ALERT, first_message};
pub use identity::{ALT_NAMES_MAX, AltName, PeerIdentity, identities};
/// The settings of the server role, as [`server_config`] makes them.
pub use rustls::ServerConfig;
pub use session::{HANDSHAKE_BYTES_MAX, RESIDUE_BYTES_MAX, TlsRole, TlsSession, TlsState};
