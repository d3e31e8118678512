//! Any bytes are harmless.

use proptest::prelude::*;
use weir_mongodb_codec::bson::Document;
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::compressed::Compressed;
use weir_mongodb_codec::header::Header;
use weir_mongodb_codec::legacy::{LegacyReply, Query};
use weir_mongodb_codec::message::{self, Ids, Message};
use weir_mongodb_codec::reply::{Reply, ReplyFollower};
use weir_mongodb_codec::sections::SectionFramer;

use crate::support::{bytes, document, op_msg};

/// Every view of these bytes as a message.
fn look(bytes: &[u8]) {
    let _ = message::first_body(bytes);
    let _ = Query::read(bytes);
    let _ = LegacyReply::read(bytes);
    let _ = Compressed::read(bytes).map(|compressed| compressed.inflate(&mut Vec::new()));
    let _ = message::set_ids(&mut bytes.to_vec(), Ids { request: 1, response_to: 2 });
    if let Ok(message) = Message::read(bytes) {
        look_at_document(message.body);
        message.sequences().flat_map(|sequence| sequence.documents()).flatten().for_each(look_at_document);
    }
    if let Ok(Some(header)) = Header::read(bytes)
        && header.bytes == bytes.len()
    {
        let _ = SectionFramer::new(&header).take(bytes);
        let _ = ReplyFollower::new(&header).take(bytes);
    }
}

fn look_at_document(document: Document<'_>) {
    let _ = document.check(100);
    let _ = Command::read(document);
    let _ = Reply::read(document);
    for element in document.elements().flatten() {
        let _ = (element.value.is_true(), element.value.as_string(), element.value.as_binary());
        let _ = element.value.as_document().map(|inner| inner.map(look_at_document));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        look(&bytes);
        let _ = Document::first(&bytes).map(look_at_document);
        // As the content of a message of each kind.
        for code in [1, 2004, 2012, 2013] {
            let length = bytes.len() as u32 + 16;
            look(&[&length.to_le_bytes()[..], &[0; 8], &i32::to_le_bytes(code), &bytes].concat());
        }
    }

    #[test]
    fn a_byte_of_a_legal_message_may_be_any(message in op_msg(), at: prop::sample::Index, bits in 1..=255_u8) {
        let mut message = message;
        let at = at.index(message.len());
        message[at] ^= bits;
        look(&message);
    }

    #[test]
    fn a_byte_of_a_legal_document_may_be_any(document in document(), at: prop::sample::Index, bits in 1..=255_u8) {
        let mut document = bytes(&document);
        let at = at.index(document.len());
        document[at] ^= bits;
        let _ = Document::read(&document).map(look_at_document);
    }
}
