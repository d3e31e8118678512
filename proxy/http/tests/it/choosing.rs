//! A factory whose filters make the choices of a test, one after the other.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use weir_http::{
    filter::{
        AfterFailure, BodyChange, Caller, Deadlines, ExchangeSummary, FailedAttempt, FilterFactory, HttpFilter,
        Inspect, RequestChoice, SeenBody, UpstreamChoice, WholeResponse,
    },
    routes::Action,
};
use weir_http_codec::{Fields, Known, RequestHead};

use crate::support::PATIENCE;

/// One choice.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The upstream by its name; empty: that of the route. With `#` and a number, that endpoint of it.
    pub upstream: &'static str,
    pub body: BodyChange,
    /// The request gets this field.
    pub field: (&'static str, &'static str),
}

impl Choice {
    pub fn body(body: BodyChange) -> Self {
        Self { upstream: "", body, field: ("x-choice", "1") }
    }

    fn made(&self) -> RequestChoice {
        let upstream = match (self.upstream, self.upstream.split_once('#')) {
            ("", _) => UpstreamChoice::Route,
            (name, None) => UpstreamChoice::Upstream { name: name.into(), host: None },
            (_, Some((name, number))) => {
                let number = number.parse().expect("a number");
                UpstreamChoice::Endpoint { name: name.into(), host: None, number }
            }
        };
        RequestChoice { upstream, body: self.body.clone() }
    }
}

/// A factory whose filters make these choices.
#[derive(Clone, Debug)]
pub struct Choosing {
    pub buffer_bytes: usize,
    pub choices: Vec<Choice>,
    /// See [`HttpFilter::attempts_max`].
    pub attempts_max: u32,
    /// Statuses after which the next choice is made. It is also made after every failure without a response.
    pub statuses: Vec<u16>,
    /// The response to failures after which none may follow, with this status.
    pub refuses: Option<u16>,
    /// The failures: number, upstream, cause, reason, status, Retry-After, whether another may follow.
    pub failures: Arc<Mutex<Vec<String>>>,
    /// The endpoints of the attempts that had a connection.
    pub attempts: Arc<Mutex<Vec<usize>>>,
    pub deadlines: Deadlines,
    /// The ends of exchanges: status, end, reason, upstream.
    pub ends: Arc<Mutex<Vec<String>>>,
}

impl Choosing {
    pub fn new(choices: Vec<Choice>) -> Self {
        Self {
            buffer_bytes: 1000,
            choices,
            attempts_max: 1,
            statuses: vec![429, 500, 503],
            refuses: None,
            failures: Arc::default(),
            attempts: Arc::default(),
            deadlines: Deadlines::default(),
            ends: Arc::default(),
        }
    }

    /// The ends so far, once there is one.
    pub fn ends(&self) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let ends = self.ends.lock().expect("no panic").clone();
            if !ends.is_empty() {
                return ends;
            }
            assert!(begun.elapsed() < PATIENCE, "no end");
            std::thread::yield_now();
        }
    }

    /// The failures so far.
    pub fn failures(&self) -> Vec<String> {
        self.failures.lock().expect("no panic").clone()
    }

    /// Puts it into a route; no more is buffered than the filter wants.
    pub fn install(self, action: &mut Action) {
        action.request_buffer_bytes = Some(0);
        action.filter = Some(Arc::new(self));
    }
}

impl FilterFactory for Choosing {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        Box::new(ChoosingFilter { choices: self.clone(), made: 0 })
    }
}

struct ChoosingFilter {
    choices: Choosing,
    made: usize,
}

impl HttpFilter for ChoosingFilter {
    fn inspect(&mut self, _: &RequestHead, _: &Caller) -> Inspect {
        Inspect::Buffered(self.choices.buffer_bytes)
    }

    fn choose_upstream(&mut self, head: &mut RequestHead, _: SeenBody<'_>) -> Result<RequestChoice, WholeResponse> {
        let Some(choice) = self.choices.choices.get(self.made) else {
            return Err(WholeResponse { status: 500, fields: Fields::new(), body: "no choice left".into() });
        };
        self.made += 1;
        assert!(head.fields.all_named(choice.field.0.as_bytes()).next().is_none(), "a field of an earlier choice");
        head.fields.push(choice.field.0.as_bytes(), choice.field.1.as_bytes());
        Ok(choice.made())
    }

    fn attempts_max(&self) -> u32 {
        self.choices.attempts_max
    }

    fn attempt_begins(&mut self, endpoint: usize) {
        self.choices.attempts.lock().expect("no panic").push(endpoint);
    }

    fn attempt_failed(&mut self, failed: &FailedAttempt<'_>) -> AfterFailure {
        let FailedAttempt { number, upstream, cause, reason, status, fields, may_go_on } = *failed;
        let retry_after = fields.and_then(|fields| fields.get(Known::RetryAfter)).unwrap_or_default();
        let retry_after = String::from_utf8_lossy(retry_after);
        let cause = cause.name();
        let line = format!("{number} {upstream} {cause} {reason} {status} {retry_after} {may_go_on}");
        self.choices.failures.lock().expect("no panic").push(line);
        match self.choices.refuses {
            Some(status) if !may_go_on => {
                let body = reason.as_bytes().to_vec().into();
                AfterFailure::Refuse(WholeResponse { status, fields: Fields::new(), body })
            }
            _ if status == 0 || self.choices.statuses.contains(&status) => AfterFailure::Next,
            _ => AfterFailure::Respond,
        }
    }

    fn deadlines(&mut self) -> Deadlines {
        self.choices.deadlines
    }

    fn on_complete(&mut self, facts: &ExchangeSummary<'_>) {
        let ExchangeSummary { status, end, reason, upstream, .. } = *facts;
        self.choices.ends.lock().expect("no panic").push(format!("{status} {end:?} {reason} {upstream}"));
    }
}
