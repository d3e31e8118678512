//! A factory whose filters record their calls, and do as the test has chosen.

use std::{
    mem::discriminant,
    sync::{Arc, Mutex, mpsc},
};

use weir_http::{
    filter::{
        BodyAborted, Caller, CompletionStatus, ExchangeSummary, FilterFactory, HttpFilter, Inspect, RequestChoice,
        SeenBody, Tap, UpstreamChoice, WholeResponse,
    },
    routes::Action,
};
use weir_http_codec::{Fields, RequestHead};

use crate::support::PATIENCE;

/// A call of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Enter,
    Inspect,
    Data(Vec<u8>),
    RequestEnd,
    Choose { is_whole: bool },
    Tap { status: u16 },
    Follow(Vec<u8>),
    Edit(Vec<u8>),
    ResponseEnd,
    ExchangeSummary(ExchangeEnd),
}

/// The end of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeEnd {
    pub status: u16,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub end: CompletionStatus,
    pub reason: String,
    pub upstream: String,
    pub caller: Caller,
}

/// A factory whose filters record their calls.
#[derive(Clone, Debug)]
pub struct Recording {
    calls: Arc<Mutex<mpsc::Sender<Call>>>,
    pub inspect: Inspect,
    pub tap: Tap,
    /// They panic in calls of these kinds.
    pub panics: Vec<Call>,
    pub choice: UpstreamChoice,
}

/// The recorded calls.
pub struct FilterCalls(mpsc::Receiver<Call>);

/// A factory that does nothing, and the calls of its filters.
pub fn recording() -> (Recording, FilterCalls) {
    let (calls, receiver) = mpsc::channel();
    let calls = Arc::new(Mutex::new(calls));
    let recording =
        Recording { calls, inspect: Inspect::No, tap: Tap::No, panics: Vec::new(), choice: UpstreamChoice::Route };
    (recording, FilterCalls(receiver))
}

impl Recording {
    /// Puts it into a route.
    pub fn install(self, action: &mut Action) {
        action.filter = Some(Arc::new(self));
    }

    fn record(&self, call: Call) {
        let panics = self.panics.iter().any(|one| discriminant(one) == discriminant(&call));
        let _ = self.calls.lock().expect("no panic").send(call.clone());
        assert!(!panics, "a panic on purpose in {call:?}");
    }
}

impl FilterCalls {
    /// The end of the next exchange.
    pub fn settled(&self) -> ExchangeEnd {
        match self.exchange().pop() {
            Some(Call::ExchangeSummary(fact)) => fact,
            last => panic!("{last:?}"),
        }
    }

    /// The calls of the next exchange to its end, with the pieces of a body as one.
    pub fn exchange(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        loop {
            let call = self.0.recv_timeout(PATIENCE).expect("the end is told");
            match (calls.last_mut(), call) {
                (Some(Call::Data(all)), Call::Data(piece))
                | (Some(Call::Follow(all)), Call::Follow(piece))
                | (Some(Call::Edit(all)), Call::Edit(piece)) => all.extend(piece),
                (_, call) => calls.push(call),
            }
            if matches!(calls.last(), Some(Call::ExchangeSummary(_))) {
                return calls;
            }
        }
    }

    /// The same without the end.
    pub fn before_the_end(&self) -> Vec<Call> {
        let mut calls = self.exchange();
        calls.pop();
        calls
    }

    /// No further call was recorded.
    pub fn is_silent(&self) -> bool {
        self.0.try_recv().is_err()
    }
}

impl FilterFactory for Recording {
    fn create(&self, _: &RequestHead, caller: &Caller) -> Box<dyn HttpFilter> {
        assert!(caller.identity.is_none() && caller.request_id.is_none());
        self.record(Call::Enter);
        Box::new(self.clone())
    }
}

impl HttpFilter for Recording {
    fn inspect(&mut self, _: &RequestHead, _: &Caller) -> Inspect {
        self.record(Call::Inspect);
        self.inspect
    }

    fn request_data(&mut self, piece: &[u8]) -> Result<(), WholeResponse> {
        self.record(Call::Data(piece.to_vec()));
        Ok(())
    }

    fn request_end(&mut self) -> Result<(), WholeResponse> {
        self.record(Call::RequestEnd);
        Ok(())
    }

    fn choose_upstream(&mut self, head: &mut RequestHead, seen: SeenBody<'_>) -> Result<RequestChoice, WholeResponse> {
        self.record(Call::Choose { is_whole: seen.is_whole });
        head.fields.remove_named(b"Accept-Encoding");
        Ok(self.choice.clone().into())
    }

    fn tap(&mut self, status: u16, fields: &mut Fields) -> Tap {
        self.record(Call::Tap { status });
        fields.remove_named(b"Content-Length");
        self.tap
    }

    fn follow(&mut self, piece: &[u8]) -> Result<(), BodyAborted> {
        self.record(Call::Follow(piece.to_vec()));
        Ok(())
    }

    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.record(Call::Edit(piece.to_vec()));
        out.extend_from_slice(piece);
        Ok(())
    }

    fn response_end(&mut self, _: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.record(Call::ResponseEnd);
        Ok(())
    }

    fn on_complete(&mut self, facts: &ExchangeSummary<'_>) {
        let ExchangeSummary { status, caller, request_bytes, response_bytes, duration, upstream, end, reason, .. } =
            *facts;
        assert!(duration < PATIENCE);
        let (reason, upstream, caller) = (reason.to_owned(), upstream.to_owned(), caller.clone());
        self.record(Call::ExchangeSummary(ExchangeEnd {
            status,
            request_bytes,
            response_bytes,
            end,
            reason,
            upstream,
            caller,
        }));
    }
}
