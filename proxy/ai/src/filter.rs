//! One exchange: the order of its key, its body, its targets, its response and its bill.

mod cached;
mod claim;
mod remember;
mod response_head;
mod settle;

use std::{cell::Cell, net::IpAddr, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use weir_ai_session::{Dialect, Splice, UsageChunk, estimate::PromptSample};
use weir_analysis::ai::{BodyReader, Endpoint, Facts, Wanted};
use weir_base::{
    connection::ConnectionEntry,
    time::{Time, turn},
};
use weir_http::filter::{
    AfterFailure, BodyAborted, BodyChange, BrokenEnd, Caller, Deadlines, ExchangeSummary, ExchangeTiming,
    FailedAttempt, HttpFilter, Inspect, OwnResponse, RemainderLimits, ReplacedResponse, RequestChoice, SeenBody,
    Splice as BodySplice, Tap, UpstreamChoice, WholeResponse,
};
use weir_http::refusal_format::{FormattedRefusal, RefusalFacts};
use weir_http_codec::{BodyLength, Fields, Known, RequestHead};
use weir_spend::{Denial, keys::Key};

use self::{cached::CacheUse, settle::LostAttempt};
use crate::{
    account::Identity,
    admission::{Admitted, Candidate, Clocks, admit, key},
    attribution::Attribution,
    balance::Attempt,
    connection::ShownConnection,
    credentials,
    error::{ApiError, ErrorForm, formatted},
    metrics::Treatment,
    model_list::ModelList,
    models,
    plan::{self, DEFAULT, Plan},
    recent::BodyCapture,
    response::Response,
    retry_after,
    settings::{Provider, Target},
    spend::unix_time,
    stored::IdFinder,
    surface::{Surface, split_query, without_version},
    translate::{self, Translation},
    web_page,
    worker::Worker,
};

/// The filter of one exchange. Its large parts are boxed, and those that few exchanges have.
pub(crate) struct AiFilter {
    worker: Rc<Worker>,
    connection: Option<ShownConnection>,
    form: ErrorForm,
    source: IpAddr,
    surface: Surface,
    key: Option<Arc<Key>>,
    identity: Identity,
    /// The response to the head alone, in place of one of a provider.
    own: Option<Box<WholeResponse>>,
    /// Reads the body, until its end.
    reader: Option<Box<BodyReader>>,
    body_bytes: u64,
    /// The body, and the targets that follow from it.
    planned: Option<(Box<Facts>, Plan)>,
    admitted: Option<Box<Admitted>>,
    /// The beginning and the most of a wait for a part of a shared budget.
    claim_wait: Option<(Time, Duration)>,
    /// For a provider that reports no tokens of the prompt.
    prompt: PromptSample,
    /// Attempts at providers.
    tries: u32,
    /// The last one, while its first token is waited for, if its model needs the measure.
    attempt: Option<Attempt>,
    /// The provider of the last one.
    provider: Option<Arc<Provider>>,
    /// The reason for which the gateway has refused the request.
    refused: Option<&'static str>,
    /// The status of the last attempt that failed.
    failed: Option<u16>,
    chunk: UsageChunk,
    /// That of the last attempt, if its provider speaks another dialect.
    translation: Option<Translation>,
    response: Response,
    /// The status of the response of the last attempt. The client may get another.
    provider_status: Option<u16>,
    /// Looks for the id of a response that its provider keeps.
    response_id: Option<IdFinder>,
    /// The last attempt that its provider bills, and the client got nothing of.
    lost: Option<Box<LostAttempt>>,
    /// It is not known which target has the response that the request goes on from: they are tried in their order.
    is_searching: bool,
    /// The rest of the response is read without its client.
    is_draining: bool,
    cache: CacheUse,
    /// The bodies, if the listener keeps them.
    bodies: Cell<Option<Box<BodyCapture>>>,
}

/// The allocator keeps pieces of up to 1,032 bytes for the next request, and searches for larger ones.
const _: () = assert!(size_of::<AiFilter>() <= 1_024);

impl AiFilter {
    /// The filter of a request from `source`.
    pub(crate) fn new(worker: Rc<Worker>, head: &RequestHead, source: IpAddr) -> Self {
        Self {
            worker,
            connection: None,
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
            claim_wait: None,
            prompt: PromptSample::default(),
            tries: 0,
            attempt: None,
            provider: None,
            refused: None,
            failed: None,
            chunk: UsageChunk::Forward,
            translation: None,
            response: Response::None,
            provider_status: None,
            response_id: None,
            lost: None,
            is_searching: false,
            is_draining: false,
            cache: CacheUse::default(),
            bodies: Cell::default(),
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
        self.identity.attribution = Attribution::of(&self.worker.settings.attribution, &head.fields);
        match self.surface {
            Surface::Body(endpoint) | Surface::Count(endpoint) => {
                let most = self.worker.settings.body_bytes_max;
                if head.fields.has(Known::ContentEncoding) {
                    return Err(ApiError::CODING);
                }
                if matches!(head.body(), BodyLength::Exact(length) if length > most) {
                    return Err(ApiError::TOO_LARGE);
                }
                self.reader = Some(Box::new(BodyReader::new(endpoint, Wanted::default())));
                // A body of the longest length is not full before its end.
                return Ok(Inspect::Buffered(usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1)));
            }
            Surface::Models | Surface::Model(_) => {
                let name = if let Surface::Model(at) = self.surface { path.get(at..) } else { None };
                self.own = models::own(&self.worker, self.key.as_deref(), self.source, name)?.map(Box::new);
            }
            Surface::Forwarded if self.worker.ring.is_some() => return Err(ApiError::NOT_ACCOUNTED),
            Surface::Forwarded => {}
            Surface::WrongMethod(allow) => return Err(ApiError::wrong_method(allow)),
            Surface::Unknown => return Err(ApiError::UNKNOWN_URL),
        }
        Ok(Inspect::Buffered(1))
    }

    /// No provider bills the request.
    fn is_free(&self) -> bool {
        matches!(self.surface, Surface::Count(_))
    }

    /// The list of models is that of the provider, without those that the key may not use.
    fn filters_models(&self) -> bool {
        self.surface == Surface::Models && models::has_denied(self.key.as_deref())
    }

    /// The first token of the last attempt is there: the head of a whole response, or the first piece of a stream.
    fn first_token(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.arrived(turn::now());
        }
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
        let is_unnamed = options.model.as_ref().is_none_or(|model| model.text.trim().is_empty());
        if is_unnamed && has_rules {
            // The provider would take one of its own choice, which no rule and no price knows.
            return Err(ApiError::MISSING_MODEL);
        }
        self.identity.model = options.model.as_ref().map(|model| model.text.clone()).unwrap_or_default();
        let user = options.user.as_ref().or(options.safety_identifier.as_ref());
        self.identity.attribution.add(user, options.conversation.as_ref());
        let (plan, is_searching) = Plan::of(&self.worker, &facts, &self.identity, self.is_free())?;
        self.is_searching = is_searching;
        if let Some(connection) = &self.connection {
            connection.show(self.identity.key.as_deref(), &self.identity.model, facts.options.is_stream());
        }
        self.planned = Some((facts, plan));
        Ok(())
    }

    /// Judges a request with facts, and reserves the most that it may cost, unless that is done.
    fn admit(&mut self, seen: SeenBody<'_>) -> Result<(), Denial> {
        let (Some((facts, plan)), None) = (&self.planned, &self.admitted) else { return Ok(()) };
        let clocks = Clocks { now: turn::now(), unix: unix_time() };
        let candidate = Candidate { source: self.source, facts, is_free: self.is_free() };
        let admitted = admit(&self.worker, self.key.as_deref(), candidate, plan, &self.identity, clocks)?;
        self.admitted = Some(Box::new(admitted));
        let prompt = PromptSample::of(facts, seen.bytes);
        self.prompt = if facts.options.is_stream() { prompt.counted() } else { prompt };
        Ok(())
    }

    /// The next target, with the head and the body that it gets.
    fn choose(&mut self, head: &mut RequestHead, seen: SeenBody<'_>) -> Result<RequestChoice, ApiError> {
        let worker = self.worker.clone();
        self.admit(seen).map_err(|denial| ApiError::of_denial(&denial))?;
        (self.response, self.provider_status) = (Response::None, None);
        let (target, translated) = self.next_target(seen)?;
        self.tries += 1;
        let (Some(provider), Some(name)) =
            (worker.providers.get(target.upstream), worker.settings.upstreams.get(target.upstream))
        else {
            return Err(ApiError::NO_MODEL);
        };
        self.provider = Some(provider.clone());
        self.attempt = self
            .planned
            .as_ref()
            .filter(|_| !self.is_free())
            .and_then(|(facts, plan)| plan.attempt(&worker, &target, facts.options.is_stream()));
        let body = self.forward(head, (provider, &target), translated);
        credentials::swap(&mut head.fields, provider, worker.ring.is_some());
        credentials::hide_client(&mut head.fields);
        worker.settings.attribution.hide(&mut head.fields);
        let host = Some(provider.host.as_bytes().into());
        let upstream = UpstreamChoice::Upstream { name: name.clone(), host };
        Ok(RequestChoice { upstream, body })
    }

    /// The next target, with its request if that has to be translated.
    ///
    /// # Errors
    /// The request cannot be translated, and no target of its own dialect is left.
    fn next_target(&mut self, seen: SeenBody<'_>) -> Result<(Target, Option<(Bytes, Translation)>), ApiError> {
        let limit = self.admitted.as_ref().and_then(|admitted| admitted.output_limit);
        let Some((facts, plan)) = &mut self.planned else { return Ok((DEFAULT.clone(), None)) };
        let direction = |target: &Target| {
            let provider = self.worker.providers.get(target.upstream)?;
            Some((translate::direction(facts.endpoint, provider.dialect)?, &**provider))
        };
        let at = (self.tries as usize).min(plan.targets.len().saturating_sub(1));
        let Some(target) = plan.targets.get(at).cloned() else { return Ok((DEFAULT.clone(), None)) };
        let Some(to) = direction(&target) else { return Ok((target, None)) };
        let mut edits = Splice::default();
        // Behind them comes the translation, which reads each form of the limit.
        edit(&mut edits, facts, &target, limit.map(|limit| (limit, true)));
        match translate::request(to, seen, &edits) {
            Ok(translated) => Ok((target, Some(translated))),
            Err(error) => {
                // It has the same fate at each target of that dialect.
                let rest = plan.targets.split_off(at);
                plan.targets.extend(rest.into_iter().filter(|target| direction(target).is_none()));
                let refused = || self.failed.map_or(error, ApiError::no_other);
                plan.targets.get(at).map(|target| (target.clone(), None)).ok_or_else(refused)
            }
        }
    }

    /// Makes the head that of a provider, except its key. Returns the change of the body.
    fn forward(
        &mut self,
        head: &mut RequestHead,
        (provider, target): (&Provider, &Target),
        translated: Option<(Bytes, Translation)>,
    ) -> BodyChange {
        if self.planned.is_some() || self.filters_models() {
            // The response is read: no coding may be on it.
            head.fields.remove(Known::AcceptEncoding);
        }
        if let Some((body, translation)) = translated {
            translate::request_head(translation.direction, provider, head);
            (self.chunk, self.translation) = (UsageChunk::Forward, Some(translation));
            return BodyChange::Replace(body);
        }
        self.translation = None;
        let (path, query) = split_query(std::str::from_utf8(head.target()).unwrap_or_default());
        let own = [&*provider.base_path, without_version(path), query].concat();
        head.set_target(own.as_bytes());
        let mut splice = Splice::default();
        if let Some((facts, _)) = &self.planned {
            let of_key = self.admitted.as_ref().and_then(|admitted| admitted.output_limit);
            let has_completion_limit = provider.abilities.max_completion_tokens;
            let limit = of_key.or_else(|| limit_unknown_to(has_completion_limit, facts));
            edit(&mut splice, facts, target, limit.map(|limit| (limit, has_completion_limit)));
            let is_added = provider.include_usage && splice.include_usage(facts);
            self.chunk = if is_added { UsageChunk::Drop } else { UsageChunk::Forward };
        }
        body_change(splice)
    }

    /// Counts a refusal, and gives its response.
    fn refusal(&mut self, error: &ApiError) -> WholeResponse {
        self.worker.metrics.denied(error.reason, Treatment::Refused);
        self.refused = Some(error.reason);
        error.response(self.form)
    }
}

/// The client's own limit of a chat, if the provider does not obey it under the name that it has: the reservation counts on it.
fn limit_unknown_to(has_completion_limit: bool, facts: &Facts) -> Option<u64> {
    let is_unknown = !has_completion_limit && facts.endpoint == Endpoint::Chat && facts.options.max_tokens.is_none();
    facts.options.max_completion_tokens.filter(|_| is_unknown).map(|limit| limit.value)
}

/// Names the model of a target, and limits the output if the key of the client does: `limit`, and whether chats take
/// `max_completion_tokens` for it.
fn edit(splice: &mut Splice, facts: &Facts, target: &Target, limit: Option<(u64, bool)>) {
    if let Some(model) = &target.model {
        splice.set_model(facts, model);
    }
    if let Some((limit, has_completion_limit)) = limit {
        splice.limit_output(facts, limit, has_completion_limit);
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
    fn enter_connection(&mut self, connection: &Arc<ConnectionEntry>) {
        self.connection = Some(ShownConnection(connection.clone()));
    }

    fn inspect(&mut self, head: &RequestHead, caller: &Caller) -> Inspect {
        let id = caller.request_id.as_deref().unwrap_or_default();
        self.identity.request = String::from_utf8_lossy(id).into_owned();
        self.enter(head).unwrap_or_else(|error| {
            self.own = Some(Box::new(self.refusal(&error)));
            Inspect::Buffered(1)
        })
    }

    fn refuse_head(&mut self) -> Option<WholeResponse> {
        self.own.take().map(|own| *own)
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

    fn own_response(&mut self, head: &RequestHead, seen: SeenBody<'_>) -> Result<OwnResponse, WholeResponse> {
        if let Some((facts, plan)) = &mut self.planned {
            plan.choose_by_prompt(&self.worker, facts, &self.identity.model, seen.bytes);
        }
        self.begin_bodies(head, seen);
        let own = match self.claim_wait {
            None => self.serve_cached(head, seen),
            // The cache was looked at before the wait.
            Some(_) => Ok(OwnResponse::None),
        };
        let own = own.and_then(|own| match own {
            OwnResponse::None => self.admit_or_wait(seen),
            own => Ok(own),
        });
        own.map_err(|error| self.refusal(&error))
    }

    fn choose_upstream(&mut self, head: &mut RequestHead, seen: SeenBody<'_>) -> Result<RequestChoice, WholeResponse> {
        if seen.is_whole {
            // A request without a body has no call for its end.
            self.request_end()?;
        }
        // The budget of all bodies is used up: what is not seen is not judged.
        let chosen = if self.reader.is_some() { Err(ApiError::NO_ROOM) } else { self.choose(head, seen) };
        chosen.map_err(|error| self.refusal(&error))
    }

    fn attempts_max(&self) -> u32 {
        self.planned.as_ref().map_or(1, |(_, plan)| plan.targets.len() as u32)
    }

    fn attempt_failed(&mut self, failed: &FailedAttempt<'_>) -> AfterFailure {
        self.drop_response_body();
        let pause = failed.fields.and_then(|fields| retry_after::pause(fields, unix_time()));
        if let (Some(pause), Some((_, plan))) = (pause, &self.planned)
            && let Some(target) = plan.targets.get((self.tries as usize).saturating_sub(1))
        {
            self.worker.cool(target.upstream, pause);
        }
        self.failed = Some(failed.status);
        self.keep_lost(failed);
        let is_elsewhere_better = match self.is_searching {
            // It has not made the response. Any other failure says nothing about that.
            true => matches!(failed.status, 400 | 404),
            // Another provider would say the same of a request that is wrong in itself.
            false => matches!(failed.status, 0 | 408 | 409 | 429 | 500..),
        };
        if let Some(attempt) = self.attempt.take().filter(|_| is_elsewhere_better) {
            attempt.failed(turn::now());
        }
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
        if self.filters_models() {
            let tap;
            (self.response, tap) = Response::models(ModelList::new(self.key.clone(), self.form), status, fields);
            return tap;
        }
        let Some((facts, _)) = self.planned.as_ref().filter(|_| !self.is_free()) else { return Tap::No };
        let (response, tap) = match &self.translation {
            None => Response::new(Dialect::of(facts.endpoint), self.chunk, status, fields),
            Some(translation) => {
                let own = (self.form, unix_time().as_secs(), &self.worker.bytes);
                Response::translated(translation, own, status, fields)
            }
        };
        self.provider_status = Some(status);
        self.response_id = (plan::is_stored(facts) && (200..300).contains(&status)).then(IdFinder::default);
        self.response = response;
        self.begin_recording(status, fields);
        if tap != Tap::Edit {
            self.first_token();
        }
        self.begin_response_body(tap)
    }

    fn response_head(&mut self, _: u16, fields: &mut Fields, timing: &ExchangeTiming) {
        self.change_response_head(fields, timing);
    }

    fn follow(&mut self, piece: &[u8]) -> Result<(), BodyAborted> {
        self.note_id(piece);
        self.record(piece);
        self.response.follow(piece);
        self.keep_body(piece);
        Ok(())
    }

    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.first_token();
        self.note_id(piece);
        self.record(piece);
        let begin = out.len();
        let edited = self.response.edit(piece, out);
        self.keep_body(&out[begin..]);
        edited
    }

    fn flush(&mut self, _: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.response.flush()
    }

    fn replace_response(&mut self, status: u16, fields: &mut Fields, body: &[u8]) -> ReplacedResponse {
        let replaced = self.response.replace(status, fields, body);
        let replaced = replaced.unwrap_or_else(|| ReplacedResponse { status, body: Bytes::copy_from_slice(body) });
        // The pieces of the held one have not reached the client.
        self.begin_response_body(Tap::No);
        self.keep_body(&replaced.body);
        replaced
    }

    fn response_end(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        let begin = out.len();
        self.response.end(out)?;
        self.keep_body(&out[begin..]);
        self.end_recording();
        Ok(())
    }

    fn broken_off(&mut self, reason: &str, out: &mut Vec<u8>) -> BrokenEnd {
        self.leave_cache();
        let begin = out.len();
        self.response.break_off(reason, out);
        self.keep_body(&out[begin..]);
        BrokenEnd::Finish
    }

    fn client_left(&mut self) -> Option<RemainderLimits> {
        self.remainder()
    }

    fn format_refusal(&mut self, facts: &RefusalFacts) -> Option<FormattedRefusal> {
        Some(formatted(facts, self.form))
    }

    fn on_complete(&mut self, summary: &ExchangeSummary<'_>) {
        if self.admitted.is_none() {
            self.remember_refused(summary);
        }
        self.settle(summary);
        self.leave_cache();
    }
}

#[cfg(test)]
pub(crate) mod tests;
