//! The body of a request on its way: its limits, its rate, and what is copied and kept of it.

use std::{cell::RefCell, time::Duration};

use weir_base::time::turn;
use weir_http_codec::Fields;

use crate::{
    body::{Broken, Copied, Sink, Source, passed},
    forward,
    inspecting::Inspecting,
    kept::Kept,
};

/// What the body of a request passes on its way.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// Bytes that may still come.
    pub(crate) room: u64,
    /// Names of fields that do not pass in trailers.
    pub(crate) dropped: &'a [Box<str>],
    /// Gets the same, if a mirror wants it.
    pub(crate) copied: Option<&'a RefCell<Copied>>,
    /// Keeps it, if it may have to be sent later or again.
    pub(crate) kept: Option<&'a RefCell<Kept>>,
    /// Looks at it, and may refuse the request.
    pub(crate) inspecting: Option<&'a RefCell<Inspecting>>,
}

/// A place of which only so much is taken, and not every trailer. What is past it goes nowhere, and the body has no end there.
pub(crate) struct Limited<'a, S> {
    sink: S,
    limits: Limits<'a>,
    /// Bytes that may still come.
    pub(crate) room: u64,
    /// Nothing goes on any more.
    broken: Option<Broken>,
}

impl<'a, S: Sink> Limited<'a, S> {
    pub(crate) fn new(sink: S, limits: Limits<'a>) -> Self {
        Self { sink, limits, room: limits.room, broken: None }
    }

    /// Sends what is kept of the body that comes from `source`: it was read before, or sent to another origin.
    pub(crate) async fn again(&mut self, source: &mut impl Source) -> Result<(), Broken> {
        // It may be over before it began: no piece of it comes.
        if source.is_done() && !self.looks(Inspecting::end) {
            return self.relieved().await;
        }
        let Some(kept) = self.limits.kept else {
            self.sink.last(b"");
            return self.sink.relieved().await;
        };
        self.room = self.room.saturating_sub(kept.borrow().len() as u64);
        Kept::send(kept, source, &mut self.sink).await
    }

    fn copy(&self, data: &[u8]) {
        if let Some(copied) = self.limits.copied {
            copied.borrow_mut().add(data);
        }
        if let Some(kept) = self.limits.kept {
            kept.borrow_mut().add(data);
        }
    }

    fn end_with(&mut self, trailers: &Fields) {
        if let Some(kept) = self.limits.kept {
            kept.borrow_mut().end(trailers);
        }
        self.sink.end(Some(trailers));
    }

    /// Whether these bytes may pass.
    fn takes(&mut self, data: &[u8]) -> bool {
        match self.room.checked_sub(data.len() as u64) {
            Some(room) if self.broken.is_none() => self.room = room,
            _ => self.broken = self.broken.or(Some(Broken::TooLong)),
        }
        self.looks(|inspecting| inspecting.data(data))
    }

    /// Whether the inspection, if there is one, lets the body go on.
    fn looks(&mut self, look: impl FnOnce(&mut Inspecting) -> bool) -> bool {
        if self.broken.is_none()
            && let Some(inspecting) = self.limits.inspecting
            && !look(&mut inspecting.borrow_mut())
        {
            self.broken = Some(Broken::Refused);
        }
        self.broken.is_none()
    }
}

impl<S: Sink> Sink for Limited<'_, S> {
    fn data(&mut self, data: &[u8]) {
        if self.takes(data) {
            self.copy(data);
            self.sink.data(data);
        }
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        if !self.looks(Inspecting::end) {
            return;
        }
        match trailers {
            Some(trailers) if !self.limits.dropped.is_empty() => {
                let mut trailers = trailers.clone();
                forward::clean(self.limits.dropped, &mut trailers);
                self.end_with(&trailers);
            }
            Some(trailers) => self.end_with(trailers),
            None => self.sink.end(None),
        }
    }

    fn last(&mut self, data: &[u8]) {
        if self.takes(data) && self.looks(Inspecting::end) {
            self.copy(data);
            self.sink.last(data);
        }
    }

    async fn relieved(&mut self) -> Result<(), Broken> {
        match self.broken {
            Some(broken) => Err(broken),
            None => self.sink.relieved().await,
        }
    }
}

/// How long a body may be waited for before its rate counts, and over how long it is taken. The wait for its first bytes does not
/// count: the client may wait for a word of the origin (`Expect: 100-continue`), and `body_idle_timeout` bounds it.
const RATE_PERIOD: Duration = Duration::from_secs(10);

/// As [`relay`](crate::body::relay), until `is_enough`, from a client that must not be slower than `rate` bytes a second, in the time in which it was
/// waited for and could send. 0: as slow as it likes.
pub(crate) async fn relay_paced<S: Sink>(
    source: &mut impl Source,
    sink: &mut Limited<'_, S>,
    rate: u64,
    is_enough: impl Fn() -> bool,
) -> Result<(), Broken> {
    let (mut waited, mut before) = (Duration::ZERO, sink.room);
    let mut has_begun = false;
    while !source.is_done() && !is_enough() {
        let (since, was_held_back) = (turn::now(), source.is_held_back());
        source.fill().await?;
        if std::mem::replace(&mut has_begun, true) && !was_held_back && !source.is_held_back() {
            waited += turn::now().since(since);
        }
        source.pass(sink)?;
        // What is over was not too slow, however short it is.
        if waited >= RATE_PERIOD && rate > 0 && !source.is_done() {
            if before - sink.room < rate * waited.as_secs() {
                return Err(Broken::Idle);
            }
            (waited, before) = (Duration::ZERO, sink.room);
        }
        passed(source, sink).await?;
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
        body::Nowhere,
        company::Company,
        doors::{Caller, Companion, Whole},
    };

    /// Refuses every body at its end.
    struct Refusing;

    impl Companion for Refusing {
        fn request_end(&mut self) -> Result<(), Whole> {
            Err(Whole { status: 400, fields: Fields::new(), body: bytes::Bytes::new() })
        }
    }

    #[test]
    fn the_end_of_a_body_that_is_over_before_it_begins_is_inspected() {
        let caller = Caller { route: "".into(), client: IpAddr::from([0; 4]), identity: None, request_id: None };
        let company = Rc::new(Company::new(Box::new(Refusing), caller, Time::ZERO));
        let inspecting = RefCell::new(Inspecting::new(company, 0));
        let limits = Limits { room: 1, dropped: &[], copied: None, kept: None, inspecting: Some(&inspecting) };
        let mut sink = Limited::new(Nowhere, limits);
        let again = sink.again(&mut Slow { left: 0, is_held_back: false }).now_or_never();
        assert_eq!(again, Some(Err(Broken::Refused)));
    }

    /// A body of which a byte comes every second.
    struct Slow {
        left: u32,
        is_held_back: bool,
    }

    impl Source for Slow {
        fn is_done(&self) -> bool {
            self.left == 0
        }

        async fn fill(&mut self) -> Result<(), Broken> {
            turn::set(Time::from_nanos(turn::now().as_nanos() + 1_000_000_000));
            Ok(())
        }

        fn pass(&mut self, sink: &mut impl Sink) -> Result<(), Broken> {
            self.left -= 1;
            sink.data(b"x");
            Ok(())
        }

        fn is_held_back(&self) -> bool {
            self.is_held_back
        }
    }

    fn relayed(is_held_back: bool, seconds: u32) -> Option<Result<(), Broken>> {
        let limits = Limits { room: 1 << 20, dropped: &[], copied: None, kept: None, inspecting: None };
        let mut sink = Limited::new(Nowhere, limits);
        relay_paced(&mut Slow { left: seconds, is_held_back }, &mut sink, 2, || false).now_or_never()
    }

    #[test]
    fn a_client_is_too_slow_only_while_it_could_send() {
        assert_eq!(relayed(false, 60), Some(Err(Broken::Idle)));
        assert_eq!(relayed(false, 11), Some(Ok(())), "its rate is not known yet");
        assert_eq!(relayed(true, 60), Some(Ok(())), "the gateway held it back");
    }
}
