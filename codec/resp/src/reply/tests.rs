use super::*;
use crate::limits::REPLY_DEPTH_MAX;

/// All frames of `input` fed in pieces of `size`: their bytes and type bytes, or the error that ended it.
fn frames(input: &[u8], size: usize, limits: ReplyLimits) -> Result<Vec<(Vec<u8>, u8)>, ProtocolError> {
    let mut framer = ReplyFramer::new(limits);
    let mut frames = Vec::new();
    let mut frame = Vec::new();
    for mut piece in input.chunks(size) {
        while !piece.is_empty() {
            let Scan { taken, end } = framer.advance(piece)?;
            frame.extend_from_slice(&piece[..taken]);
            piece = &piece[taken..];
            match end {
                Some(kind) => {
                    assert!(framer.is_idle() && framer.first_byte().is_none());
                    frames.push((std::mem::take(&mut frame), kind.type_byte()));
                }
                None => assert!(piece.is_empty() && !framer.is_idle(), "unfinished frames take all input"),
            }
        }
    }
    assert_eq!(framer.is_idle(), frame.is_empty());
    Ok(frames)
}

fn fails(input: &[u8]) -> ProtocolError {
    let whole = frames(input, input.len(), ReplyLimits::default()).expect_err("hostile reply");
    let pieces = frames(input, 1, ReplyLimits::default()).expect_err("hostile reply, byte by byte");
    assert_eq!(whole, pieces, "{}", input.escape_ascii());
    whole
}

#[test]
fn every_type_is_one_frame_in_any_pieces() {
    let all: &[&[u8]] = &[
        b"+OK\r\n",
        b"+\r\n",
        b"-ERR no\r\n",
        b":-12\r\n",
        b"$5\r\nhe\r\no\r\n",
        b"$0\r\n\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5e3\r\n",
        b"(3492890328409238509324850943850943825024385\r\n",
        b"!5\r\nERR x\r\n",
        b"=6\r\ntxt:hi\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n*0\r\n",
        b"~3\r\n:1\r\n:2\r\n_\r\n",
        b">2\r\n+message\r\n$1\r\nx\r\n",
        b"+a line longer than the bytes that are looked at one by one\r\n",
        b"$123\r\n0123456789012345678901234567890123456789012345678901234567890123456789\
          01234567890123456789012345678901234567890123456789012\r\n",
    ];
    let stream = all.concat();
    for size in [1, 2, 3, 7, 64, stream.len()] {
        let got = frames(&stream, size, ReplyLimits::default()).unwrap();
        let want: Vec<_> = all.iter().map(|frame| (frame.to_vec(), frame[0])).collect();
        assert_eq!(got, want, "pieces of {size}");
    }
}

#[test]
fn attributes_belong_to_the_frame_they_annotate() {
    let all: &[(&[u8], u8)] = &[
        (b"|1\r\n+ttl\r\n:3600\r\n$2\r\nhi\r\n", b'$'),
        (b"|0\r\n+OK\r\n", b'+'),
        (b"|1\r\n+a\r\n|1\r\n+b\r\n:1\r\n:2\r\n>1\r\n+x\r\n", b'>'),
        (b"*2\r\n|1\r\n+k\r\n*1\r\n:0\r\n:1\r\n|0\r\n:2\r\n", b'*'),
        (b"%1\r\n|1\r\n+k\r\n+v\r\n+key\r\n|1\r\n+k\r\n+v\r\n-value\r\n", b'%'),
    ];
    let stream: Vec<u8> = all.iter().flat_map(|(bytes, _)| bytes.to_vec()).collect();
    for size in [1, 3, stream.len()] {
        let got = frames(&stream, size, ReplyLimits::default()).unwrap();
        assert_eq!(got, all.iter().map(|(bytes, kind)| (bytes.to_vec(), *kind)).collect::<Vec<_>>());
    }
    let mut framer = ReplyFramer::default();
    assert_eq!(framer.advance(b"|0\r\n").unwrap(), Scan { taken: 4, end: None });
    assert!(!framer.is_idle(), "an attribute alone is half a frame");
    assert_eq!(framer.first_byte(), None);
    framer.advance(b">1\r\n").unwrap();
    assert_eq!(framer.first_byte(), Some(b'>'));
}

#[test]
fn kinds_tell_errors_and_pushes() {
    let kind = |input: &[u8]| ReplyFramer::default().advance(input).unwrap().end.unwrap();
    assert!(kind(b"-ERR\r\n").is_error() && kind(b"!3\r\nERR\r\n").is_error());
    assert!(kind(b">0\r\n").is_push() && !kind(b"*0\r\n").is_push());
    assert!(!kind(b"+OK\r\n").is_error());
}

/// Redis 7.0 answers SUBSCRIBE inside MULTI with a push *inside* the EXEC array, so a nested push is an element.
#[test]
fn a_push_inside_an_array_is_an_element() {
    let exec = b"*2\r\n>3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n+PONG\r\n";
    assert_eq!(frames(exec, 1, ReplyLimits::default()).unwrap(), [(exec.to_vec(), b'*')]);
}

#[test]
fn r5_nesting_is_capped_without_recursion() {
    let deep = |levels: usize| [b"*1\r\n".repeat(levels), b":1\r\n".to_vec()].concat();
    let cap = REPLY_DEPTH_MAX as usize;
    assert_eq!(frames(&deep(cap), 1, ReplyLimits::default()).unwrap().len(), 1);
    assert_eq!(fails(&deep(cap + 1)), ProtocolError::ReplyDepth);
    let mut framer = ReplyFramer::default();
    framer.advance(&b"*1\r\n".repeat(cap)).unwrap();
    assert!(framer.heap_bytes() <= 64 * 1024, "{} bytes at the cap", framer.heap_bytes());
    assert_eq!(fails(&deep(100_000)), ProtocolError::ReplyDepth);
    assert_eq!(fails(&b"|1\r\n".repeat(100_000)), ProtocolError::ReplyDepth);
    assert_eq!(fails(&b"%1\r\n+k\r\n".repeat(100_000)), ProtocolError::ReplyDepth);

    // A caller that raises the cap gets a deeper stack, on the heap and freed with the reply.
    let limits = ReplyLimits { depth_max: 1_000_000, ..ReplyLimits::default() };
    let mut framer = ReplyFramer::new(limits);
    let scan = framer.advance(&deep(100_000)).unwrap();
    assert!(scan.end.is_some());
    assert!(framer.heap_bytes() <= LEVELS_KEPT * 8, "{} bytes kept", framer.heap_bytes());
}

#[test]
fn r5_giant_counts_cost_nothing() {
    for header in [&b"*4294967296\r\n"[..], b"%2147483648\r\n", b"~4294967296\r\n", b"|2147483648\r\n", b">9\r\n"] {
        let mut framer = ReplyFramer::default();
        let scan = framer.advance(&[header, b":1\r\n:2\r\n"].concat()).unwrap();
        assert_eq!(scan.end, None);
        assert!(framer.heap_bytes() <= 64, "{} bytes held", framer.heap_bytes());
    }
    assert_eq!(fails(b"*4294967297\r\n"), ProtocolError::ReplyElements);
    assert_eq!(fails(b"%2147483649\r\n"), ProtocolError::ReplyElements);
    assert_eq!(fails(b"*99999999999\r\n"), ProtocolError::ReplyLength);
    assert_eq!(fails(b"$536870913\r\n"), ProtocolError::ReplyBulkTooLong);
    assert_eq!(fails(b"$4294967296\r\n"), ProtocolError::ReplyBulkTooLong);
}

#[test]
fn r13_wrong_bytes_are_refused() {
    use ProtocolError::*;
    let cases: &[(&[u8], ProtocolError)] = &[
        (b"HTTP/1.1 400\r\n", ReplyType { got: b'H' }),
        (b"*1\r\nx\r\n", ReplyType { got: b'x' }),
        (b"\r\n", ReplyType { got: b'\r' }),
        (b"$?\r\n", ReplyStreamed),
        (b"*?\r\n", ReplyStreamed),
        (b"%?\r\n", ReplyStreamed),
        (b".\r\n", ReplyType { got: b'.' }),
        (b";1\r\n", ReplyType { got: b';' }),
        (b"$-2\r\n", ReplyLength),
        (b"$+1\r\n", ReplyLength),
        (b"$01\r\n", ReplyLength),
        (b"$1 \r\n", ReplyLength),
        (b"$\r\n", ReplyLength),
        (b"$1\n", ReplyLength),
        (b"!-1\r\n", ReplyLength),
        (b"=-1\r\n", ReplyLength),
        (b"%-1\r\n", ReplyLength),
        (b"~-1\r\n", ReplyLength),
        (b">-1\r\n", ReplyLength),
        (b"|-1\r\n", ReplyLength),
        (b"+OK\n", ReplyLineEnd),
        (b"+O\rK\r\n", ReplyLineEnd),
        (b"-ERR a line of more than sixteen bytes\nwith a feed\r\n", ReplyLineEnd),
        (b":1\r:\n", ReplyLineEnd),
        (b"$1\r\nab\r\n", ReplyBulkEnd),
        (b"$1\r\na\n\n", ReplyBulkEnd),
        (b"$1\r\na\r\r", ReplyBulkEnd),
    ];
    for (input, want) in cases {
        assert_eq!(fails(input), *want, "{}", input.escape_ascii());
    }
}

#[test]
fn lines_and_bulks_have_caps() {
    let limits = ReplyLimits { line_bytes_max: 20, bulk_bytes_max: 20, ..ReplyLimits::default() };
    for size in [1, 5, 100] {
        for (len, fits) in [(0, true), (16, true), (20, true), (21, false), (40, false)] {
            let text = "x".repeat(len);
            let line = frames(format!("+{text}\r\n").as_bytes(), size, limits);
            assert_eq!(line.err(), (!fits).then_some(ProtocolError::ReplyLineTooLong));
            let bulk = frames(format!("${len}\r\n{text}\r\n").as_bytes(), size, limits);
            assert_eq!(bulk.err(), (!fits).then_some(ProtocolError::ReplyBulkTooLong));
        }
    }
    // No CR in sight: refused as soon as the cap is passed.
    assert_eq!(frames(&[b'+'; 30], 30, limits), Err(ProtocolError::ReplyLineTooLong));
}
