//! SHOW CLIENTS, SERVERS, SOCKETS and PINS: connections one by one.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use weir_base::time::{Time, turn};
use weir_listener::{ConnectionDetails, ConnectionEntry, Session as _};

use super::{
    Console,
    show::TEXTS,
    table::{Cell, Table},
};
use crate::inventory::{self, ServerReport};

const COLUMNS: [&str; 21] = [
    "type",
    "user",
    "database",
    "replication",
    "state",
    "addr",
    "port",
    "local_addr",
    "local_port",
    "connect_time",
    "request_time",
    "wait",
    "wait_us",
    "close_needed",
    "ptr",
    "link",
    "remote_pid",
    "tls",
    "application_name",
    "prepared_statements",
    "id",
];
/// Further columns of SHOW SOCKETS: positions in buffers. A worker has its buffers for the time of a turn, so only bytes that wait to be
/// sent exist.
const POSITIONS: [&str; 7] =
    ["recv_pos", "pkt_pos", "pkt_remain", "send_pos", "send_remain", "pkt_avail", "send_avail"];

/// A number that is no row's: the server of a client that holds none.
fn pointer(kind: char, id: u64) -> String {
    format!("{kind}{id:#x}")
}

/// The rows that a table has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Clients,
    Servers,
    Sockets,
    ActiveSockets,
}

impl Console<'_> {
    /// The clients of the listener that are logged in, or log in.
    pub(super) fn entries(&self) -> Vec<(Arc<ConnectionEntry>, ConnectionDetails)> {
        let entries = self.connection.handle().table().entries().into_iter();
        let own = entries.filter(|entry| entry.listener == *self.service.sessions.name() && !entry.has_left());
        own.map(|entry| (entry.clone(), entry.details().clone())).collect()
    }

    pub(super) async fn sockets(&self, wanted: Wanted) -> Table {
        let has_positions = matches!(wanted, Wanted::Sockets | Wanted::ActiveSockets);
        let columns: Vec<_> = COLUMNS.iter().chain(if has_positions { &POSITIONS[..] } else { &[] }).copied().collect();
        let mut table = Table::new(&columns, TEXTS);
        let servers = inventory::collect(self.service).await.servers;
        let entries = self.entries();
        let clock = Clock::new();
        let only_active = wanted == Wanted::ActiveSockets;
        if wanted != Wanted::Servers {
            for (entry, details) in &entries {
                if !only_active || entry.held().is_some() {
                    let mut row = self.client(entry, details, &clock);
                    row.extend(positions(has_positions, entry.buffered.load(std::sync::atomic::Ordering::Relaxed)));
                    table.row(row);
                }
            }
        }
        if wanted != Wanted::Clients {
            let holders: HashMap<u64, &(Arc<ConnectionEntry>, ConnectionDetails)> =
                entries.iter().filter_map(|one| Some((one.0.held()?.0, one))).collect();
            for server in &servers {
                let holder = holders.get(&server.id);
                if !only_active || holder.is_some() {
                    let mut row = server_row(server, holder.copied(), &clock);
                    row.extend(positions(has_positions, 0));
                    table.row(row);
                }
            }
        }
        table
    }

    fn client(&self, entry: &ConnectionEntry, details: &ConnectionDetails, clock: &Clock) -> Vec<Cell> {
        let settings = self.service.sessions.settings();
        let local = settings.bind.to_string();
        let ((address, port), (own, own_port)) = (divided(&entry.peer), divided(&local));
        let waiting = entry.waiting_since();
        let is_busy = entry.in_flight.load(std::sync::atomic::Ordering::Relaxed) > 0;
        let state = match (waiting, entry.held()) {
            (Some(_), _) => "waiting",
            (None, Some(_)) => "active",
            (None, None) if is_busy => "active",
            (None, None) => "idle",
        };
        let wait = waiting.map(|since| clock.now.since(since)).unwrap_or_default();
        let asked = Time::from_nanos(entry.active_at.load(std::sync::atomic::Ordering::Relaxed));
        vec![
            "C".into(),
            details.user.clone().into(),
            details.database.clone().into(),
            "none".into(),
            state.into(),
            address.into(),
            port.into(),
            own.into(),
            own_port.into(),
            clock.shown(entry.accepted_at).into(),
            clock.shown(asked).into(),
            wait.as_secs().into(),
            wait.subsec_micros().into(),
            u32::from(entry.is_killed()).into(),
            pointer('c', entry.id).into(),
            entry.held().map_or(String::new(), |(server, _)| pointer('s', server)).into(),
            0_u32.into(),
            details.tls.clone().into(),
            details.name.clone().into(),
            Cell::Null,
            entry.id.into(),
        ]
    }

    /// The clients that keep their servers, why and since when.
    pub(super) fn pins(&self) -> Table {
        let mut table = Table::new(&["id", "user", "database", "reason", "since", "seconds"], TEXTS);
        let clock = Clock::new();
        for (entry, details) in self.entries() {
            let Some(since) = details.pinned_since.filter(|_| !details.pinned.is_empty()) else { continue };
            table.row(vec![
                entry.id.into(),
                details.user.into(),
                details.database.into(),
                details.pinned.into(),
                clock.shown(since).into(),
                clock.now.since(since).as_secs().into(),
            ]);
        }
        table
    }
}

fn server_row(
    server: &ServerReport,
    holder: Option<&(Arc<ConnectionEntry>, ConnectionDetails)>,
    clock: &Clock,
) -> Vec<Cell> {
    let state = match (holder, server.idle_since) {
        (Some(_), _) => "active",
        (None, Some(_)) if server.is_used => "used",
        (None, Some(_)) => "idle",
        (None, None) => "tested",
    };
    let held_since = holder.and_then(|(entry, _)| entry.held()).map(|(_, since)| since);
    let asked = held_since.or(server.idle_since).unwrap_or(server.since);
    let (address, port) = divided(&server.address);
    let local = server.local.map(|local| (local.ip().to_string(), u32::from(local.port()))).unwrap_or_default();
    let link = holder.map_or(String::new(), |(entry, _)| pointer('c', entry.id));
    vec![
        "S".into(),
        server.user.clone().into(),
        server.database.clone().into(),
        "none".into(),
        state.into(),
        address.into(),
        port.into(),
        local.0.into(),
        local.1.into(),
        clock.shown(server.since).into(),
        clock.shown(asked).into(),
        0_u32.into(),
        0_u32.into(),
        u32::from(server.is_outdated).into(),
        pointer('s', server.id).into(),
        link.into(),
        server.process.into(),
        if server.has_tls { "TLS" } else { "" }.into(),
        holder.map_or(String::new(), |(_, details)| details.name.clone()).into(),
        Cell::Null,
        server.id.into(),
    ]
}

fn positions(has_positions: bool, unsent: u64) -> Vec<Cell> {
    if !has_positions {
        return Vec::new();
    }
    let mut cells: Vec<Cell> = (0..POSITIONS.len() - 1).map(|_| Cell::Null).collect();
    cells.push(unsent.into());
    cells
}

/// Host and port of an address; of a Unix socket the path and 0.
pub(super) fn divided(address: &str) -> (String, u32) {
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parts.unwrap_or((address, 0));
    (host.trim_start_matches('[').trim_end_matches(']').to_owned(), port)
}

/// Times of the process as times of day.
struct Clock {
    now: Time,
    unix: u64,
}

impl Clock {
    fn new() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { now: turn::now(), unix: unix.as_secs() }
    }

    /// As PgBouncer writes it.
    fn shown(&self, at: Time) -> String {
        written(self.unix.saturating_sub(self.now.since(at).as_secs()))
    }
}

/// Seconds since 1970 as `2024-02-29 12:00:00 UTC`. The calendar repeats every 400 years; the year begins in March here, so that the
/// leap day is its last.
fn written(unix: u64) -> String {
    let (days, seconds) = (unix / 86_400 + 719_468, unix % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_in_the_calendar() {
        for (unix, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_709_208_000, "2024-02-29 12:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(written(unix), text);
        }
    }

    #[test]
    fn addresses_have_host_and_port() {
        assert_eq!(divided("127.0.0.1:5432"), ("127.0.0.1".to_owned(), 5432));
        assert_eq!(divided("[::1]:5432"), ("::1".to_owned(), 5432));
        assert_eq!(divided("unix:/run/pg"), ("unix:/run/pg".to_owned(), 0));
    }
}
