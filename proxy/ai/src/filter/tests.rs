//! One exchange, by hand.

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
        agents: Arc::new([]),
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
        failed: None,
        chunk: UsageChunk::Forward,
        translation: None,
        response: Response::None,
        provider_status: None,
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
