//! Rules that change while a client is there.

use std::rc::Rc;

use weir_postgres_codec::frontend;
use weir_postgres_session::{Cleanliness, Judge, Refusal};

use super::scene::tags;
use super::{bytes, prepare, query, run, scene};

/// Denies texts with this word.
struct Denies(&'static [u8]);

impl Judge for Denies {
    fn text(&self, text: &[u8]) -> Option<Refusal> {
        let fits = text.windows(self.0.len()).any(|part| part == self.0);
        fits.then(|| Refusal::error("42501", "denied"))
    }

    fn unread(&self) -> Option<Refusal> {
        None
    }

    fn function_call(&self) -> Option<Refusal> {
        None
    }
}

fn is_denied(reply: &[u8]) -> bool {
    tags(reply) == "EZ" && reply.windows(5).any(|part| part == b"42501")
}

#[test]
fn new_rules_hold_for_the_next_statement_and_for_what_was_prepared_before() {
    let mut scene = scene();
    let unnamed = |text: &[u8]| {
        bytes(|out| {
            frontend::parse(out, b"", text, &[]);
            frontend::sync(out);
        })
    };
    scene.ask(&prepare("s", "SELECT 'secret'"));
    scene.ask(&prepare("t", "SELECT 'a'"));
    scene.ask(&query("PREPARE p AS SELECT 'secret'"));
    scene.ask(&query("PREPARE q AS SELECT 'a'"));
    scene.ask(&unnamed(b"SELECT 'secret'"));
    scene.session.set_judge(Some(Rc::new(Denies(b"secret"))));
    for text in [run(""), run(""), query("SELECT 'secret'"), run("s"), run("s"), query("EXECUTE p"), run("p")] {
        let reply = scene.ask(&text);
        assert!(is_denied(&reply), "{:?}: {}", String::from_utf8_lossy(&text), tags(&reply));
    }
    assert_eq!(tags(&scene.ask(&run("t"))), "2TDCZ");
    assert_eq!(tags(&scene.ask(&query("EXECUTE q"))), "TDCZ");
    assert_eq!(scene.releases.last(), Some(&Cleanliness::Clean));
    // Within a block the refusal is the gateway's: the block goes on.
    scene.ask(&query("BEGIN"));
    assert_eq!(scene.ask(&run("s")).last(), Some(&b'T'));
    assert_eq!(tags(&scene.ask(&query("COMMIT"))), "CZ");
    // The next rules permit it.
    scene.session.set_judge(None);
    assert_eq!(tags(&scene.ask(&run("s"))), "2TDCZ");
    assert_eq!(tags(&scene.ask(&query("EXECUTE p"))), "TDCZ");
}
