//! Peers that send garbage, alter records, never finish, or end too early.

use proptest::prelude::*;

use super::test_peers::{Files, Pair, cache_test, tls12_only};
use super::{HANDSHAKE_BYTES_MAX, TlsErrorKind, TlsSession, TlsState, client_config, server_config};
use crate::settings::ClientAuth;

/// Type of a record on the wire (RFC 8446 section 5.1).
const ALERT: u8 = 21;

#[test]
fn an_end_without_close_notify_is_truncation() {
    let files = Files::new();
    let mut pair = files.pair(ClientAuth::Off, None);
    assert_eq!(pair.server.session.on_end().unwrap_err().kind(), TlsErrorKind::Truncated);
    pair.handshake();
    assert_eq!(pair.server.session.on_end().unwrap_err().kind(), TlsErrorKind::Truncated);
}

#[test]
fn plain_text_on_a_tls_port_gets_an_alert_and_a_hint() {
    let files = Files::new();
    let server = server_config(&files.server(ClientAuth::Off)).unwrap();
    for text in [&b"*1\r\n$4\r\nPING\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x08\x04\xd2\x16\x2f"] {
        let mut session = TlsSession::server(&server).unwrap();
        let (mut plain, mut wire) = (Vec::new(), Vec::new());
        let error = session.on_wire(&mut text.to_vec(), &mut plain, &mut wire).unwrap_err();
        assert_eq!(error.kind(), TlsErrorKind::NotTls);
        assert!(error.to_string().contains("the client speaks plain text"), "{error}");
        assert_eq!(wire[0], ALERT);
        assert!(plain.is_empty());
        let length = wire.len();
        assert_eq!(session.on_wire(&mut text.to_vec(), &mut plain, &mut wire), Err(error.clone()), "latched");
        assert_eq!(session.seal(b"x", &mut wire), Err(error));
        session.close(&mut wire);
        assert_eq!(wire.len(), length, "one alert, then silence");
    }
}

#[test]
fn a_record_altered_on_the_way_is_refused() {
    let files = Files::new();
    let mut pair = files.pair(ClientAuth::Off, None);
    pair.handshake();
    pair.client.seal(b"SET k v");
    let mut wire = pair.client.take_wire();
    let last = wire.len() - 1;
    wire[last] ^= 1;
    let error = pair.server.receive(&wire).unwrap_err();
    assert_eq!(error.kind(), TlsErrorKind::BadRecord);
    assert!(pair.server.plain.is_empty() && !pair.server.wire.is_empty());
    let (at_client, _) = pair.settle(usize::MAX);
    assert_eq!(at_client.unwrap_err().kind(), TlsErrorKind::AlertReceived);
}

#[test]
fn endless_handshake_fragments_end_at_the_limit() {
    let files = Files::new();
    let server = server_config(&files.server(ClientAuth::Off)).unwrap();
    let mut session = TlsSession::server(&server).unwrap();
    let (mut plain, mut wire) = (Vec::new(), Vec::new());
    // A ClientHello that claims 65,000 bytes and comes one byte per record.
    let mut record = vec![22, 3, 1, 0, 4, 1, 0, 0xfd, 0xe8];
    let mut fed = 0;
    let error = loop {
        fed += record.len();
        match session.on_wire(&mut record, &mut plain, &mut wire) {
            Ok(state) => assert_eq!(state, TlsState::Handshaking),
            Err(error) => break error,
        }
        assert!(session.residue_bytes() <= 2 * HANDSHAKE_BYTES_MAX);
        record = vec![22, 3, 1, 0, 1, 0];
    };
    assert_eq!(error.kind(), TlsErrorKind::HandshakeTooLong);
    assert!(fed <= HANDSHAKE_BYTES_MAX + 6, "{fed}");
    assert_eq!(error.violation().limit, HANDSHAKE_BYTES_MAX as u64);
    assert_eq!(session.residue_bytes(), 0, "nothing is kept for a session that failed");
}

thread_local! {
    static FILES: Files = Files::new();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..2_000),
        piece in 1_usize..500,
        record in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if record && bytes.len() > 9 {
            // A well-formed record and handshake header, so that the noise reaches the parser of ClientHello.
            let length = (bytes.len() - 5) as u16;
            bytes[..5].copy_from_slice(&[22, 3, 1, (length >> 8) as u8, length as u8]);
            bytes[5..9].copy_from_slice(&[1, 0, ((length - 4) >> 8) as u8, (length - 4) as u8]);
        }
        let server = FILES.with(|files| server_config(&files.server(ClientAuth::Off)).unwrap());
        let mut session = TlsSession::server(&server).unwrap();
        let (mut plain, mut wire) = (Vec::new(), Vec::new());
        for chunk in bytes.chunks_mut(piece) {
            let _ = session.on_wire(chunk, &mut plain, &mut wire);
        }
        prop_assert!(plain.is_empty());
    }

    #[test]
    fn a_flipped_bit_anywhere_never_panics_nor_reaches_the_application(
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
        piece in 1_usize..3_000,
        tls12 in any::<bool>(),
        flip_client in any::<bool>(),
    ) {
        let mut pair = FILES.with(|files| {
            let server = server_config(&files.server(ClientAuth::Off)).unwrap();
            let tls13 = client_config(&files.client(None)).unwrap().config;
            let client = if tls12 { tls12_only(&tls13, files) } else { tls13 };
            Pair::new(&client, cache_test(), &server)
        });
        let mut flipped = false;
        for round in 0..6 {
            for from_client in [true, false] {
                let mut wire = if from_client { pair.client.take_wire() } else { pair.server.take_wire() };
                if from_client == flip_client && !flipped && !wire.is_empty() && at.index(6) <= round {
                    let place = at.index(wire.len());
                    wire[place] ^= 1 << bit;
                    flipped = true;
                }
                let to = if from_client { &mut pair.server } else { &mut pair.client };
                for chunk in wire.chunks(piece) {
                    let _ = to.receive(chunk);
                }
            }
            if pair.client.session.state() == TlsState::Open {
                let _ = pair.client.session.seal(b"authentic", &mut pair.client.wire);
            }
        }
        // The received bytes equal the sent ones, in whole records from the first one, or nothing.
        let whole = b"authentic".repeat(6);
        prop_assert!(whole.starts_with(&pair.server.plain));
        prop_assert_eq!(pair.server.plain.len() % 9, 0);
    }

    #[test]
    fn garbage_after_the_handshake_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 1..500),
        closed_first in any::<bool>(),
        record in any::<bool>(),
    ) {
        let mut pair = FILES.with(|files| files.pair(ClientAuth::Off, None));
        pair.handshake();
        if closed_first {
            pair.server.session.close(&mut pair.server.wire);
        }
        let mut wire = if record { vec![23, 3, 3, 0, bytes.len().min(250) as u8] } else { Vec::new() };
        wire.extend(bytes);
        let _ = pair.server.receive(&wire);
        prop_assert!(pair.server.plain.is_empty());
    }
}
