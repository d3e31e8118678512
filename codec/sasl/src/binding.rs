//! The TLS connection below an exchange.

use std::fmt;

/// What is known about the TLS connection below an exchange.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Nothing: no TLS, or a certificate without a hash (RFC 5929 leaves some undefined).
    #[default]
    None,
    /// `tls-server-end-point` of RFC 5929: the hash of the server's certificate.
    TlsServerEndPoint(Vec<u8>),
}

impl ChannelBinding {
    /// Whether there is something to bind to.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        matches!(self, ChannelBinding::TlsServerEndPoint(_))
    }

    /// The hash of the certificate, or nothing.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            ChannelBinding::None => b"",
            ChannelBinding::TlsServerEndPoint(hash) => hash,
        }
    }
}

impl fmt::Debug for ChannelBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_available() { "TlsServerEndPoint" } else { "None" })
    }
}

/// The channel binding that a client announces in its first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gs2 {
    /// `n`: the client has none.
    Unsupported,
    /// `y`: the client has it, but the server offered none.
    NotOffered,
    /// `p=tls-server-end-point`: the exchange is bound.
    Bound,
}

impl Gs2 {
    /// The header at the beginning of a client's first message, and of the input of its `c` attribute.
    pub(crate) const fn header(self) -> &'static [u8] {
        match self {
            Gs2::Unsupported => b"n,,",
            Gs2::NotOffered => b"y,,",
            Gs2::Bound => b"p=tls-server-end-point,,",
        }
    }

    /// The value of the `c` attribute before base64.
    pub(crate) fn input(self, binding: &ChannelBinding) -> Vec<u8> {
        let data = if matches!(self, Gs2::Bound) { binding.data() } else { b"" };
        [self.header(), data].concat()
    }
}
