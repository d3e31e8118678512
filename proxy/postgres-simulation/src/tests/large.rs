//! Notices and errors of any size: `RAISE NOTICE '%', repeat('x', 2000000)`.

use weir_postgres_codec::{TransactionStatus, backend, frontend};
use weir_postgres_session::Cleanliness;

use super::scene::tags;
use super::{bytes, query, scene};

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
