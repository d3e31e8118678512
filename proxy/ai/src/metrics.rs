//! The cells that this room writes.

use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
    time::Duration,
};

use weir_spend::Tokens;
use weir_telemetry::{CoreMetrics, Counter, Histogram, catalog, log::LogWriter};

use crate::agents::AgentMetrics;

/// Kinds of tokens, as `gen_ai.token.type` and its parts have them.
const KINDS: [&str; 7] = ["input", "cached_input", "cache_write", "audio_input", "output", "reasoning", "audio_output"];

/// The treatment of a request by a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Treatment {
    Refused,
    /// It would have been refused, and the policy only observes.
    Observed,
}

/// Cells of one listener on one worker. Models are labels by their names in the configuration.
pub(crate) struct Metrics {
    core: CoreMetrics,
    listener: String,
    models: RefCell<HashMap<Box<str>, ModelCells>>,
    refusals: RefCell<HashMap<(&'static str, Treatment), Counter>>,
    cache: RefCell<HashMap<&'static str, Counter>>,
    saved: OnceCell<Counter>,
    pub(crate) agents: AgentMetrics,
}

struct ModelCells {
    requests: Counter,
    partial: Counter,
    estimated: Counter,
    tokens: [Counter; KINDS.len()],
    cost: Counter,
    first_token: Histogram,
    per_output_token: Histogram,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completed {
    pub(crate) tokens: Tokens,
    pub(crate) money: u64,
    pub(crate) first_token: Option<Duration>,
    pub(crate) per_output_token: Option<Duration>,
    pub(crate) is_partial: bool,
    pub(crate) is_estimated: bool,
}

impl Metrics {
    pub(crate) fn new(core: &CoreMetrics, listener: &str) -> Self {
        let (models, refusals, cache) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (agents, saved) = (AgentMetrics::new(core, listener), OnceCell::new());
        Self { core: core.clone(), listener: listener.to_owned(), models, refusals, cache, saved, agents }
    }

    /// The same with a log.
    pub(crate) fn with_log(self, log: LogWriter) -> Self {
        Self { agents: self.agents.with_log(log), ..self }
    }

    /// Counts a request that reached a provider.
    pub(crate) fn completed(&self, model: &str, completed: &Completed) {
        let mut models = self.models.borrow_mut();
        if !models.contains_key(model) {
            models.insert(model.into(), self.cells(model));
        }
        let Some(cells) = models.get(model) else { return };
        cells.requests.inc();
        cells.partial.add(completed.is_partial.into());
        cells.estimated.add(completed.is_estimated.into());
        let Tokens { input, cached_input, cache_write, audio_input, output, reasoning, audio_output } =
            completed.tokens;
        let tokens = [input, cached_input, cache_write, audio_input, output, reasoning, audio_output];
        cells.tokens.iter().zip(tokens).for_each(|(cell, tokens)| cell.add(tokens));
        cells.cost.add(completed.money);
        if let Some(first_token) = completed.first_token {
            cells.first_token.record(first_token.as_nanos() as u64);
        }
        if let Some(per_output_token) = completed.per_output_token {
            cells.per_output_token.record(per_output_token.as_nanos() as u64);
        }
    }

    /// Counts a response whose rest was read without its client. `is_complete`: to its end.
    pub(crate) fn drained(&self, is_complete: bool) {
        let word = if is_complete { "complete" } else { "incomplete" };
        self.core.counter(&catalog::AI_DRAINS, &[&*self.listener, word]).inc();
    }

    /// Counts a request that was refused, or would have been.
    pub(crate) fn denied(&self, reason: &'static str, treatment: Treatment) {
        let word = match treatment {
            Treatment::Refused => "refused",
            Treatment::Observed => "observed",
        };
        let make = || self.core.counter(&catalog::AI_REFUSALS, &[&*self.listener, reason, word]);
        self.refusals.borrow_mut().entry((reason, treatment)).or_insert_with(make).inc();
    }

    /// The name of the listener.
    pub(crate) fn listener(&self) -> &str {
        &self.listener
    }

    /// Counts a request of a tenant with a cache, by the word of `x-weir-cache`.
    pub(crate) fn looked_up(&self, result: &'static str) {
        let make = || self.core.counter(&catalog::AI_CACHE_REQUESTS, &[&*self.listener, result]);
        self.cache.borrow_mut().entry(result).or_insert_with(make).inc();
    }

    /// Counts the tokens that no provider had to generate again.
    pub(crate) fn saved(&self, tokens: u64) {
        self.saved.get_or_init(|| self.core.counter(&catalog::AI_CACHE_SAVED_TOKENS, &[&*self.listener])).add(tokens);
    }

    fn cells(&self, model: &str) -> ModelCells {
        let (core, labels) = (&self.core, [&*self.listener, model]);
        let tokens = |kind| core.counter(&catalog::AI_TOKENS, &[&*self.listener, model, kind]);
        let flagged = |flag| core.counter(&catalog::AI_FLAGGED, &[&*self.listener, model, flag]);
        ModelCells {
            requests: core.counter(&catalog::AI_REQUESTS, &labels),
            partial: flagged("partial"),
            estimated: flagged("estimated"),
            tokens: KINDS.map(tokens),
            cost: core.counter(&catalog::AI_COST, &labels),
            first_token: core.histogram(&catalog::AI_FIRST_TOKEN, &labels),
            per_output_token: core.histogram(&catalog::AI_PER_OUTPUT_TOKEN, &labels),
        }
    }
}
