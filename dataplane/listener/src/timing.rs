//! The time that exchanges take: `request = overhead + upstream`, and the overhead of some of them by its stages.

use std::{cell::Cell, rc::Rc};

use weir_base::time::Time;
use weir_telemetry::{CoreMetrics, Histogram, catalog};

use crate::share::CoreShare;

/// The instants of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The request had arrived.
    pub arrived: Time,
    /// The request was handed to a lane. `None`: the gateway answered itself.
    pub sent: Option<Time>,
    /// The response of the server was complete, or that of the gateway.
    pub replied: Time,
    /// The response was handed to the kernel, or is about to be.
    pub flushed: Time,
}

/// The instants between the stages of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct StageTimes {
    /// The request was parsed.
    pub parsed: Time,
    /// Limits and policies had let the request pass.
    pub judged: Time,
    /// A lane was wanted for the request: its body was there, as far as it is read before.
    pub wanted: Time,
    /// The beginning of the response was in the output of the client. `None`: that is the last instant that is known.
    pub encoded: Option<Time>,
}

/// The part of the overhead of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the arrival of the request to its last field.
    Parse,
    /// Limits, policies and the choice of the route.
    Policy,
    /// The wait for a connection to the server.
    LaneWait,
    /// From the arrival of the response to the output of the client; of HTTP for the last piece of the response.
    Encode,
    /// From the output of the client to the kernel.
    Write,
}

/// How many exchanges have their stages timed, for all listeners of one worker. Clones share it.
#[derive(Clone)]
pub struct StageSample {
    /// One exchange of this many; 0: none.
    every: Rc<Cell<u32>>,
}

impl StageSample {
    /// The share of the exchanges whose stages are timed, 0 to 1. Reading the clock at each stage costs 25 ns a time.
    pub fn new(share: f64) -> Self {
        let own = Self { every: Rc::default() };
        own.set(share);
        own
    }

    /// Changes the share. It holds from the next timed exchange of each listener on; where none was timed, at once.
    pub fn set(&self, share: f64) {
        self.every.set(if share > 0.0 { (1.0 / share).round() as u32 } else { 0 });
    }
}

/// The stages of the exchanges of one listener on one worker, of one exchange in `telemetry.stage_sample`.
pub struct Stages {
    cells: [Histogram; 5],
    countdown: Cell<u32>,
    sample: StageSample,
}

impl Stages {
    /// The stages of `listener`.
    pub fn new(core: &CoreShare, listener: &str) -> Self {
        let cell = |name| core.metrics.histogram(&catalog::REQUEST_STAGE_DURATION, &[listener, name]);
        Self {
            cells: ["parse", "policy", "lane_wait", "encode", "write"].map(cell),
            countdown: Cell::new(0),
            sample: core.stage_sample.clone(),
        }
    }

    /// Tells whether the stages of the next exchange are timed.
    #[inline]
    pub fn samples(&self) -> bool {
        let left = self.countdown.get();
        if left > 1 {
            self.countdown.set(left - 1);
            return false;
        }
        let every = self.sample.every.get();
        self.countdown.set(every);
        every != 0
    }

    /// Records one stage of a timed exchange.
    pub fn record(&self, stage: Stage, begin: Time, end: Time) {
        self.cells[stage as usize].record(end.nanos_since(begin));
    }
}

/// The duration of the exchanges of one listener on one worker.
pub struct Durations {
    request: Histogram,
    upstream: Histogram,
    overhead: Histogram,
    stages: Stages,
}

impl Durations {
    /// The durations of `listener`.
    pub fn new(core: &CoreShare, listener: &str) -> Self {
        let cell = |metrics: &CoreMetrics, metric| metrics.histogram(metric, &[listener]);
        Self {
            request: cell(&core.metrics, &catalog::REQUEST_DURATION),
            upstream: cell(&core.metrics, &catalog::REQUEST_UPSTREAM_DURATION),
            overhead: cell(&core.metrics, &catalog::REQUEST_OVERHEAD_DURATION),
            stages: Stages::new(core, listener),
        }
    }

    /// Tells whether the stages of the next exchange are timed.
    #[inline]
    pub fn samples_stages(&self) -> bool {
        self.stages.samples()
    }

    /// Records `count` exchanges that took the same time.
    #[inline]
    pub fn record(&self, timing: &Timing, count: u64, stages: Option<&StageTimes>) {
        let request = timing.flushed.nanos_since(timing.arrived);
        let upstream = timing.sent.map_or(0, |sent| timing.replied.nanos_since(sent).min(request));
        self.request.record_many(request, count);
        self.upstream.record_many(upstream, count);
        self.overhead.record_many(request - upstream, count);
        if let Some(stages) = stages {
            self.record_stages(timing, stages);
        }
    }

    #[cold]
    fn record_stages(&self, timing: &Timing, times: &StageTimes) {
        self.stages.record(Stage::Parse, timing.arrived, times.parsed);
        self.stages.record(Stage::Policy, times.parsed, times.judged);
        if let Some(sent) = timing.sent {
            self.stages.record(Stage::LaneWait, times.wanted, sent);
        }
        self.stages.record(Stage::Encode, timing.replied, times.encoded.unwrap_or(timing.flushed));
        if let Some(encoded) = times.encoded {
            self.stages.record(Stage::Write, encoded, timing.flushed);
        }
    }
}
