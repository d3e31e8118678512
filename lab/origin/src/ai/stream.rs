//! A reply onto its connection: at once, or event by event at its pace and with its fault.

use std::{
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};

use weir_engine::{Stream, sleep};
use weir_http_codec::{BodyLength, encode};

use super::{
    fault::{ENDLESS_BYTES, Fault},
    framing::Framer,
    ledger::{End, Ledger, id_of},
    reply::{Body, Delivery, Event, Events, Reply, Whole},
    server::Shared,
    usage::Tokens,
};

/// Bytes of events that are written at once where nothing waits. 16 KiB: what one receive of a client takes.
const BATCH_BYTES: usize = 16 * 1024;

/// Bytes of one piece of a line without an end.
const ENDLESS_PIECE: usize = 64 * 1024;

/// Between pieces that have to arrive apart: more than a client needs to read one.
const APART: Duration = Duration::from_micros(300);

/// Until what was written before a reset has arrived.
const BEFORE_RESET: Duration = Duration::from_millis(30);

/// The page of a proxy.
const PAGE: &[u8] = b"<html><body><h1>502 Bad Gateway</h1></body></html>\n";

/// How a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// With the next request.
    Next,
    /// It ends.
    End,
    /// It is reset.
    Reset,
}

/// Facts of a connection that a head depends on.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Another request may follow.
    pub is_persistent: bool,
    /// There is no body.
    pub is_head: bool,
}

impl Line {
    /// Behind an error that ends the connection.
    pub const LAST: Self = Self { is_persistent: false, is_head: false };
}

/// An open entry of the ledger. Dropped, its client has left.
struct Bill<'a> {
    ledger: &'a Ledger,
    /// `None`: nothing is billed, or the entry is closed.
    number: Option<u64>,
    /// For the whole reply.
    whole: Tokens,
    events: u64,
    said: u64,
}

impl Bill<'_> {
    fn wrote(&mut self, event: &Event) {
        if let Some(tokens) = event.tokens {
            self.events += 1;
            self.said += tokens;
        }
    }

    fn close(&mut self, end: End) {
        let Tokens { reasoning, audio, .. } = self.whole;
        let tokens = match end {
            End::Completed | End::Refused => self.whole,
            // Reasoning was there before the first word of a text.
            _ if self.said == 0 => Tokens { completion: 0, reasoning: 0, audio: 0, ..self.whole },
            _ => Tokens { completion: self.said + reasoning + audio, ..self.whole },
        };
        self.close_with(end, tokens);
    }

    /// The same with other tokens; nothing if the entry is closed.
    fn close_with(&mut self, end: End, tokens: Tokens) {
        if let Some(number) = self.number.take() {
            self.ledger.close(number, end, self.events, tokens);
        }
    }
}

impl Drop for Bill<'_> {
    fn drop(&mut self) {
        self.close(End::Disconnected);
    }
}

/// Sends a reply.
pub async fn send(shared: &Shared, stream: &mut Stream, reply: Reply, line: Line) -> Flow {
    let Reply { body, delivery, bill } = reply;
    let mut id = None;
    let (number, whole) = match bill {
        Some((entry, tokens)) => {
            let number = shared.ledger.open(entry);
            id = Some(number);
            (Some(number), tokens)
        }
        None => (None, Tokens::default()),
    };
    let mut bill = Bill { ledger: &shared.ledger, number, whole, events: 0, said: 0 };
    if delivery.has(&[Fault::Silent]) {
        bill.close(End::Fault(Fault::Silent.word()));
        until_gone(stream).await;
        return Flow::End;
    }
    match body {
        Body::Whole(whole) => send_whole(stream, with_id(whole, id), &delivery, &mut bill, line).await,
        Body::Stream { .. } if delivery.has(&[Fault::Html]) => {
            let whole = Whole { body: Vec::new(), ..Whole::json(Vec::new()) };
            send_whole(stream, with_id(whole, id), &delivery, &mut bill, line).await
        }
        Body::Stream { events, has_done, error } => {
            let mut writer = EventWriter {
                shared,
                stream,
                delivery: &delivery,
                framer: Framer::new(delivery.lines, delivery.split, delivery.has_comments),
                out: Vec::new(),
                bill,
                has_done,
                error,
            };
            write_stream_head(id, line, &mut writer.out);
            // In a box: a worker holds thousands of streams, and few other replies.
            Box::pin(writer.run(events)).await
        }
    }
}

/// The id of its entry in both dialects.
fn with_id(mut whole: Whole, id: Option<u64>) -> Whole {
    if let Some(number) = id {
        let id = id_of(number);
        whole.fields.extend_from_slice(format!("x-request-id: {id}\r\nrequest-id: {id}\r\n").as_bytes());
    }
    whole
}

async fn send_whole(stream: &Stream, whole: Whole, delivery: &Delivery, bill: &mut Bill<'_>, line: Line) -> Flow {
    if !delivery.first.is_zero() && !pause(stream, delivery.first).await {
        return Flow::End;
    }
    let is_error = whole.status >= 400;
    let Some((fault, _)) = delivery.fault else {
        stream.output.with(|out| write_whole(&whole, &line, out));
        bill.close(if is_error { End::Refused } else { End::Completed });
        return Flow::Next;
    };
    let mut whole = whole;
    let half = whole.body.len() / 2;
    let flow = match fault {
        Fault::Html => {
            (whole.status, whole.content_type, whole.body) = (502, "text/html", PAGE.to_vec());
            Flow::Next
        }
        Fault::Garbage => {
            whole.body = b"this is no JSON".to_vec();
            Flow::Next
        }
        Fault::Truncated => {
            whole.body.truncate(half);
            Flow::Next
        }
        Fault::Error => {
            let refusal = super::error::Refusal::new(500, "", "The server had an error while processing your request.");
            whole = Whole { fields: whole.fields, ..refusal.reply(false) };
            Flow::Next
        }
        Fault::Cut => Flow::Reset,
        _ => Flow::End,
    };
    let mut out = Vec::new();
    write_whole(&whole, &line, &mut out);
    if flow != Flow::Next {
        out.truncate(out.len() - (whole.body.len() - half));
    }
    stream.output.append(&out);
    // A text that is lost on its way was written all the same.
    let tokens = if matches!(fault, Fault::Error | Fault::Html) { Tokens::default() } else { bill.whole };
    bill.close_with(End::Fault(fault.word()), tokens);
    match fault {
        Fault::Stalled => until_gone(stream).await,
        Fault::Cut => sleep(BEFORE_RESET).await,
        _ => {}
    }
    flow
}

/// Appends a reply with a length.
pub fn write_whole(whole: &Whole, line: &Line, out: &mut Vec<u8>) {
    encode::status_line(whole.status, b"", out);
    out.extend_from_slice(b"server: weir-origin\r\n");
    encode::field(b"content-type", whole.content_type.as_bytes(), out);
    out.extend_from_slice(&whole.fields);
    encode::framing(BodyLength::Exact(whole.body.len() as u64), out);
    if !line.is_persistent {
        encode::field(b"connection", b"close", out);
    }
    encode::end_of_head(out);
    if !line.is_head {
        out.extend_from_slice(&whole.body);
    }
}

fn write_stream_head(id: Option<u64>, line: Line, out: &mut Vec<u8>) {
    encode::status_line(200, b"", out);
    out.extend_from_slice(b"server: weir-origin\r\ncontent-type: text/event-stream; charset=utf-8\r\n");
    out.extend_from_slice(b"cache-control: no-cache\r\n");
    if let Some(number) = id {
        let id = id_of(number);
        out.extend_from_slice(format!("x-request-id: {id}\r\nrequest-id: {id}\r\n").as_bytes());
    }
    encode::framing(BodyLength::Chunked, out);
    if !line.is_persistent {
        encode::field(b"connection", b"close", out);
    }
    encode::end_of_head(out);
}

/// Writes the events of one stream.
struct EventWriter<'a> {
    shared: &'a Shared,
    stream: &'a Stream,
    delivery: &'a Delivery,
    framer: Framer,
    /// Written and not appended to the connection yet.
    out: Vec<u8>,
    bill: Bill<'a>,
    has_done: bool,
    error: (Option<&'static str>, Vec<u8>),
}

/// The client has left.
struct Gone;

impl EventWriter<'_> {
    async fn run(mut self, events: Box<dyn Events>) -> Flow {
        // The bill is dropped with the writer.
        self.events(events).await.unwrap_or(Flow::End)
    }

    async fn events(&mut self, mut events: Box<dyn Events>) -> Result<Flow, Gone> {
        if !self.delivery.first.is_zero() {
            self.pause(self.delivery.first).await?;
        }
        let (mut data, mut said) = (Vec::new(), 0);
        let mut fault = self.delivery.fault.filter(|(fault, _)| *fault != Fault::NoDone);
        while let Some(event) = events.next(&self.shared.templates, &mut data) {
            if event.tokens.is_some() {
                if let Some((due, _)) = fault.take_if(|(_, at)| *at <= said)
                    && let Some(flow) = self.fail(due).await?
                {
                    return Ok(flow);
                }
                let wait = if said == 0 { Duration::ZERO } else { self.delivery.wait(said) };
                if !wait.is_zero() {
                    self.pause(wait).await?;
                }
                said += 1;
            }
            if !(event.is_last && self.delivery.has(&[Fault::NoDone])) {
                self.framer.event(event.name, &data, &mut self.out);
                self.bill.wrote(&event);
            }
            data.clear();
            if self.framer.is_split() {
                self.send_apart().await?;
            } else if self.out.len() >= BATCH_BYTES {
                self.append().await?;
            }
        }
        // One that was to come behind more events than there are.
        if let Some((due, _)) = fault
            && let Some(flow) = self.fail(due).await?
        {
            return Ok(flow);
        }
        let is_whole = !self.delivery.has(&[Fault::NoDone]);
        if self.has_done && is_whole {
            self.framer.event(None, b"[DONE]", &mut self.out);
        }
        encode::last_chunk(None, &mut self.out);
        self.append().await?;
        self.bill.close(match self.delivery.fault {
            Some((fault, _)) => End::Fault(fault.word()),
            None => End::Completed,
        });
        Ok(Flow::Next)
    }

    /// Does what the fault says. `None`: the stream goes on.
    async fn fail(&mut self, fault: Fault) -> Result<Option<Flow>, Gone> {
        match fault {
            Fault::Garbage => self.framer.event(None, b"this is no JSON", &mut self.out),
            Fault::Dataless => self.framer.event(Some("dataless"), b"", &mut self.out),
            _ => {}
        }
        if fault.goes_on() {
            return Ok(None);
        }
        let flow = match fault {
            Fault::Error => {
                let (name, data) = std::mem::take(&mut self.error);
                self.framer.event(name, &data, &mut self.out);
                encode::last_chunk(None, &mut self.out);
                Flow::Next
            }
            Fault::Truncated => {
                encode::last_chunk(None, &mut self.out);
                Flow::Next
            }
            Fault::Cut => Flow::Reset,
            _ => Flow::End,
        };
        self.append().await?;
        self.bill.close(End::Fault(fault.word()));
        match fault {
            Fault::Stalled => until_gone(self.stream).await,
            Fault::Endless => self.endless().await?,
            Fault::Cut => sleep(BEFORE_RESET).await,
            _ => {}
        }
        Ok(Some(flow))
    }

    async fn endless(&mut self) -> Result<(), Gone> {
        self.framer.raw(b"data: ", &mut self.out);
        let piece = vec![b'x'; ENDLESS_PIECE];
        for _ in 0..ENDLESS_BYTES / ENDLESS_PIECE as u64 {
            self.framer.raw(&piece, &mut self.out);
            self.append().await?;
        }
        Ok(())
    }

    /// Hands over what is written, and waits while the client does not read it.
    async fn append(&mut self) -> Result<(), Gone> {
        self.stream.output.append(&self.out);
        self.out.clear();
        while self.stream.output.is_congested() && !self.stream.output.is_closed() {
            self.stream.output.relieved().await;
        }
        if self.stream.output.is_closed() { Err(Gone) } else { Ok(()) }
    }

    /// The same, one chunk of HTTP at a time.
    async fn send_apart(&mut self) -> Result<(), Gone> {
        let all = std::mem::take(&mut self.out);
        let mut rest = &all[..];
        while let Some(length) = chunk_bytes(rest) {
            let (chunk, behind) = rest.split_at(length);
            self.stream.output.append(chunk);
            rest = behind;
            if !pause(self.stream, APART).await {
                return Err(Gone);
            }
        }
        self.out.extend_from_slice(rest);
        self.append().await
    }

    /// A wait behind what was written so far.
    async fn pause(&mut self, wait: Duration) -> Result<(), Gone> {
        self.append().await?;
        if self.out.capacity() > BATCH_BYTES {
            self.out = Vec::new();
        }
        if pause(self.stream, wait).await { Ok(()) } else { Err(Gone) }
    }
}

/// Bytes of the chunk at the front; `None`: there is none but a head, or the last one.
fn chunk_bytes(wire: &[u8]) -> Option<usize> {
    let line = wire.windows(2).position(|pair| pair == b"\r\n")?;
    let size = usize::from_str_radix(std::str::from_utf8(&wire[..line]).ok()?, 16).ok()?;
    let all = line + 2 + size + 2;
    (size > 0 && all <= wire.len()).then_some(all)
}

/// False: the client left before the wait was over.
async fn pause(stream: &Stream, wait: Duration) -> bool {
    let watch = stream.reader.peer_watch();
    let mut waiting = Box::pin(sleep(wait));
    poll_fn(|context| match watch.poll_ended(context) {
        Poll::Ready(()) => Poll::Ready(false),
        Poll::Pending => waiting.as_mut().poll(context).map(|()| true),
    })
    .await
}

async fn until_gone(stream: &Stream) {
    let watch = stream.reader.peer_watch();
    poll_fn(|context| watch.poll_ended(context)).await;
}
