//! The open connections for the admin server: what each does, why it is pinned, and what it waits for.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use weir_admin::status::{ConnectionQuery, ConnectionState, ConnectionStatus, PoolWait};
use weir_analysis::redis::CommandId;
use weir_base::{connection::PoolName, time::Time};
use weir_config::ProtocolName;
use weir_listener::ConnectionEntry;

/// The clients that wait for each pool of each listener, the oldest first.
type Lines = HashMap<(Arc<str>, PoolName), Vec<(Time, u64)>>;

/// The connections that match the query, and one more than fits on its page.
pub fn page(entries: &[Arc<ConnectionEntry>], query: &ConnectionQuery, now: Time) -> Vec<ConnectionStatus> {
    let lines = lines(entries);
    let all = entries.iter().map(|entry| status(entry, &lines, now));
    all.filter(|connection| query.matches(connection)).take(query.limit + 1).collect()
}

fn lines(entries: &[Arc<ConnectionEntry>]) -> Lines {
    let mut lines = Lines::new();
    for entry in entries {
        if let Some(since) = entry.waiting_since() {
            let key = (entry.listener.clone(), entry.awaited_pool(&entry.details()));
            lines.entry(key).or_default().push((since, entry.id));
        }
    }
    lines.values_mut().for_each(|line| line.sort_unstable());
    lines
}

fn status(entry: &ConnectionEntry, lines: &Lines, now: Time) -> ConnectionStatus {
    let details = entry.details().clone();
    let in_flight = entry.in_flight.load(Relaxed).into();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let pinned_by: Vec<String> = details.pinned.split(", ").filter_map(some).collect();
    let command = entry.last_command.load(Relaxed).checked_sub(1);
    let seconds = |since: Time| now.since(since).as_secs_f64();
    let awaited = entry.awaited_pool(&details);
    let line = lines.get(&(entry.listener.clone(), awaited.clone()));
    let wait = line.and_then(|line| {
        let place = line.iter().position(|(_, id)| *id == entry.id)?;
        let (since, _) = line[place];
        let PoolName { upstream, pool } = awaited;
        let (position, waiting) = (place as u64 + 1, line.len() as u64);
        Some(PoolWait { pool, upstream, seconds: seconds(since), position, waiting })
    });
    let held = entry.held();
    ConnectionStatus {
        id: entry.id,
        listener: entry.listener.to_string(),
        protocol: String::new(),
        worker: entry.worker as u32,
        peer: entry.peer.clone(),
        age_seconds: seconds(entry.accepted_at),
        idle_seconds: seconds(Time::from_nanos(entry.active_at.load(Relaxed))),
        name: some(&details.name),
        user: some(&details.user),
        db: details.db,
        database: some(&details.database),
        protocol_version: details.version.to_owned(),
        state: match (details.has_users && details.user.is_empty(), pinned_by.is_empty(), in_flight) {
            (true, ..) => ConnectionState::Unauthenticated,
            _ if wait.is_some() => ConnectionState::Waiting,
            (_, false, _) => ConnectionState::Pinned,
            (.., 0) if held.is_none() => ConnectionState::Idle,
            _ => ConnectionState::Active,
        },
        pinned_seconds: details.pinned_since.filter(|_| !pinned_by.is_empty()).map(seconds),
        pinned_by,
        transaction_seconds: held.map(|(_, since)| seconds(since)),
        waits_for: wait,
        in_flight,
        buffered_bytes: entry.buffered.load(Relaxed),
        last_command: command.map(|id| CommandId(id as u16).command().name.to_owned()),
        key: None,
        model: some(&details.model),
        stream: details.is_stream,
    }
}

/// Names the protocol of a connection. Clients of AI have keys in place of users.
pub fn name_protocol(connection: &mut ConnectionStatus, protocol: &str) {
    protocol.clone_into(&mut connection.protocol);
    if protocol == ProtocolName::Ai.name() {
        connection.key = connection.user.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, pool: &str, waits: Option<u64>) -> Arc<ConnectionEntry> {
        let entry = ConnectionEntry::new(id, "pg".into(), 0, "192.0.2.1:1000".into(), Time::ZERO);
        {
            let mut details = entry.details();
            (details.user, details.has_users, details.pool) = ("app".into(), true, pool.into());
        }
        entry.wait(waits.map(Time::from_nanos));
        Arc::new(entry)
    }

    #[test]
    fn a_waiting_client_knows_its_place_in_the_line_of_its_pool() {
        let entries = [
            entry(1, "app@shop", Some(30)),
            entry(2, "app@shop", Some(20)),
            entry(3, "app@other", Some(10)),
            entry(4, "app@shop", None),
        ];
        entries[3].hold(7, Time::from_nanos(40));
        let query = ConnectionQuery { limit: 10, after: None, listener: None, worker: None };
        let shown = page(&entries, &query, Time::from_nanos(1_000_000_030));
        let wait = |place: usize| shown[place].waits_for.as_ref().map(|wait| (wait.position, wait.waiting));
        assert_eq!([wait(0), wait(1), wait(2), wait(3)], [Some((2, 2)), Some((1, 2)), Some((1, 1)), None]);
        assert_eq!(shown[0].waits_for.as_ref().expect("a wait").seconds, 1.0);
        assert_eq!((shown[0].state, shown[3].state), (ConnectionState::Waiting, ConnectionState::Active));
        assert!(shown[3].transaction_seconds.is_some() && shown[0].transaction_seconds.is_none());
    }

    #[test]
    fn a_client_of_ai_has_a_key_a_model_and_a_stream() {
        let entry = ConnectionEntry::new(1, "ai".into(), 0, "192.0.2.1:1000".into(), Time::ZERO);
        {
            let mut details = entry.details();
            (details.user, details.model, details.is_stream) = ("team".into(), "fast".into(), Some(true));
        }
        let query = ConnectionQuery { limit: 10, after: None, listener: None, worker: None };
        let mut shown = page(&[Arc::new(entry)], &query, Time::ZERO);
        name_protocol(&mut shown[0], "ai");
        let one = &shown[0];
        assert_eq!((one.key.as_deref(), one.user.as_deref()), (Some("team"), None));
        assert_eq!((&*one.protocol, one.model.as_deref(), one.stream), ("ai", Some("fast"), Some(true)));
    }

    #[test]
    fn those_that_wait_for_the_primary_and_for_a_standby_are_in_two_lines() {
        let entries = [entry(1, "app@shop", Some(10)), entry(2, "app@shop", None), entry(3, "app@shop", None)];
        for entry in &entries {
            let mut details = entry.details();
            details.upstream = "main".into();
            details.read_pool = Some(Box::new(PoolName { upstream: "reads".into(), pool: "app@shop".into() }));
        }
        entries[1].wait_to_read(Time::from_nanos(20));
        entries[2].wait_to_read(Time::from_nanos(30));
        let query = ConnectionQuery { limit: 10, after: None, listener: None, worker: None };
        let shown = || page(&entries, &query, Time::from_nanos(1_000));
        let waits = |shown: &[ConnectionStatus]| -> Vec<(String, u64, u64)> {
            let waits = shown.iter().filter_map(|one| one.waits_for.clone());
            waits.map(|wait| (wait.upstream, wait.position, wait.waiting)).collect()
        };
        let line = |upstream: &str, position: u64, waiting: u64| (upstream.to_owned(), position, waiting);
        assert_eq!(waits(&shown()), [line("main", 1, 1), line("reads", 1, 2), line("reads", 2, 2)]);
        // No standby can be reached: it waits for the primary from then on.
        entries[1].wait(Some(Time::from_nanos(20)));
        assert_eq!(waits(&shown()), [line("main", 1, 2), line("main", 2, 2), line("reads", 1, 1)]);
    }
}
