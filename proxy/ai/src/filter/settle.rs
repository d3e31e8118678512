//! The bill of an exchange that is over: its last attempt, or an earlier one that its provider bills.

use std::sync::Arc;

use weir_base::{error::Culprit, time::turn};
use weir_http::filter::{CompletionStatus, ExchangeSummary, FailedAttempt, RemainderLimits};
use weir_listener::CloseReason;
use weir_spend::Amount;

use super::AiFilter;
use crate::{
    account::{Bill, Ending, Side, first_token, per_output_token},
    metrics::Completed,
    plan::served,
    response::{Found, Response},
    settings::{DRAIN_BYTES_MAX, Target},
    spend::unix_time,
};

/// An attempt that failed behind the 2xx of its provider, which bills it. The client has nothing of it.
pub(super) struct LostAttempt {
    /// The number of its target.
    target: usize,
    upstream: Box<str>,
    found: Found,
    side: Side,
}

/// A 2xx.
fn is_success(status: Option<u16>) -> bool {
    status.is_some_and(|status| (200..300).contains(&status))
}

impl AiFilter {
    /// The target of the present attempt.
    pub(super) fn target(&self) -> Option<&Target> {
        let (_, plan) = self.planned.as_ref()?;
        plan.targets.get((self.tries as usize).saturating_sub(1))
    }

    /// Keeps the account of an attempt that has failed while its response was held.
    pub(super) fn keep_lost(&mut self, failed: &FailedAttempt<'_>) {
        if !is_success(self.provider_status) {
            return;
        }
        let Some(found) = self.response.found() else { return };
        // A deadline of the whole request is the gateway's own.
        let culprit = (failed.reason != "request_timeout").then_some(Culprit::Upstream);
        self.lost = Some(Box::new(LostAttempt {
            target: (self.tries as usize).saturating_sub(1),
            upstream: failed.upstream.into(),
            found,
            side: Side::of(culprit, failed.reason),
        }));
        (self.response, self.provider_status) = (Response::None, None);
    }

    /// Notes the id of a response that its provider keeps.
    pub(super) fn note_id(&mut self, piece: &[u8]) {
        let Some(id) = self.response_id.as_mut().and_then(|finder| finder.take(piece)) else { return };
        let upstream: Option<Arc<str>> =
            self.target().and_then(|target| self.worker.settings.upstreams.get(target.upstream)).cloned();
        if let Some(upstream) = upstream {
            self.worker.stored.remember(&id, &upstream);
        }
    }

    /// Whether the rest of a response is read whose client has left, and how far.
    pub(super) fn remainder(&mut self) -> Option<RemainderLimits> {
        let timeout = self.worker.settings.drain_on_disconnect;
        let is_error = self.provider_status.is_some() && !is_success(self.provider_status);
        let is_done = self.response.found().is_some_and(|found| found.is_done);
        if timeout.is_zero() || self.planned.is_none() || self.is_free() || is_error || is_done {
            return None;
        }
        self.is_draining = true;
        Some(RemainderLimits { timeout, bytes_max: DRAIN_BYTES_MAX })
    }

    /// Settles the reservation by what was used.
    pub(super) fn settle(&mut self, summary: &ExchangeSummary<'_>) {
        if self.is_draining {
            self.worker.metrics.drained(self.response.found().is_some_and(|found| found.is_done));
        }
        if summary.end == CompletionStatus::Aborted && summary.reason == CloseReason::InternalInvariant.name() {
            // A panic: how much was used is not known. The reservation is dropped with the filter, which charges it in full.
            return;
        }
        let (Some(admitted), Some((facts, plan))) = (self.admitted.take(), &self.planned) else { return };
        if self.is_free() {
            return admitted.reservation.release(turn::now(), |_, _| ());
        }
        if let Some(entry) = self.served() {
            return self.settle_cached(summary, &entry, *admitted);
        }
        let lost = self.lost.as_ref().filter(|_| !is_success(self.provider_status));
        let tried = lost.map_or((self.tries as usize).saturating_sub(1), |lost| lost.target);
        let model =
            plan.targets.get(tried).map_or(&*self.identity.model, |target| served(target, &self.identity.model));
        let ending = Ending {
            status: summary.status,
            end: summary.end,
            side: Side::of(summary.culprit, summary.reason),
            timing: summary.timing,
            response_bytes: summary.response_bytes,
            upstream: lost.map_or(summary.upstream, |lost| &lost.upstream),
            model_served: model,
            tries: self.tries,
            prompt: &self.prompt,
            reserved_output: admitted.output_tokens,
            found: lost.map_or_else(|| self.response.found(), |lost| Some(lost.found)),
        };
        // A response that could not be passed on is billed all the same.
        let billed = match lost {
            Some(lost) => Ending { status: 200, end: CompletionStatus::Aborted, side: lost.side, ..ending },
            None => Ending { status: self.provider_status.unwrap_or(ending.status), ..ending },
        };
        let has_bill = Bill::of(facts, &billed);
        let mut bill = has_bill.unwrap_or_default();
        let tier = facts.options.service_tier.as_ref().map(|tier| &*tier.text);
        let prices = &self.worker.settings.prices;
        let cost = prices.cost(model, tier, &bill.tokens);
        bill.flags.unpriced = has_bill.is_some() && !cost.is_priced;
        let charged = Amount { tokens: bill.tokens.total(), money: cost.money };
        let time = unix_time();
        admitted.reservation.settle(charged, turn::now(), |day, out| {
            let begin = out.len();
            self.identity.write(&ending, &bill, (charged, prices.version()), (time, day), out);
            self.remember(&out[begin..]);
        });
        let completed = Completed {
            tokens: bill.tokens,
            money: charged.money,
            first_token: (summary.status != 0).then(|| first_token(&summary.timing)),
            per_output_token: per_output_token(&ending, &bill),
            is_partial: bill.flags.partial,
            is_estimated: bill.flags.estimated,
        };
        self.worker.metrics.completed(self.worker.label(plan.label), &completed);
    }
}
