//! Health checks in HTTP/2, and in gRPC's own words.

use std::io;

use weir_base::{Secret, time::turn};
use weir_engine::Stream;
use weir_http_codec::{Fields, HeadLimits, RequestHead, ResponseHead, Version};
use weir_http2_codec::{Connection, Event, RequestTarget, ResetCause};

use super::origin::{check_agreement, config};
use crate::{grpc, http2::windows::WindowSettings, probe::check};

/// Bytes of a response that are inspected.
const RESPONSE_BYTES_MAX: usize = 4 * 1024;

/// Requests `path`, with further fields.
///
/// # Errors
/// No response, or one with a status that is no sign of health.
pub(crate) async fn path(stream: Stream, host: &str, path: &str, fields: &[(Box<str>, Secret)]) -> io::Result<()> {
    let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.expose()));
    let head = request("GET", (host, path), fields, true)?;
    let response = exchange(stream, &head, host, None).await?;
    check(response.head.status())
}

/// Checks whether `service` is served (`grpc/health/v1/health.proto`).
///
/// # Errors
/// No response, or another one than SERVING.
pub(crate) async fn grpc(stream: Stream, host: &str, service: &str) -> io::Result<()> {
    let fields = [(&b"content-type"[..], &b"application/grpc"[..]), (b"te", b"trailers")];
    let head = request("POST", (host, "/grpc.health.v1.Health/Check"), fields.into_iter(), false)?;
    check_serving(&exchange(stream, &head, host, Some(&health_request(service)?)).await?)
}

fn request<'a>(
    method: &str,
    (host, path): (&str, &str),
    own: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    is_whole: bool,
) -> io::Result<RequestHead> {
    let mut fields = Fields::new();
    own.for_each(|(name, value)| fields.push(name, value));
    fields.push(b"user-agent", b"weir-health");
    let line = (method.as_bytes(), path.as_bytes(), host.as_bytes());
    RequestHead::from_parts(Version::Http2, line, fields, is_whole, &HeadLimits::default()).map_err(io::Error::other)
}

/// A response, as far as it was waited for.
struct Response {
    head: ResponseHead,
    body: Vec<u8>,
    trailers: Option<Fields>,
}

/// One exchange on a connection that ends with it: to the head of the response, or, of a request with a body, to its end.
async fn exchange(
    mut stream: Stream,
    request: &RequestHead,
    host: &str,
    upload: Option<&[u8]>,
) -> io::Result<Response> {
    check_agreement(&stream)?;
    let scheme = if stream.is_plain() { b"http" } else { &b"https"[..] };
    let target = RequestTarget { scheme, authority: host.as_bytes(), protocol: None };
    let mut codec = Connection::client(config(WindowSettings::default()));
    let refused = |_| io::Error::other("the connection takes no request");
    let id = codec.send_request(request, target, upload.is_none()).map_err(refused)?;
    if let Some(upload) = upload {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        codec.send_data(id, upload).map_err(gone)?;
        codec.send_end(id, None).map_err(gone)?;
    }
    let (mut final_head, mut body) = (None, Vec::new());
    loop {
        while codec.has_output() && stream.output.with(|into| codec.take_output(into)) {}
        let chunk = stream.reader.receive().await?;
        match &chunk {
            Some(chunk) => codec.receive(chunk, turn::now()),
            None => codec.close(),
        }
        while let Some(event) = codec.next_event() {
            match event {
                Event::Response { head, .. } if !head.is_interim() => final_head = Some(head),
                Event::Failed(error) => return Err(io::Error::other(error)),
                _ => {}
            }
        }
        let count = codec.take_data(id, &mut body, usize::MAX);
        codec.release(id, count);
        body.truncate(RESPONSE_BYTES_MAX);
        let received = codec.received(id);
        match final_head.take() {
            Some(head) if upload.is_none() || received.is_end => {
                return Ok(Response { head, body, trailers: codec.take_trailers(id) });
            }
            head => final_head = head,
        }
        if let Some(cause) = received.reset {
            return Err(error_of(cause));
        }
    }
}

/// The error of an exchange that ended early.
fn error_of(cause: ResetCause) -> io::Error {
    match cause {
        ResetCause::Peer(code) => io::Error::other(format!("reset with {code}")),
        ResetCause::Breach(error) | ResetCause::Connection(error) => io::Error::other(error),
        ResetCause::Unprocessed => io::Error::other("the connection takes no request"),
        ResetCause::Local(_) | ResetCause::Closed => io::ErrorKind::UnexpectedEof.into(),
    }
}

/// # Errors
/// It is another response than SERVING.
fn check_serving(response: &Response) -> io::Result<()> {
    if response.head.status() != 200 {
        return Err(io::Error::other(format!("status {}", response.head.status())));
    }
    match response.trailers.as_ref().and_then(grpc::status).or_else(|| grpc::status(&response.head.fields)) {
        Some(0) if serving_status(&response.body) == Some(1) => Ok(()),
        Some(0) => Err(io::Error::other("it is not serving")),
        Some(status) => Err(io::Error::other(format!("gRPC status {status}"))),
        None => Err(io::Error::other("no gRPC status")),
    }
}

/// `HealthCheckRequest { service }` as one message.
fn health_request(service: &str) -> io::Result<Vec<u8>> {
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
    Ok(message)
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
    use weir_http2_codec::{ErrorCode, ProtocolError};

    use super::*;

    #[test]
    fn a_check_that_ends_early_gives_the_cause() {
        let said = |cause| error_of(cause).to_string();
        assert_eq!(said(ResetCause::Peer(ErrorCode::INTERNAL_ERROR)), "reset with INTERNAL_ERROR");
        let error = ProtocolError::WindowOverflow;
        for cause in [ResetCause::Breach(error), ResetCause::Connection(error)] {
            assert_eq!(said(cause), error.to_string());
        }
        assert_eq!(error_of(ResetCause::Closed).kind(), io::ErrorKind::UnexpectedEof);
    }

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
