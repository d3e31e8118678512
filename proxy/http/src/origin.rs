//! The origin's side of an exchange, whatever version of HTTP it speaks; and HTTP/1.1's.

use std::time::Duration;

use weir_base::error::Culprit;
use weir_engine::{Deadline, Stream};
use weir_http_codec::{BodyDecoder, BodyLength, Fields, HeadLimits, ResponseHead, ResponseParser};
use weir_upstream::LossCause;

use crate::{
    attempt::Failure,
    input::Input,
    metrics::ListenerMetrics,
    refusal::Refusal,
    relay::{Broken, Sink, Source},
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
    /// Kept for its memory.
    pub(crate) parser: &'a mut ResponseParser,
    /// How a body of the request is framed.
    pub(crate) framing: Framing,
    /// How long the body of the answer may pause.
    pub(crate) answer_idle_timeout: Duration,
}

/// Where an answer comes from: heads, and then the body of the last.
pub(crate) trait Download: Source {
    /// The next head, an interim one or the last.
    async fn head(&mut self) -> Result<ResponseHead, Failure>;

    /// The last head announced this body.
    fn begin(&mut self, length: BodyLength);

    /// What came behind a head that ends HTTP here.
    fn rest(&mut self) -> Input;

    /// Nothing of the exchange is left, so another may follow.
    fn is_clean(&self) -> bool;

    /// The trailers behind the body, once that is over.
    fn trailers(&self) -> Option<&Fields>;

    /// Takes a head back, for its memory.
    fn reuse(&mut self, head: ResponseHead);

    /// Bytes that were received for it, where they are not counted elsewhere.
    fn received(&self) -> u64;
}

/// An origin that speaks HTTP/1.1 on a connection of its own.
pub(crate) struct WireOrigin<'l> {
    stream: &'l mut Stream,
    input: Input,
    decoder: BodyDecoder,
}

impl<'l> WireOrigin<'l> {
    pub(crate) fn new(stream: &'l mut Stream) -> Self {
        Self { stream, input: Input::default(), decoder: BodyDecoder::new(BodyLength::Exact(0)) }
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
        let Means { metrics, deadline, origin_deadline, parser, framing, answer_idle_timeout } = means;
        let Self { stream, input, decoder } = self;
        let Stream { reader, output, .. } = &mut **stream;
        // The last origin may have failed in the middle of a head.
        parser.reset();
        let source = WireSource {
            reader,
            input,
            decoder,
            deadline: origin_deadline,
            idle_timeout: answer_idle_timeout,
            received: 0,
            is_ended: false,
        };
        let download = WireDownload { metrics, parser, source, ends_with_connection: false };
        (WireSink { output, framing, deadline }, download)
    }
}

/// An answer in HTTP/1.1.
pub(crate) struct WireDownload<'a> {
    metrics: &'a ListenerMetrics,
    parser: &'a mut ResponseParser,
    source: WireSource<'a>,
    ends_with_connection: bool,
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
        let WireSource { reader, input, deadline, received, .. } = &mut self.source;
        loop {
            match self.parser.parse(input.bytes(), &HeadLimits::default()) {
                Ok(Some(used)) => {
                    input.spend(used);
                    return Ok(self.parser.take());
                }
                Ok(None) => {}
                Err(error) => {
                    self.metrics.violation(&error.violation(Culprit::Upstream));
                    return Err(malformed);
                }
            }
            let has_some = !input.bytes().is_empty();
            input.keep();
            match receive(reader, input, deadline).await {
                Some(Ok(count)) if count > 0 => *received += count as u64,
                Some(_) if has_some || *received > 0 => {
                    return Err(Failure::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed));
                }
                Some(_) => return Err(Failure::Silent),
                None => return Err(Failure::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout)),
            }
        }
    }

    fn begin(&mut self, length: BodyLength) {
        *self.source.decoder = BodyDecoder::new(length);
        self.ends_with_connection = length == BodyLength::UntilClose;
    }

    fn rest(&mut self) -> Input {
        std::mem::take(self.source.input)
    }

    fn is_clean(&self) -> bool {
        // Bytes behind the answer belong to nobody: on this connection nothing can be trusted any more.
        self.source.input.bytes().is_empty() && !self.source.input.is_ended() && !self.ends_with_connection
    }

    fn trailers(&self) -> Option<&Fields> {
        self.source.decoder.trailers()
    }

    fn reuse(&mut self, head: ResponseHead) {
        self.parser.reuse(head);
    }

    fn received(&self) -> u64 {
        self.source.received
    }
}
