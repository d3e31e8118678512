//! Streams of frames, good and bad, whole and cut at every byte.

use std::time::Duration;

use proptest::prelude::*;
use weir_base::time::Time;
use weir_websocket_codec::{CloseCode, FrameValidator, HEADER_BYTES_MAX, Limits, Reserved, Sender, WireError};

const BEGIN: Time = Time::from_nanos(1_000_000_000);

/// One frame as `sender` sends it, its length in the fewest bytes.
fn frame(sender: Sender, first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = if sender == Sender::Client { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(mask | length as u8),
        length @ 126..65_536 => {
            bytes.push(mask | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(mask | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    if sender == Sender::Client {
        bytes.extend_from_slice(&[7, 7, 7, 7]);
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// Feeds `bytes` in pieces that end at `cuts`, as a relay does: bytes that do not pass wait. Returns the bytes that passed, and the
/// error.
fn relay(validator: &mut FrameValidator, bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Option<WireError>) {
    let (mut passed, mut waiting, mut at) = (Vec::new(), Vec::new(), 0);
    for end in cuts.iter().copied().chain([bytes.len()]) {
        let end = end.clamp(at, bytes.len());
        waiting.extend_from_slice(&bytes[at..end]);
        at = end;
        let validated = validator.validate(&waiting, BEGIN);
        passed.extend(waiting.drain(..validated.bytes));
        if validated.error.is_some() {
            return (passed, validated.error);
        }
        assert!(validator.is_closed() || waiting.len() < HEADER_BYTES_MAX, "more than a header is held back");
    }
    (passed, None)
}

fn judged(sender: Sender, reserved: Reserved, limits: Limits, bytes: &[u8]) -> Option<WireError> {
    let mut results = Vec::new();
    for cut in 0..=bytes.len() {
        results.push(relay(&mut FrameValidator::new(sender, reserved, limits), bytes, &[cut]));
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "a cut changes the verdict: {results:x?}");
    results[0].1
}

fn of_client(frames: &[(u8, &[u8])]) -> Option<WireError> {
    let bytes: Vec<u8> = frames.iter().flat_map(|(first, payload)| frame(Sender::Client, *first, payload)).collect();
    judged(Sender::Client, Reserved::None, Limits::default(), &bytes)
}

#[test]
fn messages_whole_and_in_fragments_with_control_frames_between_pass() {
    assert_eq!(of_client(&[(0x81, b"hi"), (0x82, b""), (0x89, b"ping"), (0x8a, b"")]), None);
    assert_eq!(of_client(&[(0x01, b"a"), (0x89, b""), (0x00, b"b"), (0x8a, b""), (0x80, b"c"), (0x81, b"d")]), None);
}

#[test]
fn w1_frames_against_the_rules_are_protocol_errors() {
    let long = [0; 126];
    for (frames, error) in [
        (&[(0xc1, &b"hi"[..])][..], WireError::ReservedBits),
        (&[(0xa1, b"hi")], WireError::ReservedBits),
        (&[(0x83, b"")], WireError::Opcode),
        (&[(0x8b, b"")], WireError::Opcode),
        (&[(0x09, b"")], WireError::ControlFrame),
        (&[(0x08, b"")], WireError::ControlFrame),
        (&[(0x89, &long)], WireError::ControlFrame),
    ] {
        assert_eq!(of_client(frames), Some(error));
        assert_eq!(error.close_code(), CloseCode::PROTOCOL_ERROR);
    }
    let unmasked = frame(Sender::Server, 0x81, b"hi");
    assert_eq!(judged(Sender::Client, Reserved::None, Limits::default(), &unmasked), Some(WireError::Mask));
    let masked = frame(Sender::Client, 0x81, b"hi");
    assert_eq!(judged(Sender::Server, Reserved::None, Limits::default(), &masked), Some(WireError::Mask));
}

#[test]
fn w1_reserved_bits_follow_the_extensions() {
    let known = Reserved::None.with(b"permessage-deflate; client_max_window_bits=15");
    assert_eq!((known, Reserved::None.with(b" , ")), (Reserved::Compressed, Reserved::None));
    assert_eq!(known.with(b"x-own; a=1"), Reserved::Any);
    assert_eq!(Reserved::None.with(b"x-own, permessage-deflate"), Reserved::Any);
    let judge = |reserved, first| {
        let mut bytes = frame(Sender::Server, 0x41 & first | 0x01, b"x");
        bytes.extend(frame(Sender::Server, first, b"y"));
        judged(Sender::Server, reserved, Limits::default(), &bytes)
    };
    assert_eq!(judge(Reserved::Compressed, 0x80), None);
    for first in [0xc0, 0xc9, 0xa0, 0x90] {
        assert_eq!(judge(Reserved::Compressed, first), Some(WireError::ReservedBits), "{first:x}");
        assert_eq!(judge(Reserved::Any, first), None, "{first:x}");
    }
}

#[test]
fn w2_lengths_beyond_the_limit_are_refused_by_their_header() {
    let limits = Limits { message_bytes: 4, ..Limits::default() };
    let judge = |frames: &[(u8, &[u8])]| {
        let bytes: Vec<u8> = frames.iter().flat_map(|(first, body)| frame(Sender::Server, *first, body)).collect();
        judged(Sender::Server, Reserved::None, limits, &bytes)
    };
    assert_eq!(judge(&[(0x82, b"1234"), (0x82, b"1234"), (0x89, b"12345678")]), None, "control frames are no message");
    assert_eq!(judge(&[(0x82, b"12345")]), Some(WireError::MessageTooBig));
    assert_eq!(judge(&[(0x02, b"12"), (0x00, b"12"), (0x80, b"1")]), Some(WireError::MessageTooBig));
    let huge = [0x82, 127, 0x7f, 255, 255, 255, 255, 255, 255, 255];
    let unlimited = Limits { message_bytes: u64::MAX, ..limits };
    assert_eq!(judged(Sender::Server, Reserved::None, unlimited, &huge), None, "8 EiB may come, and cost nothing");
    assert_eq!(judged(Sender::Server, Reserved::None, limits, &huge), Some(WireError::MessageTooBig));
    assert_eq!(WireError::MessageTooBig.close_code(), CloseCode::MESSAGE_TOO_BIG);
}

#[test]
fn w3_fragments_in_the_wrong_place_or_without_an_end_are_refused() {
    assert_eq!(of_client(&[(0x80, b"a")]), Some(WireError::Fragmentation));
    assert_eq!(of_client(&[(0x01, b"a"), (0x81, b"b")]), Some(WireError::Fragmentation));
    assert_eq!(of_client(&[(0x01, b"a"), (0x80, b"b"), (0x00, b"c")]), Some(WireError::Fragmentation));
    let limits = Limits { fragments: 3, ..Limits::default() };
    let bytes = |count: usize| {
        let mut bytes = frame(Sender::Client, 0x01, b"a");
        (1..count).for_each(|_| bytes.extend(frame(Sender::Client, 0x00, b"a")));
        bytes
    };
    assert_eq!(judged(Sender::Client, Reserved::None, limits, &bytes(3)), None);
    assert_eq!(judged(Sender::Client, Reserved::None, limits, &bytes(4)), Some(WireError::FragmentsTooMany));
    assert_eq!(WireError::FragmentsTooMany.close_code(), CloseCode::MESSAGE_TOO_BIG);
}

#[test]
fn w6_pings_have_a_budget_that_comes_back_with_time() {
    let mut validator = FrameValidator::new(Sender::Client, Reserved::None, Limits::default());
    let ping = frame(Sender::Client, 0x89, b"");
    for _ in 0..50 {
        assert_eq!(validator.validate(&ping, BEGIN).error, None);
    }
    let mut other = validator.clone();
    assert_eq!(validator.validate(&ping, BEGIN).error, Some(WireError::PingsTooMany));
    let later = BEGIN.saturating_add(Duration::from_secs(10));
    for _ in 0..50 {
        assert_eq!(other.validate(&ping, later).error, None);
    }
    assert_eq!(other.validate(&ping, later).error, Some(WireError::PingsTooMany));
    assert_eq!(WireError::PingsTooMany.close_code(), CloseCode::POLICY_VIOLATION);
}

#[test]
fn nothing_passes_behind_a_close_frame() {
    let mut validator = FrameValidator::new(Sender::Server, Reserved::None, Limits::default());
    let mut bytes = frame(Sender::Server, 0x88, b"\x03\xe8");
    let end = bytes.len();
    bytes.extend(frame(Sender::Server, 0x81, b"more"));
    assert!(!validator.is_closed());
    assert_eq!(validator.validate(&bytes[..3], BEGIN).bytes, 3);
    assert!(!validator.is_closed() && !validator.is_between_frames(), "its payload is under way");
    assert_eq!(validator.validate(&bytes[3..], BEGIN).bytes, end - 3);
    assert!(validator.is_closed() && validator.is_between_frames());
    assert_eq!(validator.validate(b"\xff\xff", BEGIN).bytes, 0);
}

/// Frames as a well-behaved client sends them.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![0..4_usize, 120..130_usize, Just(65_535), Just(65_536)];
    let control = prop_oneof![Just(None), Just(Some(0x89_u8)), Just(Some(0x8a))];
    let piece = (size, control);
    (prop::collection::vec(piece, 1..4), prop_oneof![Just(1_u8), Just(2)]).prop_map(|(pieces, kind)| {
        let (mut bytes, last) = (Vec::new(), pieces.len() - 1);
        for (at, (size, control)) in pieces.iter().enumerate() {
            if let Some(control) = control {
                bytes.extend(frame(Sender::Client, *control, b"c"));
            }
            let first = if at == 0 { kind } else { 0 } | if at == last { 0x80 } else { 0 };
            bytes.extend(frame(Sender::Client, first, &vec![0x55; *size]));
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn valid_frames_pass_whole_however_they_are_cut(
        messages in prop::collection::vec(message(), 1..4),
        cuts in prop::collection::vec(0..400_000_usize, 0..12),
    ) {
        let bytes = messages.concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut validator = FrameValidator::new(Sender::Client, Reserved::None, Limits::default());
        let (passed, error) = relay(&mut validator, &bytes, &cuts);
        prop_assert_eq!(error, None);
        prop_assert!(passed == bytes);
        prop_assert!(validator.is_between_frames() && !validator.is_closed());
    }

    #[test]
    fn any_bytes_get_the_same_verdict_however_they_are_cut(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x81), Just(0x80), Just(0x01), Just(0)], 0..64),
        cuts in prop::collection::vec(0..64_usize, 0..8),
    ) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        for sender in [Sender::Client, Sender::Server] {
            let make = || FrameValidator::new(sender, Reserved::Compressed, Limits::default());
            let (whole, pieces) = (relay(&mut make(), &bytes, &[]), relay(&mut make(), &bytes, &cuts));
            prop_assert!(whole == pieces);
            prop_assert!(bytes.starts_with(&whole.0));
        }
    }
}
