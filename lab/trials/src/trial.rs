//! One trial: a load on a target, and everything that happened meanwhile, as plain figures.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use weir_engine::settings::Address;
use weir_knee::Rules;
use weir_knee::trial::{Refused, Trial, Used};
use weir_load::record::{self, Resources};
use weir_load::scenario::{CommandKind, Mode};
use weir_load::{Arrival, Event, Scenario, StepRecord};
use weir_parties::interrupt;
use weir_parties::limits::ephemeral_ports;
use weir_parties::peer::Running;

use crate::course::Course;
use crate::watch::{Party, PartyUse, Watch, Watchee, WindowUsage};

/// Pause between two looks at Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);
/// Slices in a row that have to agree before a trial is steady.
const STEADY_SLICES: usize = 3;
/// Standard deviations of a Poisson count that they may always be from their mean.
const STEADY_SIGMAS: f64 = 4.0;

/// The target of a load, and the processes to watch.
pub(crate) struct Subject<'a> {
    pub(crate) target: &'a Address,
    pub(crate) gateway: Option<&'a Running>,
    pub(crate) origin: Option<u32>,
    /// Where the generator runs, perhaps not alone.
    pub(crate) generator_cpus: &'a [u32],
    /// Count cycles and instructions of the gateway.
    pub(crate) has_counters: bool,
}

/// The result of a trial.
pub(crate) struct TrialOutcome {
    pub(crate) trial: Trial,
    pub(crate) record: StepRecord,
    pub(crate) course: Course,
}

/// Whether several trials of `scenario` in a row mean something.
///
/// # Errors
/// They would read what the one before wrote, and take it for wrong.
pub(crate) fn check(scenario: &Scenario) -> Result<()> {
    let reads =
        scenario.commands.iter().any(|command| matches!(command.kind, CommandKind::Get | CommandKind::Mget { .. }));
    let writes = scenario.commands.iter().any(|command| matches!(command.kind, CommandKind::Set));
    if scenario.integrity && reads && writes && !scenario.keys.preload {
        bail!(
            "replies cannot be checked: without `preload = true` under [keys] a trial reads what the one before it wrote; \
             preload, or write `integrity = false`"
        );
    }
    Ok(())
}

/// Runs one trial: the only phase of `scenario`. It writes the keys again, if the scenario does so at all: what a reply must
/// hold depends on the plan of the trial, and every trial finds the same data.
pub(crate) fn run(scenario: &Scenario, subject: &Subject<'_>, rules: &Rules) -> Result<TrialOutcome> {
    let [phase] = &scenario.phases[..] else { bail!("a trial has one phase, not {}", scenario.phases.len()) };
    let (events, told) = mpsc::channel();
    let target = subject.target.clone();
    let load = thread::spawn({
        let mut scenario = scenario.clone();
        // Some gateways are configured by each request.
        scenario.ai.fields = subject.gateway.map_or(Vec::new(), |gateway| gateway.fields.clone());
        move || weir_load::run(&scenario, &target, &events)
    });
    let mut watch = None;
    let mut course = Course::default();
    let mut step = None;
    loop {
        // The load cannot be interrupted; this process can.
        interrupt::check()?;
        match told.recv_timeout(LOOK) {
            Ok(Event::Phase { measures, ends }) => watch = Some(Watch::start(parties(subject), measures, ends)),
            Ok(Event::Second(second)) => course.add(&second),
            Ok(Event::Step { record, trial, .. }) => step = Some((*trial, *record)),
            Ok(Event::Preloading(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    match load.join() {
        Ok(outcome) => outcome?,
        Err(_) => bail!("the load generator failed; its message stands above"),
    }
    let (Some((mut trial, mut record)), Some(watch)) = (step, watch) else { bail!("the load ended without a result") };
    let watched = watch.finish()?;
    course.watched(&watched, subject.gateway.and_then(|gateway| gateway.share));
    let rates = course.completed();
    // Bursts are not even by their making.
    let is_even = !matches!(scenario.mode, Mode::Open(Arrival::Gamma { .. } | Arrival::OnOff { .. }));
    trial.is_steady = !is_even || is_steady(&rates, phase.warmup, phase.duration, rules.steady_share);
    trial.completed_rate = completed_rate(&rates, phase.warmup, phase.duration);
    fill(&mut trial, &watched, subject)?;
    trial.parties.refused = most_refused(&record);
    let completed = trial.completed_rate() * trial.window_s;
    charge(&mut record.resources, &watched, completed);
    Ok(TrialOutcome { trial, record, course })
}

/// Adds the resources that each party used in the window to the record. For the generator the record has more exact figures.
pub(crate) fn charge(resources: &mut Resources, watched: &WindowUsage, completed: f64) {
    let each = |used: f64| (completed > 0.0).then(|| used / completed);
    for party in [Party::Gateway, Party::Origin] {
        let Some(used) = watched.parties.get(&party) else { continue };
        let cost = record::Party {
            cpu_us_per_req: used.cpu_s.and_then(|seconds| each(seconds * 1e6)),
            kernel_share: used.kernel_share,
            busiest_core: Some(busiest(used)),
            rss_max: Some(used.rss_max),
            fds_max: Some(used.fds.open),
            threads: Some(used.threads.len() as u32),
            throttled: used.throttled,
        };
        resources.parties.insert(party.name().to_owned(), cost);
    }
    if let Some(counted) = watched.parties.get(&Party::Gateway).and_then(|gateway| gateway.counted) {
        resources.cycles_per_req = each(counted.cycles);
        resources.instructions_per_req = each(counted.instructions);
    }
    resources.box_us_per_req = each(watched.machine.busy_us);
    resources.steal = Some(watched.machine.steal);
}

fn busiest(used: &PartyUse) -> f64 {
    used.threads.iter().copied().fold(0.0, f64::max)
}

/// All who take part, and the generator, which is this process.
fn parties(subject: &Subject<'_>) -> Vec<Watchee> {
    let generator = Watchee { party: Party::Generator, id: std::process::id(), account: None, has_counters: false };
    served_parties(subject).into_iter().chain([generator]).collect()
}

/// Gateway and origin: all who are there as long as the stage is.
pub(crate) fn served_parties(subject: &Subject<'_>) -> Vec<Watchee> {
    let watchee = |party, id, account| Watchee { party, id, account, has_counters: false };
    let gateway = subject.gateway.map(|running| Watchee {
        has_counters: subject.has_counters,
        ..watchee(Party::Gateway, running.process.id(), running.process.account())
    });
    let origin = subject.origin.map(|id| watchee(Party::Origin, id, None));
    gateway.into_iter().chain(origin).collect()
}

pub(crate) fn fill(trial: &mut Trial, watched: &WindowUsage, subject: &Subject<'_>) -> Result<()> {
    if let Some(gateway) = watched.parties.get(&Party::Gateway) {
        // Full is what uses up its share.
        let share = subject.gateway.and_then(|running| running.share);
        let of_budget = |core: f64| core / share.unwrap_or(1.0);
        trial.parties.gateway_core_busiest = Some(of_budget(busiest(gateway)));
        trial.parties.gateway_core_mean = mean_of_busy(&gateway.threads).map(of_budget);
        trial.host.throttled_periods = gateway.throttled.unwrap_or(0);
        trial.host.is_quota = share.is_some();
        let completed = trial.completed_rate() * trial.window_s;
        trial.parties.gateway_cpu_us_per_req =
            gateway.cpu_s.filter(|_| completed > 0.0).map(|seconds| seconds * 1e6 / completed);
    }
    trial.parties.generator_wait = watched.parties.get(&Party::Generator).map(|generator| generator.wait);
    trial.parties.origin_core_busiest = watched.parties.get(&Party::Origin).map(busiest);
    trial.host.slices = watched.slices;
    trial.host.slices_stolen = watched.slices_stolen;
    trial.host.idle = Some(watched.machine.idle);
    let shared = watched.cpus.iter().filter(|(cpu, _)| subject.generator_cpus.contains(cpu));
    trial.host.generator_cpu = shared.map(|(_, used)| 1.0 - used.idle).max_by(f64::total_cmp);
    let fullest = watched.parties.values().map(|used| Used { used: used.fds.open, limit: used.fds.limit });
    trial.resources.fds = fullest.max_by(|a, b| a.share().total_cmp(&b.share())).unwrap_or_default();
    if !matches!(subject.target, Address::Unix(_)) {
        trial.resources.ports = Used { used: trial.resources.sockets_asked, limit: ephemeral_ports()? };
    }
    trial.resources.kernel_drops = watched.kernel.drops;
    trial.resources.swap_bytes = watched.kernel.swapped * rustix::param::page_size() as u64;
    Ok(())
}

/// Replies per second of the window, by when they came; `None` unless it is made of whole seconds.
fn completed_rate(rates: &[f64], warmup: Duration, window: Duration) -> Option<f64> {
    let is_whole = warmup.subsec_nanos() == 0 && window.subsec_nanos() == 0 && !window.is_zero();
    let (begin, count) = (warmup.as_secs() as usize, window.as_secs() as usize);
    let within = rates.get(begin..begin + count).filter(|_| is_whole)?;
    Some(within.iter().sum::<f64>() / count as f64)
}

/// Mean over the threads that carry load: the others (admin, log) do next to nothing.
fn mean_of_busy(threads: &[f64]) -> Option<f64> {
    let most = threads.iter().copied().fold(0.0, f64::max);
    let busy: Vec<f64> = threads.iter().copied().filter(|share| *share > most / 4.0).collect();
    (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64)
}

/// The refusal that clients saw most.
fn most_refused(record: &StepRecord) -> Option<Refused> {
    let (limit, count) = record.counts.shed.iter().max_by_key(|(_, count)| **count)?;
    Some(Refused { limit: limit.clone(), count: *count })
}

/// Whether three seconds in a row agree about the completed rate, around the begin of the window. Latency does not count:
/// under overload it grows, and that is a finding and no fault of the trial. A window too short to tell passes.
fn is_steady(rates: &[f64], warmup: Duration, window: Duration, share: f64) -> bool {
    let begin = (warmup.as_secs_f64().floor() as usize).saturating_sub(1);
    let end = ((warmup + window).as_secs_f64().floor() as usize).min(rates.len());
    let around = rates.get(begin..end).unwrap_or_default();
    around.len() < STEADY_SLICES || around.windows(STEADY_SLICES).any(|slices| agree(slices, share))
}

fn agree(rates: &[f64], share: f64) -> bool {
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let allowed = (share * mean).max(STEADY_SIGMAS * mean.sqrt());
    rates.iter().all(|rate| (rate - mean).abs() <= allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_seconds_in_a_row_must_agree() {
        let (warmup, window) = (Duration::from_secs(1), Duration::from_secs(4));
        let is_steady = |rates: &[f64], warmup, window| is_steady(rates, warmup, window, 0.02);
        assert!(is_steady(&[500.0, 10_000.0, 10_100.0, 9_950.0, 10_000.0], warmup, window));
        assert!(!is_steady(&[500.0, 10_000.0, 5_000.0, 10_000.0, 5_000.0], warmup, window));
        // 100 a second scatter by 10.
        assert!(is_steady(&[100.0, 120.0, 85.0, 100.0, 90.0], warmup, window));
        assert!(is_steady(&[1.0, 9.0], Duration::ZERO, Duration::from_secs(2)), "too short to tell");
    }

    #[test]
    fn replies_after_the_window_do_not_count_for_its_rate() {
        let (warmup, window) = (Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!(completed_rate(&[9.0, 100.0, 110.0, 40.0], warmup, window), Some(105.0));
        assert_eq!(completed_rate(&[9.0, 100.0], warmup, window), None, "seconds are missing");
        assert_eq!(completed_rate(&[9.0, 100.0, 110.0], Duration::from_millis(500), window), None);
    }

    #[test]
    fn idle_threads_do_not_dilute_the_mean_of_the_cores() {
        let mean = mean_of_busy(&[0.9, 0.7, 0.001, 0.02]).expect("two busy threads");
        assert!((mean - 0.8).abs() < 1e-9);
        assert_eq!(mean_of_busy(&[]), None);
    }
}
