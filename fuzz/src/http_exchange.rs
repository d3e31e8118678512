//! Any bytes of a client and of an origin, in any pieces, through a real exchange: the listener on a worker of its own.
//!
//! The first byte of an input is the size of the client's pieces. Then come the client's bytes and, each behind [`SEPARATOR`], the bytes
//! that the origin sends to one request after the other before it closes. Further requests get a valid response that names its request.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use weir_analysis::http::path::{PathRules, normalise};
use weir_http::filter::{Caller, ExchangeSummary, FilterFactory, HttpFilter, Inspect, Tap};
use weir_http_codec::{
    BodyDecoder, BodyLength, BodyLimits, Fields, HeadLimits, Known, RequestHead, RequestParser, ResponseParser,
};
use weir_http2_codec::PREFACE;

use crate::gateway::{Gateway, Setup, route, upstream};

/// Between the parts of an input.
const SEPARATOR: &[u8] = b"\n--\n";
/// The response to a request without bytes of its own. No input can contain it: an input does not know the address of its client.
fn well(client: &[u8], target: &[u8]) -> Vec<u8> {
    let body = [client, b" ", target].concat();
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat()
}

/// A factory whose filters take part in the whole exchange, and are counted.
#[derive(Clone, Debug, Default)]
struct Counting {
    entered: Arc<AtomicU64>,
    settled: Arc<AtomicU64>,
}

impl FilterFactory for Counting {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        Box::new(self.clone())
    }
}

impl HttpFilter for Counting {
    fn inspect(&mut self, _: &RequestHead, _: &Caller) -> Inspect {
        Inspect::Buffered(16)
    }

    fn tap(&mut self, _: u16, fields: &mut Fields) -> Tap {
        if fields.has(Known::ContentLength) { Tap::Follow } else { Tap::Edit }
    }

    fn on_complete(&mut self, _: &ExchangeSummary<'_>) {
        self.settled.fetch_add(1, Ordering::SeqCst);
    }
}

/// The responses of the origin to this input, and the bytes that it received.
#[derive(Default)]
struct Script {
    /// The address of its client: a request of another one has been on its way when its client left.
    client: String,
    responses: VecDeque<Vec<u8>>,
    requests: Vec<(Vec<u8>, Vec<u8>)>,
    /// The gateway has sent what is no request.
    malformed: Option<String>,
}

/// The gateway and its origin, for one input at a time.
struct World {
    gateway: Gateway,
    filter: Counting,
    script: Arc<Mutex<Script>>,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let filter = Counting::default();
    let installed = Arc::new(filter.clone());
    let mut setup = Setup::of(vec![route("/", upstream(1), |action| action.filter = Some(installed))]);
    setup.upstreams = vec![Vec::new(), vec![listener.local_addr().expect("bound")]];
    // A client that has sent everything still reads its responses.
    setup.change = Box::new(|settings| settings.half_close = true);
    let script = Arc::<Mutex<Script>>::default();
    let shared = script.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let script = shared.clone();
            thread::spawn(move || serve(stream, &script));
        }
    });
    Mutex::new(World { gateway: Gateway::start(setup), filter, script })
});

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection of the origin.
fn serve(mut stream: TcpStream, script: &Mutex<Script>) {
    let mut received = Vec::new();
    loop {
        let mut parser = RequestParser::new();
        let head = loop {
            name_host(&mut received);
            match parser.parse(&received, &HeadLimits::default()) {
                Ok(Some(used)) => {
                    received.drain(..used);
                    break parser.take();
                }
                Ok(None) if more(&mut stream, &mut received) => {}
                Ok(None) => return,
                Err(error) => {
                    return locked(script).malformed = Some(format!("{error:?}: {}", received.escape_ascii()));
                }
            }
        };
        let (method, target) = (head.method().to_vec(), head.target().to_vec());
        let client = head.fields.get(Known::XForwardedFor).unwrap_or_default().to_vec();
        let response = {
            let mut script = locked(script);
            if script.client.as_bytes() == client {
                script.requests.push((method, target.clone()));
                script.responses.pop_front()
            } else {
                None
            }
        };
        if let Some(response) = response {
            // The rest of the request stays unread: the gateway may expect the response before it has sent all.
            let _ = stream.write_all(&response);
            let _ = stream.shutdown(Shutdown::Write);
            while more(&mut stream, &mut received) {}
            return;
        }
        let mut body = BodyDecoder::new(head.body());
        while !body.is_done() {
            match body.decode(&received, &BodyLimits::default()).map(|piece| piece.taken) {
                Ok(0) if more(&mut stream, &mut received) => {}
                Ok(0) => return,
                Ok(taken) => drop(received.drain(..taken)),
                Err(error) => return locked(script).malformed = Some(format!("{error:?} in a body")),
            }
        }
        if stream.write_all(&well(&client, &target)).is_err() {
            return;
        }
    }
}

/// A client of HTTP/1.0 need not name a host. The gateway forwards an empty Host then, which the parser takes for none.
fn name_host(received: &mut Vec<u8>) {
    const EMPTY: &[u8] = b"\r\nHost: \r\n";
    if let Some(at) = received.windows(EMPTY.len()).position(|window| window == EMPTY) {
        received.insert(at + EMPTY.len() - 2, b'x');
    }
}

fn more(stream: &mut TcpStream, received: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    let count = stream.read(&mut buffer).unwrap_or(0);
    received.extend_from_slice(&buffer[..count]);
    count > 0
}

/// Bytes of a client and of an origin: no panic; each forwarded request is one that the client sent, in order; the client reads framed
/// responses, each to its own request; each exchange is reported once; nothing is held at the end.
pub fn http_exchange(data: &[u8]) {
    let Some((size, data)) = data.split_first() else { return };
    let mut parts = split(data);
    let sent = parts.pop_front().unwrap_or_default();
    let world = locked(&WORLD);
    let mut client = world.gateway.client();
    *locked(&world.script) = Script { client: client.1.to_string(), responses: parts, ..Script::default() };
    for piece in sent.chunks(usize::from(*size).max(1)) {
        // It may be refused in the middle, and the connection closed.
        if client.0.stream.write_all(piece).is_err() {
            break;
        }
        thread::yield_now();
    }
    let _ = client.0.stream.shutdown(Shutdown::Write);
    let (read, address) = (client.0.rest_bytes(), client.1.to_string());
    drop(client);
    world.gateway.rests();
    let Counting { entered, settled } = &world.filter;
    assert_eq!(entered.load(Ordering::SeqCst), settled.load(Ordering::SeqCst), "entered and settled");
    let script = std::mem::take(&mut *locked(&world.script));
    assert_eq!(script.malformed, None, "what went on is no request");
    if sent.starts_with(PREFACE) {
        return;
    }
    let heads = heads(&sent);
    check_requests(&heads, &script.requests);
    check_responses(&heads, &read, &[address.as_bytes(), b" "].concat());
}

/// The parts of an input.
fn split(data: &[u8]) -> VecDeque<Vec<u8>> {
    let mut parts = VecDeque::from([Vec::new()]);
    let mut at = 0;
    while at < data.len() {
        if data[at..].starts_with(SEPARATOR) {
            parts.push_back(Vec::new());
            at += SEPARATOR.len();
        } else if let Some(part) = parts.back_mut() {
            part.push(data[at]);
            at += 1;
        }
    }
    parts
}

/// The heads of the requests in these bytes, up to a mistake.
fn heads(mut bytes: &[u8]) -> Vec<RequestHead> {
    let mut heads = Vec::new();
    loop {
        let mut parser = RequestParser::new();
        let Ok(Some(used)) = parser.parse(bytes, &HeadLimits::default()) else { return heads };
        bytes = &bytes[used..];
        let head = parser.take();
        let mut body = BodyDecoder::new(head.body());
        heads.push(head);
        while !body.is_done() {
            match body.decode(bytes, &BodyLimits::default()).map(|piece| piece.taken) {
                Ok(taken) if taken > 0 => bytes = &bytes[taken..],
                _ => return heads,
            }
        }
    }
}

/// The target of a request as it goes on; `None`: it does not.
fn goes_on(head: &RequestHead) -> Option<Vec<u8>> {
    let target = head.target();
    if target == b"*" {
        return Some(target.to_vec());
    }
    let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    let mut path = normalise(&target[..end], &PathRules::default()).ok()?.into_owned();
    path.extend_from_slice(&target[end..]);
    Some(path)
}

/// Each of `forwarded` is the next one of the client's, or the same once more after a connection that said nothing.
fn check_requests(heads: &[RequestHead], forwarded: &[(Vec<u8>, Vec<u8>)]) {
    let mut at = 0;
    for (method, target) in forwarded {
        let is_it = |head: &RequestHead| head.method() == method && goes_on(head).as_ref() == Some(target);
        let found = heads[at.min(heads.len())..].iter().position(is_it);
        let Some(found) = found else { panic!("{} {} was not sent", method.escape_ascii(), target.escape_ascii()) };
        at += found;
    }
}

/// Responses, one behind the other, each framed; only the last may break off. A body that begins with `well` names its request.
fn check_responses(heads: &[RequestHead], mut read: &[u8], well: &[u8]) {
    let mut seen = 0;
    while !read.is_empty() {
        let mut parser = ResponseParser::new();
        let used = match parser.parse(read, &HeadLimits::default()) {
            Ok(Some(used)) => used,
            Ok(None) => panic!("a head breaks off: {}", read.escape_ascii()),
            Err(error) => panic!("{error:?}: {}", read.escape_ascii()),
        };
        read = &read[used..];
        let head = parser.take();
        if head.is_interim() {
            continue;
        }
        // Bytes that are no request are refused too.
        assert!(seen <= heads.len(), "more responses than requests");
        let is_head = heads.get(seen).is_some_and(|head| head.method() == b"HEAD");
        seen += 1;
        let mut body = BodyDecoder::new(head.body(is_head));
        if head.body(is_head) == BodyLength::UntilClose {
            return;
        }
        let mut content = Vec::new();
        while !body.is_done() {
            let piece = body.decode(read, &BodyLimits::default());
            let piece = piece.unwrap_or_else(|error| panic!("{error:?} in a body: {}", read.escape_ascii()));
            match piece.taken {
                0 if read.is_empty() => return,
                0 => return assert!(read.len() < 1024, "a chunk without an end"),
                taken => {
                    content.extend_from_slice(piece.data);
                    read = &read[taken..];
                }
            }
        }
        if let Some(target) = content.strip_prefix(well) {
            let own = heads.get(seen - 1).and_then(goes_on);
            assert_eq!(own.as_deref(), Some(target), "the response to another request");
        }
    }
}
