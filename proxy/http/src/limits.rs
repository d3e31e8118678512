//! The limits of this room, with their reasons.

use std::time::Duration;

/// Timeout of a client connection without a request. Default 75 s, as nginx's `keepalive_timeout`: above the 60 s after
/// which most balancers give up theirs, so that they and not the gateway close first.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(75);

/// From the end of a request to the head of its response. Default 60 s, as nginx's `proxy_read_timeout`: long polls that hold their head
/// back end by themselves after 25 to 55 s as a rule, and with Envoy's 15 s they would be failures. An origin that hangs costs a client's
/// exchange and a connection so long at worst, both of which have bounds (`limits.in_flight_per_core`, `connections_max`); health checks
/// find it earlier.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest pause in the body of a request. Default 30 s.
pub const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest pause in the body of a response: event streams and long polls are silent for a while. Default 5 min, as Envoy's idle timeout
/// of streams.
pub const RESPONSE_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Longest silence of a gRPC call, in either direction: a stream that waits for news is healthy. Default 5 min, as Envoy's idle timeout
/// of streams.
pub const GRPC_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Streams that the gateway has open on one HTTP/2 connection to an origin. Default 100, as many as most origins take.
pub const ORIGIN_STREAMS_MAX: u32 = 100;

/// Bytes of an unwanted request body that are read before the connection is closed: reading a little is cheaper for both than a new
/// connection. Default 64 KiB, and no longer than [`DISCARD_TIMEOUT`].
pub const DISCARD_BYTES_MAX: u64 = 64 * 1024;
/// See [`DISCARD_BYTES_MAX`].
pub const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// Time of a closed connection for the client to read the last response: closing at once would reset it while bytes of the
/// client are unread, and the response with it. Default 1 s.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Streams that a client may have open on one HTTP/2 connection. Default 100, the least that RFC 9113 section 6.5.2 recommends.
pub const HTTP2_STREAMS_MAX: u32 = 100;

/// The window of a stream of HTTP/2 as a connection begins, of clients and of origins: an unread stream holds so much. Default 256 KiB: a
/// body of that length needs no second round trip. nginx and HAProxy have 64 KiB, hyper's client 2 MiB, browsers 6 MiB and more, which
/// costs as much for each unread stream.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The largest window of a stream, to which it grows while it is read. Default 32 MiB: over 100 ms it carries 320 MB a second, and a
/// body of 20 MB needs one round trip beside the first. Envoy's is 16 MiB, Go's client has 4 MiB, nginx towards origins 2 GiB; these
/// are there from the beginning, here they have to be earned. Worst case: twice this per connection (`http2/windows.rs`), and all
/// connections within `limits.buffered_bytes`.
pub const HTTP2_STREAM_WINDOW_BYTES_MAX: u32 = 32 << 20;

/// Interim responses (1xx) to one request; an origin that sends more is broken.
pub const INTERIM_RESPONSES_MAX: u32 = 8;

/// Longest silence of a WebSocket in both directions. Default 60 s, as ExpressGateway and nginx's `proxy_read_timeout`; pings
/// count as life.
pub const WEBSOCKET_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// From the first byte of a WebSocket frame to its last, except the time in which its receiver takes nothing. Default 30 s, as
/// ExpressGateway.
pub const WEBSOCKET_FRAME_TIMEOUT: Duration = Duration::from_secs(30);

/// Attempts after the first one. Default 2.
pub const RETRY_ATTEMPTS: u32 = 2;
/// The longest pause before the second attempt; each further one may be twice as long. Default 25 ms, as Envoy.
pub const RETRY_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause before any attempt. As Envoy's: ten times the first.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_millis(250);

/// Bytes of a body in memory, or of one in HTTP/2, that are sent before the receiver is checked for room. Default 64 KiB: so much more than
/// its mark may wait for a slow one.
pub(crate) const BODY_PIECE_BYTES: usize = 64 * 1024;

/// Bytes of a request body that are buffered for a retry. Default 64 KiB, as many as a connection's window.
pub const RETRY_BODY_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a request body that are read before a connection to an origin in HTTP/1.1 is taken for it. Default 1 MiB, as nginx's default
/// limit of bodies: most uploads are whole then, and a slow one holds no connection to an origin. Not in front of HTTP/2: there a slow
/// one holds a stream of many. Charged to `limits.buffered_bytes`; bodies take at most half of that and go on unbuffered beyond it.
pub const REQUEST_BUFFER_BYTES: u64 = 1 << 20;

/// Bytes of a request body. Default 1 GiB, as Apache httpd since 2.4.54: no upload that is meant is longer, and one without an end has
/// one. nginx's 1 MiB would refuse photographs that pass without a gateway.
pub const REQUEST_BODY_BYTES_MAX: u64 = 1 << 30;

/// Least bytes a second of a request body, over ten seconds of waiting for it. Default 1 KiB: a client on a bad line does better, and a
/// deliberately slow one is done with a whole [`REQUEST_BUFFER_BYTES`] in 17 minutes. Apache httpd has 500 bytes.
pub const BODY_RATE_MIN: u64 = 1024;

/// Share of errors among the responses of a listener from which it is warned about. Default 5 %: a deploy that restarts one of many origins
/// stays below it, and an application that fails does not.
pub const ERROR_WARN: f64 = 0.05;
