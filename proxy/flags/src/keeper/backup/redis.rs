//! A backup in two keys of a Redis server.

use weir_resp::{Value, encode};
use weir_store::{Connection, Login, StoreError, StoreLimits};

use super::document::{Copies, Document, SEALED_BYTES_MAX};
use crate::{
    limits::{BACKUP_OPEN_TIMEOUT, BACKUP_TIMEOUT},
    settings::RedisBackup,
};

const LIMITS: StoreLimits =
    StoreLimits { open: BACKUP_OPEN_TIMEOUT, call: BACKUP_TIMEOUT, reply_bytes_max: SEALED_BYTES_MAX as u32 };

const _: () = assert!(SEALED_BYTES_MAX < u32::MAX as usize);

/// The key of a document, as Unleash Edge names it.
pub(super) fn key(backup: &RedisBackup, document: Document) -> String {
    let name = match document {
        Document::Features => "unleash-features",
        Document::Tokens => "unleash-tokens",
    };
    format!("{}{name}", backup.prefix)
}

/// Writes both keys to the first endpoint that takes them.
///
/// # Errors
/// None does.
pub(super) fn save(backup: &RedisBackup, copies: &Copies) -> Result<(), String> {
    at_one(backup, |connection| {
        for (document, text) in
            [(Document::Features, Some(&copies.features)), (Document::Tokens, copies.tokens.as_ref())]
        {
            let Some(text) = text else { continue };
            call(connection, &[b"SET", key(backup, document).as_bytes(), text])?;
        }
        Ok(())
    })
}

/// Reads both keys from the first endpoint that responds. `None`: there are none.
///
/// # Errors
/// None responds, or a key has no text.
pub(super) fn load(backup: &RedisBackup) -> Result<Option<Copies>, String> {
    at_one(backup, |connection| {
        let mut text = |document| match call(connection, &[b"GET", key(backup, document).as_bytes()])? {
            Value::Bulk(text) => Ok(Some(text)),
            Value::Null => Ok(None),
            _ => Err(StoreError::new("protocol", "its reply is no text")),
        };
        let Some(features) = text(Document::Features)? else { return Ok(None) };
        Ok(Some(Copies { features, tokens: text(Document::Tokens)? }))
    })
}

fn call(connection: &mut Connection, words: &[&[u8]]) -> Result<Value, StoreError> {
    let mut command = Vec::new();
    encode::command(&mut command, words.iter().copied());
    connection.call(&command)
}

/// Does something at the first endpoint where it succeeds. The error is that of the last one.
fn at_one<T>(
    backup: &RedisBackup,
    mut body: impl FnMut(&mut Connection) -> Result<T, StoreError>,
) -> Result<T, String> {
    let login =
        Login { tls: backup.tls.as_ref(), username: backup.username.as_deref(), password: backup.password.as_ref() };
    let mut last = String::new();
    for address in &*backup.endpoints {
        let done = Connection::open(login, address, LIMITS).and_then(|mut connection| {
            if backup.database > 0 {
                connection.command(&[b"SELECT", backup.database.to_string().as_bytes()])?;
            }
            body(&mut connection)
        });
        match done {
            Ok(done) => return Ok(done),
            Err(error) => last = format!("{address}: {error}"),
        }
    }
    Err(last)
}
