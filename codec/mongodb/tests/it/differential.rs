//! Documents as the official `bson` crate reads and writes them.

use bson::{Bson, RawDocument};
use proptest::prelude::*;
use weir_mongodb_codec::bson::{self as ours, Document, Kind};

use crate::support::{bytes, document};

/// Names and types of all elements, in order, through documents and arrays.
fn outline(document: Document<'_>, out: &mut Vec<(Vec<u8>, u8)>) {
    for element in document.elements() {
        let element = element.expect("whole");
        out.push((element.name.to_vec(), element.value.kind.byte()));
        if let Some(inner) = element.value.as_document().expect("whole") {
            outline(inner, out);
        }
    }
}

fn outline_of_crate(document: &RawDocument, out: &mut Vec<(Vec<u8>, u8)>) {
    for element in document.iter() {
        let (name, value) = element.expect("whole");
        out.push((name.as_str().as_bytes().to_vec(), value.element_type() as u8));
        if let Some(inner) = value.as_document() {
            outline_of_crate(inner, out);
        }
        if let Some(array) = value.as_array() {
            for (index, value) in array.into_iter().enumerate() {
                let value = value.expect("whole");
                out.push((index.to_string().into_bytes(), value.element_type() as u8));
                if let Some(inner) = value.as_document() {
                    outline_of_crate(inner, out);
                }
            }
        }
    }
}

/// Arrays in arrays are left out of the comparison of outlines: the crate has no names for them.
fn has_array_in_array(value: &Bson) -> bool {
    match value {
        Bson::Array(items) => items.iter().any(|item| matches!(item, Bson::Array(_)) || has_array_in_array(item)),
        Bson::Document(document) => document.values().any(has_array_in_array),
        _ => false,
    }
}

proptest! {
    #[test]
    fn documents_of_the_crate_are_read_alike(document in document()) {
        let bytes = bytes(&document);
        let read = Document::read(&bytes).unwrap();
        prop_assert_eq!(read.check(100), Ok(()));
        prop_assume!(!document.values().any(has_array_in_array));
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        outline(read, &mut found);
        outline_of_crate(RawDocument::from_bytes(&bytes).unwrap(), &mut expected);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn documents_of_ours_are_read_by_the_crate(text in ".{0,9}", number: i64, small: i32, double in -1e9..1e9_f64, id: [u8; 12], data: Vec<u8>) {
        let mut out = Vec::new();
        ours::document(&mut out, |writer| {
            writer.string("text", &text);
            writer.int64("number", number);
            writer.int32("small", small);
            writer.double("double", double);
            writer.bool("bool", true);
            writer.date_time("time", number);
            writer.object_id("id", id);
            writer.binary("data", 0, &data);
            writer.document("inner", |inner| inner.int32("one", 1));
            writer.array("list", 0..3, |writer, name, item| writer.int32(name, item));
        });
        let expected = bson::doc! {
            "text": text, "number": number, "small": small, "double": double, "bool": true,
            "time": bson::DateTime::from_millis(number), "id": bson::oid::ObjectId::from_bytes(id),
            "data": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: data },
            "inner": {"one": 1}, "list": [0, 1, 2],
        };
        prop_assert_eq!(out, bytes(&expected));
    }

    /// Documents that the crate takes whole are whole here; it does not look at every flaw that is one here.
    #[test]
    fn a_flaw_that_the_crate_finds_in_lengths_is_found(document in document(), at: prop::sample::Index, bits in 1..=255_u8) {
        let mut bytes = bytes(&document);
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        let ours = Document::read(&bytes).and_then(|document| document.check(100));
        let theirs = bson::Document::from_reader(&mut &bytes[..]);
        if theirs.is_ok() {
            // Names that are there twice are one in the crate, and booleans of any byte may be true there.
            prop_assert_eq!(ours, Ok(()), "{:?}", theirs);
        }
    }
}

#[test]
fn types_have_the_bytes_of_the_crate() {
    for byte in 0..=u8::MAX {
        assert_eq!(Kind::of(byte).is_some(), bson::spec::ElementType::from(byte).is_some(), "{byte}");
    }
}
