//! The knee of a listener: the measured setup against the configured one. Nothing is extrapolated; a known difference
//! is refused, and a possible one is reported.

use std::sync::Arc;

use weir_telemetry::Level;

use crate::checks::{error_at, unfit::titles, workers};
use crate::document::At;
use crate::knee::{KneeFile, Measured};
use crate::protocols::ProtocolName;
use crate::reader::Reader;
use crate::sections::{FileSection, ListenerSection, UpstreamSection};
use crate::snapshot::{Knee, KneeAction};

/// The knee of a listener that names one and may use it; the rest was reported.
pub(super) fn knee(
    file: &FileSection,
    section: &ListenerSection,
    upstream: Option<&UpstreamSection>,
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<Arc<Knee>> {
    let warn = &section.knee_warn;
    // Zero is in the range of a share, and would warn of an idle listener.
    if warn.value.0 <= 0.0 {
        let help = "write a share of the knee above 0.0, up to 1.0; 0.8 warns at four fifths of it";
        error_at(warn, path, "knee_warn", "is 0", help, reader);
    }
    let Some(knee) = &section.knee else {
        if !reader.problems.is_refused(&format!("{path}.knee")) {
            refuse_without(warn, path, "knee_warn", reader);
            refuse_without(&section.knee_action, path, "knee_action", reader);
        }
        return None;
    };
    let fits = [
        check_protocol(section, knee, path, reader),
        check_workers(file, knee, path, reader),
        check_counters(file, knee, path, reader),
        check_action(section, knee, path, reader),
    ];
    if fits.contains(&false) {
        return None;
    }
    let measured = &knee.value.measured;
    let has_tls = section.tls.is_some() || upstream.is_some_and(|upstream| upstream.tls.is_some());
    let caveats = caveats(measured, has_tls, reader);
    for (caveat, help) in &caveats {
        let message = format!("`{path}.knee`: {caveat}");
        reader.problems.warning(&knee.span, &format!("{path}.knee"), message, *help);
    }
    Some(Arc::new(Knee {
        requests_per_second: measured.requests_per_second,
        warn_ratio: warn.value.0,
        action: section.knee_action.value,
        file: knee.value.path.clone(),
        run_id: measured.run_id.clone(),
        measured_at: measured.ended,
        caveats: caveats.into_iter().map(|(caveat, _)| caveat).collect(),
    }))
}

/// Share of the knee for one worker, if the listener sheds at it. There are as many workers as were measured.
pub(super) fn rate_per_core(knee: &Knee, section: &ListenerSection) -> Option<f64> {
    let budget = section.knee.as_ref()?.value.measured.budget_vcpu;
    (knee.action == KneeAction::Shed).then_some(knee.requests_per_second / budget)
}

fn refuse_without<T>(value: &At<T>, path: &str, key: &str, reader: &mut Reader<'_>) {
    if value.is_given {
        let help = "add knee = \"FILE\", a result of weir lab knee --json, or remove it";
        error_at(value, path, key, "has no effect without knee", help, reader);
    }
}

fn check_protocol(section: &ListenerSection, knee: &At<KneeFile>, path: &str, reader: &mut Reader<'_>) -> bool {
    let (Some(own), found) = (&section.protocol, &knee.value.measured.protocol) else { return true };
    // As scenarios call what listeners speak. A listener that has no knee was refused the key.
    let words = own.value.row().scenarios;
    if words.is_empty() {
        return false;
    }
    if words.contains(&&**found) {
        return true;
    }
    let what = format!("was found for the protocol \"{found}\", and this listener speaks {}", own.value.name());
    let help = format!("name a result of a scenario with protocol = \"{}\"", words.join("\" or \""));
    error_at(knee, path, "knee", &what, help, reader);
    false
}

fn check_workers(file: &FileSection, knee: &At<KneeFile>, path: &str, reader: &mut Reader<'_>) -> bool {
    let budget = knee.value.measured.budget_vcpu;
    let is_running = reader.surroundings.running().is_some();
    let Some(workers) = workers(file, reader) else { return true };
    if budget == workers as f64 {
        return true;
    }
    let plural = if workers == 1 { "" } else { "s" };
    let verb = if is_running { "runs with" } else { "will run with" };
    let what = format!("was found with {budget} vCPU, and the gateway {verb} {workers} worker{plural}");
    let mut help = format!("measure with weir lab knee --budget {workers}");
    if budget >= 1.0 && budget.fract() == 0.0 {
        let restart = if is_running { " and restart" } else { "" };
        help += &format!(", or set runtime.workers = {budget}{restart}");
    }
    error_at(knee, path, "knee", &what, help, reader);
    false
}

/// The load is known by counters.
fn check_counters(file: &FileSection, knee: &At<KneeFile>, path: &str, reader: &mut Reader<'_>) -> bool {
    if file.telemetry.level.value != Level::Off {
        return true;
    }
    let help = "set telemetry.level = \"counters\" or \"full\", or remove knee";
    error_at(knee, path, "knee", "needs a count of requests, and telemetry.level = \"off\" counts none", help, reader);
    false
}

/// A ceiling of the lab is no limit of the listener: no client is refused for it. Not all sessions shed by a rate.
fn check_action(section: &ListenerSection, knee: &At<KneeFile>, path: &str, reader: &mut Reader<'_>) -> bool {
    let action = &section.knee_action;
    let sheds = section.protocol.as_ref().is_none_or(|protocol| protocol.value.row().sheds);
    if action.value == KneeAction::Shed && !sheds {
        let what = format!(
            "has a value that only {} listeners support",
            titles(ProtocolName::ALL.iter().copied().filter(|name| name.row().sheds))
        );
        let help =
            "set knee_action = \"unready\" or \"observe\"; `in_flight_per_core` of [limits] limits requests in flight";
        error_at(action, path, "knee_action", &what, help, reader);
        return false;
    }
    if action.value == KneeAction::Observe || !knee.value.measured.is_at_ceiling {
        return true;
    }
    let what = "needs the true knee, but the search stopped at --rate-max or at the limit of the lab";
    let help = "search again without --rate-max and with more CPUs for the generator, or set knee_action = \"observe\"";
    error_at(action, path, "knee_action", what, help, reader);
    false
}

/// In what the measurement differs from what runs here, in sentences, each with what can be done.
fn caveats(measured: &Measured, has_tls: bool, reader: &Reader<'_>) -> Vec<(String, &'static str)> {
    let mut caveats = Vec::new();
    let mut caveat = |what: String, help| caveats.push((what, help));
    let hosts = [
        ("processor", &measured.cpu_model, reader.surroundings.cpu_model()),
        ("kernel", &measured.kernel, reader.surroundings.kernel()),
    ];
    for (what, there, here) in hosts {
        if let (Some(there), Some(here)) = (there, here)
            && *there != here
        {
            caveat(format!("the knee is from another {what}: {there:?} there, {here:?} here"), "search again here");
        }
    }
    if has_tls && !measured.has_tls {
        let what = "the knee was found without TLS, which this listener or its upstream has".to_owned();
        caveat(what, "the lab cannot measure TLS; leave a margin with knee_warn");
    }
    if measured.telemetry != "on" {
        let what = format!("the knee was found with telemetry {}, which uses another share of CPU", measured.telemetry);
        caveat(what, "search again with --telemetry on");
    }
    if measured.is_synthetic {
        let what = "the knee was found with the lab's own back end: a real server may carry less".to_owned();
        caveat(what, "search again with --behind HOST:PORT");
    }
    if measured.is_at_ceiling {
        let what =
            "the search stopped at --rate-max or at the limit of the lab: the true knee is not below it".to_owned();
        caveat(what, "search again without --rate-max and with more CPUs for the generator");
    }
    caveats
}
