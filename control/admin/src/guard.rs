//! Access control: host names, foreign sites and the token.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use weir_base::secret::Secret;

use crate::handlers::Shared;
use crate::problem::Problem;
use crate::routes;
use crate::settings::{AdminSettings, StartError};

/// Access to a running server: the token and the host names, which a reload may change. Clones share them.
#[derive(Debug, Clone)]
pub struct AdminAccess(Arc<RwLock<AdminSettings>>);

impl AdminAccess {
    pub(crate) fn new(settings: &AdminSettings) -> Self {
        Self(Arc::new(RwLock::new(settings.clone())))
    }

    /// Takes another token and other host names from the next request on. The address stays, so taking the token away
    /// off loopback is refused; then the old ones hold.
    ///
    /// # Errors
    /// Those of [`AdminSettings::check`].
    pub fn set(&self, token: Option<Secret>, hosts: Vec<String>) -> Result<(), StartError> {
        let mut settings = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let wanted = AdminSettings { token, hosts, ..settings.clone() };
        wanted.check()?;
        *settings = wanted;
        Ok(())
    }

    /// True if no token is set or the request carries it.
    pub(crate) fn is_authorized(&self, headers: &HeaderMap) -> bool {
        is_authorized(&self.read(), headers)
    }

    fn check(&self, request: &Request) -> Result<(), Problem> {
        let settings = self.read();
        let host = host_of(request)?;
        // Off loopback the token protects, and names are not known.
        if settings.is_loopback() {
            check_host(host.as_ref(), &settings.hosts)?;
        }
        check_site(request, host.as_ref())?;
        if routes::is_open(request.uri().path()) || is_authorized(&settings, request.headers()) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "token",
            "this path requires a token, and the request has none or a wrong one",
            "send `Authorization: Bearer <token>` with the token of the [admin] section",
        ))
    }

    fn read(&self) -> RwLockReadGuard<'_, AdminSettings> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_authorized(settings: &AdminSettings, headers: &HeaderMap) -> bool {
    match &settings.token {
        None => true,
        Some(token) => bearer(headers).is_some_and(|candidate| token.matches(candidate)),
    }
}

/// Middleware around every route and both fallbacks.
pub(crate) async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = match shared.access.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    shared.count(&path, response.status());
    let unauthorized = response.status() == StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    if unauthorized {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"weir admin\""));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The one `Authorization: Bearer` value; `None` if there is none or more than one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    if values.next().is_some() {
        return None;
    }
    let (scheme, candidate) = value.split_at_checked(BEARER.len())?;
    (scheme.eq_ignore_ascii_case(BEARER)).then(|| candidate.trim_ascii())
}

const BEARER: &[u8] = b"bearer ";

/// The authority that the client addressed. Absent only with HTTP/1.0, where RFC 9112 section 3.2 allows it.
fn host_of(request: &Request) -> Result<Option<Authority>, Problem> {
    let mut values = request.headers().get_all(header::HOST).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(bad_host("the request has more than one Host header"));
    }
    // An absolute request target wins over the header (RFC 9112 section 3.2.2).
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.clone()));
    }
    match value {
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|text| text.parse::<Authority>().ok())
            .map(Some)
            .ok_or_else(|| bad_host("the Host header is not a host and port")),
        None if request.version() < Version::HTTP_11 => Ok(None),
        None => Err(bad_host("the request has no Host header")),
    }
}

fn bad_host(detail: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "host", detail, "send one Host header, as RFC 9112 section 3.2 requires")
}

/// Refuses names that only DNS can have led here: a page whose name was rebound to 127.0.0.1.
/// A browser always sends the name of the page, so a request without any is not one of those.
fn check_host(host: Option<&Authority>, hosts: &[String]) -> Result<(), Problem> {
    let Some(authority) = host else {
        return Ok(());
    };
    let name = authority.host();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let is_local = name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
        || hosts.iter().any(|allowed| name.eq_ignore_ascii_case(allowed));
    if is_local && !authority.as_str().contains('@') {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "host",
        format!("this server is bound to loopback and does not accept the host name {name:?}"),
        "connect to 127.0.0.1 or localhost; if a proxy on this machine sends the name, add it to admin.hosts",
    ))
}

/// Refuses what a web page of another site makes a browser send.
fn check_site(request: &Request, host: Option<&Authority>) -> Result<(), Problem> {
    let headers = request.headers();
    let same_origin = match headers.get(header::ORIGIN).map(HeaderValue::as_bytes) {
        None => true,
        Some(origin) => host.is_some_and(|host| is_origin(origin, host)),
    };
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let same_site = request.method() == Method::GET
        || request.method() == Method::HEAD
        || matches!(site, None | Some(b"same-origin" | b"none"));
    if same_origin && same_site {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "site",
        "the request comes from a web page of another site",
        "call the API from a program, not from a web page",
    ))
}

/// True if `origin` is `http://host` or `https://host`.
fn is_origin(origin: &[u8], host: &Authority) -> bool {
    let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str().as_bytes()))
}
