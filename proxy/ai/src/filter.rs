//! One exchange: the order of its key, its body, its targets, its response and its bill.

use std::{net::IpAddr, rc::Rc, sync::Arc, time::Duration};

use weir_ai_session::{Dialect, Splice, UsageChunk};
use weir_analysis::ai::{BodyReader, Facts, Wanted};
use weir_base::time::turn;
use weir_http::filter::{
    AfterFailure, BodyAborted, BodyChange, BrokenEnd, Caller, CompletionStatus, Deadlines, ExchangeSummary,
    ExchangeTiming, FailedAttempt, HttpFilter, Inspect, RequestChoice, Splice as BodySplice, Tap, UpstreamChoice,
    WholeResponse,
};
use weir_http::refusal_format::{FormattedRefusal, RefusalFacts};
use weir_http_codec::{BodyLength, Fields, Known, RequestHead};
use weir_listener::CloseReason;
use weir_spend::{Amount, keys::Key, rate::duration_text};

use crate::{
    account::{Bill, Ending, Identity, first_token},
    admission::{Admitted, Candidate, Clocks, admit, key, served, source},
    credentials,
    error::{ApiError, ErrorForm, formatted},
    metrics::{Completed, Treatment},
    models,
    plan::{self, DEFAULT, Plan},
    response::Response,
    retry_after,
    settings::Provider,
    spend::unix_time,
    surface::{Surface, split_query, without_version},
    web_page,
    worker::Worker,
};

/// Fields by which providers see the client's address. A provider is no server of the operator.
const CLIENT_FIELDS: [Known; 3] = [Known::XForwardedFor, Known::XForwardedHost, Known::XForwardedProto];

/// The filter of one exchange.
pub(crate) struct AiFilter {
    worker: Rc<Worker>,
    form: ErrorForm,
    source: IpAddr,
    surface: Surface,
    key: Option<Arc<Key>>,
    identity: Identity,
    /// The response to the head alone, in place of one of a provider.
    own: Option<WholeResponse>,
    /// Reads the body, until its end.
    reader: Option<BodyReader>,
    body_bytes: u64,
    /// The body, and the targets that follow from it.
    planned: Option<(Facts, Plan)>,
    admitted: Option<Admitted>,
    /// Attempts at providers.
    tries: u32,
    /// The last one.
    provider: Option<Arc<Provider>>,
    chunk: UsageChunk,
    response: Response,
}

impl AiFilter {
    /// The filter of a request from `source`.
    pub(crate) fn new(worker: Rc<Worker>, head: &RequestHead, source: IpAddr) -> Self {
        Self {
            worker,
            form: ErrorForm::of_path(std::str::from_utf8(head.target()).unwrap_or_default()),
            source,
            surface: Surface::Unknown,
            key: None,
            identity: Identity::default(),
            own: None,
            reader: None,
            body_bytes: 0,
            planned: None,
            admitted: None,
            tries: 0,
            provider: None,
            chunk: UsageChunk::Forward,
            response: Response::None,
        }
    }

    /// Looks at the head: the key first, so that a stranger learns nothing.
    fn enter(&mut self, head: &RequestHead) -> Result<Inspect, ApiError> {
        let (path, _) = split_query(std::str::from_utf8(head.target()).unwrap_or_default());
        (self.form, self.surface) = (ErrorForm::of_path(path), Surface::of(head.method(), path));
        if self.worker.settings.refuses_web_pages && web_page::is_foreign(head) {
            return Err(ApiError::WEB_PAGE);
        }
        let sent = credentials::of_client(&head.fields);
        self.key = key(&self.worker, sent, unix_time()).map_err(|denial| ApiError::of_denial(&denial))?;
        self.identity.key = self.key.as_ref().map(|key| key.name.clone());
        match self.surface {
            Surface::Body(endpoint) | Surface::Count(endpoint) => {
                let most = self.worker.settings.body_bytes_max;
                if head.fields.has(Known::ContentEncoding) {
                    return Err(ApiError::CODING);
                }
                if matches!(head.body(), BodyLength::Exact(length) if length > most) {
                    return Err(ApiError::TOO_LARGE);
                }
                self.reader = Some(BodyReader::new(endpoint, Wanted::default()));
                // A body of the longest length is not full before its end.
                return Ok(Inspect::Buffered(usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1)));
            }
            Surface::Models => self.own = self.models(None)?,
            Surface::Model(at) => self.own = self.models(Some(path.get(at..).unwrap_or_default()))?,
            Surface::Forwarded if self.worker.ring.is_some() => return Err(ApiError::NOT_ACCOUNTED),
            Surface::Forwarded => {}
            Surface::WrongMethod(allow) => return Err(ApiError::wrong_method(allow)),
            Surface::Unknown => return Err(ApiError::UNKNOWN_URL),
        }
        Ok(Inspect::Buffered(1))
    }

    /// The models that the key may use, or one of them. `None`: the provider knows.
    fn models(&self, name: Option<&str>) -> Result<Option<WholeResponse>, ApiError> {
        let (models, key) = (&self.worker.settings.models, self.key.as_deref());
        source(&self.worker, key, self.source).map_err(|denial| ApiError::of_denial(&denial))?;
        match name {
            None if models.is_empty() => Ok(models::of_key(key)),
            None => Ok(Some(models::list(models, key))),
            Some(name) if models.is_empty() => {
                if models::may_forward(key, name) {
                    Ok(None)
                } else {
                    Err(ApiError::NO_MODEL)
                }
            }
            Some(name) => models::one(models, key, name).map(Some).ok_or(ApiError::NO_MODEL),
        }
    }

    /// No provider bills the request.
    fn is_free(&self) -> bool {
        matches!(self.surface, Surface::Count(_))
    }

    /// The body is over: its facts lead to its targets.
    fn plan(&mut self) -> Result<(), ApiError> {
        let Some(reader) = self.reader.take() else { return Ok(()) };
        let facts = reader.finish().map_err(ApiError::of_body)?;
        let options = &facts.options;
        // Its response comes without usage, and the rest by another request.
        if self.worker.ring.is_some() && options.background.is_some_and(|flag| flag.value) {
            return Err(ApiError::BACKGROUND);
        }
        let has_rules = self.worker.ring.is_some() || !self.worker.settings.models.is_empty();
        if options.model.is_none() && has_rules {
            // The provider would take one of its own choice, which no rule and no price knows.
            return Err(ApiError::MISSING_MODEL);
        }
        self.identity.model = options.model.as_ref().map(|model| model.text.clone()).unwrap_or_default();
        let user = options.user.as_ref().or(options.safety_identifier.as_ref());
        self.identity.user = user.map(|user| user.text.clone());
        self.identity.conversation = options.conversation.as_ref().map(|conversation| conversation.text.clone());
        let Worker { settings, providers, .. } = &*self.worker;
        let name = &self.identity.model;
        let is_bound = options.previous_response.is_some() || options.conversation.is_some();
        let random = plan::share(&facts, self.identity.key.as_deref()).unwrap_or_else(|| self.worker.random());
        let is_cooling = |upstream| !is_bound && self.worker.is_cooling(upstream);
        let mut plan = Plan::new(&settings.models, providers, facts.endpoint, name, random, is_cooling)?;
        if self.is_free() {
            plan = plan.untranslated(providers, facts.endpoint)?;
        }
        if is_bound {
            // No other provider has the response or the conversation that it goes on from.
            plan.targets.truncate(1);
        }
        self.planned = Some((facts, plan));
        Ok(())
    }

    /// The next target, with the head and the body that it gets.
    fn choose(&mut self, head: &mut RequestHead) -> Result<RequestChoice, ApiError> {
        let worker = self.worker.clone();
        if let (Some((facts, plan)), None) = (&self.planned, &self.admitted) {
            let clocks = Clocks { now: turn::now(), unix: unix_time() };
            let candidate = Candidate { source: self.source, facts, is_free: self.is_free() };
            let admitted = admit(&worker, self.key.as_deref(), candidate, plan, &self.identity, clocks);
            self.admitted = Some(admitted.map_err(|denial| ApiError::of_denial(&denial))?);
        }
        let target = match &self.planned {
            Some((_, plan)) => plan.targets.get(self.tries as usize).or(plan.targets.last()),
            None => None,
        };
        let target = target.unwrap_or(&DEFAULT).clone();
        self.tries += 1;
        let (Some(provider), Some(name)) =
            (worker.providers.get(target.upstream), worker.settings.upstreams.get(target.upstream))
        else {
            return Err(ApiError::NO_MODEL);
        };
        self.provider = Some(provider.clone());
        credentials::swap(&mut head.fields, provider, worker.ring.is_some());
        CLIENT_FIELDS.into_iter().for_each(|field| {
            head.fields.remove(field);
        });
        let own = String::from_utf8_lossy(head.target()).into_owned();
        let (path, query) = split_query(&own);
        head.set_target(format!("{}{}{query}", provider.base_path, without_version(path)).as_bytes());
        let mut splice = Splice::default();
        if let Some((facts, _)) = &self.planned {
            // Usage is read in the response: no coding may be on it.
            head.fields.remove(Known::AcceptEncoding);
            if let Some(model) = &target.model {
                splice.set_model(facts, model);
            }
            self.chunk = if provider.include_usage && splice.include_usage(facts) {
                UsageChunk::Drop
            } else {
                UsageChunk::Forward
            };
            if let Some(limit) = self.admitted.as_ref().and_then(|admitted| admitted.output_limit) {
                splice.limit_output(facts, limit);
            }
        }
        let host = Some(provider.host.as_bytes().into());
        let upstream = UpstreamChoice::Upstream { name: name.clone(), host };
        Ok(RequestChoice { upstream, body: body_change(splice) })
    }

    /// Counts a refusal, and gives its response.
    fn refusal(&mut self, error: &ApiError) -> WholeResponse {
        self.worker.metrics.denied(error.reason, Treatment::Refused);
        error.response(self.form)
    }

    /// The rates of the key, if it has any. They take the place of those of the provider, which are those of all keys.
    fn show_rates(&self, fields: &mut Fields) {
        let Some(key) = &self.key else { return };
        let rates = self.worker.meter.rates(key, turn::now());
        for (word, state) in [("requests", rates.requests), ("tokens", rates.tokens)] {
            let Some(state) = state else { continue };
            let values = [
                ("limit", state.limit.to_string()),
                ("remaining", state.remaining.to_string()),
                ("reset", duration_text(state.reset)),
            ];
            for (what, value) in values {
                fields.set_named(format!("x-ratelimit-{what}-{word}").as_bytes(), value.as_bytes());
            }
        }
    }

    /// Settles the reservation by what was used.
    fn settle(&mut self, summary: &ExchangeSummary<'_>) {
        if summary.end == CompletionStatus::Aborted && summary.reason == CloseReason::InternalInvariant.name() {
            // A panic: how much was used is not known. The reservation is dropped with the filter, which charges it in full.
            return;
        }
        let (Some(admitted), Some((facts, plan))) = (self.admitted.take(), &self.planned) else { return };
        if self.is_free() {
            return admitted.reservation.release(turn::now(), |_, _| ());
        }
        let tried = plan.targets.get((self.tries as usize).saturating_sub(1));
        let model = tried.map_or(&*self.identity.model, |target| served(target, &self.identity.model));
        let ending = Ending {
            status: summary.status,
            end: summary.end,
            timing: summary.timing,
            response_bytes: summary.response_bytes,
            upstream: summary.upstream,
            model_served: model,
            tries: self.tries,
            reserved_output: admitted.output_tokens,
            found: self.response.found(),
        };
        let prices = &self.worker.settings.prices;
        let has_bill = Bill::of(facts, &ending);
        let mut bill = has_bill.unwrap_or_default();
        let tier = facts.options.service_tier.as_ref().map(|tier| &*tier.text);
        let cost = prices.cost(model, tier, &bill.tokens);
        bill.flags.unpriced = has_bill.is_some() && !cost.is_priced;
        let charged = Amount { tokens: bill.tokens.total(), money: cost.money };
        let time = unix_time();
        admitted.reservation.settle(charged, turn::now(), |day, out| {
            self.identity.write(&ending, &bill, (charged, prices.version()), (time, day), out);
        });
        let completed = Completed {
            tokens: bill.tokens,
            money: charged.money,
            first_token: (summary.status != 0).then(|| first_token(&summary.timing)),
            is_partial: bill.flags.partial,
            is_estimated: bill.flags.estimated,
        };
        self.worker.metrics.completed(self.worker.label(plan.label), &completed);
    }
}

/// The edits of a body as the HTTP session takes them.
fn body_change(splice: Splice) -> BodyChange {
    if splice.is_empty() {
        return BodyChange::Keep;
    }
    let edit = |(span, text): (weir_analysis::ai::Span, Vec<u8>)| BodySplice {
        range: span.start as usize..span.end as usize,
        replacement: text.into(),
    };
    BodyChange::Splice(splice.edits().map(edit).collect())
}

impl HttpFilter for AiFilter {
    fn inspect(&mut self, head: &RequestHead, caller: &Caller) -> Inspect {
        let id = caller.request_id.as_deref().unwrap_or_default();
        self.identity.request = String::from_utf8_lossy(id).into_owned();
        self.enter(head).unwrap_or_else(|error| {
            self.own = Some(self.refusal(&error));
            Inspect::Buffered(1)
        })
    }

    fn refuse_head(&mut self) -> Option<WholeResponse> {
        self.own.take()
    }

    fn request_data(&mut self, piece: &[u8]) -> Result<(), WholeResponse> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        self.body_bytes += piece.len() as u64;
        let read = match self.body_bytes > self.worker.settings.body_bytes_max {
            true => Err(ApiError::TOO_LARGE),
            false => reader.push(piece).map_err(ApiError::of_body),
        };
        read.map_err(|error| self.refusal(&error))
    }

    fn request_end(&mut self) -> Result<(), WholeResponse> {
        self.plan().map_err(|error| self.refusal(&error))
    }

    fn choose_upstream(&mut self, head: &mut RequestHead, is_whole: bool) -> Result<RequestChoice, WholeResponse> {
        if is_whole {
            // A request without a body has no call for its end.
            self.request_end()?;
        }
        // The budget of all bodies is used up: what is not seen is not judged.
        let chosen = if self.reader.is_some() { Err(ApiError::NO_ROOM) } else { self.choose(head) };
        chosen.map_err(|error| self.refusal(&error))
    }

    fn attempts_max(&self) -> u32 {
        self.planned.as_ref().map_or(1, |(_, plan)| plan.targets.len() as u32)
    }

    fn attempt_failed(&mut self, failed: &FailedAttempt<'_>) -> AfterFailure {
        let pause = failed.fields.and_then(|fields| retry_after::pause(fields, unix_time()));
        if let (Some(pause), Some((_, plan))) = (pause, &self.planned)
            && let Some(target) = plan.targets.get((self.tries as usize).saturating_sub(1))
        {
            self.worker.cool(target.upstream, pause);
        }
        // Another provider would say the same of a request that is wrong in itself.
        let is_elsewhere_better = matches!(failed.status, 0 | 408 | 409 | 429 | 500..);
        match failed.may_go_on && is_elsewhere_better && failed.number < self.attempts_max() {
            true => AfterFailure::Next,
            false => AfterFailure::Respond,
        }
    }

    fn deadlines(&mut self) -> Deadlines {
        let settings = &self.worker.settings;
        match &self.planned {
            Some((facts, _)) => Deadlines {
                first_byte: facts.options.is_stream().then_some(settings.first_token_timeout),
                idle: Some(settings.token_gap_timeout),
                total: Some(settings.request_timeout),
            },
            None => Deadlines::default(),
        }
    }

    fn tap(&mut self, status: u16, fields: &mut Fields) -> Tap {
        let Some((facts, _)) = self.planned.as_ref().filter(|_| !self.is_free()) else { return Tap::No };
        let (response, tap) = Response::new(Dialect::of(facts.endpoint), self.chunk, status, fields);
        self.response = response;
        tap
    }

    fn response_head(&mut self, _: u16, fields: &mut Fields, timing: &ExchangeTiming) {
        if !fields.has(Known::XRequestId) && !self.identity.request.is_empty() {
            fields.set(Known::XRequestId, self.identity.request.as_bytes());
        }
        if let Some(provider) = &self.provider {
            credentials::hide_account(fields, provider);
        }
        self.show_rates(fields);
        let millis = |span: Duration| span.as_secs_f64() * 1_000.0;
        let parts =
            [("policy", timing.policy + timing.request), ("queue", timing.queue), ("upstream", timing.upstream)];
        let parts = parts.map(|(name, span)| format!("{name};dur={:.3}", millis(span)));
        fields.push(b"server-timing", parts.join(", ").as_bytes());
    }

    fn follow(&mut self, piece: &[u8]) -> Result<(), BodyAborted> {
        self.response.follow(piece);
        Ok(())
    }

    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.response.edit(piece, out)
    }

    fn response_end(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.response.end(out);
        Ok(())
    }

    fn broken_off(&mut self, reason: &str, out: &mut Vec<u8>) -> BrokenEnd {
        self.response.break_off(reason, out);
        BrokenEnd::Finish
    }

    fn format_refusal(&mut self, facts: &RefusalFacts) -> Option<FormattedRefusal> {
        Some(formatted(facts, self.form))
    }

    fn on_complete(&mut self, summary: &ExchangeSummary<'_>) {
        self.settle(summary);
    }
}

#[cfg(test)]
mod tests {
    use weir_analysis::ai::{Endpoint, read};
    use weir_spend::{
        Denial,
        budget::{Budgets, Ledger},
        keys::{KeyHash, KeySecret, KeySettings},
        meter::Meter,
        policy::Policy,
    };
    use weir_telemetry::Registry;

    use super::*;
    use crate::{
        metrics::Metrics,
        settings::{AiListenerSettings, KeyMode},
    };

    const KEY: &[u8] = b"sk-weir-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    /// A listener with a key whose budget has room for one request.
    fn worker() -> Rc<Worker> {
        let budgets = Budgets { day_tokens: Some(150), ..Budgets::default() };
        let key = KeySettings {
            name: "team".into(),
            secrets: vec![KeySecret { hash: KeyHash::of(KEY), shown: "k".into(), until: None }],
            is_enabled: true,
            expires: None,
            policy: Arc::new(Policy { budgets, ..Policy::default() }),
            team: None,
            organization: None,
        };
        let settings = AiListenerSettings {
            key_mode: KeyMode::Required,
            keys: Arc::new([key]),
            models: Arc::new([]),
            prices: Arc::default(),
            upstreams: vec!["a".into()],
            first_token_timeout: Duration::from_secs(1),
            token_gap_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(1),
            body_bytes_max: 1_000,
            reserved_output_tokens: 100,
            refuses_web_pages: false,
            ring: Default::default(),
        };
        let metrics = Rc::new(Metrics::new(&Registry::new().core(0), "test"));
        Rc::new(Worker::new(settings, Vec::new(), Meter::new(Ledger::default(), None), metrics, 1))
    }

    /// Admits a request of the key.
    fn admitted(worker: &Worker) -> Result<(Admitted, Facts, Plan), Denial> {
        let key = key(worker, KEY, Duration::ZERO)?;
        let body = br#"{"model":"m","messages":[]}"#;
        let facts = read(Endpoint::Chat, body, Wanted::default()).expect("valid");
        let plan = Plan { label: 0, targets: vec![DEFAULT.clone()] };
        let candidate = Candidate { source: IpAddr::from([127, 0, 0, 1]), facts: &facts, is_free: false };
        let clocks = Clocks { now: turn::now(), unix: Duration::ZERO };
        let admitted = admit(worker, key.as_deref(), candidate, &plan, &Identity::default(), clocks)?;
        Ok((admitted, facts, plan))
    }

    /// The filter of an admitted request, whose exchange ends like this.
    fn ends(worker: &Rc<Worker>, end: CompletionStatus, reason: &str) {
        let (admitted, facts, plan) = self::admitted(worker).expect("room");
        let source = IpAddr::from([127, 0, 0, 1]);
        let mut filter = AiFilter {
            worker: worker.clone(),
            form: ErrorForm::OpenAi,
            source,
            surface: Surface::Body(Endpoint::Chat),
            key: None,
            identity: Identity::default(),
            own: None,
            reader: None,
            body_bytes: 0,
            planned: Some((facts, plan)),
            admitted: Some(admitted),
            tries: 1,
            provider: None,
            chunk: UsageChunk::Forward,
            response: Response::None,
        };
        let caller = Caller { route: "ai".into(), client: source, identity: None, request_id: None };
        filter.on_complete(&ExchangeSummary {
            status: 0,
            caller: &caller,
            request_bytes: 0,
            response_bytes: 0,
            duration: Duration::ZERO,
            timing: ExchangeTiming::default(),
            upstream: "a",
            end,
            broken_end: None,
            reason,
        });
    }

    #[test]
    fn a_panic_leaves_the_reservation_charged_in_full() {
        let worker = worker();
        ends(&worker, CompletionStatus::Aborted, "drain_cut");
        assert!(admitted(&worker).is_ok(), "nothing was sent, so nothing is charged");
        // The admission above is dropped without an end, too.
        let worker = self::worker();
        ends(&worker, CompletionStatus::Aborted, CloseReason::InternalInvariant.name());
        assert!(matches!(admitted(&worker), Err(Denial::Budget { .. })));
    }
}
