//! A client and a server session in memory: what they agree on, whole and in pieces, and what the settings refuse.

use std::sync::Arc;

use weir_base::Culprit;

use super::test_peers::{Files, Pair, cache_test, small_key_limit, tls12_only};
use super::{PEM_BYTES_MAX, TlsErrorKind, TlsRole, TlsState, client_config, server_config, server_name};
use crate::settings::{ClientAuth, NamedCertificate, TlsClientSettings, TlsServerSettings as TlsServer};

#[test]
fn a_handshake_survives_pieces_of_every_size() {
    let files = Files::new();
    for piece in [1, 2, 3, 4, 5, 6, 7, 64, 1_000, usize::MAX] {
        let mut pair = files.pair(ClientAuth::Off, None);
        assert_eq!(pair.settle(piece), (Ok(()), Ok(())));
        pair.client.seal(b"PING");
        pair.server.seal(b"PONG");
        assert_eq!(pair.settle(piece), (Ok(()), Ok(())));
        assert_eq!((&*pair.server.plain, &*pair.client.plain), (&b"PING"[..], &b"PONG"[..]));
        assert_eq!(pair.server.session.residue_bytes(), 0, "an idle session keeps no buffer");
        assert_eq!(pair.client.session.residue_bytes(), 0);
    }
}

#[test]
fn a_handshake_survives_a_cut_at_every_byte() {
    let files = Files::new();
    let server = server_config(&files.server(ClientAuth::Off)).unwrap();
    let client = client_config(&files.client(None)).unwrap().config;
    let hello = Pair::new(&client, cache_test(), &server).client.take_wire();
    for cut in 0..=hello.len() {
        let mut pair = Pair::new(&client, cache_test(), &server);
        let hello = pair.client.take_wire();
        let cut = cut.min(hello.len());
        pair.server.receive(&hello[..cut]).unwrap();
        pair.server.receive(&hello[cut..]).unwrap();
        let flight = pair.server.take_wire();
        let at = (cut * 7).min(flight.len());
        pair.client.receive(&flight[..at]).unwrap();
        pair.client.receive(&flight[at..]).unwrap();
        // The client's Finished and its first command in one buffer, cut somewhere.
        pair.client.seal(b"GET k");
        let last = pair.client.take_wire();
        let at = cut % last.len();
        pair.server.receive(&last[..at]).unwrap();
        assert_eq!(pair.server.receive(&last[at..]), Ok(TlsState::Open));
        assert_eq!(pair.server.plain, b"GET k");
    }
}

#[test]
fn both_versions_report_the_agreed_parameters() {
    let files = Files::new();
    let server = server_config(&files.server(ClientAuth::Off)).unwrap();
    let tls13 = client_config(&files.client(None)).unwrap().config;
    for (client, version) in [(Arc::clone(&tls13), "1.3"), (tls12_only(&tls13, &files), "1.2")] {
        let mut pair = Pair::new(&client, cache_test(), &server);
        pair.handshake();
        assert_eq!(pair.client.session.version(), Some(version));
        assert_eq!(pair.server.session.version(), Some(version));
        assert!(pair.server.session.cipher_suite().is_some_and(|suite| suite.starts_with("TLS")));
        assert_eq!(pair.server.session.role(), TlsRole::Server);
        assert_eq!(pair.server.session.peer_identity(), None);
        assert_eq!(pair.client.session.peer_identity().unwrap().common_name.as_deref(), Some("cache"));
        pair.client.seal(b"hello");
        assert_eq!(pair.settle(1), (Ok(()), Ok(())));
        assert_eq!(pair.server.plain, b"hello");
    }
}

#[test]
fn a_mebibyte_arrives_whole_in_both_versions_and_any_piece() {
    let files = Files::new();
    let server = server_config(&files.server(ClientAuth::Off)).unwrap();
    let tls13 = client_config(&files.client(None)).unwrap().config;
    let value: Vec<u8> = (0..1024 * 1024_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for client in [Arc::clone(&tls13), tls12_only(&tls13, &files)] {
        for piece in [1_000, 16 * 1024, 65_536, usize::MAX] {
            let mut pair = Pair::new(&client, cache_test(), &server);
            pair.handshake();
            pair.client.seal(&value);
            let records = value.len() / 16_384;
            assert!(pair.client.wire.len() <= value.len() + 32 * records);
            pair.server.seal(&value);
            assert_eq!(pair.settle(piece), (Ok(()), Ok(())));
            assert!(pair.server.plain == value && pair.client.plain == value, "pieces of {piece}");
            assert_eq!(pair.server.session.residue_bytes(), 0);
        }
    }
}

#[test]
fn a_client_certificate_is_verified_and_named() {
    let files = Files::new();
    for auth in [ClientAuth::Required, ClientAuth::Optional] {
        let mut pair = files.pair(auth, Some("client"));
        pair.handshake();
        let identity = pair.server.session.peer_identity().unwrap();
        assert_eq!(identity.common_name.as_deref(), Some("app-1"));
        let names: Vec<String> = identity.alt_names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["app-1.test", "spiffe://test/client"]);
    }
    let mut pair = files.pair(ClientAuth::Optional, None);
    pair.handshake();
    assert_eq!(pair.server.session.peer_identity(), None);
}

#[test]
fn a_missing_client_certificate_is_refused_with_an_alert() {
    let files = Files::new();
    let mut pair = files.pair(ClientAuth::Required, None);
    let (at_client, at_server) = pair.settle(usize::MAX);
    let (at_client, at_server) = (at_client.unwrap_err(), at_server.unwrap_err());
    assert_eq!(at_server.kind(), TlsErrorKind::CertificateMissing);
    assert_eq!(at_server.culprit(), Culprit::Client);
    assert_eq!(at_client.kind(), TlsErrorKind::AlertReceived);
    assert_eq!(at_client.culprit(), Culprit::Upstream);
    assert!(at_client.to_string().contains("set cert_file and key_file"), "{at_client}");
    assert_eq!(at_server.violation().reason, "tls_certificate_missing");
}

#[test]
fn certificates_of_another_authority_are_refused_on_both_sides() {
    let files = Files::new();
    for auth in [ClientAuth::Required, ClientAuth::Optional] {
        // Signed by an authority of the same name with another key: only the signature tells.
        let (_, at_server) = files.pair(auth, Some("stranger")).settle(usize::MAX);
        let kind = at_server.unwrap_err().kind();
        assert!(matches!(kind, TlsErrorKind::CertificateUntrusted | TlsErrorKind::CertificateInvalid), "{kind:?}");
    }
    let server = server_config(&files.server(ClientAuth::Off)).unwrap();
    let settings = TlsClientSettings { ca_file: Some(files.path("other-ca.pem")), ..files.client(None) };
    let client = client_config(&settings).unwrap();
    let (at_client, at_server) = Pair::new(&client.config, cache_test(), &server).settle(usize::MAX);
    assert_eq!(at_client.as_ref().unwrap_err().kind(), TlsErrorKind::CertificateUntrusted);
    assert!(at_client.unwrap_err().to_string().contains("set ca_file"));
    let at_server = at_server.unwrap_err();
    assert_eq!(at_server.kind(), TlsErrorKind::AlertReceived);
    assert!(at_server.to_string().contains("give it the authority"), "{at_server}");
}

#[test]
fn the_name_of_the_upstream_counts_be_it_dns_or_ip() {
    let files = Files::new();
    let server = server_config(&files.server(ClientAuth::Off)).unwrap();
    let client = client_config(&TlsClientSettings { server_name: None, ..files.client(None) }).unwrap();
    for good in ["cache.test", "127.0.0.1"] {
        let mut pair = Pair::new(&client.config, client.name_for(good).unwrap(), &server);
        pair.handshake();
    }
    for bad in ["other.test", "127.0.0.2", "::1"] {
        let (at_client, _) = Pair::new(&client.config, client.name_for(bad).unwrap(), &server).settle(usize::MAX);
        let error = at_client.unwrap_err();
        assert_eq!(error.kind(), TlsErrorKind::CertificateName, "{bad}");
        assert!(!error.to_string().contains("cache.test"), "the peer's names are not quoted: {error}");
    }
    assert_eq!(server_name("[::1]"), server_name("::1"));
    for bad in ["", "a b", "cache.test:6380", "-x.test"] {
        assert!(server_name(bad).unwrap_err().to_string().contains("neither a DNS name nor an IP address"), "{bad}");
    }
}

#[test]
fn verification_is_skipped_only_when_configured() {
    let files = Files::new();
    let server = server_config(&files.server(ClientAuth::Off)).unwrap();
    let settings = TlsClientSettings { ca_file: None, insecure_skip_verify: true, ..files.client(None) };
    let client = client_config(&settings).unwrap().config;
    let mut pair = Pair::new(&client, server_name("anything.test").unwrap(), &server);
    pair.handshake();
}

#[test]
fn a_second_connection_resumes_the_first_one() {
    let files = Files::new();
    let server = server_config(&files.server(ClientAuth::Required)).unwrap();
    let tls13 = client_config(&files.client(Some("client"))).unwrap().config;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let mut pair = Pair::new(&tls13, cache_test(), &server);
        pair.handshake();
        assert_eq!(pair.server.session.peer_identity().unwrap().common_name.as_deref(), Some("app-1"));
        sessions.push((pair.client.session.resumed(), pair.server.session.resumed()));
    }
    assert_eq!(sessions, [(false, false), (true, true), (true, true)]);
    let server = server_config(&files.server(ClientAuth::Off)).unwrap();
    let tls12 = tls12_only(&tls13, &files);
    let resumed: Vec<_> = (0..2)
        .map(|_| {
            let mut pair = Pair::new(&tls12, cache_test(), &server);
            pair.handshake();
            pair.server.session.resumed()
        })
        .collect();
    assert_eq!(resumed, [false, true]);
}

#[test]
fn a_ticket_of_another_listener_is_not_good_here() {
    let files = Files::new();
    let open = server_config(&files.server(ClientAuth::Off)).unwrap();
    let strict = server_config(&files.server(ClientAuth::Required)).unwrap();
    let client = client_config(&files.client(None)).unwrap().config;
    Pair::new(&client, cache_test(), &open).handshake();
    let (_, at_server) = Pair::new(&client, cache_test(), &strict).settle(usize::MAX);
    assert_eq!(at_server.unwrap_err().kind(), TlsErrorKind::CertificateMissing);
}

#[test]
fn both_ends_know_the_certificate_of_the_server_that_this_handshake_has_chosen() {
    let files = Files::new();
    let mut settings = files.server(ClientAuth::Off);
    let (cert_file, key_file) = (files.path("client.pem"), files.path("client.key"));
    settings.certificates = vec![NamedCertificate { names: vec!["app-1.test".to_owned()], cert_file, key_file }];
    let server = server_config(&settings).unwrap();
    let tls13 = client_config(&files.client(None)).unwrap().config;
    let mut seen = Vec::new();
    for client in [Arc::clone(&tls13), tls12_only(&tls13, &files)] {
        // The second one of a name is resumed.
        for name in ["cache.test", "app-1.test", "cache.test", "app-1.test"] {
            let mut pair = Pair::new(&client, server_name(name).unwrap(), &server);
            assert_eq!((pair.server.session.own_certificate(), pair.client.session.peer_certificate()), (None, None));
            pair.handshake();
            let own = pair.server.session.own_certificate().unwrap().to_vec();
            assert_eq!(pair.client.session.peer_certificate(), Some(&own[..]), "{name}");
            assert_eq!((pair.client.session.own_certificate(), pair.server.session.peer_certificate()), (None, None));
            seen.push((name, pair.server.session.resumed(), own));
        }
    }
    assert!(seen.iter().any(|(_, is_resumed, _)| *is_resumed));
    let of = |wanted: &str| seen.iter().filter(|(name, ..)| *name == wanted).map(|(.., own)| own).collect::<Vec<_>>();
    let (cache, app) = (of("cache.test"), of("app-1.test"));
    assert!(cache.windows(2).all(|two| two[0] == two[1]) && app.windows(2).all(|two| two[0] == two[1]));
    assert_ne!(cache[0], app[0]);
}

#[test]
fn alpn_is_agreed_or_refused() {
    let files = Files::new();
    let mut settings = files.server(ClientAuth::Off);
    settings.alpn = vec!["h2".to_owned(), "http/1.1".to_owned()];
    let server = server_config(&settings).unwrap();
    let mut client = (*client_config(&files.client(None)).unwrap().config).clone();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut pair = Pair::new(&Arc::new(client.clone()), cache_test(), &server);
    pair.handshake();
    assert_eq!(pair.server.session.alpn(), Some(&b"http/1.1"[..]));
    client.alpn_protocols = vec![b"redis".to_vec()];
    let (_, at_server) = Pair::new(&Arc::new(client), cache_test(), &server).settle(usize::MAX);
    assert_eq!(at_server.unwrap_err().kind(), TlsErrorKind::Incompatible);
}

#[test]
fn close_notify_ends_one_direction_and_only_it() {
    let files = Files::new();
    let mut pair = files.pair(ClientAuth::Off, None);
    pair.handshake();
    pair.client.seal(b"QUIT");
    pair.client.session.close(&mut pair.client.wire);
    pair.client.session.close(&mut pair.client.wire);
    let mut last = pair.client.take_wire();
    last.extend_from_slice(b"ignored after close_notify");
    assert_eq!(pair.server.receive(&last), Ok(TlsState::PeerClosed));
    assert_eq!(pair.server.plain, b"QUIT");
    assert!(pair.server.session.peer_closed());
    assert_eq!(pair.server.session.on_end(), Ok(()));
    let mut sealed = Vec::new();
    let error = pair.client.session.seal(b"more", &mut sealed).unwrap_err();
    assert_eq!((error.kind(), error.culprit(), sealed.len()), (TlsErrorKind::Closed, Culprit::Gateway, 0));
    // The other direction goes on, then ends too.
    pair.server.seal(b"+OK");
    pair.server.session.close(&mut pair.server.wire);
    assert_eq!(pair.settle(1), (Ok(()), Ok(())));
    assert_eq!(pair.client.plain, b"+OK");
    assert_eq!(pair.client.session.state(), TlsState::PeerClosed);
    assert_eq!(pair.client.session.on_end(), Ok(()));
}

#[test]
fn nothing_is_sealed_before_the_handshake_is_complete() {
    let files = Files::new();
    let mut pair = files.pair(ClientAuth::Off, None);
    let mut wire = Vec::new();
    for end in [&mut pair.client, &mut pair.server] {
        let error = end.session.seal(b"early", &mut wire).unwrap_err();
        assert_eq!(error.kind(), TlsErrorKind::Handshaking);
        end.session.close(&mut wire);
    }
    assert!(wire.is_empty());
    pair.handshake();
}

#[test]
fn keys_near_their_limit_are_updated_while_data_flows() {
    let files = Files::new();
    let server = small_key_limit(8, &files);
    let client = client_config(&files.client(None)).unwrap().config;
    let mut pair = Pair::new(&client, cache_test(), &server);
    pair.handshake();
    // Both ends use the limited suite's keys, so they are updated again and again while data flows both ways.
    for round in 0..50_u8 {
        pair.server.seal(&[round; 100]);
        assert_eq!(pair.settle(1), (Ok(()), Ok(())));
        pair.client.seal(&[round; 100]);
        assert_eq!(pair.settle(usize::MAX), (Ok(()), Ok(())));
    }
    assert_eq!(pair.client.plain.len(), 5_000);
    assert_eq!(pair.server.plain.len(), 5_000);
}

#[test]
fn every_settings_mistake_names_its_file_and_a_remedy() {
    let files = Files::new();
    let good = files.server(ClientAuth::Required);
    let text = |settings: &TlsServer| server_config(settings).unwrap_err().to_string();
    let empty = files.write("empty.pem", b"nothing here\n");
    let huge = files.write("huge.pem", &vec![b'x'; PEM_BYTES_MAX as usize + 1]);
    let damaged = files.write("damaged.pem", b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n");
    let cases = [
        (TlsServer { cert_file: files.path("none.pem"), ..good.clone() }, "cert_file", "none.pem", "check the path"),
        (
            TlsServer { cert_file: files.folder().to_owned(), ..good.clone() },
            "cert_file",
            "cannot be read",
            "name a file",
        ),
        (
            TlsServer { cert_file: empty.clone(), ..good.clone() },
            "cert_file",
            "no certificate in it",
            "BEGIN CERTIFICATE",
        ),
        (TlsServer { cert_file: damaged, ..good.clone() }, "cert_file", "damaged.pem", "BEGIN CERTIFICATE"),
        (TlsServer { cert_file: huge, ..good.clone() }, "cert_file", "longer than", "not an archive"),
        (TlsServer { key_file: empty.clone(), ..good.clone() }, "key_file", "no usable private key", "unencrypted"),
        (TlsServer { key_file: files.path("client.key"), ..good.clone() }, "key_file", "does not belong", "server.pem"),
        (TlsServer { client_ca_file: None, ..good.clone() }, "client_ca_file", "no authority is named", "client_auth"),
        (TlsServer { client_ca_file: Some(empty), ..good.clone() }, "client_ca_file", "empty.pem", "BEGIN CERTIFICATE"),
        (TlsServer { alpn: vec![String::new()], ..good }, "alpn", "empty", "IANA"),
    ];
    for (settings, setting, what, remedy) in cases {
        let text = text(&settings);
        assert!(text.starts_with(setting) && text.contains(what) && text.contains(remedy), "{text}");
    }
    let half = TlsClientSettings { key_file: None, ..files.client(Some("client")) };
    assert!(client_config(&half).unwrap_err().to_string().contains("set key_file"));
    let half = TlsClientSettings { cert_file: None, ..files.client(Some("client")) };
    assert!(client_config(&half).unwrap_err().to_string().contains("set cert_file"));
    let wrong = TlsClientSettings { key_file: Some(files.path("server.key")), ..files.client(Some("client")) };
    assert!(client_config(&wrong).unwrap_err().to_string().contains("does not belong"));
}

#[test]
fn label_words_are_distinct_and_snake_case() {
    let words = TlsErrorKind::ALL.map(TlsErrorKind::as_str);
    for (index, word) in words.iter().enumerate() {
        assert!(word.starts_with("tls_") && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        assert!(!words[..index].contains(word));
    }
}
