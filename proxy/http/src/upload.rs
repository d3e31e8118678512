//! The body of a request on its way: its limits, its rate, its copy and its buffer.

use std::{cell::RefCell, time::Duration};

use weir_base::time::turn;
use weir_http_codec::Fields;

use crate::{
    body::{BodyCopy, BodyError, Sink, Source, sink_ready},
    body_inspection::BodyInspection,
    buffered_body::BufferedBody,
    forward,
};

/// Checks of a request body on its way.
#[derive(Clone, Copy)]
pub(crate) struct UploadLimits<'a> {
    /// Bytes that may still come.
    pub(crate) room: u64,
    /// Names of fields that do not pass in trailers.
    pub(crate) dropped: &'a [Box<str>],
    /// Gets the same, if a mirror wants it.
    pub(crate) copy: Option<&'a RefCell<BodyCopy>>,
    /// Keeps it, if it may have to be sent later or again.
    pub(crate) buffered: Option<&'a RefCell<BufferedBody>>,
    /// Looks at it, and may refuse the request.
    pub(crate) inspection: Option<&'a RefCell<BodyInspection>>,
}

/// A sink with a limit of bytes, which also filters trailers. Bytes past the limit are dropped, and the body has no end then.
pub(crate) struct LimitedSink<'a, S> {
    sink: S,
    limits: UploadLimits<'a>,
    /// Bytes that may still come.
    pub(crate) room: u64,
    /// The error after which nothing passes.
    broken: Option<BodyError>,
}

impl<'a, S: Sink> LimitedSink<'a, S> {
    pub(crate) fn new(sink: S, limits: UploadLimits<'a>) -> Self {
        Self { sink, limits, room: limits.room, broken: None }
    }

    /// Sends the buffered part of the body from `source`: it was read before, or sent to another origin.
    pub(crate) async fn send_buffered(&mut self, source: &mut impl Source) -> Result<(), BodyError> {
        // It may be over before it began: no piece of it comes.
        if source.is_done() && !self.passes_inspection(BodyInspection::end) {
            return self.ready().await;
        }
        let Some(buffered) = self.limits.buffered else {
            self.sink.last(b"");
            return self.sink.ready().await;
        };
        self.room = self.room.saturating_sub(buffered.borrow().len() as u64);
        BufferedBody::send(buffered, source, &mut self.sink).await
    }

    fn copy(&self, data: &[u8]) {
        if let Some(copy) = self.limits.copy {
            copy.borrow_mut().add(data);
        }
        if let Some(buffered) = self.limits.buffered {
            buffered.borrow_mut().add(data);
        }
    }

    fn end_with(&mut self, trailers: &Fields) {
        if let Some(buffered) = self.limits.buffered {
            buffered.borrow_mut().end(trailers);
        }
        self.sink.end(Some(trailers));
    }

    /// Checks the limit and the inspection: these bytes may pass.
    fn admits(&mut self, data: &[u8]) -> bool {
        match self.room.checked_sub(data.len() as u64) {
            Some(room) if self.broken.is_none() => self.room = room,
            _ => self.broken = self.broken.or(Some(BodyError::TooLong)),
        }
        self.passes_inspection(|inspection| inspection.data(data))
    }

    /// The inspection, if there is one, lets the body pass.
    fn passes_inspection(&mut self, look: impl FnOnce(&mut BodyInspection) -> bool) -> bool {
        if self.broken.is_none()
            && let Some(inspection) = self.limits.inspection
            && !look(&mut inspection.borrow_mut())
        {
            self.broken = Some(BodyError::Inspected);
        }
        self.broken.is_none()
    }
}

impl<S: Sink> Sink for LimitedSink<'_, S> {
    fn data(&mut self, data: &[u8]) {
        if self.admits(data) {
            self.copy(data);
            self.sink.data(data);
        }
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        if !self.passes_inspection(BodyInspection::end) {
            return;
        }
        match trailers {
            Some(trailers) if !self.limits.dropped.is_empty() => {
                let mut trailers = trailers.clone();
                forward::remove_fields(self.limits.dropped, &mut trailers);
                self.end_with(&trailers);
            }
            Some(trailers) => self.end_with(trailers),
            None => self.sink.end(None),
        }
    }

    fn last(&mut self, data: &[u8]) {
        if self.admits(data) && self.passes_inspection(BodyInspection::end) {
            self.copy(data);
            self.sink.last(data);
        }
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        match self.broken {
            Some(broken) => Err(broken),
            None => self.sink.ready().await,
        }
    }
}

/// Waiting time before the rate of a body counts, and the period over which it is measured. The wait for its first bytes does not
/// count: the client may wait for a word of the origin (`Expect: 100-continue`), and `body_idle_timeout` bounds it.
const RATE_PERIOD: Duration = Duration::from_secs(10);

/// As [`relay`](crate::body::relay), until `is_enough`, from a client that must not be slower than `rate` bytes a second, in the time in which it was
/// waited for and could send. 0: as slow as it likes.
pub(crate) async fn relay_paced<S: Sink>(
    source: &mut impl Source,
    sink: &mut LimitedSink<'_, S>,
    rate: u64,
    is_enough: impl Fn() -> bool,
) -> Result<(), BodyError> {
    let (mut waited, mut before) = (Duration::ZERO, sink.room);
    let mut has_begun = false;
    while !source.is_done() && !is_enough() {
        let (since, was_held_back) = (turn::now(), source.is_held_back());
        source.fill().await?;
        if std::mem::replace(&mut has_begun, true) && !was_held_back && !source.is_held_back() {
            waited += turn::now().since(since);
        }
        source.pass(sink)?;
        // A body that is over was not too slow, however short it is.
        if waited >= RATE_PERIOD && rate > 0 && !source.is_done() {
            if before - sink.room < rate * waited.as_secs() {
                return Err(BodyError::TimedOut);
            }
            (waited, before) = (Duration::ZERO, sink.room);
        }
        sink_ready(source, sink).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, rc::Rc};

    use futures_util::FutureExt as _;
    use weir_base::time::Time;

    use super::*;
    use crate::{
        body::DiscardSink,
        filter::{Caller, HttpFilter, WholeResponse},
        filter_handle::FilterHandle,
    };

    /// Refuses every body at its end.
    struct Refusing;

    impl HttpFilter for Refusing {
        fn request_end(&mut self) -> Result<(), WholeResponse> {
            Err(WholeResponse { status: 400, fields: Fields::new(), body: bytes::Bytes::new() })
        }
    }

    #[test]
    fn the_end_of_a_body_that_is_over_before_it_begins_is_inspected() {
        let caller = Caller { route: "".into(), client: IpAddr::from([0; 4]), identity: None, request_id: None };
        let filter_handle = Rc::new(FilterHandle::new(Box::new(Refusing), caller, Time::ZERO));
        let inspection = RefCell::new(BodyInspection::new(filter_handle, 0));
        let limits = UploadLimits { room: 1, dropped: &[], copy: None, buffered: None, inspection: Some(&inspection) };
        let mut sink = LimitedSink::new(DiscardSink, limits);
        let sent = sink.send_buffered(&mut Slow { left: 0, is_held_back: false }).now_or_never();
        assert_eq!(sent, Some(Err(BodyError::Inspected)));
    }

    /// A body with one byte a second.
    struct Slow {
        left: u32,
        is_held_back: bool,
    }

    impl Source for Slow {
        fn is_done(&self) -> bool {
            self.left == 0
        }

        async fn fill(&mut self) -> Result<(), BodyError> {
            turn::set(Time::from_nanos(turn::now().as_nanos() + 1_000_000_000));
            Ok(())
        }

        fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
            self.left -= 1;
            sink.data(b"x");
            Ok(())
        }

        fn is_held_back(&self) -> bool {
            self.is_held_back
        }
    }

    fn relayed(is_held_back: bool, seconds: u32) -> Option<Result<(), BodyError>> {
        let limits = UploadLimits { room: 1 << 20, dropped: &[], copy: None, buffered: None, inspection: None };
        let mut sink = LimitedSink::new(DiscardSink, limits);
        relay_paced(&mut Slow { left: seconds, is_held_back }, &mut sink, 2, || false).now_or_never()
    }

    #[test]
    fn a_client_is_too_slow_only_while_it_could_send() {
        assert_eq!(relayed(false, 60), Some(Err(BodyError::TimedOut)));
        assert_eq!(relayed(false, 11), Some(Ok(())), "its rate is not known yet");
        assert_eq!(relayed(true, 60), Some(Ok(())), "the gateway held it back");
    }
}
