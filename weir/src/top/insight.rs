//! The pages of one table: what the workers remember (hot keys, big keys, slow requests), the clients that wait or keep something, and
//! those of language models.

use clap::ValueEnum;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use weir_admin::status::{
    BigKeyList, BigKeyStatus, ConnectionPage, ConnectionStatus, HotKeyList, HotKeyStatus, KeyDirection, KeyNames,
    SlowLogList, SlowRequestStatus,
};

use super::format;
use super::state::State;
use super::table::{self, Column, Content, number, text};

/// The contents of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Page {
    /// Listeners, upstreams, workers, refusals.
    #[default]
    Overview,
    /// Keys with the most requests at the moment.
    HotKeys,
    /// Keys with the largest requests and replies.
    BigKeys,
    /// Slow requests.
    SlowLog,
    /// Clients that wait for a server connection, have one to themselves (pinned), or are in a transaction.
    Clients,
    /// Clients of language models, with key, model and stream.
    Ai,
}

impl Page {
    /// Every page; the poll names a page by its place in it.
    pub(super) const ALL: [Self; 6] =
        [Self::Overview, Self::HotKeys, Self::BigKeys, Self::SlowLog, Self::Clients, Self::Ai];
}

/// Records of the workers, as far as the page needs them.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum InsightData {
    HotKeys(HotKeyList),
    BigKeys(BigKeyList),
    SlowLog(SlowLogList),
    Clients(ConnectionPage),
    Ai(ConnectionPage),
}

impl InsightData {
    /// The page that it is for.
    pub(super) fn page(&self) -> Page {
        match self {
            Self::HotKeys(_) => Page::HotKeys,
            Self::BigKeys(_) => Page::BigKeys,
            Self::SlowLog(_) => Page::SlowLog,
            Self::Clients(_) => Page::Clients,
            Self::Ai(_) => Page::Ai,
        }
    }

    /// Rows of its table.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::HotKeys(list) => list.hot_keys.len(),
            Self::BigKeys(list) => list.big_keys.len(),
            Self::SlowLog(list) => list.slow_requests.len(),
            Self::Clients(page) | Self::Ai(page) => page.connections.len(),
        }
    }

    /// Title of the table, with the workers that are missing in it.
    fn title(&self) -> String {
        let (about, silent) = match self {
            Self::HotKeys(list) => (hot_title(list), &list.workers_silent),
            Self::BigKeys(list) if list.names == KeyNames::Off => (OFF.to_owned(), &list.workers_silent),
            Self::BigKeys(list) => {
                ("big keys: largest request or reply of the last 10 minutes".to_owned(), &list.workers_silent)
            }
            Self::SlowLog(list) => (slow_title(list), &list.workers_silent),
            Self::Clients(page) => (clients_title(page), &page.workers_silent),
            Self::Ai(page) => (ai_title(page), &page.workers_silent),
        };
        match silent.as_slice() {
            [] => about,
            silent => format!("{about}  (worker {silent:?} silent)"),
        }
    }
}

/// Lines above the table: a blank one and the title.
const TITLE_LINES: u16 = 2;

/// Lines of a page with so many rows: title, heading, rows.
pub(super) fn lines(rows: usize) -> u16 {
    u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(TITLE_LINES + 1)
}

const OFF: &str = "keys are not looked at (telemetry.keys.names = \"off\")";

fn hot_title(list: &HotKeyList) -> String {
    match list.names {
        KeyNames::Off => OFF.to_owned(),
        KeyNames::Full | KeyNames::Hashed => {
            format!("hot keys: requests per second that name them, by one request of {}", list.sample)
        }
    }
}

fn slow_title(list: &SlowLogList) -> String {
    match list.slower_than_seconds {
        Some(limit) => format!("slow log: requests of {} or more, the newest first", format::seconds(limit)),
        None => "there is no slow log (telemetry.slow_log.entries = 0)".to_owned(),
    }
}

fn clients_title(page: &ConnectionPage) -> String {
    let part = if page.next_after.is_some() { ", only the first connections" } else { "" };
    format!("clients that wait, are pinned or have a transaction, the longest first{part}")
}

fn ai_title(page: &ConnectionPage) -> String {
    let part = if page.next_after.is_some() { ", only the first connections" } else { "" };
    format!("clients of language models with their last request, the busy ones first{part}")
}

/// The clients of AI listeners on a page, those with requests under way first, and of these the oldest.
pub(super) fn ai(mut page: ConnectionPage) -> InsightData {
    page.connections.retain(|row| row.protocol == "ai");
    page.connections.sort_by(|a, b| {
        let is_idle = |row: &ConnectionStatus| row.in_flight == 0;
        is_idle(a).cmp(&is_idle(b)).then(b.age_seconds.total_cmp(&a.age_seconds))
    });
    InsightData::Ai(page)
}

/// The clients of a page that keep something or wait, those that wait first, and the longest first.
pub(super) fn clients(mut page: ConnectionPage) -> InsightData {
    let key = |row: &ConnectionStatus| {
        let wait = row.waits_for.as_ref().map(|wait| wait.seconds);
        (wait.unwrap_or(-1.0), row.pinned_seconds.or(row.transaction_seconds).unwrap_or(-1.0))
    };
    page.connections.retain(|row| key(row) != (-1.0, -1.0));
    page.connections.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    InsightData::Clients(page)
}

/// Draws the page that was chosen, if its response is there already.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &mut State) {
    let [_blank, title, area] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let remembered = state.current.as_ref().and_then(|sample| sample.remembered.clone());
    let Some(remembered) = remembered.filter(|remembered| remembered.page() == state.page) else {
        frame.render_widget(Paragraph::new("waiting for the response"), title);
        return;
    };
    frame.render_widget(Paragraph::new(Line::styled(remembered.title(), Modifier::BOLD)), title);
    let offset = state.page_offset;
    state.page_offset = match &remembered {
        InsightData::HotKeys(list) => rows(frame, area, (HOT_KEYS, &list.hot_keys), offset),
        InsightData::BigKeys(list) => rows(frame, area, (BIG_KEYS, &list.big_keys), offset),
        InsightData::SlowLog(list) => rows(frame, area, (SLOW_REQUESTS, &list.slow_requests), offset),
        InsightData::Clients(page) => rows(frame, area, (CLIENTS, &page.connections), offset),
        InsightData::Ai(page) => rows(frame, area, (AI, &page.connections), offset),
    };
}

fn rows<R>(frame: &mut Frame<'_>, area: Rect, (columns, rows): (&[Column<R>], &[R]), offset: usize) -> usize {
    let heading = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    table::draw(frame, area, &Content { columns, rows, offset, heading })
}

const HOT_KEYS: &[Column<HotKeyStatus>] = &[
    number("REQ/S", 6, |row| format::count(row.per_second).into()),
    number("SEEN", 6, |row: &HotKeyStatus| format::count(row.samples as f64).into()).from(100),
    text("COMMAND", 12, |row| row.command.clone().into()),
    text("UPSTREAM", 16, |row: &HotKeyStatus| row.upstream.clone().into()).from(100),
    number("DB", 3, |row| row.db.to_string().into()),
    text("KEY", 0, |row| row.key.clone().into()),
];

const BIG_KEYS: &[Column<BigKeyStatus>] = &[
    number("SIZE", 9, |row| format::bytes(row.bytes as f64).into()),
    text("SEEN IN", 7, |row| direction(row.direction)),
    text("COMMAND", 12, |row| row.command.clone().into()),
    number("AGO", 6, |row| format::span(row.age_seconds).into()),
    text("UPSTREAM", 16, |row: &BigKeyStatus| row.upstream.clone().into()).from(100),
    number("DB", 3, |row| row.db.to_string().into()),
    text("KEY", 0, |row| row.key.clone().into()),
];

const SLOW_REQUESTS: &[Column<SlowRequestStatus>] = &[
    number("ID", 6, |row| row.id.to_string().into()),
    text("AT (UTC)", 8, |row| Span::raw(clock(row.ended_at))),
    number("TOOK", 7, |row| format::seconds(row.duration_seconds).into()),
    number("GATEWAY", 7, |row| format::seconds(row.gateway_seconds).into()),
    text("END", 8, |row: &SlowRequestStatus| row.outcome.clone().into()).from(100),
    text("CLIENT", 21, client).from(100),
    text("ENDPOINT", 21, |row: &SlowRequestStatus| endpoint(row)).from(120),
    text("COMMAND", 0, |row| Span::raw(command(row))),
];

const CLIENTS: &[Column<ConnectionStatus>] = &[
    number("ID", 7, |row| row.id.to_string().into()),
    text("LISTENER", 12, |row: &ConnectionStatus| row.listener.clone().into()).from(100),
    text("USER", 12, |row| row.user.clone().unwrap_or_default().into()),
    text("DATABASE", 12, |row| row.database.clone().unwrap_or_default().into()),
    number("WAITS", 7, |row| lasts(row.waits_for.as_ref().map(|wait| wait.seconds))),
    number("PINNED", 7, |row| lasts(row.pinned_seconds)),
    number("XACT", 7, |row| lasts(row.transaction_seconds)),
    text("CLIENT", 21, |row: &ConnectionStatus| row.peer.clone().into()).from(120),
    text("WHY", 0, |row| why(row).into()),
];

const AI: &[Column<ConnectionStatus>] = &[
    number("ID", 7, |row| row.id.to_string().into()),
    text("LISTENER", 12, |row: &ConnectionStatus| row.listener.clone().into()).from(100),
    text("KEY", 16, |row| row.key.clone().unwrap_or_else(|| "-".to_owned()).into()),
    text("STREAM", 6, |row| stream(row.stream).into()),
    number("REQS", 5, |row| row.in_flight.to_string().into()),
    number("AGE", 7, |row| format::span(row.age_seconds).into()),
    number("IDLE", 7, |row: &ConnectionStatus| format::span(row.idle_seconds).into()).from(100),
    text("CLIENT", 21, |row: &ConnectionStatus| row.peer.clone().into()).from(120),
    text("MODEL", 0, |row| row.model.clone().unwrap_or_else(|| "-".to_owned()).into()),
];

/// Whether the last request is for a stream; before the first one it is not known.
fn stream(is_stream: Option<bool>) -> &'static str {
    match is_stream {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    }
}

/// How long something has lasted, if it does.
fn lasts(seconds: Option<f64>) -> Span<'static> {
    seconds.map_or_else(|| "-".to_owned(), format::seconds).into()
}

/// Place in the line, length of the line, and pool; or the reasons why it keeps its server.
fn why(row: &ConnectionStatus) -> String {
    match &row.waits_for {
        Some(wait) => {
            let place = format!("{}/{} for {}", wait.position, wait.waiting, wait.pool);
            if wait.upstream.is_empty() { place } else { format!("{place} at {}", wait.upstream) }
        }
        None => row.pinned_by.join(", "),
    }
}

fn direction(direction: KeyDirection) -> Span<'static> {
    match direction {
        KeyDirection::Request => "request".into(),
        KeyDirection::Reply => "reply".into(),
    }
}

/// Its name says more than its address, if it has one.
fn client(row: &SlowRequestStatus) -> Span<'static> {
    row.client_name.clone().unwrap_or_else(|| row.peer.clone()).into()
}

fn endpoint(row: &SlowRequestStatus) -> Span<'static> {
    row.endpoint.clone().unwrap_or_else(|| "-".to_owned()).into()
}

fn command(row: &SlowRequestStatus) -> String {
    let command = match row.command.is_empty() {
        true => "(not kept so long)".to_owned(),
        false => row.command.join(" "),
    };
    if row.requests > 1 { format!("{command}  (+{} with it)", row.requests - 1) } else { command }
}

/// The time of day.
fn clock(unix_seconds: f64) -> String {
    let seconds = unix_seconds as u64;
    format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}
