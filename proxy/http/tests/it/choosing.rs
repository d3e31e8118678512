//! A factory whose filters make the choices of a test, one after the other.

use std::sync::Arc;

use weir_http::{
    filter::{BodyChange, Caller, FilterFactory, HttpFilter, Inspect, RequestChoice, UpstreamChoice, WholeResponse},
    routes::Action,
};
use weir_http_codec::{Fields, RequestHead};

/// One choice.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The upstream by its name; empty: that of the route.
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
        let upstream = match self.upstream {
            "" => UpstreamChoice::Route,
            name => UpstreamChoice::Upstream { name: name.into(), host: None },
        };
        RequestChoice { upstream, body: self.body.clone() }
    }
}

/// A factory whose filters make these choices.
#[derive(Clone, Debug)]
pub struct Choosing {
    pub buffer_bytes: usize,
    pub choices: Vec<Choice>,
}

impl Choosing {
    pub fn new(choices: Vec<Choice>) -> Self {
        Self { buffer_bytes: 1000, choices }
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

    fn choose_upstream(&mut self, head: &mut RequestHead, _: bool) -> Result<RequestChoice, WholeResponse> {
        let Some(choice) = self.choices.choices.get(self.made) else {
            return Err(WholeResponse { status: 500, fields: Fields::new(), body: "no choice left".into() });
        };
        self.made += 1;
        head.fields.push(choice.field.0.as_bytes(), choice.field.1.as_bytes());
        Ok(choice.made())
    }
}
