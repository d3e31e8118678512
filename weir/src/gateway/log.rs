//! What the workers log, written by a thread that may block: a full disk costs lines, never requests.

use std::{
    fs::OpenOptions,
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use weir_base::time::Time;
use weir_config::{AccessLogFormat, AccessLogSettings, LogTarget};
use weir_telemetry::log::{AccessRecord, HttpAccess, LogEvent, LogReader, UpstreamChange};

use super::Reloaded;

const LOOK: Duration = Duration::from_millis(50);

/// Moves events from the workers' rings to their places until the gateway stops.
pub fn run(rings: Vec<LogReader>, settings: &AccessLogSettings, stopping: &AtomicBool) {
    let mut target = open(&settings.target);
    loop {
        let is_last = stopping.load(Ordering::Relaxed);
        for ring in &rings {
            while let Some(event) = ring.pop() {
                write(event, settings.format, target.as_mut());
            }
        }
        if let Some(target) = &mut target {
            let _ = target.flush();
        }
        if is_last {
            return;
        }
        thread::sleep(LOOK);
    }
}

fn open(target: &LogTarget) -> Option<Box<dyn Write>> {
    match target {
        LogTarget::Off => None,
        LogTarget::Stdout => Some(Box::new(std::io::stdout())),
        LogTarget::Stderr => Some(Box::new(std::io::stderr())),
        LogTarget::File(path) => match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => Some(Box::new(std::io::BufWriter::new(file))),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "cannot open the access log; it is off");
                None
            }
        },
    }
}

fn write(event: LogEvent, format: AccessLogFormat, target: Option<&mut Box<dyn Write>>) {
    match event {
        LogEvent::Access(record) => {
            if let Some(target) = target {
                // A log that cannot be written must not stop the others.
                let _ = writeln!(target, "{}", line(&record, format));
            }
        }
        LogEvent::Close(close) => tracing::warn!(
            listener = %close.listener, peer = %close.peer, connection = close.connection,
            reason = close.violation.reason, count = close.violation.count, limit = close.violation.limit,
            suppressed = close.suppressed, "{}", close.violation.text
        ),
        LogEvent::Refusal(refusal) => tracing::warn!(
            listener = %refusal.listener, reason = refusal.reason, count = refusal.count, limit = refusal.limit,
            suppressed = refusal.suppressed, "refused"
        ),
        LogEvent::Denial(denial) => tracing::warn!(
            listener = %denial.listener, peer = %denial.peer, connection = denial.connection, user = %denial.user,
            reason = denial.reason, suppressed = denial.suppressed, "denied"
        ),
        LogEvent::Upstream(event) if event.change == UpstreamChange::Up => {
            tracing::info!(upstream = %event.upstream, endpoint = %event.endpoint, "upstream is up")
        }
        LogEvent::Upstream(event) => tracing::warn!(
            upstream = %event.upstream, endpoint = %event.endpoint, change = event.change.as_str(),
            reason = event.reason, detail = event.detail.as_deref().unwrap_or_default(), "upstream"
        ),
        LogEvent::Suppressed(lines) => {
            tracing::info!(listener = %lines.listener, reason = lines.reason, count = lines.count, "lines suppressed")
        }
    }
}

fn line(record: &AccessRecord, format: AccessLogFormat) -> String {
    let age = Time::now().since(record.at);
    let at = SystemTime::now().checked_sub(age).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let at = at.unwrap_or_default().as_secs_f64();
    let upstream = record.upstream.as_deref().unwrap_or("-");
    let (took, upstream_took) = (record.duration_nanos / 1_000, record.upstream_nanos / 1_000);
    match format {
        AccessLogFormat::Text => format!(
            "{at:.3} {} {} {} {} {upstream} {took}us {upstream_took}us {}B {}B {}{}",
            record.listener,
            record.peer,
            record.connection,
            record.command,
            record.request_bytes,
            record.reply_bytes,
            record.outcome,
            record.http.as_deref().map(http_text).unwrap_or_default()
        ),
        AccessLogFormat::Json => {
            let mut shown = serde_json::json!({
            "time": at, "listener": &*record.listener, "peer": record.peer.to_string(),
            "connection": record.connection, "command": record.command, "upstream": upstream,
            "duration_us": took, "upstream_us": upstream_took,
            "request_bytes": record.request_bytes, "reply_bytes": record.reply_bytes, "outcome": record.outcome,
            });
            if let (Some(http), Some(shown)) = (&record.http, shown.as_object_mut()) {
                shown.extend(http_json(http));
            }
            shown.to_string()
        }
    }
}

/// What a line of text says of an HTTP request: status, "method path protocol", authority, route, endpoint, "user",
/// "user agent", "X-Forwarded-For", "request id", trace id.
fn http_text(http: &HttpAccess) -> String {
    let or_dash = |text: &Option<Box<str>>| text.as_deref().unwrap_or("-").to_owned();
    // A quote of the client's ends nothing.
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "'"));
    format!(
        " {} {} {} {} {} {} {} {} {} {}",
        http.status,
        quoted(&format!("{} {} {}", http.method, http.path, http.protocol)),
        http.authority,
        or_dash(&http.route),
        or_dash(&http.endpoint),
        quoted(&or_dash(&http.user)),
        quoted(&or_dash(&http.user_agent)),
        quoted(&or_dash(&http.forwarded_for)),
        quoted(&or_dash(&http.request_id)),
        or_dash(&http.trace_id)
    )
}

/// The same as pairs; what there is not is left out.
fn http_json(http: &HttpAccess) -> serde_json::Map<String, serde_json::Value> {
    let texts = [
        ("method", Some(&http.method)),
        ("path", Some(&http.path)),
        ("authority", Some(&http.authority)),
        ("route", http.route.as_ref()),
        ("endpoint", http.endpoint.as_ref()),
        ("user", http.user.as_ref()),
        ("user_agent", http.user_agent.as_ref()),
        ("forwarded_for", http.forwarded_for.as_ref()),
        ("request_id", http.request_id.as_ref()),
        ("trace_id", http.trace_id.as_ref()),
    ];
    let mut shown: serde_json::Map<_, _> =
        texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), (**text?).into()))).collect();
    shown.insert("status".to_owned(), http.status.into());
    shown.insert("protocol".to_owned(), http.protocol.into());
    shown
}

/// Says what became of a reload.
pub fn reloaded(outcome: &Reloaded, generation: u64) {
    match outcome {
        Reloaded::Applied(change) => {
            tracing::info!(generation, applied = ?change.applied, "configuration reloaded");
            if !change.needs_restart.is_empty() {
                tracing::warn!(keys = ?change.needs_restart, "these changes wait for a restart");
            }
        }
        Reloaded::Unchanged => tracing::info!(generation, "configuration unchanged"),
        Reloaded::Rejected(diagnostics) => {
            tracing::error!(generation, "configuration rejected, the last good one stays in force\n{diagnostics}");
        }
        Reloaded::Refused(error) => {
            tracing::error!(generation, %error, "configuration refused, the last good one stays in force");
        }
    }
}
