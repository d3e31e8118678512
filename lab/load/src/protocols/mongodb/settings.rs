//! `[mongodb]`: the login, and the commands.

use weir_mongodb_codec::compressed::Compressor;
use weir_mongodb_codec::limits::{COLLECTION_BYTES_MAX, DATABASE_BYTES_MAX};
use weir_sasl::Mechanism;

use crate::scenario::read::or_default;
use crate::scenario::table::{Node, Table};
use crate::scenario::{Mongodb, Operation};

/// Most documents from which a find draws one: numbers that every driver reads exactly.
const DOCUMENTS_MAX: u64 = 1 << 53;

/// The section, or its defaults. `bytes`: the size of a document, if the scenario says one.
pub(super) fn read(table: Table<'_>, bytes: Option<usize>) -> Option<Mongodb> {
    let default = Mongodb::default();
    let operations = Operation::ALL.map(|operation| (operation.word(), operation));
    let operation = or_default(table.get("operation"), default.operation, |node| node.choice(&operations));
    if operation.is_some_and(|operation| operation != Operation::Mixed) {
        table.refuse("insert_percent", "is only for operation = \"mixed\"", "remove it, or change the operation");
    }
    let insert_percent = or_default(table.get("insert_percent"), default.insert_percent, |node| node.whole(1..=99_u32));
    let database = or_default(table.get("database"), default.database, |node| name(node, DATABASE_BYTES_MAX));
    let collection =
        or_default(table.get("collection"), default.collection, |node| name(node, COLLECTION_BYTES_MAX / 2));
    let documents = or_default(table.get("documents"), default.documents, |node| node.whole(1..=DOCUMENTS_MAX));
    let user = or_default(table.get("user"), default.user, |node| name(node, COLLECTION_BYTES_MAX));
    let password = or_default(table.get("password"), None, |node| node.secret("password").map(Some));
    let mechanisms = [("scram-sha-256", Mechanism::ScramSha256), ("scram-sha-1", Mechanism::ScramSha1)];
    let mechanism = or_default(table.get("mechanism"), default.mechanism, |node| node.choice(&mechanisms));
    let compressors = Compressor::NEGOTIABLE.map(|compressor| (compressor.name(), compressor));
    let compressor = or_default(table.get("compressor"), None, |node| node.choice(&compressors).map(Some));
    let is_load_balanced = or_default(table.get("load_balanced"), false, |node| node.boolean());
    table.finish();
    Some(Mongodb {
        operation: operation?,
        insert_percent: insert_percent?,
        database: database?,
        collection: collection?,
        documents: documents?,
        document_bytes: bytes.unwrap_or(default.document_bytes),
        user: user?,
        password: password?,
        mechanism: mechanism?,
        compressor: compressor?,
        is_load_balanced: is_load_balanced?,
    })
}

fn name(node: &Node<'_>, most: usize) -> Option<String> {
    let text = node.text()?;
    if text.is_empty() || text.len() > most || text.contains(['\0', '$', ' ']) {
        node.wrong(
            format!("is \"{text}\""),
            format!("write a name of 1 to {most} bytes without blanks and dollar signs"),
        );
        return None;
    }
    Some(text.to_owned())
}
