//! Output of the demo.

use super::{
    DemoCounts,
    stage::Stage,
    traffic::{Load, TrafficCounts},
};

/// The heading of a scene, which has rows of counts and notes.
pub fn scene(title: &str, about: &str) {
    println!("\n{title}: {about}");
}

/// Prints the running processes and their addresses.
pub fn opening(stage: &Stage) {
    println!(
        "gateway  redis on {}, http on {}, postgres on {}, admin on {}",
        stage.redis, stage.http, stage.postgres, stage.admin_url
    );
    let list = |servers: &[super::stage::Server]| {
        let all: Vec<String> = servers.iter().map(ToString::to_string).collect();
        all.join(" and ")
    };
    println!("servers  redis: {} (each has half of the keys)", list(&stage.redis_servers));
    println!("         http: {} (both have everything)", list(&stage.http_servers));
    println!("         postgres: {} (replies to a SELECT from the accounts of pgbench)", stage.postgres_server);
    println!("The load is paced: its counts say nothing about how much this machine carries.");
}

/// A row for each protocol, of the time since the last rows. Their sum.
pub fn rows(load: &Load) -> TrafficCounts {
    header();
    let mut sum = TrafficCounts::default();
    for protocol in ["redis", "http", "postgres"] {
        let seen = load.take(|client| client.protocol == protocol);
        row(protocol, &seen);
        sum.add(&seen);
    }
    sum
}

/// The rows of the scene in which shard 0 dies: its clients, and the clients of the other one together with those of the other
/// protocols.
pub fn shard_rows(load: &Load) -> (TrafficCounts, TrafficCounts) {
    header();
    let dead = load.take(|client| client.shard == Some(0));
    row("dead shard", &dead);
    let mut other = load.take(|client| client.shard == Some(1));
    row("other shard", &other);
    for protocol in ["http", "postgres"] {
        let seen = load.take(|client| client.protocol == protocol);
        row(protocol, &seen);
        other.add(&seen);
    }
    (dead, other)
}

fn header() {
    println!("  {:<12}{:>9}{:>10}{:>11}{:>9}{:>18}", "", "requests", "p50", "p99", "errors", "connections lost");
}

fn row(name: &str, seen: &TrafficCounts) {
    let mut sorted = seen.micros.clone();
    sorted.sort_unstable();
    let at = |quantile: f64| {
        let place = ((sorted.len() as f64 * quantile) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(place).map_or_else(|| "-".to_owned(), |micros| format!("{:.2} ms", f64::from(*micros) / 1e3))
    };
    println!("  {name:<12}{:>9}{:>10}{:>11}{:>9}{:>18}", seen.requests, at(0.5), at(0.99), seen.errors, seen.lost);
    if seen.closed > 0 {
        note(&format!("{} connections of {name} ended after a response and were made again", seen.closed));
    }
    if let Some(error) = &seen.first_error {
        note(&format!("the first error of {name}: {error}"));
    }
}

/// A line below the rows.
pub fn note(text: &str) {
    println!("  {text}");
}

fn counts(seen: &TrafficCounts) -> String {
    let ending = |count| if count == 1 { "" } else { "s" };
    format!("{} error{}, {} connection{} lost", seen.errors, ending(seen.errors), seen.lost, ending(seen.lost))
}

/// The counts of the scenes in which nothing may fail.
pub fn verdict(seen: &TrafficCounts) -> String {
    format!("{} in {} requests: a server died and came back, the gateway replaced itself", counts(seen), seen.requests)
}

/// The end.
pub fn closing(outcome: &DemoCounts) {
    println!("\nWith a server to spare, or while the gateway is upgraded: {}.", counts(&outcome.promised));
    println!(
        "With no other server for a key: {} for its clients, {} for all others.",
        counts(&outcome.dead_shard),
        counts(&outcome.other_shard)
    );
}

/// Commands to try while it serves.
pub fn lines_to_try(stage: &Stage) {
    let port = stage.redis.rsplit(':').next().unwrap_or_default();
    println!("\nServing until Ctrl-C. Try:");
    println!("  redis-cli -p {port} set hello world");
    println!("  curl http://{}/64", stage.http);
    println!("  psql postgres://demo@{}/demo -c 'SELECT 1'", stage.postgres);
    println!("  weir top --admin {}", stage.admin_url);
    println!("How much one core of this machine carries (about two minutes, from a clone of the repository):");
    println!("  weir lab knee examples/lab/redis-mixed.toml --quick");
}
