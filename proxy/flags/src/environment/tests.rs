//! Documents of an environment: which are kept, for how long, and where they are made.

use futures_util::FutureExt as _;
use weir_engine::{Worker, settings::RuntimeSettings};
use weir_flags_codec::{FeaturesDocument, etag::EntityTag};
use weir_flags_session::{FlagState, History};
use weir_http::compression::Coding;

use super::*;
use crate::{
    limits::COMPRESS_AT_ONCE_MAX,
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

fn environment(before: Option<&Environment>) -> Environment {
    Environment::new("e", snapshot(1, 0), before)
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
    assert_eq!((read(&next.scopes).len(), lock(&next.selected).len()), (1, 0));
}

#[test]
fn parts_that_clients_select_are_bounded_in_bytes() {
    let large = Environment::new("e", snapshot(1, 1 << 20), None);
    let projects = |number: usize| Projects::new(&["p0".to_owned(), format!("p{number}")]);
    for number in 1..=100 {
        assert!(select(&large, &projects(number), "a").json.len() > 1 << 20);
    }
    let kept = lock(&large.selected).len();
    assert!(kept < 64 && kept > 50, "{kept} of a mebibyte each");
    let find = |number| lock(&large.selected).find(&(&projects(number), "a") as &dyn Selector).is_some();
    assert!(find(100) && !find(1), "the least recently used one has gone");
}

#[test]
fn parts_of_tokens_are_bounded_in_number_and_in_bytes() {
    let large = Environment::new("e", snapshot(1, 4 << 20), None);
    let projects = |number: usize| Projects::new(&["p0".to_owned(), format!("p{number}")]);
    for number in 1..=80 {
        let view = large.scope_at(&projects(number), number as u64);
        assert!(large.document(&view).json.len() > 4 << 20);
    }
    let kept: usize = read(&large.scopes).values().map(|view| view.bytes()).sum();
    assert!(kept <= SCOPES_BYTES_MAX && kept > SCOPES_BYTES_MAX - (5 << 20), "{kept}");
    let has = |number| read(&large.scopes).contains_key(&projects(number));
    assert!(has(80) && !has(1), "the least recently used one has gone");
    let small = environment(None);
    (0..=SCOPES_MAX).for_each(|number| drop(small.scope_at(&projects(number + 1), number as u64 + 1)));
    assert_eq!(read(&small.scopes).len(), SCOPES_MAX);
    assert!(!read(&small.scopes).contains_key(&projects(1)) && read(&small.scopes).contains_key(&projects(2)));
}

#[test]
fn documents_without_a_client_for_ten_minutes_are_not_made_ahead() {
    assert!(!is_idle(1_000, 600_999) && is_idle(1_000, 601_000) && !is_idle(1_000, 0));
    let first = environment(None);
    let (used, unused) = (Projects::new(&["p0"]), Projects::new(&["p1"]));
    let now = millis(Time::now());
    first.document(&first.scope_at(&used, now));
    // A part that was looked up, and whose document was not wanted.
    first.scope_at(&unused, now);
    let next = environment(Some(&first));
    let is_made = |projects: &Projects| next.scope_at(projects, now).document.get().is_some();
    assert!(is_made(&used) && !is_made(&unused));
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

/// Runs on a worker, and ends with it.
fn on_worker<M: Future<Output = ()> + 'static>(main: impl FnOnce() -> M + Send + 'static) {
    let worker = Worker::start(0, None, &RuntimeSettings::default(), Arc::default(), main).expect("it starts");
    worker.join().expect("no panic");
}

#[test]
fn documents_of_many_flags_are_written_on_another_thread() {
    on_worker(|| async {
        let here = std::thread::current().id();
        for (flags, is_large) in [(1, false), (400, true)] {
            let environment = Arc::new(Environment::new("e", snapshot(flags, 1_000), None));
            assert_eq!(environment.snapshot.text_bytes() > WRITE_AT_ONCE_MAX, is_large);
            let there = environment.off_worker(|_| std::thread::current().id()).await.expect("no panic");
            assert_eq!(there != here, is_large, "{flags} flags");
            let view = environment.scope(&Projects::All);
            let made = environment.own_document(&view).await.expect("no panic");
            let again = environment.own_document(&view).now_or_never().flatten().expect("it is there");
            assert!(Arc::ptr_eq(&made, &again));
            let selected = environment.selected_document(&Projects::All, "a0").await.expect("no panic");
            let again = environment.selected_document(&Projects::All, "a0").now_or_never().flatten();
            assert!(again.is_some_and(|again| Arc::ptr_eq(&selected, &again)));
        }
    });
}

#[test]
fn results_are_compressed_once_and_large_ones_on_another_thread() {
    on_worker(|| async {
        let (results, tag) = (Results::default(), EntityTag::Hash(7));
        let text = |bytes: usize| (0..bytes).map(|at| (at * at % 251) as u8).collect::<Vec<u8>>();
        let short = results.compress((Form::Unleash, tag, Coding::Gzip), text(COMPRESS_AT_ONCE_MAX)).now_or_never();
        assert!(matches!(short, Some(Coded::Compressed(_))), "at once");
        let key = (Form::Ofrep, tag, Coding::Gzip);
        assert!(results.compress(key, text(COMPRESS_AT_ONCE_MAX + 1)).now_or_never().is_none(), "it takes its time");
        let Coded::Compressed(first) = results.compress(key, text(COMPRESS_AT_ONCE_MAX + 1)).await else {
            panic!("it is compressed");
        };
        let again = results.find(key).expect("it is kept");
        assert_eq!(first.as_ptr(), again.as_ptr());
        assert!(results.find((Form::Unleash, tag, Coding::Brotli)).is_none());
    });
}
