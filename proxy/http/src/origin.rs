//! The origin's side of an exchange, whatever version of HTTP it speaks; and HTTP/1.1's.

use std::time::Duration;

use weir_base::error::Culprit;
use weir_engine::{Deadline, Stream};
use weir_http_codec::{BodyDecoder, BodyLength, Fields, HeadLimits, ResponseHead, ResponseParser};
use weir_upstream::{LossCause, Remains};

use crate::{
    body::{BodyError, Sink, Source},
    failure::AttemptFailure,
    http1_body::{Framing, Http1Sink, Http1Source, receive},
    input::Input,
    metrics::ListenerMetrics,
    pooled_parser::PooledParser,
    refusal::Refusal,
};

/// The origin of one attempt. The head of the request is on its way.
pub(crate) trait Origin {
    /// The sink of the request body.
    type Upload<'a>: Sink
    where
        Self: 'a;
    /// The source of the response.
    type Download<'a>: Download
    where
        Self: 'a;

    /// Both directions.
    fn split<'a>(&'a mut self, attempt: AttemptContext<'a>) -> (Self::Upload<'a>, Self::Download<'a>);
}

/// Context of one attempt for its origin.
pub(crate) struct AttemptContext<'a> {
    pub(crate) metrics: &'a ListenerMetrics,
    /// Deadline of the client.
    pub(crate) deadline: &'a Deadline,
    /// Deadline of the origin.
    pub(crate) origin_deadline: &'a Deadline,
    /// Framing of the request body.
    pub(crate) framing: Framing,
    /// Longest pause in the body of the response.
    pub(crate) response_idle_timeout: Duration,
}

/// The source of a response: heads, and then the body of the last.
pub(crate) trait Download: Source {
    /// The next head, an interim one or the last.
    async fn head(&mut self) -> Result<ResponseHead, AttemptFailure>;

    /// `head` was the last: the body that follows it.
    fn begin(&mut self, head: &ResponseHead, is_head: bool) -> BodyLength;

    /// The longest pause in the body from now on.
    fn limit_pauses(&mut self, idle_timeout: Duration);

    /// Bytes behind a head that ends HTTP here.
    fn rest(&mut self) -> Input;

    /// The state of the connection after the exchange; `None`: it ends.
    fn remains(&self) -> Option<Remains>;

    /// The trailers behind the body, once that is over.
    fn trailers(&self) -> Option<&Fields>;

    /// Takes a head back, for its memory.
    fn reuse(&mut self, head: ResponseHead);
}

/// An origin that speaks HTTP/1.1 on a connection of its own.
pub(crate) struct Http1Origin<'l> {
    stream: &'l mut Stream,
    input: Input,
    decoder: BodyDecoder,
    /// From the first bytes of the response on: many exchanges wait for them at a time, and few have them.
    parser: Option<PooledParser<ResponseParser>>,
}

impl<'l> Http1Origin<'l> {
    pub(crate) fn new(stream: &'l mut Stream) -> Self {
        Self { stream, input: Input::default(), decoder: BodyDecoder::new(BodyLength::Exact(0)), parser: None }
    }
}

impl Origin for Http1Origin<'_> {
    type Upload<'a>
        = Http1Sink<'a>
    where
        Self: 'a;
    type Download<'a>
        = Http1Download<'a>
    where
        Self: 'a;

    fn split<'a>(&'a mut self, attempt: AttemptContext<'a>) -> (Http1Sink<'a>, Http1Download<'a>) {
        let AttemptContext { metrics, deadline, origin_deadline, framing, response_idle_timeout } = attempt;
        let Self { stream, input, decoder, parser } = self;
        let Stream { reader, output, .. } = &mut **stream;
        let source = Http1Source {
            reader,
            input,
            decoder,
            deadline: origin_deadline,
            idle_timeout: response_idle_timeout,
            is_ended: false,
        };
        let download = Http1Download {
            metrics,
            parser,
            source,
            has_received: false,
            ends_with_connection: false,
            may_have_body: false,
        };
        (Http1Sink { output, framing, deadline }, download)
    }
}

/// A response in HTTP/1.1.
pub(crate) struct Http1Download<'a> {
    metrics: &'a ListenerMetrics,
    parser: &'a mut Option<PooledParser<ResponseParser>>,
    source: Http1Source<'a>,
    /// The origin has sent something.
    has_received: bool,
    ends_with_connection: bool,
    /// No body follows, and the head announces one: an origin that is mistaken sends it all the same.
    may_have_body: bool,
}

impl Source for Http1Download<'_> {
    fn is_done(&self) -> bool {
        self.source.is_done()
    }

    async fn fill(&mut self) -> Result<(), BodyError> {
        self.source.fill().await
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
        self.source.pass(sink)
    }
}

impl Download for Http1Download<'_> {
    async fn head(&mut self) -> Result<ResponseHead, AttemptFailure> {
        let malformed = AttemptFailure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation);
        let Http1Source { reader, input, deadline, .. } = &mut self.source;
        loop {
            let has_some = !input.bytes().is_empty();
            if has_some {
                let parser = self.parser.get_or_insert_with(PooledParser::from_pool);
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
            input.release_chunk();
            match receive(reader, input, deadline).await {
                Some(Ok(count)) if count > 0 => self.has_received = true,
                Some(_) if has_some || self.has_received => {
                    return Err(AttemptFailure::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed));
                }
                Some(_) => return Err(AttemptFailure::NoResponse),
                None => return Err(AttemptFailure::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout)),
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
            // 204 and 304 have no body by rule.
            BodyLength::UntilClose => head.has_body(false),
        };
        length
    }

    fn limit_pauses(&mut self, idle_timeout: Duration) {
        self.source.idle_timeout = idle_timeout;
    }

    fn rest(&mut self) -> Input {
        std::mem::take(self.source.input)
    }

    fn remains(&self) -> Option<Remains> {
        match &self.source.input {
            _ if self.ends_with_connection => None,
            // Bytes behind the response belong to no request: this connection cannot be trusted any more.
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
