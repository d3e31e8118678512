//! Random documents and messages.

use bson::spec::BinarySubtype;
use bson::{Bson, Document, oid::ObjectId};
use proptest::prelude::*;
use weir_mongodb_codec::message::{self, Flags, Ids};
use weir_mongodb_codec::{OpCode, bson as ours, header::Header};

/// A name without a zero byte.
pub fn name() -> impl Strategy<Value = String> {
    "[a-z$._]{0,6}"
}

fn scalar() -> impl Strategy<Value = Bson> {
    prop_oneof![
        any::<f64>().prop_map(Bson::Double),
        ".{0,12}".prop_map(Bson::String),
        (any::<u8>().prop_filter("length twice", |subtype| *subtype != 2), prop::collection::vec(any::<u8>(), 0..9))
            .prop_map(|(subtype, bytes)| Bson::Binary(bson::Binary { subtype: BinarySubtype::from(subtype), bytes })),
        Just(Bson::Undefined),
        any::<[u8; 12]>().prop_map(|bytes| Bson::ObjectId(ObjectId::from_bytes(bytes))),
        any::<bool>().prop_map(Bson::Boolean),
        any::<i64>().prop_map(|time| Bson::DateTime(bson::DateTime::from_millis(time))),
        Just(Bson::Null),
        "[a-z]{0,5}".prop_map(Bson::JavaScriptCode),
        "[a-z]{0,5}".prop_map(Bson::Symbol),
        any::<i32>().prop_map(Bson::Int32),
        any::<(u32, u32)>().prop_map(|(time, increment)| Bson::Timestamp(bson::Timestamp { time, increment })),
        any::<i64>().prop_map(Bson::Int64),
        any::<[u8; 16]>().prop_map(|bytes| Bson::Decimal128(bson::Decimal128::from_bytes(bytes))),
        Just(Bson::MinKey),
        Just(Bson::MaxKey),
    ]
}

fn value() -> impl Strategy<Value = Bson> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec((name(), inner.clone()), 0..4)
                .prop_map(|pairs| Bson::Document(pairs.into_iter().collect())),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            ("[a-z]{0,4}", prop::collection::vec((name(), inner), 0..3)).prop_map(|(code, scope)| {
                let scope = scope.into_iter().collect();
                Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code, scope })
            }),
        ]
    })
}

/// A document of any elements.
pub fn document() -> impl Strategy<Value = Document> {
    prop::collection::vec((name(), value()), 0..6).prop_map(|pairs| pairs.into_iter().collect())
}

/// The bytes of a document, as the `bson` crate writes them.
pub fn bytes(document: &Document) -> Vec<u8> {
    document.to_vec().expect("a document")
}

/// A message of any opcode, or one of OP_MSG with a sequence and perhaps a checksum.
pub fn message() -> impl Strategy<Value = Vec<u8>> {
    let plain = (
        any::<i32>(),
        prop::collection::vec(any::<u8>(), 0..40),
        prop::sample::select(vec![1, 2004, 2012, 2013, 2007]),
    );
    let plain = plain.prop_map(|(request, body, code)| {
        let mut out = Vec::new();
        let op_code = OpCode::of(code).expect("an opcode");
        Header { bytes: 16 + body.len(), request, response_to: 0, op_code }.write(&mut out);
        out.extend_from_slice(&body);
        out
    });
    prop_oneof![plain, op_msg()]
}

/// A legal OP_MSG.
pub fn op_msg() -> impl Strategy<Value = Vec<u8>> {
    let bits = prop::sample::select(vec![0, 1, 2, 3, 1 << 16, (1 << 16) + 1]);
    (any::<i32>(), bits, document(), prop::collection::vec(document(), 0..4)).prop_map(
        |(request, bits, body, documents)| {
            let documents: Vec<_> = documents.iter().map(bytes).collect();
            let documents = documents.iter().map(|bytes| ours::Document::read(bytes).expect("a document"));
            let body = bytes(&body);
            let write = |writer: &mut ours::Writer<'_>| {
                let elements = ours::Document::read(&body).expect("a document").elements();
                elements.for_each(|element| {
                    element.map(|element| writer.value(element.name, element.value)).expect("whole")
                });
            };
            let (mut out, ids) = (Vec::new(), Ids { request, response_to: 3 });
            message::write_with_sequence(&mut out, ids, Flags::from_bits_retain(bits), write, "documents", documents);
            out
        },
    )
}
