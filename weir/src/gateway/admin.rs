//! The gateway as the admin server sees it: every response is read from cells, tables and snapshots.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use weir_admin::{
    BoxFuture, Problem,
    status::{
        AiKeyList, AiKeyOrder, AiKeyOutcome, AiKeyQuery, AiRequestList, AiRequestQuery, Breaker, Check,
        ConnectionQuery, ConnectionResponse, Diagnostic, DrainState, DrainStatus, EndpointStatus, Health,
        InsightResponse, ListenerState, ListenerStatus, Quantiles, ReloadOutcome, ReloadResult, RouteStatus, Severity,
        SlowLogReset, UpgradeOutcome, UpgradeResult, UpstreamStatus, Validity, VersionStatus, WorkerStatus,
    },
};
use weir_base::time::Time;
use weir_config::UpstreamProtocol;
use weir_engine::WorkerState;
use weir_telemetry::{HistogramSnapshot, Registry, Snapshot};
use weir_upstream::{EndpointShare, EndpointState, Health as EndpointHealth};

use super::{Gateway, Phase, Reloaded, UpgradeEnd, certificates, connections, errors, knee, lock, responses, watch};
use crate::version;

impl weir_admin::Gateway for Gateway {
    fn liveness(&self) -> Vec<Check> {
        let age = |id: usize| self.states[id].turn_age(Time::now());
        let check = |id: usize| {
            Check::new(format!("worker_{id}"), age(id) < watch::STALL, format!("current turn began {:?} ago", age(id)))
        };
        (0..self.states.len()).map(check).collect()
    }

    fn readiness(&self) -> Vec<Check> {
        let phase = self.phase();
        let has_room = self.admission.in_use() < u64::from(self.snapshot().limits.connections);
        let mut checks = vec![
            Check::new("serving", phase == Phase::Serving, format!("{phase:?}").to_lowercase()),
            Check::new("connections", has_room, format!("{} open", self.admission.in_use())),
            Check::new("driver", true, self.driver.name()),
            Check::new("restart_epoch", true, self.lineage()),
        ];
        let plan = self.plan.load();
        let mut upstreams: Vec<_> = plan.snapshot.upstreams.iter().collect();
        upstreams.sort_by_key(|upstream| upstream.settings.name.clone());
        for upstream in upstreams {
            let (name, servers) = (&upstream.settings.name, self.servers_of(upstream));
            let shares: Vec<_> = servers.into_iter().map(|(_, share)| share).collect();
            let trouble = |share: &Arc<EndpointShare>| {
                share.health.last_error().filter(|_| share.health.state() != EndpointState::Up).map(|(text, _)| text)
            };
            let detail = |share| trouble(share).unwrap_or_else(|| share.health.state().name().to_owned());
            let is_well = shares.iter().all(|share| trouble(share).is_none());
            let detail = shares.iter().map(detail).collect::<Vec<_>>().join(", ");
            // A gateway whose server is down is still the right one to ask: it responds with an error at once. So this is
            // a warning, and does not take the gateway out of a balancer.
            checks.push(Check::warning(format!("upstream_{name}"), is_well, detail));
        }
        let loads = lock(&self.loads);
        for listener in &plan.snapshot.listeners {
            let name = &listener.settings.name;
            let load = loads.get(name).copied().unwrap_or_default();
            checks.extend(listener.knee.as_ref().map(|knee| knee::check(name, knee, load)));
        }
        checks
    }

    fn startup(&self) -> Vec<Check> {
        vec![Check::new("started", self.phase() != Phase::Starting, format!("{:?}", self.phase()).to_lowercase())]
    }

    fn version(&self) -> VersionStatus {
        VersionStatus {
            version: version::VERSION.to_owned(),
            commit: version::COMMIT.to_owned(),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            debug: cfg!(debug_assertions),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            generation: self.snapshot().generation,
            restart_epoch: self.restart_epoch(),
            draining_predecessor: self.draining_predecessor(),
        }
    }

    fn config_json(&self) -> serde_json::Value {
        weir_config::redacted(&self.snapshot())
    }

    fn listeners(&self) -> Vec<ListenerStatus> {
        let cells = self.registry.read();
        self.snapshot().listeners.iter().map(|listener| self.listener_status(listener, &cells)).collect()
    }

    fn upstreams(&self) -> Vec<UpstreamStatus> {
        let cells = self.registry.read();
        self.snapshot().upstreams.iter().map(|upstream| self.upstream_status(upstream, &cells)).collect()
    }

    fn routes(&self) -> Vec<RouteStatus> {
        let cells = self.registry.read();
        let route = |route: &weir_config::RouteObject| RouteStatus {
            name: route.name.to_string(),
            domain: route.domain.as_ref().map(ToString::to_string),
            listeners: route.listeners.iter().map(ToString::to_string).collect(),
            online: route.is_online,
            validity: match (route.mistakes.is_empty(), route.listeners.is_empty()) {
                (false, _) => Validity::Invalid,
                (true, true) => Validity::Orphaned,
                (true, false) => Validity::Valid,
            },
            mistakes: route.mistakes.clone(),
            responses_total: responses::of_route(&cells, &route.name),
        };
        self.snapshot().protocols.http.iter().map(route).collect()
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let cells = self.registry.read();
        let worker = |(id, state): (usize, &Arc<WorkerState>)| WorkerStatus {
            id: id as u32,
            cpu: self
                .snapshot()
                .runtime
                .pin
                .then(weir_engine::net::allowed_cpus)
                .and_then(|cpus| cpus.get(id % cpus.len().max(1)).map(|cpu| *cpu as u32)),
            driver: state.driver().name().to_owned(),
            connections: state.connections.load(Relaxed) as u64,
            cpu_seconds: state.cpu_nanos.load(Relaxed) as f64 / 1e9,
            turns: state.turns.load(Relaxed),
            stalled: state.turn_age(Time::now()) > watch::STALL,
            generation: gauge(&cells, "weir_worker_config_generation", &[("worker", &id.to_string())]),
        };
        self.states.iter().enumerate().map(worker).collect()
    }

    fn connections(&self, query: ConnectionQuery) -> BoxFuture<'_, ConnectionResponse> {
        let now = Time::now();
        let mut connections = connections::page(&self.table.entries(), &query, now);
        let snapshot = self.snapshot();
        for connection in &mut connections {
            let listener = snapshot.listener(&connection.listener);
            connections::name_protocol(connection, listener.map_or("", |listener| listener.protocol_name.name()));
        }
        // Entries of a stuck worker are as old as its current turn.
        let is_silent = |state: &WorkerState| state.turn_age(now) > watch::STALL;
        let workers = self.states.iter().enumerate();
        let workers_silent = workers.filter(|(_, state)| is_silent(state)).map(|(id, _)| id as u32).collect();
        Box::pin(async move { ConnectionResponse { connections, workers_silent } })
    }

    fn insight(&self) -> BoxFuture<'_, InsightResponse> {
        self.collect_insight()
    }

    fn reset_slow_log(&self) -> BoxFuture<'_, SlowLogReset> {
        self.reset_slow_logs()
    }

    fn ai_keys(&self, query: AiKeyQuery) -> AiKeyList {
        self.list_ai_keys(&query)
    }

    fn order_ai_key(&self, order: AiKeyOrder) -> Result<AiKeyOutcome, Problem> {
        self.carry_out_ai_key(order)
    }

    fn ai_requests(&self, query: AiRequestQuery) -> BoxFuture<'_, AiRequestList> {
        self.collect_ai_requests(query)
    }

    fn reload(&self) -> ReloadOutcome {
        let outcome = Gateway::reload(self);
        let generation = self.snapshot().generation;
        let mut response = ReloadOutcome {
            outcome: ReloadResult::Rejected,
            generation,
            applied: Vec::new(),
            needs_restart: Vec::new(),
            diagnostics: Vec::new(),
        };
        match outcome {
            Reloaded::Applied(change) => {
                response.outcome = ReloadResult::Applied;
                response.applied = change.applied;
                response.needs_restart = change.needs_restart;
            }
            Reloaded::Unchanged => response.outcome = ReloadResult::Unchanged,
            Reloaded::Rejected(diagnostics) => response.diagnostics = diagnostics.iter().map(diagnostic).collect(),
            Reloaded::Refused(error) => response.diagnostics.push(Diagnostic {
                file: None,
                line: None,
                column: None,
                key: None,
                severity: Severity::Error,
                message: error.to_string(),
                remedy: Some("free the address or mend the file named, then reload again".to_owned()),
            }),
        }
        response
    }

    fn upgrade(&self) -> UpgradeOutcome {
        let (result, successor, reason) = match Gateway::upgrade(self) {
            UpgradeEnd::Done { pid, .. } => (UpgradeResult::Done, Some(pid), None),
            UpgradeEnd::Failed(reason) => (UpgradeResult::Failed, None, Some(reason)),
            UpgradeEnd::Refused(reason) => (UpgradeResult::Refused, None, Some(reason)),
        };
        let restart_epoch = self.restart_epoch() + u64::from(successor.is_some());
        UpgradeOutcome { result, pid: std::process::id(), successor, restart_epoch, reason }
    }

    fn drain(&self) -> DrainStatus {
        let state = match self.phase() {
            Phase::Starting | Phase::Serving if !self.is_drain_requested.load(Relaxed) => DrainState::Started,
            Phase::Starting | Phase::Serving => DrainState::Draining,
            Phase::Settling | Phase::Draining => DrainState::Draining,
            Phase::Drained => DrainState::Drained,
        };
        if state == DrainState::Started {
            self.request_drain();
        }
        let settings = self.snapshot().drain.clone();
        let elapsed = lock(&self.drain_begun).map_or(Duration::ZERO, |begun| begun.elapsed());
        let cells = self.registry.read();
        DrainStatus {
            state,
            connections_open: self.admission.in_use(),
            requests_in_flight: gauge(&cells, "weir_requests_in_flight", &[]),
            remaining_seconds: (settings.settle + settings.timeout).saturating_sub(elapsed).as_secs_f64(),
        }
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl Gateway {
    fn lineage(&self) -> String {
        let epoch = self.restart_epoch();
        match self.draining_predecessor() {
            Some(pid) => format!("{epoch}, process {pid} still drains"),
            None => epoch.to_string(),
        }
    }

    fn listener_status(&self, listener: &weir_config::Listener, cells: &Snapshot) -> ListenerStatus {
        let settings = &listener.settings;
        let name = &*settings.name;
        let own = [("listener", name)];
        let sum = |family: &str| cells.counter(family, &own).unwrap_or(0);
        ListenerStatus {
            name: name.to_owned(),
            protocol: listener.protocol_name.name().to_owned(),
            bind: self.bound(name).unwrap_or_else(|| settings.bind.to_string()),
            tls: settings.tls.is_some(),
            certificates: certificates::statuses(listener, certificates::now()),
            upstream: listener.upstream.to_string(),
            state: match self.phase() {
                Phase::Starting => ListenerState::Starting,
                Phase::Serving | Phase::Settling => ListenerState::Accepting,
                Phase::Draining => ListenerState::Draining,
                Phase::Drained => ListenerState::Closed,
            },
            connections_open: gauge(cells, "weir_connections_open", &own),
            connections_max: Some(settings.connections_max.into()),
            accepted_total: sum("weir_connections_total"),
            refused_total: by_reason(cells, "weir_connections_refused_total", &own),
            closed_total: sum("weir_connections_closed_total"),
            requests_total: sum("weir_requests_total"),
            requests_in_flight: gauge(cells, "weir_requests_in_flight", &own),
            responses_total: errors::warn_ratio(listener).map(|_| responses::of_listener(cells, name)),
            errors: errors::warn_ratio(listener)
                .map(|warn| errors::status(warn, lock(&self.errors).get(name).copied().unwrap_or_default())),
            shed_total: by_reason(cells, "weir_shed_total", &own),
            received_bytes_total: sum("weir_client_read_bytes_total"),
            sent_bytes_total: sum("weir_client_written_bytes_total"),
            request_seconds: quantiles(cells, "weir_request_duration_seconds", &own),
            overhead_seconds: quantiles(cells, "weir_request_overhead_duration_seconds", &own),
            knee: listener.knee.as_ref().map(|knee| {
                let load = lock(&self.loads).get(name).copied().unwrap_or_default();
                knee::status(knee, load)
            }),
        }
    }

    fn upstream_status(&self, upstream: &weir_config::Upstream, cells: &Snapshot) -> UpstreamStatus {
        let settings = &upstream.settings;
        let name = &*settings.name;
        let own = [("upstream", name)];
        let known = self.servers_of(upstream);
        let status =
            |(address, share): &(String, Arc<EndpointShare>)| endpoint_status(name, address, &share.health, cells);
        let mut endpoints: Vec<EndpointStatus> = known.iter().map(status).collect();
        // The nodes of a cluster that the workers have found; they are not probed. Those of a MongoDB set are known already, and cells of a member
        // that has left it stay.
        if !matches!(upstream.protocol, UpstreamProtocol::Mongodb(_)) {
            let found = cells.by("weir_endpoint_up", "endpoint", &own).into_keys();
            let unprobed = EndpointHealth::default();
            let is_new = |address: &Arc<str>| !known.iter().any(|(known, _)| **known == **address);
            endpoints.extend(found.filter(is_new).map(|address| endpoint_status(name, &address, &unprobed, cells)));
        }
        UpstreamStatus {
            name: name.to_owned(),
            tls: settings.tls.is_some(),
            endpoints,
            acquire_wait_seconds: quantiles(cells, "gateway_lane_pool_acquire_wait_seconds", &own),
            response_seconds: self.response_seconds(name, cells),
        }
    }

    /// The servers of an upstream, with the state of each: its endpoints, or the members that its MongoDB set has named.
    fn servers_of(&self, upstream: &weir_config::Upstream) -> Vec<(String, Arc<EndpointShare>)> {
        let name = &*upstream.settings.name;
        let members = match &upstream.protocol {
            UpstreamProtocol::Mongodb(_) => self.mongodb.servers_of(name),
            _ => None,
        };
        let servers = members.unwrap_or_else(|| {
            let shares = self.plan.load().shares.get(name).cloned().unwrap_or_default();
            upstream.settings.endpoints.iter().cloned().zip(shares).collect()
        });
        servers.into_iter().map(|(address, share)| (address.to_string(), share)).collect()
    }

    /// Response times are kept per listener; those in front of this upstream are put together.
    fn response_seconds(&self, upstream: &str, cells: &Snapshot) -> Quantiles {
        let snapshot = self.snapshot();
        let in_front = snapshot.listeners.iter().filter(|listener| &*listener.upstream == upstream);
        let of = |listener: &weir_config::Listener| {
            cells.histogram("weir_request_upstream_duration_seconds", &[("listener", &listener.settings.name)])
        };
        let merged = in_front.filter_map(of).reduce(|mut all, other| {
            all.merge(&other);
            all
        });
        merged.map(|histogram| summary(&histogram)).unwrap_or_default()
    }
}

fn endpoint_status(upstream: &str, address: &str, health: &EndpointHealth, cells: &Snapshot) -> EndpointStatus {
    let own = [("upstream", upstream), ("endpoint", address)];
    let last_error = health.last_error();
    let lanes = |kind| gauge(cells, "weir_lanes_open", &[own[0], own[1], ("kind", kind)]);
    let sum = |family: &str| cells.counter(family, &own).unwrap_or(0);
    EndpointStatus {
        health: match health.state() {
            EndpointState::Unknown => Health::Unknown,
            EndpointState::Up => Health::Healthy,
            EndpointState::Down => Health::Unhealthy,
        },
        breaker: match gauge(cells, "weir_breaker_state", &own) {
            0 => Breaker::Closed,
            1 => Breaker::HalfOpen,
            _ => Breaker::Open,
        },
        lanes_shared: lanes("shared"),
        lanes_pinned: lanes("pinned"),
        waiters: gauge(cells, "gateway_lane_pool_waiters", &own),
        requests_in_flight: gauge(cells, "weir_lane_requests_in_flight", &own),
        requests_total: sum("weir_upstream_requests_total"),
        responses_total: responses::of_endpoint(cells, upstream, address),
        failures_total: sum("weir_upstream_errors_total"),
        connects_total: sum("weir_lane_connects_total"),
        connect_failures_total: sum("weir_lane_connect_failures_total"),
        last_error_age_seconds: last_error.as_ref().map(|(_, at)| Time::now().since(*at).as_secs_f64()),
        last_error: last_error.map(|(text, _)| text),
        address: address.to_owned(),
    }
}

fn gauge(cells: &Snapshot, family: &str, labels: &[(&str, &str)]) -> u64 {
    cells.gauge(family, labels).unwrap_or(0).max(0) as u64
}

fn by_reason(cells: &Snapshot, family: &str, labels: &[(&str, &str)]) -> BTreeMap<String, u64> {
    let reasons = cells.by(family, "reason", labels).into_iter();
    let count = |value| if let weir_telemetry::snapshot::Value::Counter(count) = value { count } else { 0 };
    reasons.map(|(reason, value)| (reason.to_string(), count(value))).collect()
}

fn quantiles(cells: &Snapshot, family: &str, labels: &[(&str, &str)]) -> Quantiles {
    cells.histogram(family, labels).map(|histogram| summary(&histogram)).unwrap_or_default()
}

fn summary(histogram: &HistogramSnapshot) -> Quantiles {
    let seconds = |q| histogram.quantile(q).map(|nanos| nanos as f64 / 1e9);
    Quantiles { count: histogram.count(), p50: seconds(0.5), p99: seconds(0.99), p999: seconds(0.999) }
}

fn diagnostic(one: &weir_config::Diagnostic) -> Diagnostic {
    Diagnostic {
        file: Some(one.file.to_string()),
        line: (one.line > 0).then_some(one.line),
        column: (one.column > 0).then_some(one.column),
        key: (!one.path.is_empty()).then(|| one.path.clone()),
        severity: match one.severity {
            weir_config::Severity::Error => Severity::Error,
            // A reload makes no notes.
            weir_config::Severity::Warning | weir_config::Severity::Note => Severity::Warning,
        },
        message: one.message.clone(),
        remedy: one.help.clone(),
    }
}
