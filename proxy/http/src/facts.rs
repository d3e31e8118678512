//! The facts of a request for the routes.

use std::borrow::Cow;

use weir_analysis::http::{
    host::{HostRules, canonical},
    path::{PathRules, normalise},
};
use weir_http_codec::{Known, RequestHead};
use weir_route::{RequestFacts, facts};

use crate::refusal::Refusal;

/// The facts of one request.
pub(crate) struct Facts<'a> {
    head: &'a RequestHead,
    pub(crate) host: Cow<'a, [u8]>,
    pub(crate) port: Option<u16>,
    pub(crate) path: Cow<'a, [u8]>,
    pub(crate) query: Option<&'a [u8]>,
}

impl<'a> Facts<'a> {
    /// The facts of `head`. Routes match the path that goes on: a path that could be read in two ways is refused.
    ///
    /// # Errors
    /// The host or the path is none.
    pub(crate) fn of(head: &'a RequestHead, rules: &PathRules) -> Result<Self, Refusal> {
        let (path, query) = match memchr::memchr(b'?', head.target()) {
            Some(at) => (&head.target()[..at], Some(&head.target()[at + 1..])),
            None => (head.target(), None),
        };
        let path = match path {
            // The server as a whole, which has no path (RFC 9112 section 3.2.4).
            b"*" => Cow::Borrowed(&b"/"[..]),
            path => normalise(path, rules).map_err(|_| Refusal::PATH)?,
        };
        let (host, port) = match head.authority() {
            b"" => (Cow::Borrowed(&b""[..]), None),
            authority => {
                let authority =
                    canonical(authority, &HostRules { strip_trailing_dot: true }).map_err(|_| Refusal::HOST)?;
                (authority.host, authority.port)
            }
        };
        Ok(Self { head, host, port, path, query })
    }

    /// The target that goes on, with another path or the normalised one; `None`: it is the one that came.
    pub(crate) fn target(&self, path: &[u8]) -> Option<Vec<u8>> {
        let came = self.head.target();
        let is_same = came.strip_prefix(path).is_some_and(|rest| matches!(rest.first(), None | Some(b'?')));
        if is_same || came == b"*" {
            return None;
        }
        let mut target = path.to_vec();
        if let Some(query) = self.query {
            target.push(b'?');
            target.extend_from_slice(query);
        }
        Some(target)
    }
}

impl RequestFacts for Facts<'_> {
    fn host(&self) -> &[u8] {
        &self.host
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn query(&self) -> Option<&[u8]> {
        self.query
    }

    fn method(&self) -> &[u8] {
        self.head.method()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let known = Known::of(name.as_bytes());
        let lines = self.head.fields.iter().filter(|field| match known {
            Known::Other => field.name.eq_ignore_ascii_case(name.as_bytes()),
            known => field.known == known,
        });
        let lines = lines.map(|field| field.value);
        if known == Known::Cookie { facts::joined_with(lines, b"; ") } else { facts::joined(lines) }
    }
}
