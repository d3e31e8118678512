//! Draws the state into a frame, or into plain text.

use std::time::Instant;

use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::{Frame, Terminal};
use weir_admin::status::{Breaker, CertificateState, Health, ListenerState, Validity, Verdict};

use super::format;
use super::insight::{self, Page};
use super::responses::ResponseRates;
use super::state::{Section, SortKey, State};
use super::table::{self, Column, Content, number, share_out, text};
use super::view::{EndpointRow, KneeLoad, ListenerRow, RefusalRow, RouteRow, Time, View, WorkerRow};

/// Lines above the tables: identity, sums, alert.
const HEADER_LINES: u16 = 3;
/// Lines of a table besides its rows: a blank one and the heading.
const TABLE_EXTRA_LINES: u16 = 2;
/// Columns that workers need; refusals get the rest of the line.
const WORKERS_WIDTH: u16 = 28;
const WORKERS_WIDTH_WIDE: u16 = 40;

/// Draws a frame. `now` is for how long ago the server last responded.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, now: Instant) {
    let view = view_of(state);
    let [header, body, help] =
        Layout::vertical([Constraint::Length(HEADER_LINES), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    draw_header(frame, header, state, view.as_ref(), now);
    if let Some(view) = &view {
        match state.page {
            Page::Overview => draw_tables(frame, body, state, view),
            Page::HotKeys | Page::BigKeys | Page::SlowLog | Page::Clients | Page::Ai => {
                insight::draw(frame, body, state)
            }
        }
    }
    frame.render_widget(Paragraph::new(help_line(state, view.as_ref())).style(dim()), help);
}

/// The frame as text, as high as it needs to be, without trailing blanks.
pub(super) fn plain(state: &mut State, columns: u16) -> String {
    let rows = view_of(state).map_or(0, |view| {
        let lower = view.workers.len().max(view.refusals.len());
        let routes = if view.routes.is_empty() { 0 } else { view.routes.len() + usize::from(TABLE_EXTRA_LINES) };
        view.listeners.len() + routes + view.upstreams.len() + lower
    });
    // A bound for the grid only: 1,000 lines are more than any configuration fills.
    let rows = u16::try_from(rows).unwrap_or(u16::MAX).min(1000);
    let remembered = state.current.as_ref().and_then(|sample| sample.remembered.as_ref());
    let body = match state.page {
        Page::Overview => 3 * TABLE_EXTRA_LINES + rows,
        Page::HotKeys | Page::BigKeys | Page::SlowLog | Page::Clients | Page::Ai => {
            insight::lines(remembered.map_or(0, |remembered| remembered.rows().min(1000)))
        }
    };
    let height = HEADER_LINES + body + 1;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, height));
    let Ok(completed) = terminal.draw(|frame| draw(frame, state, Instant::now()));
    let buffer = completed.buffer;
    let mut text = String::new();
    for line in buffer.content().chunks(usize::from(columns)) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    // The last line names keys, which text does not have.
    let end = text.trim_end().rfind('\n').unwrap_or(0);
    text.truncate(end);
    format!("{}\n", text.trim_end())
}

fn view_of(state: &State) -> Option<View> {
    let current = state.current.as_ref()?;
    Some(View::of(current, state.previous.as_ref(), state.sort))
}

// === header ===

fn draw_header(frame: &mut Frame<'_>, area: Rect, state: &State, view: Option<&View>, now: Instant) {
    let lines =
        vec![identity_line(state, view, area.width), totals_line(view, area.width), alert_line(state, view, now)];
    frame.render_widget(Paragraph::new(lines), area);
}

fn identity_line(state: &State, view: Option<&View>, width: u16) -> Line<'static> {
    let mut spans = vec![Span::styled("weir top ", Modifier::BOLD), Span::raw(format!("{}  ", state.admin))];
    if let Some(sample) = &state.current {
        let version = &sample.version;
        let uptime = format::span(version.uptime_seconds);
        let commit = &version.commit;
        let build = if version.debug { " debug build" } else { "" };
        let generation = version.generation;
        spans.push(match sample.readiness.status {
            Verdict::Pass | Verdict::Warn => Span::styled("READY", good()),
            Verdict::Fail => Span::styled("NOT READY", bad()),
        });
        spans.push(Span::raw(format!("  up {uptime}  config {generation}  v{} ({commit}){build}", version.version)));
    }
    if let Some(seconds) = view.and_then(|view| view.window_seconds).filter(|_| width >= 100) {
        spans.push(Span::styled(format!("  rates and times over {seconds:.1} s"), dim()));
    }
    if state.is_paused {
        spans.insert(1, Span::styled("PAUSED ", warning()));
    }
    Line::from(spans)
}

fn totals_line(view: Option<&View>, width: u16) -> Line<'static> {
    let Some(view) = view else {
        return Line::default();
    };
    let totals = &view.totals;
    let mut text = format!(
        "conns {}  req/s {}  infl {}  shed/s {}  cpu {}",
        totals.connections,
        rate_text(totals.requests_per_second),
        totals.in_flight,
        rate_text(totals.shed_per_second),
        totals.worker_cpu.map_or_else(|| NOTHING.to_owned(), |share| format!("{:.0}%", share * 100.0)),
    );
    if let Some(resident) = totals.resident_bytes {
        text.push_str(&format!("  rss {}", format::bytes(resident)));
    }
    if let Some(open) = totals.open_fds {
        text.push_str(&format!("  fds {}", format::count(open)));
        if let Some(max) = totals.max_fds.filter(|_| width >= 100) {
            text.push_str(&format!("/{}", format::count(max)));
        }
    }
    Line::raw(text)
}

/// The one thing to look at first. That the server does not respond comes before what it last said.
fn alert_line(state: &State, view: Option<&View>, now: Instant) -> Line<'static> {
    if let Some(failure) = &state.failure {
        let age = state.responded_at.map_or_else(String::new, |at| {
            let age = now.saturating_duration_since(at).as_secs_f64();
            format!(" for {}", format::span(age))
        });
        return Line::styled(format!("NO DATA{age}, retrying: {failure}"), bad());
    }
    let Some(view) = view else {
        return Line::styled("waiting for the first response", dim());
    };
    match view.alerts.as_slice() {
        [] => Line::default(),
        [only] => Line::styled(format!("! {only}"), bad()),
        [first, others @ ..] => Line::styled(format!("! {first}  (+{} more)", others.len()), bad()),
    }
}

fn help_line(state: &State, view: Option<&View>) -> String {
    if state.page != Page::Overview {
        return "q quit  p pause  h hot keys  b big keys  l slow log  w clients  a AI  o overview  arrows scroll"
            .to_owned();
    }
    let sort = match state.sort.key {
        SortKey::Name => "name",
        SortKey::Connections => "conns",
        SortKey::Requests => "req/s",
        SortKey::P99 => "p99",
        SortKey::InFlight => "infl",
        SortKey::Shed => "shed/s",
    };
    let direction = if state.sort.is_reversed { " reversed" } else { "" };
    let has_lifetime = view.is_some_and(|view| {
        let is_lifetime = |time: Time| matches!(time, Time::Lifetime(_));
        view.listeners.iter().any(|row| is_lifetime(row.p99))
            || view.upstreams.iter().any(|row| is_lifetime(row.wait_p99))
    });
    let note = if has_lifetime { "  * since start" } else { "" };
    format!("q quit  p pause  h/b/l more  sort n/c/r/t/i/s: {sort}{direction}  tab+arrows{note}")
}

// === tables ===

fn draw_tables(frame: &mut Frame<'_>, area: Rect, state: &mut State, view: &View) {
    let want = |rows: usize| u16::try_from(rows.max(1)).unwrap_or(u16::MAX).saturating_add(TABLE_EXTRA_LINES);
    let lower_rows = view.workers.len().max(view.refusals.len());
    state.has_routes = !view.routes.is_empty();
    let routes = if state.has_routes { want(view.routes.len()) } else { 0 };
    let wants = [want(view.listeners.len()), routes, want(view.upstreams.len()), want(lower_rows)];
    let heights = share_out(wants, area.height).map(Constraint::Length);
    let [listeners, routes, upstreams, lower] = Layout::vertical(heights).areas(area);
    let workers_width = if area.width >= 120 { WORKERS_WIDTH_WIDE } else { WORKERS_WIDTH };
    let [workers, refusals] =
        Layout::horizontal([Constraint::Length(workers_width), Constraint::Min(0)]).spacing(2).areas(lower);
    draw_section(frame, listeners, state, Section::Listeners, (LISTENERS, &view.listeners));
    draw_section(frame, routes, state, Section::Routes, (ROUTES, &view.routes));
    draw_section(frame, upstreams, state, Section::Upstreams, (UPSTREAMS, &view.upstreams));
    draw_section(frame, workers, state, Section::Workers, (WORKERS, &view.workers));
    draw_section(frame, refusals, state, Section::Refusals, (REFUSALS, &view.refusals));
}

fn draw_section<R>(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &mut State,
    section: Section,
    (columns, rows): (&[Column<R>], &[R]),
) {
    let [_blank, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let heading = if state.focus == section {
        Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)
    } else {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    };
    let content = Content { columns, rows, offset: state.offset(section), heading };
    let offset = table::draw(frame, area, &content);
    state.set_offset(section, offset);
}

fn has_http(rows: &[ListenerRow]) -> bool {
    rows.iter().any(|row| row.is_http)
}

/// Up to this width BROKE/S takes the place of a quantile. It is there once a response has broken off.
const NARROW: u16 = 88;

fn any_broken(mut rates: impl Iterator<Item = Option<ResponseRates>>) -> bool {
    rates.any(|rates| rates.is_some_and(|rates| rates.has_broken))
}

fn has_broken(rows: &[ListenerRow]) -> bool {
    any_broken(rows.iter().map(|row| row.responses))
}

fn has_broken_origin(rows: &[EndpointRow]) -> bool {
    any_broken(rows.iter().map(|row| row.responses))
}

fn has_tls(rows: &[ListenerRow]) -> bool {
    rows.iter().any(|row| row.certificate.is_some())
}

fn has_responses(rows: &[EndpointRow]) -> bool {
    rows.iter().any(|row| row.responses.is_some())
}

const LISTENERS: &[Column<ListenerRow>] = &[
    text("LISTENER", 0, |row| row.name.clone().into()),
    text("PROTOCOL", 8, |row: &ListenerRow| row.protocol.clone().into()).rank(6),
    text("BIND", 21, |row: &ListenerRow| row.bind.clone().into()).rank(5),
    text("STATE", 9, listener_state),
    number("CONNS", 6, |row| format::count(row.connections as f64).into()),
    number("ACC/S", 6, |row: &ListenerRow| rate(row.accepts_per_second)).rank(7),
    number("REQ/S", 6, |row| rate(row.requests_per_second)),
    number("2XX/S", 6, |row: &ListenerRow| class(row.responses, |rates| rates.successful)).rank(9).when(has_http),
    number("3XX/S", 6, |row: &ListenerRow| class(row.responses, |rates| rates.redirection)).rank(9).when(has_http),
    number("4XX/S", 6, |row: &ListenerRow| class(row.responses, |rates| rates.client_error)).when(has_http),
    number("5XX/S", 6, |row: &ListenerRow| server_errors(row.responses)).when(has_http),
    number("BROKE/S", 7, |row: &ListenerRow| broken(row.responses)).when(has_broken),
    number("KNEE%", 6, |row: &ListenerRow| knee(row.knee)).from(90).rank(4),
    number("P50", 7, |row: &ListenerRow| time(row.p50)).to(NARROW).when(|rows| !has_broken(rows)),
    number("P50", 7, |row: &ListenerRow| time(row.p50)).from(NARROW + 1),
    number("P99", 7, |row| time(row.p99)),
    number("P99.9", 7, |row: &ListenerRow| time(row.p999)).rank(3),
    number("OWN P99", 7, |row: &ListenerRow| time(row.overhead_p99)).rank(8),
    number("CERT", 6, |row: &ListenerRow| certificate(row.certificate)).rank(2).when(has_tls),
    number("INFL", 6, |row| format::count(row.in_flight as f64).into()),
    number("SHED/S", 6, |row| alarming(row.shed_per_second)),
    number("IN/S", 8, |row: &ListenerRow| byte_rate(row.received_per_second)).from(100).rank(1),
    number("OUT/S", 8, |row: &ListenerRow| byte_rate(row.sent_per_second)).from(100).rank(1),
];

const ROUTES: &[Column<RouteRow>] = &[
    text("ROUTE", 0, |row| row.name.clone().into()),
    text("LISTENERS", 16, |row: &RouteRow| row.listeners.clone().into()).from(100),
    text("STATE", 9, route_state),
    number("REQ/S", 6, |row| rate(row.requests_per_second)),
    number("2XX/S", 6, |row| class(row.responses, |rates| rates.successful)),
    number("3XX/S", 6, |row| class(row.responses, |rates| rates.redirection)),
    number("4XX/S", 6, |row| class(row.responses, |rates| rates.client_error)),
    number("5XX/S", 6, |row| server_errors(row.responses)),
    number("BROKE/S", 7, |row: &RouteRow| broken(row.responses))
        .when(|rows| any_broken(rows.iter().map(|row| row.responses))),
];

const UPSTREAMS: &[Column<EndpointRow>] = &[
    text("UPSTREAM", 0, |row| format!("{} {}", row.upstream, row.address).into()),
    text("HEALTH", 9, health).from(100),
    text("BREAKER", 9, |row: &EndpointRow| breaker(row.breaker)).from(100),
    text("HEALTH", 9, health_or_breaker).to(99),
    number("SHR", 4, |row| format::count(row.lanes_shared as f64).into()),
    number("PIN", 5, |row| format::count(row.lanes_pinned as f64).into()),
    number("WAIT", 5, |row| waiters(row.waiters)),
    number("W99", 7, |row: &EndpointRow| time(row.wait_p99)).to(NARROW).when(|rows| !has_broken_origin(rows)),
    number("W99", 7, |row: &EndpointRow| time(row.wait_p99)).from(NARROW + 1),
    number("INFL", 5, |row| format::count(row.in_flight as f64).into()),
    number("REQ/S", 6, |row| rate(row.requests_per_second)),
    number("4XX/S", 6, |row: &EndpointRow| class(row.responses, |rates| rates.client_error))
        .from(110)
        .when(has_responses),
    number("5XX/S", 6, |row: &EndpointRow| server_errors(row.responses)).when(has_responses),
    number("BROKE/S", 7, |row: &EndpointRow| broken(row.responses)).when(has_broken_origin),
    number("FAIL/S", 6, |row: &EndpointRow| alarming(row.failures_per_second)).from(100),
    number("CONN/S", 6, |row: &EndpointRow| rate(row.connects_per_second)).from(110),
    text("LAST ERROR", 60, |row: &EndpointRow| last_error(row)).from(160),
];

const WORKERS: &[Column<WorkerRow>] = &[
    number("WORKER", 6, |row| row.id.to_string().into()),
    number("CORE", 4, |row: &WorkerRow| core(row.cpu)).from(40),
    number("CPU%", 5, |row| cpu(row.cpu_share)),
    number("CONNS", 6, |row| format::count(row.connections as f64).into()),
    number("TURN/S", 6, |row: &WorkerRow| rate(row.turns_per_second)).from(40),
    text("DRIVER", 8, driver),
];

const REFUSALS: &[Column<RefusalRow>] = &[
    text("REFUSED", 0, |row| format!("{} {} {}", row.listener, row.what, row.reason).into()),
    number("/S", 6, |row| alarming(row.per_second)),
    number("TOTAL", 6, |row| format::count(row.total as f64).into()),
];

// === cells ===

/// Stands for a value that is not known, or not yet.
const NOTHING: &str = "-";

fn rate_text(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), format::count)
}

fn rate(value: Option<f64>) -> Span<'static> {
    rate_text(value).into()
}

fn byte_rate(value: Option<f64>) -> Span<'static> {
    value.map_or_else(|| NOTHING.to_owned(), format::bytes).into()
}

/// The rate of one class of responses.
fn class(rates: Option<ResponseRates>, of: fn(&ResponseRates) -> f64) -> Span<'static> {
    rate(rates.as_ref().map(of))
}

fn server_errors(rates: Option<ResponseRates>) -> Span<'static> {
    alarming(rates.map(|rates| rates.server_error))
}

fn broken(rates: Option<ResponseRates>) -> Span<'static> {
    alarming(rates.map(|rates| rates.broken))
}

/// A rate that should be zero.
fn alarming(value: Option<f64>) -> Span<'static> {
    let style = if value.is_some_and(|value| value > 0.0) { bad() } else { Style::new() };
    Span::styled(rate_text(value), style)
}

fn time(value: Time) -> Span<'static> {
    match value {
        Time::None => NOTHING.into(),
        Time::Window(seconds) => format::seconds(seconds).into(),
        Time::Lifetime(seconds) => Span::styled(format!("{}*", format::seconds(seconds)), dim()),
    }
}

fn core(cpu: Option<u32>) -> Span<'static> {
    cpu.map_or_else(|| NOTHING.to_owned(), |cpu| cpu.to_string()).into()
}

fn cpu(share: Option<f64>) -> Span<'static> {
    let style = match share {
        Some(share) if share >= 0.9 => warning(),
        _ => Style::new(),
    };
    let text = share.map_or_else(|| NOTHING.to_owned(), |share| format!("{:.1}", share * 100.0));
    Span::styled(text, style)
}

/// Load in percent of the knee; the mark says without colours that it is past `knee_warn`.
fn knee(load: Option<KneeLoad>) -> Span<'static> {
    let Some(KneeLoad { share: Some(share), is_warned, is_reached }) = load else { return NOTHING.into() };
    let percent = share * 100.0;
    match (is_reached, is_warned) {
        (true, _) => Span::styled(format!("{percent:.0}!"), bad()),
        (_, true) => Span::styled(format!("{percent:.0}!"), warning()),
        _ => format!("{percent:.0}").into(),
    }
}

/// Days that a certificate has left; the mark says without colours that they are few.
fn certificate(certificate: Option<(i64, CertificateState)>) -> Span<'static> {
    let Some((days, state)) = certificate else { return NOTHING.into() };
    match state {
        CertificateState::Valid => format!("{days}d").into(),
        CertificateState::Warning => Span::styled(format!("{days}d!"), warning()),
        CertificateState::Critical => Span::styled(format!("{days}d!"), bad()),
        CertificateState::Expired => Span::styled("OVER", bad()),
    }
}

fn waiters(count: u64) -> Span<'static> {
    let style = if count > 0 { warning() } else { Style::new() };
    Span::styled(format::count(count as f64), style)
}

/// A worker that is stalled has its driver's place taken: the one thing that matters about it.
fn driver(row: &WorkerRow) -> Span<'static> {
    if row.is_stalled { Span::styled("STALLED", bad()) } else { row.driver.clone().into() }
}

fn last_error(row: &EndpointRow) -> Span<'static> {
    row.last_error.clone().unwrap_or_else(|| NOTHING.to_owned()).into()
}

/// Stands for a state that would be good, were it not for the responses.
fn errors() -> Span<'static> {
    Span::styled("ERRORS", bad())
}

fn listener_state(row: &ListenerRow) -> Span<'static> {
    match row.state {
        ListenerState::Accepting if row.fails => errors(),
        ListenerState::Starting => Span::styled("starting", warning()),
        ListenerState::Accepting => Span::styled("accepting", good()),
        ListenerState::Paused => Span::styled("PAUSED", bad()),
        ListenerState::Draining => Span::styled("draining", warning()),
        ListenerState::Closed => Span::styled("closed", dim()),
    }
}

fn route_state(row: &RouteRow) -> Span<'static> {
    match (row.validity, row.is_online) {
        (Validity::Invalid, _) => Span::styled("INVALID", bad()),
        (Validity::Orphaned, _) => Span::styled("orphaned", warning()),
        (Validity::Valid, false) => Span::styled("offline", dim()),
        (Validity::Valid, true) if fail(row.responses) => errors(),
        (Validity::Valid, true) => Span::styled("online", good()),
    }
}

fn fail(responses: Option<ResponseRates>) -> bool {
    responses.is_some_and(ResponseRates::fail)
}

fn health(row: &EndpointRow) -> Span<'static> {
    match row.health {
        Health::Healthy | Health::Unknown if fail(row.responses) => errors(),
        Health::Unknown => Span::styled("unknown", dim()),
        Health::Healthy => Span::styled("healthy", good()),
        Health::Unhealthy => Span::styled("UNHEALTHY", bad()),
    }
}

/// Where there is room for one word: the one that tells of trouble.
fn health_or_breaker(row: &EndpointRow) -> Span<'static> {
    match (row.health, row.breaker) {
        (Health::Unhealthy, _) | (_, Breaker::Closed) => health(row),
        (_, Breaker::Open) => Span::styled("brk OPEN", bad()),
        (_, Breaker::HalfOpen) => Span::styled("brk half", warning()),
    }
}

fn breaker(breaker: Breaker) -> Span<'static> {
    match breaker {
        Breaker::Closed => "closed".into(),
        Breaker::Open => Span::styled("OPEN", bad()),
        Breaker::HalfOpen => Span::styled("half open", warning()),
    }
}

// === styles: the words alone carry the meaning, so a terminal without colours loses nothing ===

fn good() -> Style {
    Style::new().fg(Color::Green)
}

fn warning() -> Style {
    Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD)
}

fn bad() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}
