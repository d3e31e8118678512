//! The cells that one listener writes on one worker.

use std::cell::RefCell;

use weir_analysis::redis::{Access, COMMANDS, Class, Command};
use weir_base::time::Time;
use weir_listener::{CoreShare, Durations, StageTimes, Timing as Instants};
use weir_telemetry::{CoreMetrics, Counter, Gauge, catalog};
use weir_upstream::Timing;

/// First words of error replies that have a label of their own; everything else is `other`.
const ERROR_KINDS: [&str; 16] = [
    "err",
    "wrongtype",
    "noauth",
    "wrongpass",
    "noscript",
    "busygroup",
    "nogroup",
    "execabort",
    "oom",
    "loading",
    "readonly",
    "busy",
    "moved",
    "ask",
    "noperm",
    "noproto",
];

/// The command classes of [`catalog::REQUESTS_TOTAL`].
const CLASSES: [&str; 6] = ["read", "write", "admin", "other", "local", "unknown"];

/// Requests of one run whose replies wait to be handed to the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub(crate) count: u64,
    pub(crate) timing: Timing,
    /// The end of the reply had arrived.
    pub(crate) replied: Time,
    /// The parts of the overhead, for one request of many.
    pub(crate) stages: Option<Stages>,
}

/// Instants between the stages of a request.
#[derive(Clone, Copy)]
pub(crate) struct Stages {
    /// The command was parsed.
    pub(crate) parsed: Time,
    /// Limits and rules had let it pass.
    pub(crate) judged: Time,
    /// The reply was in the client's output.
    pub(crate) encoded: Time,
}

/// Cells of one listener on one worker.
pub(crate) struct ListenerMetrics {
    core: CoreMetrics,
    listener: String,
    pub(crate) in_flight: Gauge,
    pub(crate) subscribers: Gauge,
    pub(crate) subscriptions: Gauge,
    pub(crate) messages: Counter,
    pub(crate) slow: Counter,
    pub(crate) tracking: Gauge,
    pub(crate) invalidations: Counter,
    requests: [Counter; 6],
    commands: RefCell<Vec<Option<Counter>>>,
    /// By reason, as they are met: past a limit a refusal must cost less than what it refuses.
    sheds: RefCell<Vec<(&'static str, Counter)>>,
    /// By [`ERROR_KINDS`], `other` last.
    errors: RefCell<[Option<Counter>; ERROR_KINDS.len() + 1]>,
    pub(crate) durations: Durations,
}

impl ListenerMetrics {
    pub(crate) fn new(share: &CoreShare, listener: &str) -> Self {
        let core = &share.metrics;
        Self {
            in_flight: core.gauge(&catalog::REQUESTS_IN_FLIGHT, &[listener]),
            subscribers: core.gauge(&catalog::SUBSCRIBERS, &[listener]),
            subscriptions: core.gauge(&catalog::SUBSCRIPTIONS, &[listener]),
            messages: core.counter(&catalog::MESSAGES_DELIVERED, &[listener]),
            slow: core.counter(&catalog::REDIS_SLOW_REQUESTS, &[listener]),
            tracking: core.gauge(&catalog::TRACKING_CLIENTS, &[listener]),
            invalidations: core.counter(&catalog::INVALIDATIONS, &[listener]),
            requests: CLASSES.map(|class| core.counter(&catalog::REQUESTS_TOTAL, &[listener, class])),
            commands: RefCell::new(vec![None; COMMANDS.len()]),
            sheds: RefCell::default(),
            errors: RefCell::default(),
            durations: Durations::new(share, listener),
            core: core.clone(),
            listener: listener.to_owned(),
        }
    }

    #[inline]
    pub(crate) fn command(&self, command: Option<&'static Command>, times: u64) {
        let Some(command) = command else {
            self.requests[5].add(times);
            return self.core.counter(&catalog::COMMAND_CALLS, &[&self.listener, "unknown"]).add(times);
        };
        let class = match (command.class, command.access) {
            (Class::Local(_), _) => 4,
            (_, Access::Read) => 0,
            (_, Access::Write) => 1,
            (_, Access::Admin) => 2,
            (_, Access::Other) => 3,
        };
        self.requests[class].add(times);
        let mut commands = self.commands.borrow_mut();
        let Some(cell) = commands.get_mut(command.id.0 as usize) else { return };
        let cell =
            cell.get_or_insert_with(|| self.core.counter(&catalog::COMMAND_CALLS, &[&self.listener, command.name]));
        cell.add(times);
    }

    /// Records requests whose replies are handed to the kernel at `flushed`: request = overhead + upstream.
    #[inline]
    pub(crate) fn done(&self, done: &Done, flushed: Time) {
        let Timing { arrived, queued: _, sent } = done.timing;
        let timing = Instants { arrived, sent: Some(sent), replied: done.replied, flushed };
        let stages = done.stages.map(|Stages { parsed, judged, encoded }| StageTimes {
            parsed,
            judged,
            wanted: judged,
            encoded: Some(encoded),
        });
        self.durations.record(&timing, done.count, stages.as_ref());
    }

    pub(crate) fn shed(&self, reason: &'static str) {
        let mut sheds = self.sheds.borrow_mut();
        if let Some((_, cell)) = sheds.iter().find(|(known, _)| *known == reason) {
            return cell.inc();
        }
        let cell = self.core.counter(&catalog::SHED, &[&self.listener, reason]);
        cell.inc();
        sheds.push((reason, cell));
    }

    pub(crate) fn auth_failed(&self) {
        self.core.counter(&catalog::AUTH_FAILURES, &[&self.listener]).inc();
    }

    /// Counts a denial for a configured user, so labels are bounded. Looked up each time: it is rare, and costs no other request.
    pub(crate) fn denied(&self, user: &str, reason: &'static str) {
        self.core.counter(&catalog::REDIS_ACL_DENIED, &[&self.listener, user, reason]).inc();
    }

    pub(crate) fn logged_in(&self, user: &str) {
        self.core.counter(&catalog::REDIS_LOGINS, &[&self.listener, user]).inc();
    }

    pub(crate) fn error_reply(&self, reply: &[u8]) {
        let word = reply.get(1..).unwrap_or_default().split(|byte| byte.is_ascii_whitespace()).next();
        let word = word.unwrap_or_default();
        let known = ERROR_KINDS.iter().position(|kind| word.eq_ignore_ascii_case(kind.as_bytes()));
        let place = known.unwrap_or(ERROR_KINDS.len());
        let kind = known.map_or("other", |known| ERROR_KINDS[known]);
        let cell = &mut self.errors.borrow_mut()[place];
        cell.get_or_insert_with(|| self.core.counter(&catalog::REPLY_ERRORS, &[&self.listener, kind])).inc();
    }
}
