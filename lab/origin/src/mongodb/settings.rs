//! Settings of a MongoDB origin.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use weir_base::{limits, secret::Secret};
use weir_engine::settings::{Address, RuntimeSettings};
use weir_mongodb_codec::compressed::Compressor;
use weir_mongodb_codec::limits as wire;

use super::face::Face;

/// Connections per worker, see [`limits::CONNECTIONS_MAX`]. Past it a client's connection is closed, as a server closes it.
pub const CONNECTIONS_MAX: usize = limits::CONNECTIONS_MAX as usize;

/// Most documents of a collection: numbers that every driver reads exactly.
pub const DOCUMENTS_MAX: u64 = 1 << 53;

/// Open cursors of all workers. 100,000: far more than clients of a test have, in about 30 MiB. Past it a command that needs another one
/// gets code 146 (`ExceededMemoryLimit`).
pub const CURSORS_MAX: usize = 100_000;

/// Logical sessions with a transaction or a retryable write, of all workers. 1,000,000 in about 100 MiB, as `maxSessions` of MongoDB.
/// Past it the oldest are forgotten.
pub const TRANSACTIONS_MAX: usize = 1_000_000;

/// Bytes of a document. 1 KiB, the size of most published figures.
const DOCUMENT_BYTES: usize = 1024;

/// Documents of a collection.
const DOCUMENTS: u64 = 100_000;

/// The wire version of MongoDB 8.0.
const WIRE_VERSION: i32 = 25;

/// Most workers of one origin: more than any machine it is meant for has cores.
const WORKERS_MAX: usize = 256;

/// A MongoDB origin.
#[derive(Clone, Debug)]
pub struct MongodbOriginSettings {
    /// Where to listen. Port 0 takes a free one. Default `127.0.0.1:0`.
    pub bind: Address,
    /// Worker threads, each with its own listening socket. They share cursors, transactions and fail points. Default 1.
    pub workers: usize,
    /// CPUs to pin workers to, in turn. Empty: the scheduler decides. Default empty.
    pub cpus: Vec<usize>,
    /// The password of every user, which clients prove by SCRAM-SHA-256 or SCRAM-SHA-1. Default none: there is no login.
    pub password: Option<Secret>,
    /// The place of the server in a deployment, until `weirOrigin` sets another. Default a mongod without a set.
    pub face: Face,
    /// `maxWireVersion` of hello. Default 25, that of MongoDB 8.0.
    pub wire_version: i32,
    /// Compressors that clients may use. Default all three.
    pub compressors: Vec<Compressor>,
    /// Writes are stored in memory, and collections have the documents alone that were inserted. Default false: they seem to have
    /// [`documents`](Self::documents) that follow from their numbers, and writes are forgotten.
    pub stores: bool,
    /// Documents of each collection. Default 100,000.
    pub documents: u64,
    /// Bytes of a document, unless its namespace and its mark need more. Default 1 KiB.
    pub document_bytes: usize,
    /// Before a reply leaves. Default 0.
    pub delay: Duration,
    /// Bytes of a message, as hello states it. Default 48,000,000.
    pub message_bytes_max: usize,
    /// Per worker. Default [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Driver and receive buffers. Its `workers` and `pin` are not used: see `workers` and `cpus` here.
    pub runtime: RuntimeSettings,
}

impl Default for MongodbOriginSettings {
    fn default() -> Self {
        Self {
            bind: Address::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            workers: 1,
            cpus: Vec::new(),
            password: None,
            face: Face::Standalone,
            wire_version: WIRE_VERSION,
            compressors: Compressor::NEGOTIABLE.to_vec(),
            stores: false,
            documents: DOCUMENTS,
            document_bytes: DOCUMENT_BYTES,
            delay: Duration::ZERO,
            message_bytes_max: wire::MESSAGE_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            runtime: RuntimeSettings::without_pauses(),
        }
    }
}

impl MongodbOriginSettings {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`], with a text that names the setting, its value and what to write instead.
    pub(super) fn check(&self) -> io::Result<()> {
        let message = if !(1..=WORKERS_MAX).contains(&self.workers) {
            format!("workers = {}: from 1 to {WORKERS_MAX}", self.workers)
        } else if !(1..=wire::MESSAGE_BYTES_MAX).contains(&self.message_bytes_max) {
            format!("message_bytes_max = {}: from 1 to {}", self.message_bytes_max, wire::MESSAGE_BYTES_MAX)
        } else if !(1..=wire::STORED_DOCUMENT_BYTES_MAX).contains(&self.document_bytes) {
            format!("document_bytes = {}: from 1 to {}", self.document_bytes, wire::STORED_DOCUMENT_BYTES_MAX)
        } else if self.documents > DOCUMENTS_MAX {
            format!("documents = {}: at most {DOCUMENTS_MAX}", self.documents)
        } else if self.wire_version < 0 {
            format!("wire_version = {}: not negative", self.wire_version)
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let refusal = |settings: MongodbOriginSettings| settings.check().expect_err("refused").to_string();
        assert!(refusal(MongodbOriginSettings { workers: 0, ..Default::default() }).contains("workers = 0"));
        assert!(
            refusal(MongodbOriginSettings { document_bytes: 0, ..Default::default() }).contains("document_bytes = 0")
        );
        assert!(refusal(MongodbOriginSettings { documents: u64::MAX, ..Default::default() }).contains("documents"));
        assert!(refusal(MongodbOriginSettings { wire_version: -1, ..Default::default() }).contains("wire_version"));
        let large = MongodbOriginSettings { message_bytes_max: usize::MAX, ..Default::default() };
        assert!(refusal(large).contains("message_bytes_max"));
    }
}
