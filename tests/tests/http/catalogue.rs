//! The catalogue of WebSocket cases (`weir_tests::catalogue`), each directly to an echo origin and through the gateway: nothing
//! is worse than directly. The gateway judges frames by their headers and looks at no payload, so what is in messages and in
//! close frames is the origin's to judge: parity is the invariant.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_tests::catalogue::talk::{CaseResult, talk};
use weir_tests::catalogue::{Case, End, cases};
use weir_tests::gateway::{Config, Gateway};

use crate::websocket_clients::{Library, Origin};

/// Cases that run at a time.
const AT_A_TIME: usize = 8;

/// Where the gateway differs from the origin alone.
struct Difference {
    origin: Library,
    cases: &'static [&'static str],
    /// In which way.
    is_this: fn(&CaseResult, &CaseResult) -> bool,
    #[expect(dead_code, reason = "for the reader")]
    reason: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        origin: Library::Ws,
        cases: &["3.2", "4.1.4", "4.2.4", "5.15"],
        is_this: |direct, through| {
            direct.frames.len() == 1 && through.frames.is_empty() && (direct.code(), through.code()) == (1002, 1002)
        },
        reason: "the frame that breaks a rule comes in one piece with a message before it: the gateway fails the connection at \
                 once, as RFC 6455 section 7.1.7 has it, and does not wait for the origin's response to that message",
    },
    Difference {
        origin: Library::Websockets,
        cases: &["13.21.6"],
        is_this: |direct, through| direct.is_tolerated && through.code() == 1002,
        reason: "stricter: RSV1 on a frame that is not the first of its message, which RFC 7692 section 6 forbids",
    },
];

/// How often a listed case is tried before it counts as stale.
const TRIES: usize = 5;

/// Cases that the origin alone does not end as the RFC has it.
const FAILS_DIRECTLY: &[(Library, &str)] = &[(Library::Websockets, "13.21.6")];

/// The origin has ended the case as it should.
fn is_as_expected(end: End, outcome: &CaseResult) -> bool {
    let CaseResult { is_ended, is_tolerated, .. } = *outcome;
    match end {
        End::Clean(count) => {
            let heard = outcome.messages() + outcome.pongs.len();
            is_ended && !is_tolerated && heard == count && outcome.code() == 1000
        }
        End::Closed => is_ended && !is_tolerated && outcome.code() != 1006,
        End::Failed => outcome.is_failed(),
        End::Any => true,
    }
}

/// Both results are the same to a client. A failure is compared by its code only: its text is that of the failing side.
fn is_same(end: End, direct: &CaseResult, through: &CaseResult) -> bool {
    match end {
        End::Failed => {
            let code = (direct.code(), through.code());
            let own = |outcome: &CaseResult| CaseResult { close: None, ..outcome.clone() };
            code.0 == code.1 && own(direct) == own(through)
        }
        _ => direct == through,
    }
}

/// The fault of a case, if it has one.
fn judge(
    library: Library,
    case: &Case,
    direct: impl Fn() -> CaseResult,
    through: impl Fn() -> CaseResult,
) -> Option<String> {
    let one = direct();
    let fails_directly = FAILS_DIRECTLY.contains(&(library, &case.id));
    if is_as_expected(case.end, &one) == fails_directly {
        return Some(format!("directly, {:?}: {}", case.end, one.text()));
    }
    if case.id.starts_with("12.") && !one.extensions.starts_with("permessage-deflate") {
        return Some("directly: not compressed".to_owned());
    }
    let listed = DIFFERENCES.iter().find(|one| one.origin == library && one.cases.contains(&&case.id[..]));
    let mut other = through();
    if let Some(difference) = listed {
        let mut tries = 1;
        while !(difference.is_this)(&one, &other) && is_same(case.end, &one, &other) && tries < TRIES {
            (other, tries) = (through(), tries + 1);
        }
        return match (difference.is_this)(&one, &other) {
            true => None,
            false => Some(format!("no difference any more, or another one: {} / {}", one.text(), other.text())),
        };
    }
    match is_same(case.end, &one, &other) {
        true => None,
        false => Some(format!("directly: {}; through the gateway: {}", one.text(), other.text())),
    }
}

fn no_case_is_worse(library: Library) {
    let (_running, address) = Origin::start(library);
    let gateway = Gateway::start(Config::http(&address).listener("[listener.http]\nupgrades = [\"websocket\"]"));
    let cases = cases();
    let (next, problems) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let problem = judge(library, case, || talk(&address, case), || talk(&gateway.address, case));
                    let mut problems = problems.lock().expect("no panic");
                    problems.extend(problem.map(|problem| format!("{}: {problem}", case.id)));
                }
            });
        }
    });
    let problems = problems.into_inner().expect("no panic");
    assert!(problems.is_empty(), "{library:?}, {} of {} cases:\n{}", problems.len(), cases.len(), problems.join("\n"));
    let listed = DIFFERENCES.iter().flat_map(|one| one.cases).chain(FAILS_DIRECTLY.iter().map(|(_, id)| id));
    let unknown: Vec<_> = listed.filter(|id| cases.iter().all(|case| case.id != **id)).collect();
    assert!(unknown.is_empty(), "listed, and no cases: {unknown:?}");
    gateway.finish();
}

#[test]
fn no_case_is_worse_than_directly_to_ws() {
    no_case_is_worse(Library::Ws);
}

#[test]
fn no_case_is_worse_than_directly_to_websockets() {
    no_case_is_worse(Library::Websockets);
}
