//! The first request on a connection: it waits until a gateway has flags, and learns their tag.

use std::time::Duration;

use weir_engine::{Stream, sleep};
use weir_http_codec::{BodyDecoder, BodyLimits, HeadLimits, ResponseParser};

use super::plan;
use crate::scenario::Flags;
use crate::wire::receive_chunk;

/// Before the request is repeated.
const PAUSE: Duration = Duration::from_millis(50);
/// Statuses of gateways that have no flags yet: Weir says 503, Unleash Edge 511 and 403, and 401 before it has checked the token.
const NOT_YET: [u16; 4] = [401, 403, 503, 511];
/// How often it is repeated: 4 s in all, within the time that a connection may take.
const ATTEMPTS: u32 = 80;

/// Requests the flags until they are there. The tag of the response, if it has one.
///
/// # Errors
/// A sentence for people: the target has no flags, or does not speak HTTP.
pub(super) async fn request(stream: &mut Stream, flags: &Flags) -> Result<Option<Vec<u8>>, String> {
    let mut text = Vec::new();
    plan::write(flags, plan::context_of(flags, 0), &mut text);
    let mut attempt = 1;
    loop {
        stream.output.append(&text);
        let Response { status, tag, is_last } = response(stream).await?;
        match status {
            200 if is_last => return Err("it ends the connection after one response".to_owned()),
            200 => return Ok(tag),
            status if NOT_YET.contains(&status) && attempt < ATTEMPTS && !is_last => sleep(PAUSE).await,
            status => return Err(format!("its response to a request for flags has status {status}")),
        }
        attempt += 1;
    }
}

struct Response {
    status: u16,
    tag: Option<Vec<u8>>,
    is_last: bool,
}

/// A whole response, whose body is not looked at.
async fn response(stream: &mut Stream) -> Result<Response, String> {
    let broken = |error: weir_http_codec::WireError| format!("it does not speak HTTP: {error:?}");
    let (mut parser, mut received) = (ResponseParser::new(), Vec::new());
    let head = loop {
        if let Some(taken) = parser.parse(&received, &HeadLimits::default()).map_err(broken)? {
            received.drain(..taken);
            break parser.take();
        }
        received.extend_from_slice(&receive_chunk(stream).await?);
    };
    let mut decoder = BodyDecoder::new(head.body(false));
    while !decoder.is_done() {
        let taken = decoder.decode(&received, &BodyLimits::default()).map_err(broken)?.taken;
        received.drain(..taken);
        if taken == 0 && !decoder.is_done() {
            received.extend_from_slice(&receive_chunk(stream).await?);
        }
    }
    let tag = head.fields.all_named(b"etag").next().map(<[u8]>::to_vec);
    Ok(Response { status: head.status(), tag, is_last: !head.is_persistent() })
}
