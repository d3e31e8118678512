//! The wait of a request for a part of a budget that several gateways share.

use std::time::Duration;

use weir_base::time::turn;
use weir_http::filter::{OwnResponse, SeenBody};

use super::AiFilter;
use crate::error::ApiError;

impl AiFilter {
    /// Admits a request, or lets it wait while the store of budgets may grant what it lacks.
    ///
    /// # Errors
    /// A policy, a rate or a budget of its key refuses it, or nothing was granted in time.
    pub(super) fn admit_or_wait(&mut self, seen: SeenBody<'_>) -> Result<OwnResponse, ApiError> {
        let worker = self.worker.clone();
        let ledger = worker.meter.ledger();
        let news = ledger.news();
        let Err(denial) = self.admit(seen) else { return Ok(OwnResponse::None) };
        let (now, most) = (turn::now(), worker.meter.claim_wait(self.key.as_deref(), denial));
        let (since, before) = self.claim_wait.unwrap_or((now, Duration::ZERO));
        // Behind a grace, the first grant may serve others first: its longer wait holds.
        let whole = most.max(before);
        let left = whole.saturating_sub(now.since(since));
        if most.is_zero() || left.is_zero() {
            return Err(ApiError::of_denial(&denial));
        }
        self.claim_wait = Some((since, whole));
        let wait = weir_engine::timeout(left, ledger.news_after(news));
        Ok(OwnResponse::Wait(Box::pin(async move {
            let _ = wait.await;
        })))
    }
}
