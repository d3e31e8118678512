//! Redirects: a status and a Location (RFC 9110 15.4, 10.2.2).

use std::num::NonZeroU16;

use weir_analysis::http::path::PathError;

use crate::{
    RouteError,
    host::{HostMatch, Labels},
    rewrite::{PathRewrite, RewriteError},
};

/// The status of a redirect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// 301. Clients may change POST to GET.
    MovedPermanently,
    /// 302. Clients may change POST to GET.
    #[default]
    Found,
    /// 303. The client asks with GET.
    SeeOther,
    /// 307. The method stays.
    TemporaryRedirect,
    /// 308. The method stays.
    PermanentRedirect,
}

impl Status {
    /// The status with this code.
    pub const fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            301 => Self::MovedPermanently,
            302 => Self::Found,
            303 => Self::SeeOther,
            307 => Self::TemporaryRedirect,
            308 => Self::PermanentRedirect,
            _ => return None,
        })
    }

    /// Its code.
    pub const fn code(self) -> u16 {
        match self {
            Self::MovedPermanently => 301,
            Self::Found => 302,
            Self::SeeOther => 303,
            Self::TemporaryRedirect => 307,
            Self::PermanentRedirect => 308,
        }
    }
}

/// The scheme of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Port 80.
    Http,
    /// Port 443.
    Https,
}

impl Scheme {
    /// As a target has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a target leaves out.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Where a request wanted to go.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// As the client sees it.
    pub scheme: Scheme,
    /// Canonical, without port. Empty: HTTP/1.0 without Host.
    pub host: &'a [u8],
    /// `None`: that of the scheme.
    pub port: Option<u16>,
    /// Normalised.
    pub path: &'a [u8],
    /// Without `?`.
    pub query: Option<&'a [u8]>,
}

/// A redirect to another target; parts that are not set stay as in the request.
#[derive(Clone, Debug)]
pub struct Redirect {
    status: Status,
    scheme: Option<Scheme>,
    host: Option<Box<str>>,
    port: Option<NonZeroU16>,
    path: Option<PathRewrite>,
    keeps_query: bool,
}

impl Redirect {
    /// A redirect to where the request came from; something should be changed then.
    pub const fn new(status: Status) -> Self {
        Self { status, scheme: None, host: None, port: None, path: None, keeps_query: true }
    }

    /// Another scheme; with it comes its port, unless one is given.
    #[must_use]
    pub fn scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = Some(scheme);
        self
    }

    /// Another host.
    ///
    /// # Errors
    /// No host, or one with a port.
    pub fn host(mut self, text: &str) -> Result<Self, RouteError> {
        match HostMatch::parse(text, Labels::One)? {
            HostMatch::Exact(host) => self.host = Some(host),
            HostMatch::Wildcard { .. } | HostMatch::Any => return Err(RouteError::Replacement(text.to_owned())),
        }
        Ok(self)
    }

    /// Another port.
    #[must_use]
    pub fn port(mut self, port: NonZeroU16) -> Self {
        self.port = Some(port);
        self
    }

    /// Another path.
    #[must_use]
    pub fn path(mut self, path: PathRewrite) -> Self {
        self.path = Some(path);
        self
    }

    /// The query is left out.
    #[must_use]
    pub fn without_query(mut self) -> Self {
        self.keeps_query = false;
        self
    }

    /// The status of the response.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// The value of Location. The port is the one given; else that of the scheme given; else the request's (Gateway API).
    /// The default port of a scheme is left out. Without any host it is a path alone.
    ///
    /// # Errors
    /// The rewrite makes no path, or something in the target cannot stand in a field.
    pub fn location(&self, target: &Target<'_>) -> Result<Vec<u8>, RewriteError> {
        let mut path = match &self.path {
            Some(rewrite) => rewrite.apply(target.path)?,
            None => target.path.into(),
        };
        let query = target.query.filter(|_| self.keeps_query);
        let is_visible = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, 0x21..=0x7e));
        // The codec let no such byte in; a Location must not depend on it.
        if !is_visible(&path) || !is_visible(target.host) {
            return Err(RewriteError::Path(PathError::Character));
        }
        if query.is_some_and(|query| !is_visible(query)) {
            return Err(RewriteError::Query);
        }
        let scheme = self.scheme.unwrap_or(target.scheme);
        let host = self.host.as_ref().map_or(target.host, |host| host.as_bytes());
        let mut location = Vec::with_capacity(32 + host.len() + path.len() + query.map_or(0, <[u8]>::len));
        if host.is_empty() {
            // `//x` would be a host (RFC 3986 4.2).
            let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
            path.to_mut().drain(..slashes.saturating_sub(1));
        } else {
            location.extend_from_slice(scheme.as_str().as_bytes());
            location.extend_from_slice(b"://");
            location.extend_from_slice(host);
            let port = match (self.port, self.scheme) {
                (Some(port), _) => port.get(),
                (None, Some(scheme)) => scheme.default_port(),
                (None, None) => target.port.unwrap_or(scheme.default_port()),
            };
            if port != scheme.default_port() {
                location.extend_from_slice(format!(":{port}").as_bytes());
            }
        }
        location.extend_from_slice(&path);
        if let Some(query) = query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        Ok(location)
    }
}

#[cfg(test)]
mod tests {
    use weir_analysis::http::path::PathRules;

    use super::*;
    use crate::path::PathMatch;

    const TARGET: Target<'static> =
        Target { scheme: Scheme::Http, host: b"a.example", port: Some(8080), path: b"/old/x", query: Some(b"q=1&r") };

    fn location(redirect: &Redirect, target: &Target<'_>) -> String {
        String::from_utf8(redirect.location(target).expect("a location")).expect("ASCII")
    }

    #[test]
    fn unwritten_parts_stay() {
        assert_eq!(location(&Redirect::new(Status::Found), &TARGET), "http://a.example:8080/old/x?q=1&r");
        let host = Redirect::new(Status::Found).host("B.example").expect("a host");
        assert_eq!(location(&host, &TARGET), "http://b.example:8080/old/x?q=1&r", "the port of the listener stays");
        let query = Redirect::new(Status::Found).without_query();
        assert_eq!(location(&query, &TARGET), "http://a.example:8080/old/x");
    }

    #[test]
    fn another_scheme_brings_its_port_and_default_ports_are_left_out() {
        let https = Redirect::new(Status::MovedPermanently).scheme(Scheme::Https);
        assert_eq!(location(&https, &TARGET), "https://a.example/old/x?q=1&r");
        let port = |number| NonZeroU16::new(number).expect("not zero");
        assert_eq!(location(&https.clone().port(port(8443)), &TARGET), "https://a.example:8443/old/x?q=1&r");
        assert_eq!(location(&https.port(port(443)), &TARGET), "https://a.example/old/x?q=1&r");
        let eighty = Redirect::new(Status::Found).port(port(80));
        assert_eq!(location(&eighty, &TARGET), "http://a.example/old/x?q=1&r");
        let default = Target { port: None, ..TARGET };
        assert_eq!(location(&Redirect::new(Status::Found), &default), "http://a.example/old/x?q=1&r");
    }

    #[test]
    fn the_path_is_rewritten_as_for_an_upstream() {
        let rules = PathRules::default();
        let full = Redirect::new(Status::Found).path(PathRewrite::full("/new", &rules).expect("a path"));
        assert_eq!(location(&full, &TARGET), "http://a.example:8080/new?q=1&r");
        let matched = PathMatch::segments("/old", &rules).expect("a prefix");
        let prefix = PathRewrite::prefix(&matched, "/new/", &rules).expect("a rewrite");
        assert_eq!(location(&Redirect::new(Status::Found).path(prefix), &TARGET), "http://a.example:8080/new/x?q=1&r");
    }

    #[test]
    fn without_a_host_the_path_is_no_host() {
        let target = Target { host: b"", path: b"//evil.example/x", ..TARGET };
        assert_eq!(location(&Redirect::new(Status::Found), &target), "/evil.example/x?q=1&r");
    }

    #[test]
    fn nothing_that_ends_a_field_gets_into_a_location() {
        let redirect = Redirect::new(Status::Found);
        assert_eq!(redirect.location(&Target { query: Some(b"a\r\nb"), ..TARGET }), Err(RewriteError::Query));
        assert!(redirect.location(&Target { path: b"/\r\n", ..TARGET }).is_err());
        assert!(redirect.location(&Target { host: b"a\n", ..TARGET }).is_err());
        for host in ["*", "*.a", "a:80", "a\r\nb", ""] {
            assert!(Redirect::new(Status::Found).host(host).is_err(), "{host}");
        }
    }

    #[test]
    fn five_codes_are_redirects() {
        let statuses = (0..1_000).filter_map(|code| Some((code, Status::from_code(code)?)));
        let codes: Vec<u16> = statuses.map(|(code, status)| if status.code() == code { code } else { 0 }).collect();
        assert_eq!(codes, [301, 302, 303, 307, 308]);
        assert_eq!(Status::default().code(), 302);
    }
}
