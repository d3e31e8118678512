//! Messages of any size: `RAISE NOTICE '%', repeat('x', 2000000)`, and the longest that a server takes.

use weir_postgres_codec::limits::LARGE_MESSAGE_BYTES_MAX;
use weir_postgres_codec::{TransactionStatus, backend, frame, frontend};
use weir_postgres_session::{Cleanliness, Next};

use super::scene::tags;
use super::{bytes, prepare, query, scene};

#[test]
fn large_notices_and_errors_pass_in_pieces() {
    let text = "x".repeat(2_000_000);
    let ready = bytes(|out| backend::ready_for_query(out, TransactionStatus::Idle));
    let notice = bytes(|out| {
        backend::notice(out, &backend::ErrorReport::new(backend::Severity::Warning, "01000", &text));
        backend::command_complete(out, b"SELECT 1");
    });
    let error = bytes(|out| backend::error(out, &backend::ErrorReport::error("P0001", &text)));
    for replies in [[&notice[..], &ready].concat(), [&error[..], &ready].concat()] {
        for piece in [1_000, 8_192, usize::MAX] {
            let mut scene = scene();
            scene.send(&query("SELECT raise()"));
            scene.io.to_server.take();
            for bytes in replies.chunks(piece) {
                scene.reply(bytes);
            }
            assert!(scene.io.to_client.take() == replies, "pieces of {piece}");
            assert_eq!(scene.releases, [Cleanliness::Clean]);
        }
    }
}

/// The messages behind it are skipped from its head on.
#[test]
fn a_large_error_skips_its_batch() {
    let mut scene = scene();
    scene.send(&bytes(|out| {
        frontend::parse(out, b"", b"SELECT raise()", &[]);
        frontend::bind(out, b"", b"", []);
        frontend::execute(out, b"", 0);
        frontend::sync(out);
        frontend::sync(out);
    }));
    scene.io.to_server.take();
    let text = "x".repeat(1_500_000);
    let replies = bytes(|out| {
        backend::parse_complete(out);
        backend::error(out, &backend::ErrorReport::error("P0001", &text));
        backend::ready_for_query(out, TransactionStatus::Idle);
        backend::ready_for_query(out, TransactionStatus::Idle);
    });
    for bytes in replies.chunks(10_000) {
        scene.reply(bytes);
    }
    assert_eq!(tags(&scene.io.to_client.take()), "1EZZ");
    assert!(!scene.is_attached);
}

/// The server's name of the statement is longer than the client's, and its limit is that of the client.
#[test]
fn the_longest_bind_is_not_too_long_under_the_name_of_the_server() {
    let bind = |body: usize| {
        let mut bind = bytes(|out| frontend::bind(out, b"", b"s", []));
        bind[1..frame::HEAD_BYTES].copy_from_slice(&(body as u32 + 4).to_be_bytes());
        bind
    };
    let mut longest = 0;
    for body in LARGE_MESSAGE_BYTES_MAX - 64..=LARGE_MESSAGE_BYTES_MAX + 8 {
        let mut scene = scene();
        scene.send(&prepare("s", "SELECT 'a'"));
        scene.turn(usize::MAX);
        let next = scene.send(&bind(body));
        let sent = scene.to_server();
        if matches!(next, Next::Close(_)) {
            assert!(sent.is_empty(), "{body}");
            continue;
        }
        let head = frame::head(&sent).expect("a length").expect("a whole head");
        assert_eq!(head.tag, frontend::tag::BIND);
        assert!(head.body > body && head.body <= LARGE_MESSAGE_BYTES_MAX, "{body}: {head:?}");
        longest = body;
    }
    // A name of the server has up to 25 bytes.
    assert_eq!(longest, LARGE_MESSAGE_BYTES_MAX - 25);
}
