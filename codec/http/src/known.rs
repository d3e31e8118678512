//! Names of fields that the gateway itself has to do with.

macro_rules! known {
    ($($length:literal => { $($variant:ident = $name:literal),+ $(,)? }),+ $(,)?) => {
        /// A field name that the gateway looks at, found once when the head is parsed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the variants are the names")]
        pub enum Known {
            $($($variant,)+)+
            /// Any other name.
            Other,
        }

        impl Known {
            /// Which one `name` is, whatever its case.
            #[inline]
            pub fn of(name: &[u8]) -> Self {
                match name.len() {
                    $($length => {
                        $(if name.eq_ignore_ascii_case($name.as_bytes()) {
                            return Self::$variant;
                        })+
                        Self::Other
                    })+
                    _ => Self::Other,
                }
            }

            /// The name in lower case; nothing for [`Known::Other`].
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$variant => $name,)+)+
                    Self::Other => "",
                }
            }

            /// Every known name.
            pub const ALL: &'static [Self] = &[$($(Self::$variant,)+)+];

            /// The bit of the name in a [`KnownSet`].
            #[inline]
            const fn bit(self) -> u64 {
                1 << self as u32
            }

            #[cfg(test)]
            const LENGTHS: &'static [(Self, usize)] = &[$($((Self::$variant, $length),)+)+];
        }
    };
}

known! {
    2 => { Te = "te" },
    3 => { Via = "via", Age = "age" },
    4 => { Host = "host", Date = "date", Vary = "vary", Etag = "etag" },
    5 => { Range = "range", Allow = "allow" },
    6 => { Accept = "accept", Cookie = "cookie", Expect = "expect", Origin = "origin", Server = "server" },
    7 => { Upgrade = "upgrade", Trailer = "trailer", Referer = "referer" },
    8 => { Location = "location" },
    9 => { Forwarded = "forwarded" },
    10 => {
        Connection = "connection", KeepAlive = "keep-alive", UserAgent = "user-agent", SetCookie = "set-cookie",
        Tracestate = "tracestate",
    },
    11 => { Traceparent = "traceparent", RetryAfter = "retry-after", GrpcStatus = "grpc-status" },
    12 => { ContentType = "content-type", XRequestId = "x-request-id", GrpcTimeout = "grpc-timeout" },
    13 => { Authorization = "authorization", CacheControl = "cache-control", ContentRange = "content-range" },
    14 => { ContentLength = "content-length", HttpTwoSettings = "http2-settings" },
    15 => { XForwardedFor = "x-forwarded-for", AcceptEncoding = "accept-encoding" },
    16 => {
        ProxyConnection = "proxy-connection", ContentEncoding = "content-encoding", XForwardedHost = "x-forwarded-host",
        XForwardedPort = "x-forwarded-port", WwwAuthenticate = "www-authenticate",
    },
    17 => {
        TransferEncoding = "transfer-encoding", XForwardedProto = "x-forwarded-proto",
        SecWebsocketKey = "sec-websocket-key",
    },
    19 => { ProxyAuthorization = "proxy-authorization" },
    20 => { SecWebsocketAccept = "sec-websocket-accept" },
    21 => { SecWebsocketVersion = "sec-websocket-version" },
    22 => { SecWebsocketProtocol = "sec-websocket-protocol" },
    23 => { XForwardedClientCert = "x-forwarded-client-cert" },
    24 => { SecWebsocketExtensions = "sec-websocket-extensions" },
    29 => { AccessControlRequestMethod = "access-control-request-method" },
}

const _: () = assert!(Known::ALL.len() < u64::BITS as usize, "a name has no bit");

/// A set of names; [`Known::Other`] stands for all other names together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownSet(u64);

impl KnownSet {
    /// The set of `names`.
    pub(crate) const fn of(names: &[Known]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < names.len() {
            bits |= names[at].bit();
            at += 1;
        }
        Self(bits)
    }

    /// True if `name` is in the set.
    #[inline]
    pub(crate) const fn has(self, name: Known) -> bool {
        self.0 & name.bit() != 0
    }

    /// True if a name is in both sets.
    #[inline]
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Adds `name`.
    #[inline]
    pub(crate) const fn insert(&mut self, name: Known) {
        self.0 |= name.bit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_case_under_its_length() {
        for &(known, length) in Known::LENGTHS {
            assert_eq!(known.name().len(), length, "{known:?}");
            assert_eq!(Known::of(known.name().as_bytes()), known);
            assert_eq!(Known::of(known.name().to_ascii_uppercase().as_bytes()), known);
        }
        assert_eq!(Known::LENGTHS.len(), Known::ALL.len());
        assert_eq!(Known::of(b"hosts"), Known::Other);
        assert_eq!(Known::of(b""), Known::Other);
    }

    #[test]
    fn a_set_has_the_names_that_were_added_and_no_other() {
        let mut set = KnownSet::of(&[Known::Te, Known::Other]);
        for &name in Known::ALL {
            assert_eq!(set.has(name), name == Known::Te);
        }
        assert!(set.has(Known::Other) && !set.has(Known::Via));
        set.insert(Known::Via);
        assert!(set.meets(KnownSet::of(&[Known::Age, Known::Via])) && !set.meets(KnownSet::of(&[Known::Age])));
    }
}
