//! Requests recorded on their way appear in a report.

use weir_resp::{Version, encode};

use super::{settings::KeyNames, *};

fn insight(settings: InsightSettings) -> Insight {
    Insight::new(settings, Arc::default(), 0, 1)
}

fn wire(commands: &[&[&str]]) -> Vec<u8> {
    let mut wire = Vec::new();
    commands.iter().for_each(|args| encode::command(&mut wire, args.iter().map(|arg| arg.as_bytes())));
    wire
}

fn send(insight: &Insight, ticket: Ticket, wire: &[u8], now: Time) {
    insight.sent(1, ticket, LaneKey::new(0, Version::Resp2), wire, now, || "main".into());
}

fn at(millis: u64) -> Time {
    Time::from_nanos((millis + 1) * 1_000_000)
}

#[test]
fn one_request_of_many_is_counted_for_all() {
    let insight = insight(InsightSettings { sample: 8, ..InsightSettings::default() });
    let (single, batch) = (wire(&[&["GET", "hot"]]), wire(&[&["GET", "warm"], &["SET", "hot", "x"], &["PING"]]));
    for millis in 0..8_000 {
        send(&insight, Ticket::new(millis * 4), &single, at(millis));
        send(&insight, Ticket { count: 3, ..Ticket::new(millis * 4 + 1) }, &batch, at(millis));
    }
    let keys = insight.hot_keys(at(8_000));
    let told: Vec<_> = keys.iter().map(|hot| hot.key.shown()).collect();
    assert_eq!(told, ["hot", "warm"]);
    for (hot, rate) in keys.iter().zip([2_000.0, 1_000.0]) {
        assert!((hot.per_second / rate - 1.0).abs() < 0.15, "{}: {} of {rate}", hot.key.shown(), hot.per_second);
    }
}

#[test]
fn a_batch_larger_than_the_sampling_is_seen_several_times() {
    let insight = insight(InsightSettings { sample: 1, ..InsightSettings::default() });
    let many: Vec<Vec<String>> = (0..100).map(|n| vec!["GET".to_owned(), format!("k{}", n % 4)]).collect();
    let mut batch = Vec::new();
    many.iter().for_each(|args| encode::command(&mut batch, args.iter().map(|arg| arg.as_bytes())));
    send(&insight, Ticket { count: 100, ..Ticket::new(0) }, &batch, at(0));
    let samples: Vec<_> = insight.hot_keys(at(0)).iter().map(|hot| hot.samples).collect();
    assert_eq!(samples, [25; 4], "with a sampling of one every request is looked at");
}

#[test]
fn all_keys_of_a_command_and_of_a_transaction_count() {
    let insight = insight(InsightSettings { sample: 1, ..InsightSettings::default() });
    send(&insight, Ticket::new(0), &wire(&[&["MGET", "a", "b"]]), at(0));
    let transaction = wire(&[&["MULTI"], &["INCR", "a"], &["BLMOVE", "c", "a", "LEFT", "LEFT", "0"], &["EXEC"]]);
    send(&insight, Ticket { skip: 3, ..Ticket::new(1) }, &transaction, at(0));
    let mut told: Vec<_> = insight.hot_keys(at(0)).iter().map(|hot| (hot.key.shown(), hot.samples)).collect();
    told.sort();
    assert_eq!(told, [("a".to_owned(), 3), ("b".to_owned(), 1), ("c".to_owned(), 1)]);
}

#[test]
fn keys_that_may_not_be_shown_are_not_kept() {
    let secret = wire(&[&["GET", "session:top-secret"]]);
    let hashed = insight(InsightSettings { names: KeyNames::Hashed, sample: 1, ..InsightSettings::default() });
    send(&hashed, Ticket::new(0), &secret, at(0));
    let keys = hashed.hot_keys(at(0));
    assert!(keys[0].key.text.is_none() && keys[0].key.shown().starts_with('#'));
    let off = insight(InsightSettings { names: KeyNames::Off, sample: 1, ..InsightSettings::default() });
    send(&off, Ticket::new(0), &secret, at(0));
    assert!(off.hot_keys(at(0)).is_empty() && !off.is_big(u64::MAX - 1));
}

#[test]
fn large_requests_and_replies_name_their_key() {
    let insight = insight(InsightSettings::default());
    let value = "v".repeat(20_000);
    send(&insight, Ticket::new(0), &wire(&[&["SET", "large", &value]]), at(0));
    // Only the head of a streamed request is here.
    let head = b"*3\r\n$3\r\nSET\r\n$4\r\nhuge\r\n$50000000\r\nvvvv";
    send(&insight, Ticket { has_deadline: false, ..Ticket::new(1) }, head, at(0));
    // A command with several keys says nothing about one.
    send(&insight, Ticket::new(2), &wire(&[&["MSET", "a", &value, "b", "x"]]), at(0));
    send(&insight, Ticket { count: 2, ..Ticket::new(3) }, &wire(&[&["GET", "small"], &["HGETALL", "read"]]), at(1));
    assert!(insight.is_big(30_000) && !insight.is_big(10_000));
    insight.note_big_reply((1, 4), at(1), 30_000, at(9), "main".into());
    insight.note_big_reply((1, 77), at(1), 30_000, at(9), "main".into());
    let told: Vec<_> = insight
        .report(at(9))
        .big_keys
        .iter()
        .map(|big| (big.key.shown(), big.bytes > 20_000, big.direction, big.command))
        .collect();
    let big = |key: &str, direction, command| (key.to_owned(), true, direction, command);
    assert_eq!(
        told,
        [
            big("huge", Direction::Request, "set"),
            big("read", Direction::Reply, "hgetall"),
            big("large", Direction::Request, "set")
        ]
    );
}

fn slow(number: u64, arrived: u64, ended: u64) -> SlowReply {
    SlowReply {
        ended_at: std::time::SystemTime::UNIX_EPOCH,
        number,
        arrived: Some(at(arrived)),
        sent: Some(at(arrived + 3)),
        ended: at(ended),
        requests: 1,
        outcome: "ok",
    }
}

#[test]
fn a_slow_request_shows_its_command_and_times() {
    let insight = insight(InsightSettings::default());
    assert!(insight.is_slow(10_000_000) && !insight.is_slow(9_999_999));
    send(&insight, Ticket { count: 2, ..Ticket::new(0) }, &wire(&[&["GET", "a"], &["KEYS", "*"]]), at(0));
    let client = || SlowClient { id: 1, name: "worker".to_owned(), ..SlowClient::default() };
    let endpoint = |shard| (shard == 0).then(|| "127.0.0.1:6379".to_owned());
    assert!(insight.note_slow(client(), &slow(1, 0, 20), "main".into(), endpoint));
    let entry = &insight.report(at(20)).slow[0];
    assert_eq!((entry.command.join(" ").as_str(), entry.client.name.as_str()), ("KEYS *", "worker"));
    let millis = |duration: Duration| duration.as_millis();
    assert_eq!((millis(entry.duration), millis(entry.gateway), millis(entry.upstream)), (20, 3, 17));
    assert_eq!(entry.endpoint.as_deref(), Some("127.0.0.1:6379"));
    // A transaction is shown by what was queued first.
    let transaction = wire(&[&["MULTI"], &["SET", "k", "v"], &["GET", "k"], &["EXEC"]]);
    send(&insight, Ticket { skip: 3, ..Ticket::new(2) }, &transaction, at(30));
    assert!(insight.note_slow(client(), &slow(2, 30, 60), "main".into(), endpoint));
    assert_eq!(insight.report(at(60)).slow[0].command, ["exec", "(2 commands)", "SET", "k", "v"]);
    assert_eq!((insight.slow_count(), insight.reset_slow(), insight.slow_count()), (2, 2, 0));
}

#[test]
fn blocking_commands_are_not_slow_and_lost_ones_may_be() {
    let insight = insight(InsightSettings::default());
    let client = || SlowClient { id: 1, ..SlowClient::default() };
    send(&insight, Ticket { has_deadline: false, ..Ticket::new(0) }, &wire(&[&["BLPOP", "q", "0"]]), at(0));
    assert!(!insight.note_slow(client(), &slow(0, 0, 5_000), "main".into(), |_| None));
    send(&insight, Ticket::new(1), &wire(&[&["GET", "a"]]), at(0));
    let lost = |ended| SlowReply { arrived: None, sent: None, outcome: "timeout", ..slow(1, 0, ended) };
    assert!(!insight.note_slow(client(), &lost(5), "main".into(), |_| None), "it was lost at once");
    assert!(insight.note_slow(client(), &lost(5_000), "main".into(), |_| None));
    let entry = &insight.report(at(5_000)).slow[0];
    assert_eq!((entry.outcome, entry.command.join(" ")), ("timeout", "GET a".to_owned()));
}

#[test]
fn a_flood_of_slow_requests_adds_a_few_per_turn() {
    let insight = insight(InsightSettings::default());
    let taken = (0..1_000).filter(|_| insight.has_room_for_slow(at(1))).count();
    assert_eq!(taken, SLOW_PER_TURN as usize);
    assert!(insight.has_room_for_slow(at(2)));
}
