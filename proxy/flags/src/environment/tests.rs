//! Documents of an environment: which are kept, for how long, and where they are made.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use futures_util::{
    FutureExt as _,
    future::{join, join_all},
};
use weir_flags_codec::{FeaturesDocument, etag::EntityTag};
use weir_flags_session::{FlagState, History};
use weir_http::compression::compress;

use super::*;
use crate::{
    flight::on_worker,
    limits::{COMPRESS_AT_ONCE_MAX, COMPRESS_MIN, SCOPE_IDLE_MAX, SCOPES_BYTES_MAX, SCOPES_MAX},
    results::{Coded, Form},
};

fn snapshot(flags: usize, description_bytes: usize) -> Snapshot {
    let flag = |number| {
        let description = "d".repeat(description_bytes);
        format!(r#"{{"name":"a{number}","project":"p{number}","description":"{description}"}}"#)
    };
    let flags: Vec<String> = (0..flags).map(flag).collect();
    let text = format!(r#"{{"features":[{}]}}"#, flags.join(","));
    let mut state = FlagState::new(1);
    let document = FeaturesDocument::read(text.as_bytes()).expect("a document");
    state.apply_document(&Projects::All, document).expect("taken");
    Snapshot::new(&state, History::new(state.revision()), None)
}

/// A state of one flag after so many changes, with its history. The flag has so many bytes.
pub(crate) fn later_snapshot(changes: usize, bytes: usize) -> Snapshot {
    let mut state = FlagState::new(1);
    let mut history = History::default();
    for text in ["d", "e", "f"].into_iter().take(1 + changes).map(|letter| letter.repeat(bytes)) {
        let text = format!(r#"{{"features":[{{"name":"a0","project":"p0","description":"{text}"}}]}}"#);
        let document = FeaturesDocument::read(text.as_bytes()).expect("a document");
        let events = state.apply_document(&Projects::All, document).expect("taken");
        history.record(state.revision(), events);
    }
    Snapshot::new(&state, history, None)
}

fn environment(before: Option<&Environment>) -> Environment {
    next(before, Time::now())
}

fn next(before: Option<&Environment>, now: Time) -> Environment {
    Environment::new("e", snapshot(1, 0), before, now)
}

/// With so many flags that a worker does not write them.
fn large() -> Arc<Environment> {
    let large = Environment::new("e", snapshot(400, 1_000), None, Time::now());
    assert!(!large.is_small());
    Arc::new(large)
}

fn select(environment: &Environment, projects: &Projects, prefix: &str) -> Arc<Document> {
    environment.select(Part { projects: projects.clone(), prefix: prefix.into() })
}

#[test]
fn parts_that_clients_select_are_bounded_in_number_and_end_with_the_snapshot() {
    let first = environment(None);
    for number in 0..2 * SELECTED_MAX {
        let projects = Projects::new(&[format!("project-{number}")]);
        assert!(!select(&first, &projects, "").json.is_empty());
    }
    first.document(&first.scope(&Projects::All));
    assert_eq!(lock(&first.selected).len(), SELECTED_MAX);
    let next = environment(Some(&first));
    assert_eq!((next.scopes.size().0, lock(&next.selected).len()), (1, 0));
}

#[test]
fn parts_that_clients_select_are_bounded_in_bytes() {
    let large = Environment::new("e", snapshot(1, 1 << 20), None, Time::now());
    let projects = |number: usize| Projects::new(&["p0".to_owned(), format!("p{number}")]);
    for number in 1..=100 {
        assert!(select(&large, &projects(number), "a").json.len() > 1 << 20);
    }
    let kept = lock(&large.selected).len();
    assert!(kept < 64 && kept > 50, "{kept} of a mebibyte each");
    let find = |number| lock(&large.selected).find(&(&projects(number), "a") as &dyn Selector).is_some();
    assert!(find(100) && !find(1), "the least recently used one has gone");
    let small = environment(None);
    let prefix = |number: usize| format!("{}{number}", "n".repeat(100_000));
    (0..500).for_each(|number| drop(select(&small, &Projects::All, &prefix(number))));
    let kept = lock(&small.selected).len();
    assert!(kept > 200 && kept < 400, "{kept} with long keys, which count twice");
}

#[test]
fn parts_of_tokens_are_bounded_in_number_and_in_bytes() {
    let large = Environment::new("e", snapshot(1, 4 << 20), None, Time::now());
    let projects = |number: usize| Projects::new(&["p0".to_owned(), format!("p{number}")]);
    let _stream = large.scope_at(&projects(1), 1).follow();
    for number in 1..=80 {
        let view = large.scope_at(&projects(number), number as u64);
        assert!(large.document(&view).json.len() > 4 << 20);
    }
    let kept: usize = large.scopes.all().iter().map(|view| view.bytes()).sum();
    assert!(kept <= SCOPES_BYTES_MAX && kept > SCOPES_BYTES_MAX - (5 << 20), "{kept}");
    assert_eq!(kept, large.scopes.size().1);
    let has = |number| large.scopes.find(&projects(number)).is_some();
    assert!(has(80) && has(1) && !has(2), "the least recently used one without a stream has gone");
    let small = environment(None);
    (0..=SCOPES_MAX).for_each(|number| drop(small.scope_at(&projects(number + 1), number as u64 + 1)));
    assert_eq!(small.scopes.size().0, SCOPES_MAX);
    assert!(small.scopes.find(&projects(1)).is_none() && small.scopes.find(&projects(2)).is_some());
}

#[test]
fn codings_and_events_count_for_the_bound_of_parts() {
    let first = Arc::new(Environment::new("e", snapshot(1, COMPRESS_MIN), None, Time::now()));
    let view = first.scope(&Projects::All);
    let document = first.document(&view);
    let mut before = first.scopes.size().1;
    assert_eq!(before, document.json.len());
    let mut check = |environment: &Environment, view: &ScopeView, step: &str| {
        let now = environment.scopes.size().1;
        assert!(now > before && now == view.bytes(), "{step}: {before} and {now} of {}", view.bytes());
        before = now;
    };
    for coding in Coding::ALL {
        assert_eq!(first.in_coding(&view, &document, Some(*coding)).1, Some(*coding));
        check(&first, &view, coding.name());
    }
    let delta = first.delta(&view, "", None).now_or_never().flatten().flatten();
    assert!(delta.is_some());
    check(&first, &view, "a first event");
    assert!(first.event_at_once(&view, "", StreamEvent::Updated, None).is_some());
    check(&first, &view, "a later event");
    let _stream = view.follow();
    let next = Environment::new("e", later_snapshot(1, COMPRESS_MIN), Some(&first), Time::now());
    let (counted, view) = (next.scopes.size().1, next.scope(&Projects::All));
    let document = view.document.get().expect("it was made ahead");
    let update = view.update.load().as_ref().map_or(0, |update| update.1.len());
    assert!(update > 0 && document.bytes() > document.json.len());
    assert_eq!(counted, document.bytes() + update, "codings and the event that were made ahead");
    let kept = |view: &ScopeView| view.update.load().as_ref().map(|update| update.1.as_ptr());
    let (before, client) = (kept(&view), Some(first.snapshot.revision()));
    let event = next.event_at_once(&view, "", StreamEvent::Updated, client).map(|event| event.as_ptr());
    assert!(event.is_some() && event == before && kept(&view) == before, "it was there");
}

#[test]
fn documents_without_a_client_for_ten_minutes_are_not_made_ahead() {
    let first = environment(None);
    let (used, idle, unread) = (Projects::new(&["p0"]), Projects::new(&["p1"]), Projects::new(&["p2"]));
    let idle_max = SCOPE_IDLE_MAX.as_millis() as u64;
    first.document(&first.scope_at(&used, 1_001));
    first.document(&first.scope_at(&idle, 1_000));
    // A part that was looked up, and whose document was not wanted.
    first.scope_at(&unread, 1_001);
    let next = next(Some(&first), Time::from_nanos((1_000 + idle_max) * 1_000_000));
    let is_made = |projects: &Projects| next.scopes.find(projects).is_some_and(|view| view.document.get().is_some());
    assert!(is_made(&used) && !is_made(&idle) && !is_made(&unread));
}

#[test]
fn events_of_open_streams_are_made_ahead_however_long_they_last() {
    let first = environment(None);
    let (open, closed) = (Projects::new(&["p0"]), Projects::new(&["p1"]));
    let stream = first.scope_at(&open, 1).follow();
    drop(first.scope_at(&closed, 1).follow());
    let late = Time::from_nanos(1_000 * SCOPE_IDLE_MAX.as_nanos() as u64);
    let second = next(Some(&first), late);
    let has_event = |environment: &Environment, projects: &Projects| {
        environment
            .scopes
            .find(projects)
            .is_some_and(|view| view.later_whole.get().is_some() || view.update.load().is_some())
    };
    assert!(has_event(&second, &open) && !has_event(&second, &closed));
    // Before the stream has moved on.
    let third = next(Some(&second), late);
    assert!(has_event(&third, &open));
    let moved = third.scope_at(&open, 1).follow();
    drop(stream);
    let fourth = next(Some(&third), late);
    assert!(has_event(&fourth, &open));
    drop(moved);
    assert!(!has_event(&next(Some(&fourth), late), &open));
}

#[test]
fn a_delta_and_the_first_event_of_a_stream_share_the_whole_state() {
    let environment = Arc::new(environment(None));
    let view = environment.scope(&Projects::All);
    // So few flags are written at once.
    let delta = environment.delta(&view, "", None).now_or_never().flatten().flatten().expect("the whole state");
    let first = environment.first_event(&view, "", None).now_or_never().flatten().expect("an event");
    assert!(delta.starts_with(b"{\"events\":[{\"eventId\":1,\"type\":\"hydration\"") && delta.ends_with(b"]}"));
    let head = environment.snapshot.stream_head(StreamEvent::Connected).len();
    assert_eq!(first[head..head + delta.len()], delta[..]);
    assert_eq!(first[head..].as_ptr(), delta.as_ptr(), "one copy serves both");
}

#[test]
fn documents_of_many_flags_are_written_once_on_another_thread_and_few_flags_at_once() {
    on_worker(|| async {
        let small = Arc::new(environment(None));
        let view = small.scope(&Projects::All);
        assert!(small.own_document(&view).now_or_never().flatten().is_some());
        assert!(small.selected_document(&view, &Projects::All, "a0").now_or_never().flatten().is_some());
        let large = large();
        let view = large.scope(&Projects::All);
        let first = Box::pin(large.own_document(&view));
        let others = join_all((0..20).map(|_| large.own_document(&view)));
        let (made, others) = join(first, others).await;
        let made = made.expect("no panic");
        let is_same = |other: &Option<Arc<Document>>| other.as_ref().is_some_and(|other| Arc::ptr_eq(&made, other));
        assert!(others.iter().all(is_same));
        assert!(is_same(&large.own_document(&view).now_or_never().flatten()), "it is there");
        let selected = || large.selected_document(&view, &Projects::All, "a0");
        let all = join_all((0..20).map(|_| selected())).await;
        let first = all[0].clone().expect("no panic");
        let is_same = |other: &Option<Arc<Document>>| other.as_ref().is_some_and(|other| Arc::ptr_eq(&first, other));
        assert!(all.iter().all(is_same) && is_same(&selected().now_or_never().flatten()));
    });
}

#[test]
fn f1_deltas_and_first_events_of_many_flags_leave_the_worker_to_make_the_whole_state_alone() {
    on_worker(|| async {
        let large = large();
        let (view, revision) = (large.scope(&Projects::All), large.snapshot.revision());
        let at_once = |client| large.delta(&view, "", client).now_or_never().flatten();
        assert_eq!(at_once(Some(revision)), Some(None), "nothing is lacking");
        let first = large.first_event(&view, "", Some(revision)).now_or_never().flatten().expect("at once");
        assert!(first.ends_with(b"{\"events\":[]}\n\n"), "{first:?}");
        assert_eq!(at_once(None), None, "it is to be made");
        let all = join_all((0..20).map(|_| large.first_event(&view, "", None))).await;
        let whole = all[0].clone().expect("no panic");
        let is_same = |other: &Option<Bytes>| other.as_ref().is_some_and(|other| other.as_ptr() == whole.as_ptr());
        assert!(all.iter().all(is_same), "one copy for all");
        assert!(is_same(&large.first_event(&view, "", None).now_or_never().flatten()), "it is there");
        let delta = at_once(None).flatten().expect("it is there");
        assert_eq!(delta.as_ptr(), whole[whole.len() - 2 - delta.len()..].as_ptr());
        let begun = join_all((0..20).map(|_| large.first_event(&view, "a1", None))).await;
        assert!(begun.iter().flatten().all(|event| event.len() < whole.len()) && begun.iter().all(Option::is_some));
        let places: Vec<_> = begun.iter().flatten().map(|event| event.as_ptr()).collect();
        assert!(places.iter().all(|place| *place == places[0]), "one copy for all who wait at once");
    });
}

#[test]
fn large_changes_are_written_on_another_thread() {
    on_worker(|| async {
        let snapshot = later_snapshot(1, WRITE_AT_ONCE_MAX + 1);
        let environment = Arc::new(Environment::new("e", snapshot, None, Time::now()));
        let (view, client) = (environment.scope(&Projects::All), Some(environment.snapshot.revision() - 1));
        let mut written = Vec::new();
        assert!(environment.snapshot.delta(&follower(&view, ""), client, &mut written));
        let mut changes = Box::pin(environment.delta(&view, "", client));
        assert!(changes.as_mut().now_or_never().is_none());
        assert_eq!(changes.await, Some(Some(Bytes::from(written))));
        assert_eq!(environment.delta(&view, "other", client).await, Some(None), "no flag that it sees has changed");
        let at_once = |prefix, client| environment.event_at_once(&view, prefix, StreamEvent::Updated, client);
        let elsewhere = |prefix, client| environment.event_elsewhere(&view, prefix, StreamEvent::Updated, client);
        assert_eq!((at_once("", client), at_once("a", client)), (None, None));
        for lacking in [client, None] {
            let event = elsewhere("", lacking).await.expect("an event");
            let kept = at_once("", lacking).map(|kept| kept.as_ptr());
            assert_eq!(kept, Some(event.as_ptr()), "all streams without a beginning of names share it");
            assert_eq!(elsewhere("a", lacking).await.as_deref(), Ok(&*event));
        }
        assert_eq!((at_once("a", client), at_once("other", client)), (None, Some(Bytes::new())));
        let unknown =
            join_all((1_000..1_200).map(|revision| environment.first_event(&view, "a", Some(revision)))).await;
        assert!(unknown.iter().all(Option::is_some), "all who lack everything get one event");
        let small = Environment::new("e", later_snapshot(1, 1), None, Time::now());
        let view = small.scope(&Projects::All);
        let client = Some(small.snapshot.revision() - 1);
        assert!(Arc::new(small).delta(&view, "", client).now_or_never().flatten().flatten().is_some());
    });
}

#[test]
fn results_are_compressed_once_and_large_ones_on_another_thread() {
    on_worker(|| async {
        let (results, tag) = (Results::default(), EntityTag::Hash(7));
        let text = |bytes: usize| Bytes::from((0..bytes).map(|at| (at * at % 251) as u8).collect::<Vec<u8>>());
        let runs: Arc<[AtomicU32; 2]> = Arc::default();
        let here = thread::current().id();
        // Counts those of this thread, and those of others.
        let counted = || {
            let runs = runs.clone();
            move |coding: Coding, text: &[u8]| {
                runs[usize::from(thread::current().id() != here)].fetch_add(1, Ordering::Relaxed);
                compress(coding, text)
            }
        };
        let count = || runs.each_ref().map(|count| count.load(Ordering::Relaxed));
        let short = (Form::Unleash, tag, Coding::Gzip);
        let coded = results.compress_by(short, text(COMPRESS_AT_ONCE_MAX), counted()).now_or_never();
        assert!(matches!(coded, Some(Coded::Compressed(_))) && count() == [1, 0], "at once");
        let key = (Form::Ofrep, tag, Coding::Gzip);
        let large = text(COMPRESS_AT_ONCE_MAX + 1);
        let all = join_all((0..20).map(|_| results.compress_by(key, large.clone(), counted()))).await;
        let kept = results.find(key).expect("it is kept");
        let is_kept = |coded: &Coded| matches!(coded, Coded::Compressed(body) if body.as_ptr() == kept.as_ptr());
        assert!(all.iter().all(is_kept) && count() == [1, 1], "{:?}", count());
        assert!(results.find((Form::Unleash, tag, Coding::Brotli)).is_none());
        let lost = (Form::Ofrep, EntityTag::Hash(8), Coding::Gzip);
        let coded = results.compress_by(lost, large.clone(), |_, _| panic!("on purpose")).await;
        assert!(matches!(coded, Coded::Plain(body) if body == large), "a compression that is lost costs its coding");
    });
}
