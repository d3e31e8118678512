//! The part of an exchange in the exact cache: it is served from there, waits for an equal request, or leaves its response there.

use std::{cell::Cell, rc::Rc, sync::Arc};

use weir_ai_session::{Dialect, Splice, UsageChunk};
use weir_base::time::turn;
use weir_http::filter::{ExchangeSummary, OwnResponse, SeenBody};
use weir_http_codec::{Fields, Known, RequestHead};
use weir_spend::{
    Amount,
    policy::{self, CacheRule, Policy},
};

use super::AiFilter;
use crate::{
    account::{Ending, Side},
    admission::{Admitted, Candidate, Clocks, admit_cached, judge},
    cache::{
        CacheControl, Entry, Freshness, Lead, Recording, Replay, Source, Subject, Tenant, Turn, is_cacheable, is_fit,
    },
    error::ApiError,
    plan::served,
    response::{Response, declared},
    spend::unix_time,
    surface::{split_query, without_version},
    translate,
};

/// The field of a response that names its way.
const RESULT_FIELD: &[u8] = b"x-weir-cache";

const HIT: &str = "hit";
const MISS: &str = "miss";
const BYPASS: &str = "bypass";

/// The exchange in the cache.
#[derive(Default)]
pub(super) struct CacheUse {
    state: State,
    /// The word for the client. `None`: its requests are never cached.
    result: Option<&'static str>,
    /// The provider of the first target sends the usage of the stream.
    sends_usage: bool,
}

#[derive(Default)]
enum State {
    /// It has no part in it, or no more.
    #[default]
    Off,
    /// An equal request is under way. Behind the wait the turn is here.
    Waits(Rc<Cell<Option<Turn>>>),
    /// Others may wait for its response.
    Leads(Lead),
    /// Its response passes.
    Records(Recording),
    /// Its response comes from the cache.
    Served(Arc<Entry>),
}

impl AiFilter {
    /// Serves the request from the cache, or lets it wait for an equal one.
    ///
    /// # Errors
    /// A policy or a rate of its key refuses it.
    pub(super) fn serve_cached(&mut self, head: &RequestHead, seen: SeenBody<'_>) -> Result<OwnResponse, ApiError> {
        let turn = match std::mem::take(&mut self.cache.state) {
            State::Waits(turn) => turn.take().unwrap_or(Turn::Pass),
            _ => match self.look(head, seen)? {
                Some(turn) => turn,
                None => return Ok(OwnResponse::None),
            },
        };
        match turn {
            Turn::Hit(entry) => return self.hit(entry),
            Turn::Follow(wait) => {
                let turn = Rc::<Cell<Option<Turn>>>::default();
                self.cache.state = State::Waits(turn.clone());
                return Ok(OwnResponse::Wait(Box::pin(async move { turn.set(Some(wait.end().await)) })));
            }
            Turn::Lead(lead) => self.cache.state = State::Leads(lead),
            Turn::Pass => {}
        }
        self.show(MISS);
        Ok(OwnResponse::None)
    }

    /// Looks for a response. `None`: the request is not cached.
    fn look(&mut self, head: &RequestHead, seen: SeenBody<'_>) -> Result<Option<Turn>, ApiError> {
        let (Some(rule), Some((facts, plan))) = (self.cache_rule(), &self.planned) else { return Ok(None) };
        let worker = &self.worker;
        let Some(target) = plan.targets.first().filter(|_| !self.is_free()) else { return Ok(None) };
        let (Some(provider), Some(name)) =
            (worker.providers.get(target.upstream), worker.settings.upstreams.get(target.upstream))
        else {
            return Ok(None);
        };
        // A client that its policy refuses learns nothing from the cache, and waits for nothing.
        let candidate = Candidate { source: self.source, facts, is_free: false };
        judge(worker, self.key.as_deref(), candidate, plan, &self.identity)
            .map_err(|denial| ApiError::of_denial(&denial))?;
        let control = CacheControl::of(&head.fields);
        let is_translated = translate::direction(facts.endpoint, provider.dialect).is_some();
        if control.no_store || is_translated || !is_cacheable(facts, rule) {
            self.show(BYPASS);
            return Ok(None);
        }
        let is_added = provider.include_usage && Splice::default().include_usage(facts);
        let sends_usage = is_added || facts.options.includes_usage();
        let (path, query) = split_query(std::str::from_utf8(head.target()).unwrap_or_default());
        let subject = Subject {
            tenant: Tenant {
                listener: worker.metrics.listener(),
                key: self.key.as_deref().map(|key| &*key.name),
                version: self.policy_version(rule),
                has_own_account: worker.ring.is_none() && provider.api_key.is_none(),
            },
            target: (without_version(path), query),
            provider: (name, provider),
            model: served(target, &self.identity.model),
            sends_usage,
            fields: &head.fields,
            facts,
            body: seen.bytes,
        };
        let key = subject.fingerprint();
        self.cache.sends_usage = sends_usage;
        let worker = &self.worker;
        Ok(Some(match control.no_cache {
            true => Turn::Lead(worker.cache.lead_alone(key)),
            false => worker.cache.look(key, Freshness { ttl: rule.ttl, age_max: control.age_max }, turn::now()),
        }))
    }

    /// Responds from the cache.
    fn hit(&mut self, entry: Arc<Entry>) -> Result<OwnResponse, ApiError> {
        let Some((facts, plan)) = &self.planned else { return Ok(OwnResponse::None) };
        let clocks = Clocks { now: turn::now(), unix: unix_time() };
        let candidate = Candidate { source: self.source, facts, is_free: false };
        let admitted = admit_cached(&self.worker, self.key.as_deref(), candidate, plan, &self.identity, clocks);
        self.admitted = Some(Box::new(admitted.map_err(|denial| ApiError::of_denial(&denial))?));
        let usage_chunk = match self.cache.sends_usage && !facts.options.includes_usage() {
            true => UsageChunk::Drop,
            false => UsageChunk::Forward,
        };
        let replay = match entry.is_stream() {
            true => Replay::events(entry.body(), Dialect::of(facts.endpoint), usage_chunk),
            false => Replay::whole(entry.body()),
        };
        let response = entry.response(replay, clocks.now);
        self.keep_body(&entry.body());
        self.show(HIT);
        self.worker.metrics.saved(entry.tokens);
        self.cache.state = State::Served(entry);
        Ok(OwnResponse::Respond(response))
    }

    /// The rule of the key, or of a listener without keys.
    fn cache_rule(&self) -> Option<CacheRule> {
        match &self.worker.ring {
            Some(_) => self.key.as_ref().and_then(|key| key.cache()),
            None => self.worker.settings.cache,
        }
    }

    fn policy_version(&self, rule: CacheRule) -> u64 {
        let own = || policy::version([&Policy { cache: Some(rule), ..Policy::default() }]);
        self.key.as_ref().map_or_else(own, |key| key.policy_version())
    }

    /// Notes and counts the way of the request.
    fn show(&mut self, result: &'static str) {
        self.cache.result = Some(result);
        self.worker.metrics.looked_up(result);
    }

    /// Names the way of the request in the head of its response.
    pub(super) fn show_cache(&self, fields: &mut Fields) {
        if let Some(result) = self.cache.result {
            fields.set_named(RESULT_FIELD, result.as_bytes());
        }
    }

    /// The head of a response is there: its body is recorded, if it may serve others.
    pub(super) fn begin_recording(&mut self, status: u16, fields: &Fields) {
        let lead = match std::mem::take(&mut self.cache.state) {
            State::Leads(lead) => lead,
            other => return self.cache.state = other,
        };
        // With another status the lead ends here, and one of those that wait goes on.
        if status != 200 {
            return;
        }
        let is_stream = match &self.response {
            Response::Stream(_) => true,
            Response::Whole(_) => false,
            // A coded body, or one of another dialect.
            _ => return lead.release(),
        };
        // A fallback may differ from the first target in the usage that it sends, and others want that.
        let includes_usage = self.planned.as_ref().is_some_and(|(facts, _)| facts.options.includes_usage());
        let sends_usage = includes_usage || self.chunk == UsageChunk::Drop;
        let content_type = fields.get(Known::ContentType).filter(|_| sends_usage == self.cache.sends_usage);
        let Some(content_type) = content_type else { return lead.release() };
        let recording = Recording::begin(lead, content_type, is_stream, declared(fields));
        self.cache.state = recording.map_or(State::Off, State::Records);
    }

    /// A piece of the body, as the provider has sent it.
    pub(super) fn record(&mut self, piece: &[u8]) {
        let State::Records(recording) = &mut self.cache.state else { return };
        if !recording.push(piece)
            && let State::Records(recording) = std::mem::take(&mut self.cache.state)
        {
            recording.release();
        }
    }

    /// The body is over: stores it if it is whole and good. Otherwise the lead ends, and one of those that wait goes on.
    pub(super) fn end_recording(&mut self) {
        let recording = match std::mem::take(&mut self.cache.state) {
            State::Records(recording) => recording,
            other => return self.cache.state = other,
        };
        let (Some(found), Some((facts, plan))) = (self.response.found(), &self.planned) else { return };
        let is_good = found.is_done && (recording.is_stream() || is_fit(facts.endpoint, recording.bytes()));
        let target = plan.targets.get((self.tries as usize).saturating_sub(1)).filter(|_| is_good);
        let Some(target) = target else { return };
        let Some(provider) = self.worker.settings.upstreams.get(target.upstream) else { return };
        let source = Source { provider: provider.clone(), model: served(target, &self.identity.model).into() };
        let tokens = found.usage.map_or(0, |usage| usage.input.saturating_add(usage.output));
        recording.store(source, tokens, turn::now());
    }

    /// The exchange has no part in the cache any more. A lead that has not come to its end goes to another request.
    pub(super) fn leave_cache(&mut self) {
        self.cache.state = State::Off;
    }

    /// The response from the cache, if the exchange has one.
    pub(super) fn served(&self) -> Option<Arc<Entry>> {
        if let State::Served(entry) = &self.cache.state { Some(entry.clone()) } else { None }
    }

    /// Settles a request that cost nothing.
    pub(super) fn settle_cached(&self, summary: &ExchangeSummary<'_>, entry: &Entry, admitted: Admitted) {
        let ending = Ending {
            status: summary.status,
            end: summary.end,
            side: Side::of(summary.culprit, summary.reason),
            timing: summary.timing,
            response_bytes: summary.response_bytes,
            upstream: &entry.source.provider,
            model_served: &entry.source.model,
            tries: 0,
            prompt: &self.prompt,
            reserved_output: 0,
            found: None,
        };
        let (version, time) = (self.worker.settings.prices.version(), unix_time());
        admitted.reservation.settle(Amount::ZERO, turn::now(), |day, out| {
            let begin = out.len();
            self.identity.write_cached(&ending, entry.tokens, version, (time, day), out);
            self.remember(&out[begin..]);
        });
    }
}
