//! Messages of HTTP/2 as the gateway holds them, and back.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri,
    request::Parts,
    response,
    uri::{Authority, PathAndQuery, Scheme},
};
use weir_http_codec::{
    BodyLength, Fields, HeadLimits, Known, RequestHead, ResponseHead, Version, WireError, is_trailer,
};

use crate::upgrade::RequestedUpgrade;

/// The head of a request; `is_whole`: no body follows. A request for a WebSocket becomes one of HTTP/1.1 (RFC 8441 section 5), except for
/// the fields of its connection.
pub(super) fn request(parts: &Parts, is_whole: bool, upgrade: &RequestedUpgrade) -> Result<RequestHead, WireError> {
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let authority = parts.uri.authority().map_or("", |authority| authority.as_str());
    let mut fields = fields(&parts.headers);
    let (method, is_whole) = match upgrade {
        RequestedUpgrade::None => (parts.method.as_str(), is_whole),
        _ => ("GET", true),
    };
    if let RequestedUpgrade::WebSocket(key) = upgrade {
        fields.set(Known::SecWebsocketKey, key);
    }
    let line = (method.as_bytes(), target.as_bytes(), authority.as_bytes());
    RequestHead::from_parts(Version::Http2, line, fields, is_whole, &HeadLimits::default())
}

/// Room for the fields that the gateway adds to most heads: the client, and its protocol.
const ADDED_FIELDS: usize = 6;
const ADDED_BYTES: usize = 192;

/// Cookies come one by one, so that they compress well; elsewhere they are one field (RFC 9113 section 8.2.3).
pub(super) fn fields(map: &HeaderMap) -> Fields {
    let length = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    let mut fields = Fields::with_room(map.len() + ADDED_FIELDS, map.iter().map(length).sum::<usize>() + ADDED_BYTES);
    for (name, value) in map {
        if name != http::header::COOKIE {
            fields.push(name.as_str().as_bytes(), value.as_bytes());
        }
    }
    let mut cookies = map.get_all(http::header::COOKIE).iter();
    if let Some(first) = cookies.next() {
        let mut joined = first.as_bytes().to_vec();
        for cookie in cookies {
            joined.extend_from_slice(b"; ");
            joined.extend_from_slice(cookie.as_bytes());
        }
        fields.add(Known::Cookie, &joined);
    }
    fields
}

/// A request to an origin, for the authority `host`; `None` if that is none.
pub(super) fn request_to(head: &RequestHead, host: &[u8], scheme: &str) -> Option<Request<()>> {
    let mut uri = Uri::builder().scheme(Scheme::try_from(scheme).ok()?);
    // A client of HTTP/1.0 need not name a host, and HTTP/2 cannot leave it out.
    uri = uri.authority(Authority::try_from(if host.is_empty() { b"localhost" } else { host }).ok()?);
    uri = uri.path_and_query(PathAndQuery::try_from(head.target()).ok()?);
    let mut request = Request::new(());
    *request.uri_mut() = uri.build().ok()?;
    *request.method_mut() = Method::from_bytes(head.method()).ok()?;
    *request.headers_mut() = map(&head.fields);
    if let BodyLength::Exact(length @ 1..) = head.body() {
        request.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
    }
    Some(request)
}

/// The head of an origin's response; `is_whole`: no body follows.
pub(super) fn response_head(parts: &response::Parts, is_whole: bool) -> Result<ResponseHead, WireError> {
    let mut fields = fields(&parts.headers);
    if !is_whole && fields.get(Known::ContentLength) == Some(b"0") {
        // No body, and trailers behind it, for which HTTP/1.1 needs chunks.
        fields.remove(Known::ContentLength);
    }
    ResponseHead::from_message(Version::Http2, parts.status.as_u16(), fields, is_whole)
}

/// The trailers of a message, without those that none may be.
pub(super) fn trailers(map: &HeaderMap) -> Fields {
    let mut fields = fields(map);
    fields.retain(is_trailer);
    fields
}

/// The head of a response.
pub(super) fn response(head: &ResponseHead) -> Response<()> {
    let mut response = Response::new(());
    // It is a number from 100 to 599.
    *response.status_mut() = http::StatusCode::from_u16(head.status()).unwrap_or(http::StatusCode::BAD_GATEWAY);
    *response.headers_mut() = map(&head.fields);
    response
}

/// Fields that were checked when they were read. Their values share one piece of memory.
pub(super) fn map(fields: &Fields) -> HeaderMap {
    let mut values = Vec::with_capacity(fields.iter().map(|field| field.value.len()).sum());
    fields.iter().for_each(|field| values.extend_from_slice(field.value));
    let mut values = Bytes::from(values);
    let mut map = HeaderMap::with_capacity(fields.len());
    for field in fields.iter() {
        let name = HeaderName::from_bytes(field.name);
        let value = HeaderValue::from_maybe_shared(values.split_to(field.value.len()));
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    map
}
