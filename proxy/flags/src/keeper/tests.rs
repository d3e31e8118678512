//! A desk without tasks and without a server, on a worker.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use weir_base::{Budget, ByteLease, permit::LocalBudget};
use weir_engine::settings::Address;
use weir_flags_codec::FeaturesDocument;
use weir_flags_session::{Token, TokenType};
use weir_http::{routes::Routes, settings::HttpListenerSettings};
use weir_listener::{ConnectionTable, CoreShare, StageSample, settings::ListenerSettings};
use weir_route::RouteTable;
use weir_telemetry::{EventLog, Registry, log::log_ring};

use super::*;
use crate::{
    flight::on_worker,
    limits::{METRICS_INTERVAL, POLL_INTERVAL, REVALIDATION_INTERVAL, VALIDATION_TIMEOUT},
    settings::UpstreamMode,
};

/// A backend token.
pub(super) fn token(text: &str) -> Token {
    Token::parse(text).expect(text).with_type(TokenType::Backend)
}

/// A document of flags of these names, each of a project of its name.
pub(super) fn document(names: &[&str]) -> FeaturesDocument {
    let flags: Vec<String> = names.iter().map(|name| format!(r#"{{"name":"{name}","project":"{name}"}}"#)).collect();
    FeaturesDocument::read(format!(r#"{{"features":[{}]}}"#, flags.join(",")).as_bytes()).expect("a document")
}

fn http() -> Rc<weir_http::Service> {
    let log = log_ring(64, None).0;
    let core = CoreShare {
        worker: 0,
        workers: 1,
        flight: LocalBudget::new(1),
        bytes: ByteLease::new(Budget::new(1 << 20)),
        metrics: Registry::new().core(0),
        events: EventLog::new(log.clone()),
        log,
        table: ConnectionTable::new(1),
        stage_sample: StageSample::new(1.0),
        handshakes: LocalBudget::new(0),
        post: Rc::new(|_, _, _| false),
        orders: Arc::default(),
    };
    let bind = Address::Socket(SocketAddr::from(([127, 0, 0, 1], 0)));
    let table = RouteTable::new(Vec::new());
    let routes = Routes { table, upstreams: Vec::new(), identity_fields: Vec::new(), names: Vec::new() };
    let settings = HttpListenerSettings::new(Arc::new(routes));
    weir_http::Service::new(core, ListenerSettings::new("test", bind), settings, Vec::new())
}

/// With tokens of its start, which the server has called good.
pub(super) fn desk(tokens: &[Token]) -> Rc<Desk> {
    let source = Source::Upstream(UpstreamSource {
        upstream: "server".into(),
        base_path: "".into(),
        host: "server".into(),
        endpoints: Arc::default(),
        tokens: tokens.into(),
        pretrusted: Arc::default(),
        is_dynamic: true,
        mode: UpstreamMode::Polling,
        poll_interval: POLL_INTERVAL,
        metrics_interval: METRICS_INTERVAL,
        validation_timeout: VALIDATION_TIMEOUT,
        revalidation_interval: REVALIDATION_INTERVAL,
        app_name: "test".into(),
        fields: Arc::default(),
        backup: None,
    });
    let desk = Rc::new(Desk {
        state: RefCell::new(State::new(&source, None, 1)),
        edge: Arc::default(),
        source,
        http: http(),
        is_dirty: Signal::default(),
        has_other_sources: Signal::default(),
        is_over: Cell::new(false),
        connection_id: identity::connection_id(),
        hostname: None,
        rng: RefCell::new(Rng::new(1)),
    });
    tokens.iter().for_each(|token| desk.state.borrow_mut().tokens().restore(token.clone()));
    desk
}

/// Polls a future until it is ready, and does something after each poll.
pub(super) async fn interrupted(work: impl Future<Output = ()>, mut meanwhile: impl FnMut()) {
    use futures_util::FutureExt as _;

    let mut work = std::pin::pin!(work);
    while work.as_mut().now_or_never().is_none() {
        meanwhile();
        weir_engine::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn tokens_are_compared_with_each_other_only_if_flags_may_be_unseen() {
    on_worker(|| async {
        let (one, other) = (token("a:development.one"), token("b:development.other"));
        let desk = desk(&[one.clone(), other.clone()]);
        for (token, name) in [(&one, "a"), (&other, "b")] {
            let taken = desk.take_document("development", token.projects(), document(&[name])).await;
            assert_eq!(taken.expect("no panic"), Ok(true));
        }
        assert!(desk.may_have_unseen("development"), "no token has been noted");
        desk.note_polled(&desk.polled_tokens());
        assert!(!desk.may_have_unseen("development") && !desk.may_have_unseen("production"));
        let changes = desk.state.borrow_mut().revoke(&Arc::new(other));
        desk.on_changes(&changes);
        desk.note_polled(&desk.polled_tokens());
        assert!(desk.may_have_unseen("development"), "one token has gone");
        desk.forget_unseen("development");
        let flags = desk.state.borrow().environments["development"].flags.clone();
        assert_eq!(flags.features().map(|feature| &*feature.name).collect::<Vec<_>>(), ["a"]);
        assert!(!desk.may_have_unseen("development"));
    });
}
