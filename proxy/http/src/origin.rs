//! The origin's side of an exchange, whatever version of HTTP it speaks; and HTTP/1.1's.

use std::{cell::RefCell, time::Duration};

use weir_base::error::Culprit;
use weir_engine::{Deadline, Stream};
use weir_http_codec::{BodyDecoder, BodyLength, Fields, HeadLimits, ResponseHead, ResponseParser};
use weir_upstream::{LossCause, Remains};

use crate::{
    body::{Broken, Sink, Source},
    failure::Failure,
    input::Input,
    metrics::ListenerMetrics,
    refusal::Refusal,
    wire::{Framing, WireSink, WireSource, receive},
};

/// The origin of one attempt to have a request answered. The head of the request is on its way.
pub(crate) trait Origin {
    /// Where the body of the request goes.
    type Upload<'a>: Sink
    where
        Self: 'a;
    /// Where the answer comes from.
    type Download<'a>: Download
    where
        Self: 'a;

    /// Both directions.
    fn sides<'a>(&'a mut self, means: Means<'a>) -> (Self::Upload<'a>, Self::Download<'a>);
}

/// What an origin is given for one attempt.
pub(crate) struct Means<'a> {
    pub(crate) metrics: &'a ListenerMetrics,
    /// Of what the client does.
    pub(crate) deadline: &'a Deadline,
    /// Of what the origin does.
    pub(crate) origin_deadline: &'a Deadline,
    /// How a body of the request is framed.
    pub(crate) framing: Framing,
    /// How long the body of the answer may pause.
    pub(crate) answer_idle_timeout: Duration,
}

/// Where an answer comes from: heads, and then the body of the last.
pub(crate) trait Download: Source {
    /// The next head, an interim one or the last.
    async fn head(&mut self) -> Result<ResponseHead, Failure>;

    /// `head` was the last: the body that follows it.
    fn begin(&mut self, head: &ResponseHead, is_head: bool) -> BodyLength;

    /// What came behind a head that ends HTTP here.
    fn rest(&mut self) -> Input;

    /// What the exchange leaves on the connection; `None`: that ends with it.
    fn remains(&self) -> Option<Remains>;

    /// The trailers behind the body, once that is over.
    fn trailers(&self) -> Option<&Fields>;

    /// Takes a head back, for its memory.
    fn reuse(&mut self, head: ResponseHead);
}

/// Parsers that a worker keeps for their memory. Default 64, as many responses as a worker has begun and not ended at most times; each
/// holds a head of a kilobyte or two.
const PARSERS_KEPT_MAX: usize = 64;

thread_local! {
    static PARSERS: RefCell<Vec<ResponseParser>> = const { RefCell::new(Vec::new()) };
}

/// An origin that speaks HTTP/1.1 on a connection of its own.
pub(crate) struct WireOrigin<'l> {
    stream: &'l mut Stream,
    input: Input,
    decoder: BodyDecoder,
    /// From the first bytes of the response on: many exchanges wait for them at a time, and few have them.
    parser: Option<ResponseParser>,
}

impl<'l> WireOrigin<'l> {
    pub(crate) fn new(stream: &'l mut Stream) -> Self {
        Self { stream, input: Input::default(), decoder: BodyDecoder::new(BodyLength::Exact(0)), parser: None }
    }
}

impl Drop for WireOrigin<'_> {
    fn drop(&mut self) {
        let Some(mut parser) = self.parser.take() else { return };
        // The origin may have failed in the middle of a head.
        parser.reset();
        PARSERS.with_borrow_mut(|parsers| {
            if parsers.len() < PARSERS_KEPT_MAX {
                parsers.push(parser);
            }
        });
    }
}

impl Origin for WireOrigin<'_> {
    type Upload<'a>
        = WireSink<'a>
    where
        Self: 'a;
    type Download<'a>
        = WireDownload<'a>
    where
        Self: 'a;

    fn sides<'a>(&'a mut self, means: Means<'a>) -> (WireSink<'a>, WireDownload<'a>) {
        let Means { metrics, deadline, origin_deadline, framing, answer_idle_timeout } = means;
        let Self { stream, input, decoder, parser } = self;
        let Stream { reader, output, .. } = &mut **stream;
        let source = WireSource {
            reader,
            input,
            decoder,
            deadline: origin_deadline,
            idle_timeout: answer_idle_timeout,
            is_ended: false,
        };
        let download = WireDownload {
            metrics,
            parser,
            source,
            has_received: false,
            ends_with_connection: false,
            may_have_body: false,
        };
        (WireSink { output, framing, deadline }, download)
    }
}

/// An answer in HTTP/1.1.
pub(crate) struct WireDownload<'a> {
    metrics: &'a ListenerMetrics,
    parser: &'a mut Option<ResponseParser>,
    source: WireSource<'a>,
    /// The origin has sent something.
    has_received: bool,
    ends_with_connection: bool,
    /// No body follows, and the head announces one: an origin that is mistaken sends it all the same.
    may_have_body: bool,
}

impl Source for WireDownload<'_> {
    fn is_done(&self) -> bool {
        self.source.is_done()
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        self.source.fill().await
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken> {
        self.source.pass(sink)
    }
}

impl Download for WireDownload<'_> {
    async fn head(&mut self) -> Result<ResponseHead, Failure> {
        let malformed = Failure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation);
        let WireSource { reader, input, deadline, .. } = &mut self.source;
        loop {
            let has_some = !input.bytes().is_empty();
            if has_some {
                let kept = || PARSERS.with_borrow_mut(Vec::pop).unwrap_or_default();
                let parser = self.parser.get_or_insert_with(kept);
                match parser.parse(input.bytes(), &HeadLimits::default()) {
                    Ok(Some(used)) => {
                        input.spend(used);
                        return Ok(parser.take());
                    }
                    Ok(None) => {}
                    Err(error) => {
                        self.metrics.violation(&error.violation(Culprit::Upstream));
                        return Err(malformed);
                    }
                }
            }
            input.keep();
            match receive(reader, input, deadline).await {
                Some(Ok(count)) if count > 0 => self.has_received = true,
                Some(_) if has_some || self.has_received => {
                    return Err(Failure::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed));
                }
                Some(_) => return Err(Failure::Silent),
                None => return Err(Failure::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout)),
            }
        }
    }

    fn begin(&mut self, head: &ResponseHead, is_head: bool) -> BodyLength {
        let length = head.body(is_head);
        *self.source.decoder = BodyDecoder::new(length);
        self.ends_with_connection = length == BodyLength::UntilClose;
        self.may_have_body = match head.announced() {
            _ if head.has_body(is_head) => false,
            BodyLength::Exact(length) => length > 0,
            BodyLength::Chunked => true,
            // Of 204 and 304 that is as it should be.
            BodyLength::UntilClose => head.has_body(false),
        };
        length
    }

    fn rest(&mut self) -> Input {
        std::mem::take(self.source.input)
    }

    fn remains(&self) -> Option<Remains> {
        match &self.source.input {
            _ if self.ends_with_connection => None,
            // Bytes behind the answer belong to nobody: on this connection nothing can be trusted any more.
            input if !input.bytes().is_empty() => Some(Remains::Bytes),
            input if input.is_ended() => None,
            _ if self.may_have_body => Some(Remains::PerhapsBody),
            _ => Some(Remains::Nothing),
        }
    }

    fn trailers(&self) -> Option<&Fields> {
        self.source.decoder.trailers()
    }

    fn reuse(&mut self, head: ResponseHead) {
        if let Some(parser) = self.parser {
            parser.reuse(head);
        }
    }
}
