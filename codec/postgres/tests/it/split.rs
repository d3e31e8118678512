//! Where a read ends must not matter.

use proptest::prelude::*;
use weir_postgres_codec::startup::{self, Startup};
use weir_postgres_codec::{Version, frontend};

use crate::support::{follow, message, text};

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// P8: every message in two pieces, and byte by byte, is the same message.
    #[test]
    fn p8_streams_split_at_every_byte_boundary(sent in prop::collection::vec(message(), 1..6), tail in prop::collection::vec(any::<u8>(), 0..9)) {
        let mut input = sent.concat();
        input.extend_from_slice(&tail);
        let whole = follow([&input[..]]);
        prop_assert!(whole.messages.len() >= sent.len());
        for (sent, found) in sent.iter().zip(&whole.messages) {
            prop_assert_eq!((sent[0], &sent[5..]), (found.tag, &found.body[..]));
        }
        prop_assert_eq!(&follow(input.chunks(1)), &whole);
        for cut in 0..input.len() {
            prop_assert_eq!(&follow([&input[..cut], &input[cut..]]), &whole, "cut at {}", cut);
        }
    }

    #[test]
    fn p8_startup_packets_split_at_every_byte_boundary(pairs in prop::collection::vec((text(), text()), 0..5), minor in 0_u16..4) {
        let pairs: Vec<_> = pairs.into_iter().filter(|(name, _)| !name.is_empty()).collect();
        let version = Version { major: 3, minor };
        let mut packet = Vec::new();
        frontend::startup(&mut packet, version, pairs.iter().map(|(name, value)| (&name[..], &value[..])));
        for cut in 0..packet.len() {
            prop_assert_eq!(startup::read(&packet[..cut]), Ok(None), "cut at {}", cut);
        }
        let Ok(Some((Startup::Session { version: found, parameters }, bytes))) = startup::read(&packet) else {
            panic!("a session")
        };
        prop_assert_eq!((found, bytes), (version, packet.len()));
        let expected: Vec<_> = pairs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        prop_assert_eq!(parameters.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn cancel_requests_read_back_as_sent(pid: u32, secret in prop::collection::vec(any::<u8>(), 4..=256)) {
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, pid, &secret);
        let found = startup::read(&packet);
        prop_assert_eq!(found, Ok(Some((Startup::Cancel { pid, secret: &secret }, packet.len()))));
    }
}
