//! The settings at the start, and the reasons for which the server refuses to start.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weir_base::secret::Secret;

use crate::limits::{HEAD_DEADLINE, RESPONSE_DEADLINE, TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};

/// How long a client may take. Not extended by progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// For a whole request head, idle time before it included.
    pub head: Duration,
    /// For taking a whole response.
    pub response: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { head: HEAD_DEADLINE, response: RESPONSE_DEADLINE }
    }
}

/// Where the admin server listens and who may ask.
#[derive(Debug, Clone)]
pub struct AdminSettings {
    /// Address to bind. Port 0 picks a free one. Off loopback only together with `token`.
    pub bind: SocketAddr,
    /// Bearer token for `/metrics` and everything under `/api`. `None`: loopback only, no token required.
    pub token: Option<Secret>,
    /// Names other than `localhost` and the loopback addresses that a `Host` header may carry while the
    /// server is bound to loopback: what a reverse proxy on this machine sends. Without port.
    pub hosts: Vec<String>,
    /// How long a client may take.
    pub deadlines: Deadlines,
}

impl AdminSettings {
    /// Settings for `bind` without a token and without extra host names.
    pub fn loopback(bind: SocketAddr) -> Self {
        Self { bind, token: None, hosts: Vec::new(), deadlines: Deadlines::default() }
    }

    /// True if only this machine can reach the server.
    pub fn is_loopback(&self) -> bool {
        self.bind.ip().to_canonical().is_loopback()
    }

    /// Checks the settings without binding, so that `weir check` can say the same as `weir run`.
    pub fn check(&self) -> Result<(), StartError> {
        match &self.token {
            None if !self.is_loopback() => Err(StartError::Exposed { bind: self.bind }),
            None => Ok(()),
            Some(token) => check_token(token.expose()),
        }
    }
}

fn check_token(token: &[u8]) -> Result<(), StartError> {
    let bytes = token.len();
    if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&bytes) {
        return Err(StartError::TokenLength { bytes });
    }
    if token.iter().all(u8::is_ascii_graphic) { Ok(()) } else { Err(StartError::TokenBytes) }
}

/// Why the admin server did not start.
#[derive(Debug)]
pub enum StartError {
    /// Bound beyond loopback without a token.
    Exposed {
        /// The address that was requested.
        bind: SocketAddr,
    },
    /// The token is too short to be safe or too long for a request head.
    TokenLength {
        /// Its length in bytes; never its content.
        bytes: usize,
    },
    /// The token has bytes that an `Authorization` header cannot carry.
    TokenBytes,
    /// The address could not be bound.
    Bind {
        /// The address that was requested.
        bind: SocketAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The thread or its runtime could not be created.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exposed { bind } => write!(
                f,
                "admin server: other machines can reach {bind}, and no token is set; \
                 bind 127.0.0.1:{port}, or set a token (for example the output of `openssl rand -hex 32`)",
                port = bind.port()
            ),
            Self::TokenLength { bytes } => write!(
                f,
                "admin server: the token has {bytes} bytes, allowed are {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}; \
                 make one with `openssl rand -hex 32`"
            ),
            Self::TokenBytes => write!(
                f,
                "admin server: the token has spaces, control or non-ASCII bytes, which an Authorization header \
                 cannot carry (a line end at the end of the file?); make one with `openssl rand -hex 32`"
            ),
            Self::Bind { bind, source } => {
                write!(f, "admin server: cannot bind {bind}: {source}; free the port or change admin.bind")
            }
            Self::Thread(source) => write!(f, "admin server: cannot start its thread: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind { source, .. } | Self::Thread(source) => Some(source),
            Self::Exposed { .. } | Self::TokenLength { .. } | Self::TokenBytes => None,
        }
    }
}
