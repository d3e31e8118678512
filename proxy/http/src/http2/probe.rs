//! Health checks in HTTP/2, and in gRPC's own words.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::Poll,
};

use bytes::Bytes;
use h2::{RecvStream, client::SendRequest};
use http::{HeaderMap, Method, Request, Response, Version, header};
use weir_base::Secret;
use weir_engine::{Stream, poll_face::PollStream};

use super::origin::builder;
use crate::{http2::windows::WindowSettings, probe::check};

/// Bytes of a response that are inspected.
const RESPONSE_BYTES_MAX: usize = 4 * 1024;

/// Requests `path`, with further fields.
///
/// # Errors
/// No response, or one with a status that is no sign of health.
pub(crate) async fn path(stream: Stream, host: &str, path: &str, fields: &[(Box<str>, Secret)]) -> io::Result<()> {
    let mut request = request(Method::GET, &stream, host, path)?;
    for (name, value) in fields {
        let name = header::HeaderName::from_bytes(name.as_bytes()).map_err(io::Error::other)?;
        let mut value = header::HeaderValue::from_bytes(value.expose()).map_err(io::Error::other)?;
        value.set_sensitive(true);
        request.headers_mut().insert(name, value);
    }
    with_connection(stream, async |mut sender| {
        let (response, _) = sender.send_request(request, true)?;
        Ok(check(response.await?.status().as_u16()))
    })
    .await?
}

/// Checks whether `service` is served (`grpc/health/v1/health.proto`).
///
/// # Errors
/// No response, or another one than SERVING.
pub(crate) async fn grpc(stream: Stream, host: &str, service: &str) -> io::Result<()> {
    let mut request = request(Method::POST, &stream, host, "/grpc.health.v1.Health/Check")?;
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, header::HeaderValue::from_static("trailers"));
    let health_request = health_request(service)?;
    with_connection(stream, async |mut sender| {
        let (response, mut upload) = sender.send_request(request, false)?;
        upload.send_data(health_request, true)?;
        check_serving(response.await?).await
    })
    .await?
}

fn request(method: Method, stream: &Stream, host: &str, path: &str) -> io::Result<Request<()>> {
    if !stream.is_plain() && !stream.has_agreed_on(b"h2") {
        return Err(io::Error::other("it did not agree on HTTP/2 (ALPN \"h2\")"));
    }
    let scheme = if stream.is_plain() { "http" } else { "https" };
    let request = Request::builder().method(method).version(Version::HTTP_2).uri(format!("{scheme}://{host}{path}"));
    request.header(header::USER_AGENT, "weir-health").body(()).map_err(io::Error::other)
}

/// One exchange on a connection that ends with it.
async fn with_connection<T>(
    stream: Stream,
    exchange: impl AsyncFnOnce(SendRequest<Bytes>) -> Result<T, h2::Error>,
) -> io::Result<T> {
    let io = PollStream::new(stream, b"", |_| true);
    let begun = builder(WindowSettings::default()).handshake::<_, Bytes>(io).await;
    let (sender, mut connection) = begun.map_err(io::Error::other)?;
    let mut exchange = pin!(exchange(sender));
    let mut is_over = false;
    poll_fn(|context| {
        // A response that came with the end of the connection counts.
        is_over = is_over || Pin::new(&mut connection).poll(context).is_ready();
        match exchange.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(outcome.map_err(io::Error::other)),
            Poll::Pending if is_over => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// `HealthCheckRequest { service }` as one message.
fn health_request(service: &str) -> io::Result<Bytes> {
    let length = u8::try_from(service.len()).ok().filter(|length| *length < 128);
    let length = length.ok_or_else(|| io::Error::other("the name of the service is too long"))?;
    let mut field = Vec::new();
    if length > 0 {
        // Field 1, a string.
        field.extend_from_slice(&[0x0A, length]);
        field.extend_from_slice(service.as_bytes());
    }
    let mut message = vec![0, 0, 0, 0, field.len() as u8];
    message.append(&mut field);
    Ok(message.into())
}

async fn check_serving(response: Response<RecvStream>) -> Result<io::Result<()>, h2::Error> {
    let (parts, mut body) = response.into_parts();
    if parts.status != http::StatusCode::OK {
        return Ok(Err(io::Error::other(format!("status {}", parts.status.as_u16()))));
    }
    let mut payload = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        // The window of a stream that is over matters no more.
        let _ = body.flow_control().release_capacity(data.len());
        payload.extend_from_slice(&data[..data.len().min(RESPONSE_BYTES_MAX - payload.len())]);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    let status = |map: &HeaderMap| map.get("grpc-status").and_then(|status| status.to_str().ok()?.parse::<u32>().ok());
    Ok(match status(&trailers).or_else(|| status(&parts.headers)) {
        Some(0) if serving_status(&payload) == Some(1) => Ok(()),
        Some(0) => Err(io::Error::other("it is not serving")),
        Some(status) => Err(io::Error::other(format!("gRPC status {status}"))),
        None => Err(io::Error::other("no gRPC status")),
    })
}

/// `status` of a `HealthCheckResponse` in one message without compression; 1 is SERVING.
fn serving_status(payload: &[u8]) -> Option<u8> {
    match payload {
        // Field 1, a number of one byte.
        [0, 0, 0, 0, 2, 0x08, status] => Some(*status),
        [0, 0, 0, 0, 0] => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_checks_are_encoded_and_decoded_by_the_protocol() {
        assert_eq!(health_request("").expect("short")[..], [0, 0, 0, 0, 0]);
        assert_eq!(health_request("ab").expect("short")[..], [0, 0, 0, 0, 4, 0x0A, 2, b'a', b'b']);
        assert!(health_request(&"x".repeat(128)).is_err());
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8, 1]), Some(1));
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8, 2]), Some(2));
        assert_eq!(serving_status(b"garbage"), None);
    }
}
