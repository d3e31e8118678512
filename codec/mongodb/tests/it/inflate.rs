//! Compressed messages: what other libraries write, and what attackers do.

use std::io::Write as _;

use proptest::prelude::*;
use weir_mongodb_codec::compressed::{self, Compressed, Compressor};
use weir_mongodb_codec::{InflateError, MessageError, OpCode};

const ALL: [Compressor; 4] = [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];

/// The data as the library of this compressor writes it.
fn compress(compressor: Compressor, data: &[u8]) -> Vec<u8> {
    match compressor {
        Compressor::Noop => data.to_vec(),
        Compressor::Snappy => snap::raw::Encoder::new().compress_vec(data).expect("compressed"),
        Compressor::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(data).expect("written");
            encoder.finish().expect("compressed")
        }
        Compressor::Zstd => zstd::encode_all(data, 3).expect("compressed"),
    }
}

/// A message with this head, written by hand.
fn message(inside: i32, claimed: i32, compressor: u8, data: &[u8]) -> Vec<u8> {
    let length = 25 + data.len() as i32;
    let numbers = [length, 7, 9, 2012, inside, claimed].map(i32::to_le_bytes).concat();
    [&numbers[..], &[compressor], data].concat()
}

fn inflate(message: &[u8]) -> Result<Vec<u8>, InflateError> {
    let mut out = b"before".to_vec();
    let inflated = Compressed::read(message).expect("a head").inflate(&mut out);
    assert!(out.starts_with(b"before") && (inflated.is_ok() || out.len() == 6), "an error appends nothing");
    inflated.map(|()| out.split_off(6))
}

proptest! {
    #[test]
    fn each_compressor_reads_what_its_library_writes(data in prop::collection::vec(0..4_u8, 0..3000)) {
        for compressor in ALL {
            let message = message(2013, data.len() as i32, compressor.number(), &compress(compressor, &data));
            let compressed = Compressed::read(&message).unwrap();
            prop_assert_eq!((compressed.op_code, compressed.compressor), (OpCode::Msg, compressor));
            let inflated = inflate(&message).unwrap();
            prop_assert_eq!(inflated.len(), compressed.inflated);
            let header = [data.len() as i32 + 16, 7, 9, 2013].map(i32::to_le_bytes).concat();
            prop_assert_eq!((&inflated[..16], &inflated[16..]), (&header[..], &data[..]));
        }
    }

    #[test]
    fn what_is_written_reads_back(data in prop::collection::vec(0..4_u8, 0..9000), times in 1..30_usize) {
        let data = data.repeat(times);
        let header = [data.len() as i32 + 16, 7, 9, 2013].map(i32::to_le_bytes).concat();
        let plain = [&header[..], &data].concat();
        for compressor in ALL {
            let mut out = b"before".to_vec();
            compressed::write(&mut out, &plain, compressor).unwrap();
            let message = out.split_off(6);
            // One that shrinks too much stays as it is.
            prop_assert!(message == plain || inflate(&message).unwrap() == plain, "{:?}", compressor);
            prop_assert!(message != plain || data.len() > 64 * 1024);
        }
    }

    #[test]
    fn m2_broken_bytes_are_refused(data in prop::collection::vec(any::<u8>(), 0..300), claimed in 0..2000_i32, cut: prop::sample::Index) {
        for compressor in ALL {
            let _ = inflate(&message(2013, claimed, compressor.number(), &data));
            let good = compress(compressor, &data);
            let cut = cut.index(good.len().max(1));
            if cut < good.len() {
                prop_assert!(inflate(&message(2013, data.len() as i32, compressor.number(), &good[..cut])).is_err());
            }
        }
    }
}

#[test]
fn m2_heads_that_lie_are_refused() {
    let read = |inside, claimed, compressor| Compressed::read(&message(inside, claimed, compressor, b"x")).err();
    assert_eq!(read(2012, 1, 0), Some(MessageError::Nested));
    assert_eq!(read(2014, 1, 0), Some(MessageError::OpCode(2014)));
    for compressor in 4..=u8::MAX {
        assert_eq!(read(2013, 1, compressor), Some(MessageError::Compressor(compressor)));
    }
    for claimed in [i32::MIN, -1, 47_999_985, i32::MAX] {
        assert_eq!(read(2013, claimed, 1), Some(MessageError::InflatedSize { claimed }));
    }
    let whole = message(2013, 1, 0, b"x");
    for cut in 0..whole.len() {
        assert!(Compressed::read(&whole[..cut]).is_err(), "cut at {cut}");
    }
    let short = [[20, 7, 9, 2012, 2013].map(i32::to_le_bytes).concat()].concat();
    assert_eq!(Compressed::read(&short).err(), Some(MessageError::Short));
}

#[test]
fn m2_another_size_than_claimed_is_refused() {
    let data: Vec<u8> = (0..5000_u32).flat_map(|number| number.to_le_bytes()).collect();
    for compressor in ALL {
        let compressed = compress(compressor, &data);
        for claimed in [0, 1, data.len() - 1, data.len() + 1, data.len() * 2] {
            let result = inflate(&message(2013, claimed as i32, compressor.number(), &compressed));
            assert!(matches!(result, Err(InflateError::Size)), "{compressor:?} {claimed}: {result:?}");
        }
        let trailing = [&compressed[..], b"more"].concat();
        assert!(inflate(&message(2013, data.len() as i32, compressor.number(), &trailing)).is_err(), "{compressor:?}");
    }
}

#[test]
fn m2_bombs_are_refused_before_they_grow() {
    let zeros = vec![0; 40_000_000];
    for compressor in [Compressor::Zlib, Compressor::Zstd] {
        let bomb = compress(compressor, &zeros);
        assert!(bomb.len() < 100_000, "{compressor:?}: {}", bomb.len());
        let claimed = |size: usize| inflate(&message(2013, size as i32, compressor.number(), &bomb)).err();
        assert_eq!(claimed(zeros.len()), Some(InflateError::Ratio));
        assert_eq!(claimed(64 * 1024), Some(InflateError::Size), "a claim within the ratio does not help");
    }
    // A block of Snappy that names a size of its own.
    let lying = [b"\x80\xea\xf0\x10".as_slice(), &[0; 100]].concat();
    assert_eq!(inflate(&message(2013, 35_000_000, 1, &lying)).err(), Some(InflateError::Ratio));
    assert_eq!(inflate(&message(2013, 60_000, 1, &lying)).err(), Some(InflateError::Size));
    // A frame of Zstandard whose window is two gigabytes, and one that names another size than the head.
    let window = b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00";
    assert_eq!(inflate(&message(2013, 100, 3, window)).err(), Some(InflateError::Ratio));
    let sized = b"\x28\xb5\x2f\xfd\x20\xff\x01\x00\x00";
    assert_eq!(inflate(&message(2013, 100, 3, sized)).err(), Some(InflateError::Size));
}
