use super::*;

/// `{ping: 1, $db: "a"}`, written by hand.
const PING: &[u8] = b"\x1a\0\0\0\x10ping\0\x01\0\0\0\x02$db\0\x02\0\0\0a\0\0";
/// `{a: 1}`, written by hand.
const ONE: &[u8] = b"\x0c\0\0\0\x10a\0\x01\0\0\0\0";

/// A message of these sections, written by hand.
fn message(flags: u32, sections: &[&[u8]]) -> Vec<u8> {
    let sections = sections.concat();
    let length = (20 + sections.len()) as u32;
    [&length.to_le_bytes()[..], b"\x07\0\0\0\x09\0\0\0\xdd\x07\0\0", &flags.to_le_bytes(), &sections].concat()
}

fn body(document: &[u8]) -> Vec<u8> {
    [&[0], document].concat()
}

fn sequence(name: &str, documents: &[&[u8]]) -> Vec<u8> {
    let rest = [name.as_bytes(), &[0], &documents.concat()].concat();
    [&[1], &(rest.len() as u32 + 4).to_le_bytes()[..], &rest].concat()
}

fn error(flags: u32, sections: &[&[u8]]) -> MessageError {
    let message = message(flags, sections);
    Message::read(&message).expect_err("a broken message")
}

#[test]
fn a_message_of_the_specification_is_read_and_written() {
    let bytes = message(0, &[&body(PING)]);
    let read = Message::read(&bytes).unwrap();
    assert_eq!((read.header.request, read.header.response_to, read.flags), (7, 9, Flags::empty()));
    assert_eq!((read.body.bytes(), read.sequences().count()), (PING, 0));
    let mut out = Vec::new();
    write(&mut out, Ids { request: 7, response_to: 9 }, Flags::empty(), |writer| {
        writer.int32("ping", 1);
        writer.string("$db", "a");
    });
    assert_eq!(out, bytes);
}

#[test]
fn sections_have_any_order() {
    let documents = sequence("documents", &[ONE, PING, ONE]);
    for sections in [[&body(PING)[..], &documents], [&documents, &body(PING)]] {
        let bytes = message(0, &sections);
        let read = Message::read(&bytes).unwrap();
        assert_eq!(read.body.bytes(), PING);
        let sequences: Vec<_> = read.sequences().collect();
        assert_eq!((sequences.len(), sequences[0].identifier), (1, &b"documents"[..]));
        let documents: Vec<_> = sequences[0].documents().map(|document| document.unwrap().bytes()).collect();
        assert_eq!(documents, [ONE, PING, ONE]);
    }
    let mut out = Vec::new();
    let documents = [ONE, PING].map(|bytes| Document::read(bytes).unwrap());
    let ids = Ids { request: 7, response_to: 9 };
    let write_body = |writer: &mut Writer<'_>| writer.int32("a", 1);
    write_with_sequence(&mut out, ids, Flags::MORE_TO_COME, write_body, "documents", documents);
    assert_eq!(out, message(2, &[&body(ONE), &sequence("documents", &[ONE, PING])]));
}

#[test]
fn m5_bodies_and_sequences_are_counted() {
    assert_eq!(error(0, &[&body(PING), &body(PING)]), MessageError::SecondBody);
    assert_eq!(error(0, &[&sequence("a", &[])]), MessageError::NoBody);
    assert_eq!(error(0, &[]), MessageError::NoBody);
    assert_eq!(error(0, &[&body(PING), &sequence("a", &[]), &sequence("a", &[])]), MessageError::Identifier);
    let sequences: Vec<_> = (0..9).map(|number| sequence(&number.to_string(), &[])).collect();
    let sections: Vec<&[u8]> = sequences.iter().map(|section| &section[..]).collect();
    assert_eq!(error(0, &sections), MessageError::Sequences);
    let long = "a".repeat(IDENTIFIER_BYTES_MAX + 1);
    assert_eq!(error(0, &[&sequence(&long, &[])]), MessageError::IdentifierBytes);
    assert_eq!(error(0, &[b"\x01\x06\0\0\0aa"]), MessageError::IdentifierBytes, "no end");
    assert_eq!(error(0, &[&body(PING), &[2]]), MessageError::SectionSize);
    assert_eq!(error(0, &[&body(PING), b"\x02\x05\0\0\0\0"]), MessageError::SectionKind(2));
}

#[test]
fn m5_sizes_of_sections_that_lie_are_refused() {
    for size in [i32::MIN, -1, 0, 4, 100, i32::MAX] {
        let lying = [&[1], &size.to_le_bytes()[..], b"a\0"].concat();
        assert_eq!(error(0, &[&lying, &body(PING)]), MessageError::SectionSize, "{size}");
    }
    let lying = [&(PING.len() as u32 + 1).to_le_bytes()[..], &PING[4..]].concat();
    assert_eq!(error(0, &[&body(&lying)]), MessageError::SectionSize);
    let sequences = message(0, &[&body(PING), &sequence("a", &[ONE, b"\x0d\0\0\0\x10a\0\x01\0\0\0\0"])]);
    let sequence = Message::read(&sequences).unwrap().sequences().next().unwrap();
    assert_eq!(sequence.documents().last(), Some(Err(BsonError::Short)));
}

#[test]
fn m5_required_flags_that_are_unknown_are_refused_and_optional_ones_are_not() {
    for bit in 2..16 {
        assert_eq!(error(1 << bit, &[&body(PING)]), MessageError::Flags(1 << bit));
    }
    for bit in 16..32 {
        let bytes = message(1 << bit, &[&body(PING)]);
        let flags = Message::read(&bytes).unwrap().flags;
        assert_eq!(flags.contains(Flags::EXHAUST_ALLOWED), bit == 16);
    }
}

#[test]
fn m5_a_checksum_is_verified_and_follows_an_edit() {
    let mut out = Vec::new();
    write(&mut out, Ids { request: 1, response_to: 0 }, Flags::CHECKSUM_PRESENT, |writer| writer.int32("ping", 1));
    assert!(Message::read(&out).is_ok());
    let mut wrong = out.clone();
    wrong[4] ^= 1;
    assert_eq!(Message::read(&wrong).err(), Some(MessageError::Checksum));
    set_ids(&mut out, Ids { request: 77, response_to: 5 }).unwrap();
    let read = Message::read(&out).unwrap();
    assert_eq!((read.header.request, read.header.response_to), (77, 5));
    let mut plain = message(0, &[&body(PING)]);
    set_ids(&mut plain, Ids { request: 77, response_to: 5 }).unwrap();
    assert_eq!((&plain[4..12], &plain[20..]), (&b"\x4d\0\0\0\x05\0\0\0"[..], &body(PING)[..]));
}

#[test]
fn a_message_that_is_shorter_than_its_flags_is_refused() {
    for length in 16..20_u32 {
        let bytes = [&length.to_le_bytes()[..], b"\x07\0\0\0\x09\0\0\0\xdd\x07\0\0", &vec![0; length as usize - 16]];
        assert_eq!(Message::read(&bytes.concat()).err(), Some(MessageError::Short));
    }
    let bytes = message(1, &[]);
    assert_eq!(Message::read(&bytes).err(), Some(MessageError::Short), "no room for a checksum");
    assert!(set_ids(&mut bytes.clone(), Ids { request: 0, response_to: 0 }).is_err());
}

#[test]
fn m17_the_body_is_found_as_soon_as_it_is_there() {
    let documents = sequence("documents", &[ONE, PING]);
    for (sections, needed) in [
        (vec![body(PING), documents.clone()], 20 + 1 + PING.len()),
        (vec![documents.clone(), body(PING)], 20 + documents.len() + 1 + PING.len()),
    ] {
        let bytes = message(2, &[&sections[0], &sections[1]]);
        for cut in 0..needed {
            assert_eq!(first_body(&bytes[..cut]).map(|found| found.is_some()), Ok(false), "cut at {cut}");
        }
        for cut in needed..=bytes.len() {
            let (flags, body) = first_body(&bytes[..cut]).unwrap().unwrap();
            assert_eq!((flags, body.bytes()), (Flags::MORE_TO_COME, PING));
        }
    }
    // A message without a body is known to have none with the last byte.
    let none = message(0, &[&sequence("a", &[ONE])]);
    assert!(matches!(first_body(&none), Ok(None) | Err(MessageError::NoBody)));
}
