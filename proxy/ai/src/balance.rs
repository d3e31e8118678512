//! The order of targets by the time to their first token, or by their price. Pure: the order depends on what is given.
//!
//! A worker has its own measure of each target, and a reload begins it again. Streams and whole responses are measured apart: a whole
//! response has its head when the model is done.

use std::{cell::RefCell, rc::Rc, time::Duration};

use weir_base::Time;
use weir_upstream::Latency;

use crate::settings::{Balance, Model, Target};

/// Requests of a model, one of which at most begins at a target that is not the fastest, to measure it. Default 20: 5 %.
const PROBE_REQUESTS: u32 = 20;

/// Until a target without a measure of late is probed. Default 10 s, the memory of [`Latency`]: then an old peak is two thirds forgotten
/// by the first fast response.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// For so long a target that failed comes behind the others. Then one request tries it, in each such time. Default 10 s.
const FAILED_FOR: Duration = Duration::from_secs(10);

/// The first tokens of one target, of streams or of whole responses.
#[derive(Clone, Copy, Debug, Default)]
struct FirstTokens {
    latency: Latency,
    /// The last one. Zero: there was none.
    at: Time,
    /// Attempts that wait for theirs.
    waiting: u32,
    /// The last one, or the begin of the first attempt that waits.
    heard: Time,
}

impl FirstTokens {
    fn begin(&mut self, now: Time) {
        if self.waiting == 0 {
            self.heard = now;
        }
        self.waiting = self.waiting.saturating_add(1);
    }

    /// The expected time in ns: the recent peak, or the time since the last token while one is waited for. `None`: not measured.
    fn expected(&self, now: Time) -> Option<u64> {
        let silence = if self.waiting > 0 { now.nanos_since(self.heard) } else { 0 };
        (self.at > Time::ZERO).then(|| self.latency.nanos().max(silence))
    }

    fn needs_probe(&self, now: Time) -> bool {
        self.waiting == 0 && (self.at == Time::ZERO || now.since(self.at) >= PROBE_AFTER)
    }
}

/// A target as the worker sees it.
#[derive(Clone, Copy, Debug, Default)]
struct TargetState {
    /// Its last attempt failed: then, or when it was tried again.
    failed: Option<Time>,
    streams: FirstTokens,
    wholes: FirstTokens,
}

impl TargetState {
    fn of(&self, is_stream: bool) -> &FirstTokens {
        if is_stream { &self.streams } else { &self.wholes }
    }

    fn of_mut(&mut self, is_stream: bool) -> &mut FirstTokens {
        if is_stream { &mut self.streams } else { &mut self.wholes }
    }

    fn is_failed(&self, now: Time) -> bool {
        self.failed.is_some_and(|failed| now.since(failed) < FAILED_FOR)
    }
}

/// The targets of one model.
#[derive(Clone, Debug, Default)]
struct ModelState {
    /// In the order of the configuration. Empty: the weights alone decide.
    targets: Vec<TargetState>,
    /// Requests since the last probe.
    requests: u32,
}

/// A request whose targets are put in order.
pub(crate) struct Conditions<'a> {
    pub(crate) now: Time,
    pub(crate) is_stream: bool,
    /// An upstream wants no request now.
    pub(crate) is_cooling: &'a dyn Fn(usize) -> bool,
    /// The most that the request may cost at a target, in millionths. `None`: not known.
    pub(crate) cost: &'a dyn Fn(&Target) -> Option<u64>,
}

/// The targets of all models of a listener, on one worker.
#[derive(Debug, Default)]
pub(crate) struct Balancer(RefCell<Vec<ModelState>>);

impl Balancer {
    /// Nothing is measured.
    pub(crate) fn new(models: &[Model]) -> Self {
        let state = |model: &Model| match model.balance {
            Balance::Weight => ModelState::default(),
            Balance::Latency | Balance::Price => {
                ModelState { targets: vec![TargetState::default(); model.targets.len()], requests: 0 }
            }
        };
        Self(RefCell::new(models.iter().map(state).collect()))
    }

    /// Puts the targets of a request into the order of its model's balance. `number`: the position of the model. They come by weight,
    /// which decides among equals.
    pub(crate) fn order(&self, model: &Model, number: usize, targets: &mut [Target], of: &Conditions<'_>) {
        let mut models = self.0.borrow_mut();
        let Some(ModelState { targets: states, requests }) = models.get_mut(number) else { return };
        if model.balance == Balance::Weight {
            return;
        }
        let states: &[TargetState] = states;
        let state = |target: &Target| position(model, target).and_then(|at| states.get(at));
        let is_out = |target: &Target| {
            (of.is_cooling)(target.upstream) || state(target).is_some_and(|state| state.is_failed(of.now))
        };
        let rank = |target: &Target| match model.balance {
            Balance::Weight => None,
            Balance::Latency => state(target).and_then(|state| state.of(of.is_stream).expected(of.now)),
            Balance::Price => (of.cost)(target),
        };
        // Stable. A target that is not measured, or has no price, comes behind those that are.
        targets.sort_by_key(|target| {
            let rank = rank(target);
            (is_out(target), target.weight == 0, rank.is_none(), rank)
        });
        if model.balance == Balance::Price {
            return;
        }
        *requests = requests.saturating_add(1);
        if *requests < PROBE_REQUESTS {
            return;
        }
        let tokens = |target: &Target| state(target).map(|state| *state.of(of.is_stream)).unwrap_or_default();
        let others = targets.iter().enumerate().skip(1);
        let silent = others
            .filter(|(_, target)| target.weight > 0 && !is_out(target) && tokens(target).needs_probe(of.now))
            .min_by_key(|(_, target)| tokens(target).at);
        if let Some((at, _)) = silent {
            targets[..=at].rotate_right(1);
            *requests = 0;
        }
    }

    /// An attempt begins. `None`: the model is balanced by weight, and needs no measure.
    pub(crate) fn begin(
        self: &Rc<Self>,
        model: &Model,
        number: usize,
        target: &Target,
        is_stream: bool,
        now: Time,
    ) -> Option<Attempt> {
        if model.balance == Balance::Weight {
            return None;
        }
        let attempt =
            Attempt { balancer: self.clone(), model: number, target: position(model, target)?, is_stream, begun: now };
        attempt.change(|state| {
            // The request that tries it again. Others keep away for the same time more.
            state.failed = state.failed.map(|_| now);
            state.of_mut(is_stream).begin(now);
        });
        Some(attempt)
    }
}

/// The position of a target among those of its model; the first one if two are the same.
fn position(model: &Model, target: &Target) -> Option<usize> {
    model.targets.iter().position(|one| one == target)
}

/// An attempt that waits for its first token. Dropped without one: it tells nothing of its target.
#[derive(Debug)]
pub(crate) struct Attempt {
    balancer: Rc<Balancer>,
    model: usize,
    target: usize,
    is_stream: bool,
    begun: Time,
}

impl Attempt {
    /// The first event of a stream is there, or the head of a whole response.
    pub(crate) fn arrived(self, now: Time) {
        self.change(|state| {
            state.failed = None;
            let tokens = state.of_mut(self.is_stream);
            tokens.latency.note(now.since(self.begun), now);
            (tokens.at, tokens.heard) = (now, now);
        });
    }

    /// The attempt failed in a way that another target may not.
    pub(crate) fn failed(self, now: Time) {
        self.change(|state| state.failed = Some(now));
    }

    fn change(&self, change: impl FnOnce(&mut TargetState)) {
        let mut models = self.balancer.0.borrow_mut();
        if let Some(state) = models.get_mut(self.model).and_then(|model| model.targets.get_mut(self.target)) {
            change(state);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.change(|state| {
            let tokens = state.of_mut(self.is_stream);
            tokens.waiting = tokens.waiting.saturating_sub(1);
        });
    }
}

#[cfg(test)]
mod tests;
