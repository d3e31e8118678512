//! Bodies: however they are cut, the same bytes and the same end; cases H1.3 of the abuse catalogue.

use proptest::prelude::*;
use weir_http_codec::{BodyDecoder, BodyLength, BodyLimits, Known, WireError, encode};

/// The body in `pieces`, whether it ended, and the bytes behind it.
fn decoded(length: BodyLength, pieces: &[&[u8]]) -> Result<(Vec<u8>, BodyDecoder, usize), WireError> {
    let (mut decoder, mut body, mut spent) = (BodyDecoder::new(length), Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            let found = decoder.decode(rest, &BodyLimits::default())?;
            assert!(found.taken > 0, "it goes on");
            body.extend_from_slice(found.data);
            assert_eq!(found.is_last, decoder.is_done());
            spent += found.taken;
            rest = &rest[found.taken..];
        }
    }
    Ok((body, decoder, spent))
}

fn chunked(input: &[u8]) -> Result<(Vec<u8>, bool), WireError> {
    decoded(BodyLength::Chunked, &[input]).map(|(body, decoder, _)| (body, decoder.is_done()))
}

#[test]
fn bodies_end_where_their_length_says() {
    let (body, decoder, spent) = decoded(BodyLength::Exact(3), &[b"ab", b"cdef"]).expect("valid");
    assert_eq!((&body[..], decoder.is_done(), spent), (&b"abc"[..], true, 3));
    let (_, short, _) = decoded(BodyLength::Exact(3), &[b"ab"]).expect("valid");
    assert!(!short.ends_with_connection(), "cut short");
    let (body, open, _) = decoded(BodyLength::UntilClose, &[b"ab", b"c"]).expect("valid");
    assert!(body == b"abc" && !open.is_done() && open.ends_with_connection());
    assert!(BodyDecoder::new(BodyLength::Exact(0)).is_done());
}

#[test]
fn chunks_are_taken_apart() {
    assert_eq!(chunked(b"5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"), Ok((b"hello0123456789".to_vec(), true)));
    assert_eq!(chunked(b"000\r\n\r\n"), Ok((Vec::new(), true)));
    let (_, decoder, spent) =
        decoded(BodyLength::Chunked, &[b"1\r\na\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nHost: b\r\n\r\nGET"])
            .expect("valid");
    let trailers = decoder.trailers().expect("there are some");
    assert_eq!(
        (trailers.len(), trailers.has(Known::Host)),
        (1, false),
        "what decides on the message does not come late"
    );
    assert_eq!(spent, b"1\r\na\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nHost: b\r\n\r\n".len());
}

#[test]
fn h1_3_chunks_that_two_parsers_could_read_in_two_ways_are_refused() {
    for input in [
        &b"00000000000000001\r\n"[..],
        b"5 \r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"-1\r\n",
        b"\r\n",
        b";a\r\n",
        b"5\nhello\r\n",
        b"5\r\nhello\n",
        b"5\r\nhelloX",
        b"5\r\nhello\rX",
        b"5\rhello",
        b"5;a\nb\r\n",
        b"5;a\0b\r\n",
        b"0\r\nX\r\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\n X: y\r\n",
    ] {
        assert!(chunked(input).is_err(), "{:?}", String::from_utf8_lossy(input));
    }
    let (_, decoder, spent) = decoded(BodyLength::Chunked, &[b"0\r\n\r\nX"]).expect("valid");
    assert!(decoder.is_done() && spent == 5, "what follows is the next message's");
}

#[test]
fn h1_3_chunk_extensions_and_trailers_have_a_limit() {
    let mut extension = b"1;".to_vec();
    extension.extend(std::iter::repeat_n(b'x', 9 * 1024));
    assert_eq!(chunked(&extension), Err(WireError::ChunkExtensions));
    let many: Vec<u8> = b"1;abcdefgh\r\nx\r\n".repeat(2_000);
    assert_eq!(chunked(&many), Err(WireError::ChunkExtensions), "of the whole body");
    let trailers: Vec<u8> = [b"0\r\n".to_vec(), b"X: y\r\n".repeat(101)].concat();
    assert_eq!(chunked(&trailers), Err(WireError::TrailersTooLong));
    let long: Vec<u8> = [b"0\r\nX: ".to_vec(), vec![b'y'; 65 * 1024]].concat();
    assert_eq!(chunked(&long), Err(WireError::TrailersTooLong));
}

#[test]
fn a_claimed_size_reserves_nothing() {
    let (body, decoder, _) = decoded(BodyLength::Chunked, &[b"ffffffffffffffff\r\nabc"]).expect("valid so far");
    assert!(body == b"abc" && !decoder.is_done());
}

proptest! {
    #[test]
    fn an_encoded_body_is_decoded_however_it_is_cut(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut wire = Vec::new();
        parts.iter().for_each(|part| encode::chunk(part, &mut wire));
        encode::last_chunk(None, &mut wire);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
        ends.extend([0, wire.len()]);
        ends.sort_unstable();
        let pieces: Vec<&[u8]> = ends.windows(2).map(|pair| &wire[pair[0]..pair[1]]).collect();
        let (body, decoder, spent) = decoded(BodyLength::Chunked, &pieces).expect("valid");
        prop_assert_eq!(body, parts.concat());
        prop_assert!(decoder.is_done() && spent == wire.len());
    }

    #[test]
    fn rubbish_is_refused_or_waits_and_never_gives_more_than_came(input in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((body, _, spent)) = decoded(BodyLength::Chunked, &[&input]) {
            prop_assert!(body.len() <= spent && spent <= input.len());
        }
    }
}
