//! A door whose companions write down what they hear, and do as the test has chosen.

use std::{
    mem::discriminant,
    sync::{Arc, Mutex, mpsc},
};

use weir_http::{
    doors::{BrokenOff, Caller, Choice, Companion, Door, End, Inspect, Settled, Tap, Whole},
    routes::Action,
};
use weir_http_codec::{Fields, RequestHead};

use crate::support::PATIENCE;

/// A call of a companion.
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
    Settled(Fact),
}

/// The end of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub status: u16,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub end: End,
    pub reason: String,
    pub upstream: String,
    pub caller: Caller,
}

/// A door whose companions write down what they hear.
#[derive(Clone, Debug)]
pub struct Recording {
    calls: Arc<Mutex<mpsc::Sender<Call>>>,
    pub inspect: Inspect,
    pub tap: Tap,
    /// They panic in calls of these kinds.
    pub panics: Vec<Call>,
    pub choice: Choice,
}

/// What they have heard.
pub struct Heard(mpsc::Receiver<Call>);

/// A door that does nothing, and what its companions hear.
pub fn recording() -> (Recording, Heard) {
    let (calls, heard) = mpsc::channel();
    let calls = Arc::new(Mutex::new(calls));
    let recording = Recording { calls, inspect: Inspect::No, tap: Tap::No, panics: Vec::new(), choice: Choice::Stay };
    (recording, Heard(heard))
}

impl Recording {
    /// Puts it into a route.
    pub fn install(self, action: &mut Action) {
        action.door = Some(Arc::new(self));
    }

    fn hear(&self, call: Call) {
        let panics = self.panics.iter().any(|one| discriminant(one) == discriminant(&call));
        let _ = self.calls.lock().expect("no panic").send(call.clone());
        assert!(!panics, "a panic on purpose in {call:?}");
    }
}

impl Heard {
    /// The end of the next exchange.
    pub fn settled(&self) -> Fact {
        match self.exchange().pop() {
            Some(Call::Settled(fact)) => fact,
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
            if matches!(calls.last(), Some(Call::Settled(_))) {
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

    /// Nothing more was heard.
    pub fn is_silent(&self) -> bool {
        self.0.try_recv().is_err()
    }
}

impl Door for Recording {
    fn enter(&self, _: &RequestHead, caller: &Caller) -> Box<dyn Companion> {
        assert!(caller.identity.is_none() && caller.request_id.is_none());
        self.hear(Call::Enter);
        Box::new(self.clone())
    }
}

impl Companion for Recording {
    fn inspect(&mut self, _: &RequestHead, _: &Caller) -> Inspect {
        self.hear(Call::Inspect);
        self.inspect
    }

    fn request_data(&mut self, piece: &[u8]) -> Result<(), Whole> {
        self.hear(Call::Data(piece.to_vec()));
        Ok(())
    }

    fn request_end(&mut self) -> Result<(), Whole> {
        self.hear(Call::RequestEnd);
        Ok(())
    }

    fn choose(&mut self, head: &mut RequestHead, is_whole: bool) -> Result<Choice, Whole> {
        self.hear(Call::Choose { is_whole });
        head.fields.remove_named(b"Accept-Encoding");
        Ok(self.choice.clone())
    }

    fn tap(&mut self, status: u16, fields: &mut Fields) -> Tap {
        self.hear(Call::Tap { status });
        fields.remove_named(b"Content-Length");
        self.tap
    }

    fn follow(&mut self, piece: &[u8]) -> Result<(), BrokenOff> {
        self.hear(Call::Follow(piece.to_vec()));
        Ok(())
    }

    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        self.hear(Call::Edit(piece.to_vec()));
        out.extend_from_slice(piece);
        Ok(())
    }

    fn response_end(&mut self, _: &mut Vec<u8>) -> Result<(), BrokenOff> {
        self.hear(Call::ResponseEnd);
        Ok(())
    }

    fn settled(&mut self, facts: &Settled<'_>) {
        let Settled { status, caller, request_bytes, response_bytes, duration, upstream, end, reason } = *facts;
        assert!(duration < PATIENCE);
        let (reason, upstream, caller) = (reason.to_owned(), upstream.to_owned(), caller.clone());
        self.hear(Call::Settled(Fact { status, request_bytes, response_bytes, end, reason, upstream, caller }));
    }
}
