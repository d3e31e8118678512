//! One exchange, by hand.

use weir_analysis::ai::{Endpoint, read};
use weir_base::{Budget, ByteLease};
use weir_http::filter::{CompletionStatus, ExchangeSummary};
use weir_listener::CloseReason;
use weir_spend::{
    Denial,
    budget::{Budgets, Ledger},
    keys::{IssuedKeys, KeyHash, KeySecret, KeySettings},
    meter::Meter,
    policy::Policy,
};
use weir_telemetry::Registry;

use super::*;
use crate::{
    cache::ResponseCache,
    metrics::Metrics,
    recent::RecentRequests,
    settings::{AiListenerSettings, CacheSettings, KeyMode},
    share::WorkerShare,
    stored::StoredResponses,
};

const KEY: &[u8] = b"sk-weir-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// A listener with a key whose budget has room for one request.
fn worker() -> Rc<Worker> {
    let metrics = Rc::new(Metrics::new(&Registry::new().core(0), "test"));
    let issued = IssuedKeys::open(None).expect("no file").into();
    let meter = Meter::new(Ledger::default(), None);
    let cache = ResponseCache::new(CacheSettings::default());
    let (recent, stored) = (Rc::new(RecentRequests::new(10, 0)), StoredResponses::default());
    let share = WorkerShare { meter, cache, issued, recent, stored };
    let bytes = ByteLease::new(Budget::new(1 << 20));
    Rc::new(Worker::new("test".into(), with_key(), Vec::new(), share, (metrics, bytes), 1))
}

fn with_key() -> AiListenerSettings {
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
    AiListenerSettings { key_mode: KeyMode::Required, keys: Arc::new([key]), ..settings() }
}

/// Settings without keys.
pub(crate) fn settings() -> AiListenerSettings {
    AiListenerSettings {
        key_mode: KeyMode::None,
        keys: Arc::new([]),
        models: Arc::new([]),
        agents: Arc::new([]),
        federations: Arc::new([]),
        prices: Arc::default(),
        upstreams: vec!["a".into()],
        first_token_timeout: Duration::from_secs(1),
        token_gap_timeout: Duration::from_secs(1),
        request_timeout: Duration::from_secs(1),
        drain_on_disconnect: Duration::ZERO,
        body_bytes_max: 1_000,
        reserved_output_tokens: 100,
        attribution: Default::default(),
        recent_body_bytes_max: 0,
        refuses_web_pages: false,
        cache: None,
        ring: Default::default(),
    }
}

/// Admits a request of the key.
fn admitted(worker: &Worker) -> Result<(Admitted, Facts, Plan), Denial> {
    let key = key(worker, KEY, Duration::ZERO)?;
    let body = br#"{"model":"m","messages":[]}"#;
    let facts = read(Endpoint::Chat, body, Wanted::default()).expect("valid");
    let plan = Plan { label: 0, targets: vec![DEFAULT.clone()], prefix_bytes: None };
    let candidate = Candidate { source: IpAddr::from([127, 0, 0, 1]), facts: &facts, is_free: false };
    let clocks = Clocks { now: turn::now(), unix: Duration::ZERO };
    let admitted = admit(worker, key.as_deref(), candidate, &plan, &Identity::default(), clocks)?;
    Ok((admitted, facts, plan))
}

#[test]
fn a_request_that_is_over_is_remembered_with_its_line() {
    let worker = worker();
    ends(&worker, CompletionStatus::ClientGone, "client_gone");
    let all = worker.recent.all();
    let [request] = &all[..] else { panic!("{all:?}") };
    assert_eq!((&*request.listener, request.operation, request.is_stream), ("test", "chat", false));
    let line: serde_json::Value = serde_json::from_slice(&request.line).expect("JSON");
    assert_eq!((&line["status"], &line["tries"]), (&0.into(), &1.into()));
}

/// The filter of an admitted request, whose exchange ends like this.
fn ends(worker: &Rc<Worker>, end: CompletionStatus, reason: &str) {
    let (admitted, facts, plan) = self::admitted(worker).expect("room");
    let source = IpAddr::from([127, 0, 0, 1]);
    let mut filter = AiFilter {
        worker: worker.clone(),
        connection: None,
        form: ErrorForm::OpenAi,
        source,
        surface: Surface::Body(Endpoint::Chat),
        key: None,
        identity: Identity::default(),
        own: None,
        reader: None,
        body_bytes: 0,
        planned: Some((Box::new(facts), plan)),
        admitted: Some(Box::new(admitted)),
        claim_wait: None,
        prompt: PromptSample::of_tokens(5),
        tries: 1,
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
        culprit: None,
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
