//! Key, policy, rates and budgets of a request.

use std::{net::IpAddr, sync::Arc, time::Duration};

use weir_analysis::ai::{Facts, ToolKind};
use weir_base::Time;
use weir_spend::{
    Amount, Denial, Tokens,
    keys::Key,
    meter::{Clock, Reservation},
    policy::{self, Mode, Verdict},
};

use crate::{
    account::Identity,
    metrics::Treatment,
    plan::{Plan, most, served},
    worker::Worker,
};

/// A request that may go on.
pub(crate) struct Admitted {
    pub(crate) reservation: Reservation,
    /// The output tokens that it holds.
    pub(crate) output_tokens: u64,
    /// The limit of output tokens with which it is forwarded, if its key has one.
    pub(crate) output_limit: Option<u64>,
}

/// A request before it is admitted.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) source: IpAddr,
    pub(crate) facts: &'a Facts,
    /// No provider bills it.
    pub(crate) is_free: bool,
}

/// The clocks of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// That of rates.
    pub(crate) now: Time,
    /// That of budgets, since 1970.
    pub(crate) unix: Duration,
}

/// The key that a client has sent.
///
/// # Errors
/// It may not be used.
pub(crate) fn key(worker: &Worker, sent: &[u8], unix: Duration) -> Result<Option<Arc<Key>>, Denial> {
    worker.ring.as_ref().map(|ring| ring.find(sent, unix.as_secs())).transpose()
}

/// Judges a request by its policies alone. Returns its limit of output tokens, and the first refusal of a policy that only observes.
///
/// # Errors
/// The first rule that refuses it.
pub(crate) fn judge(
    worker: &Worker,
    key: Option<&Key>,
    Candidate { source, facts, is_free }: Candidate<'_>,
    plan: &Plan,
    identity: &Identity,
) -> Result<(Option<u64>, Option<Denial>), Denial> {
    let prices = &worker.settings.prices;
    let mut models = plan.targets.iter().map(|target| served(target, &identity.model));
    let tier = facts.options.service_tier.as_ref().map(|tier| &*tier.text);
    let tools: Vec<&str> = facts.tools.list.iter().map(|tool| name(&tool.kind, tool.name.as_deref())).collect();
    let verdict = worker.meter.judge(
        key,
        &policy::Facts {
            source,
            model: &identity.model,
            is_priced: is_free || models.all(|model| prices.price(model, tier).is_some()),
            tools: Some(&tools),
            prompt_bytes: facts.prompt_bytes(),
            output_tokens: facts.options.output_tokens_max(),
        },
    );
    match verdict {
        Verdict::Allow { output_tokens, observed } => Ok((output_tokens, observed)),
        Verdict::Refuse(denial) => Err(denial),
    }
}

/// Judges a request, and reserves the most that it may cost.
///
/// # Errors
/// The first rule or limit that refuses it.
pub(crate) fn admit(
    worker: &Worker,
    key: Option<&Key>,
    candidate: Candidate<'_>,
    plan: &Plan,
    identity: &Identity,
    clocks: Clocks,
) -> Result<Admitted, Denial> {
    let (limit, observed) = judge(worker, key, candidate, plan, identity)?;
    let (Candidate { facts, is_free, .. }, prices) = (candidate, &worker.settings.prices);
    let models = plan.targets.iter().map(|target| served(target, &identity.model));
    let tier = facts.options.service_tier.as_ref().map(|tier| &*tier.text);
    let tokens = match is_free {
        true => Tokens::default(),
        false => most(facts, limit.unwrap_or(worker.settings.reserved_output_tokens)),
    };
    // A fallback may cost more than the first choice.
    let money = models.map(|model| prices.cost(model, tier, &tokens).money).max().unwrap_or(0);
    let amount = Amount { tokens: tokens.total(), money };
    let clock = Clock { now: clocks.now, unix_seconds: clocks.unix.as_secs() };
    let reservation = worker.meter.reserve(key, amount, clock, |_, out| {
        if !is_free {
            identity.write_open(prices.version(), clocks.unix, out);
        }
    })?;
    count_observed(worker, [observed, reservation.observed()]);
    let output_limit = limit.filter(|limit| !is_free && facts.options.output_tokens_max() != Some(*limit));
    Ok(Admitted { reservation, output_tokens: tokens.output, output_limit })
}

/// Judges a request that no provider sees: its response is in the cache. Nothing is reserved.
///
/// # Errors
/// The first rule or limit of requests that refuses it.
pub(crate) fn admit_cached(
    worker: &Worker,
    key: Option<&Key>,
    candidate: Candidate<'_>,
    plan: &Plan,
    identity: &Identity,
    clocks: Clocks,
) -> Result<Admitted, Denial> {
    let (_, observed) = judge(worker, key, candidate, plan, identity)?;
    let version = worker.settings.prices.version();
    let clock = Clock { now: clocks.now, unix_seconds: clocks.unix.as_secs() };
    let reservation = worker.meter.admit_free(key, clock, |_, out| {
        identity.write_open(version, clocks.unix, out);
    })?;
    count_observed(worker, [observed, reservation.observed()]);
    Ok(Admitted { reservation, output_tokens: 0, output_limit: None })
}

/// Counts the refusals of policies that only observe.
fn count_observed(worker: &Worker, observed: [Option<Denial>; 2]) {
    for denial in observed.into_iter().flatten() {
        worker.metrics.denied(denial.reason(), Treatment::Observed);
    }
}

/// Whether a key may be used from an address. Requests without facts have no other judge.
///
/// # Errors
/// A policy of the key forbids it.
pub(crate) fn source(worker: &Worker, key: Option<&Key>, source: IpAddr) -> Result<(), Denial> {
    for level in key.map_or(&[][..], Key::levels) {
        let policy = &level.policy;
        if policy.sources.is_empty() || policy.sources.iter().any(|net| net.contains(source)) {
            continue;
        }
        match policy.mode {
            Mode::Enforce => return Err(Denial::Source),
            Mode::Observe => worker.metrics.denied(Denial::Source.reason(), Treatment::Observed),
        }
    }
    Ok(())
}

/// The name of a tool for a policy. One without a name fits only a rule for all.
fn name<'a>(kind: &'a ToolKind, name: Option<&'a str>) -> &'a str {
    match kind {
        ToolKind::BuiltIn(kind) => kind,
        ToolKind::Function => name.unwrap_or_default(),
    }
}
