//! Commands that set up collections, and facts about the server.

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::limits::STORED_DOCUMENT_BYTES_MAX;

use super::batches;
use super::control;
use super::dispatch::{Context, Fate};
use super::failure::Failure;

/// The version that the server claims: its numbers, and as a text.
const VERSION: [i32; 4] = [8, 0, 0, 0];
const VERSION_TEXT: &str = "8.0.0-weir";

/// Commands whose reply says no more than that they have succeeded.
pub(super) fn nothing(_at: &mut Context<'_>, _body: &mut Writer<'_>) -> Result<Fate, Failure> {
    Ok(Fate::Done)
}

/// `create` and `createIndexes`: the collection and its indexes seem to be new.
pub(super) fn create(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    at.request.namespace()?;
    if at.request.command.name == b"createIndexes" {
        body.int32("numIndexesBefore", 1);
        body.int32("numIndexesAfter", 2);
        body.bool("createdCollectionAutomatically", false);
    }
    Ok(Fate::Done)
}

/// `buildInfo`.
pub(super) fn build_info(_at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    body.string("version", VERSION_TEXT);
    body.array("versionArray", VERSION, |body, name, number| body.int32(name, number));
    body.string("gitVersion", "0000000000000000000000000000000000000000");
    body.int32("bits", 64);
    body.bool("debug", false);
    body.int32("maxBsonObjectSize", STORED_DOCUMENT_BYTES_MAX as i32);
    Ok(Fate::Done)
}

/// `connectionStatus`.
pub(super) fn connection_status(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    body.document("authInfo", |info| {
        info.array("authenticatedUsers", at.client.user.iter(), |users, name, user| {
            users.document(name, |one| {
                one.string("user", user);
                one.string("db", "admin");
            });
        });
        info.array("authenticatedUserRoles", at.client.user.iter(), |roles, name, _| {
            roles.document(name, |role| {
                role.string("role", "root");
                role.string("db", "admin");
            });
        });
    });
    Ok(Fate::Done)
}

/// `serverStatus`, with the counts of `weirOrigin`.
pub(super) fn server_status(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    body.string("host", "weir-origin");
    body.string("version", VERSION_TEXT);
    body.string("process", at.core.state.face().word());
    body.document("weir", |weir| control::write_counts(at.core, weir));
    Ok(Fate::Done)
}

/// `getCmdLineOpts`: test commands are enabled, so that drivers set fail points.
pub(super) fn command_line(_at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    body.array("argv", ["weir", "lab", "origin", "mongodb"], |body, name, word| body.string(name, word));
    body.document("parsed", |parsed| {
        parsed.document("setParameter", |set| set.string("enableTestCommands", "1"));
    });
    Ok(Fate::Done)
}

/// `getLog`: there is none.
pub(super) fn log(_at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    body.int32("totalLinesWritten", 0);
    body.array("log", [""; 0], |body, name, line| body.string(name, line));
    Ok(Fate::Done)
}

/// `listDatabases`: every database is there, and these are the usual ones.
pub(super) fn list_databases(_at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    body.array("databases", ["admin", "config", "lab", "local"], |body, name, database| {
        body.document(name, |one| {
            one.string("name", database);
            one.int64("sizeOnDisk", 0);
            one.bool("empty", false);
        });
    });
    body.int64("totalSize", 0);
    Ok(Fate::Done)
}

/// `listCollections`: every collection is there, and this is one of them.
pub(super) fn list_collections(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let document = |collection: &mut Writer<'_>| {
        collection.string("name", "documents");
        collection.string("type", "collection");
        collection.document("options", |_| {});
        collection.document("info", |info| info.bool("readOnly", false));
    };
    batches::only(at, document, body)
}

/// `listIndexes`: the one that every collection has.
pub(super) fn list_indexes(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let document = |index: &mut Writer<'_>| {
        index.int32("v", 2);
        index.document("key", |key| key.int32("_id", 1));
        index.string("name", "_id_");
    };
    batches::only(at, document, body)
}
