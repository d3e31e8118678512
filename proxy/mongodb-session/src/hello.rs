//! hello and its older names: the request, and the reply of the server that a listener presents.
//!
//! Source: "MongoDB Handshake" and "Load Balancer Support" of the driver specifications. Unknown fields are ignored: drivers add some
//! with every version.

use weir_mongodb_codec::bson::{Document, Kind, Value, Writer};
use weir_mongodb_codec::command::Command;
use weir_mongodb_codec::compressed::Compressor;
use weir_mongodb_codec::limits::{MESSAGE_BYTES_MAX, STORED_DOCUMENT_BYTES_MAX, WRITE_BATCH_MAX};

use crate::face::{Face, Presentation, TopologyVersion};
use crate::refusal::Refusal;

/// Bytes of the document in which a client describes itself, as servers limit it.
pub const METADATA_BYTES_MAX: usize = 512;

/// Compressors that are read from a client's list.
const COMPRESSORS_MAX: usize = 8;

/// Whether a command is hello under one of its names. Case counts.
#[must_use]
pub fn is_hello(command: &[u8]) -> bool {
    matches!(command, b"hello" | b"isMaster" | b"ismaster")
}

/// The fields of a hello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HelloRequest<'a> {
    /// isMaster or ismaster: the reply has `ismaster` as well.
    pub is_legacy: bool,
    /// `helloOk: true`: the client knows hello.
    pub is_hello_known: bool,
    /// `loadBalanced: true`.
    pub is_load_balanced: bool,
    /// `compression`: those that the gateway knows, in the client's order.
    pub compressors: Vec<Compressor>,
    /// `saslSupportedMechs`: database and user, with a dot between them.
    pub mechanisms_of: Option<&'a [u8]>,
    /// `speculativeAuthenticate`: the first command of a login.
    pub speculative: Option<Document<'a>>,
    /// `client`: the client describes itself.
    pub metadata: Option<Document<'a>>,
    /// `topologyVersion` and `maxAwaitTimeMS`: the reply may wait until the version changes.
    pub awaited: Option<(TopologyVersion, i64)>,
}

impl<'a> HelloRequest<'a> {
    /// Reads a hello.
    ///
    /// # Errors
    /// A field is impossible, or one of two that belong together is missing.
    pub fn read(command: &Command<'a>) -> Result<HelloRequest<'a>, Refusal> {
        let mut hello = HelloRequest { is_legacy: command.name != b"hello", ..HelloRequest::default() };
        let (mut topology, mut await_ms) = (None, None);
        for element in command.body.elements() {
            let element = element.map_err(weir_mongodb_codec::CommandError::from)?;
            let value = element.value;
            let document = || value.as_document().map_err(weir_mongodb_codec::CommandError::from);
            match element.name {
                b"helloOk" => hello.is_hello_known = value.is_true(),
                b"loadBalanced" => hello.is_load_balanced = value.is_true(),
                b"compression" if value.kind == Kind::Array => hello.compressors = compressors(document()?),
                b"saslSupportedMechs" => hello.mechanisms_of = value.as_string(),
                b"speculativeAuthenticate" => hello.speculative = document()?,
                b"client" => hello.metadata = document()?,
                b"topologyVersion" => topology = Some(version(document()?)?),
                b"maxAwaitTimeMS" => await_ms = Some(value.as_integer().filter(|time| *time >= 0)),
                _ => {}
            }
        }
        if hello.metadata.is_some_and(|metadata| metadata.bytes().len() > METADATA_BYTES_MAX) {
            return Err(Refusal::large_metadata());
        }
        hello.awaited = match (topology, await_ms) {
            (None, None) => None,
            (Some(topology), Some(Some(await_ms))) => Some((topology, await_ms)),
            (_, Some(None)) => return Err(Refusal::hello("maxAwaitTimeMS must be a non-negative integer")),
            _ => {
                return Err(Refusal::hello(
                    "A request with a 'topologyVersion' must include 'maxAwaitTimeMS' and vice versa",
                ));
            }
        };
        Ok(hello)
    }
}

fn compressors(array: Option<Document<'_>>) -> Vec<Compressor> {
    let names = array.map(Document::elements).into_iter().flatten().take(COMPRESSORS_MAX);
    names.filter_map(|name| Compressor::from_name(name.ok()?.value.as_string()?)).collect()
}

fn version(document: Option<Document<'_>>) -> Result<TopologyVersion, Refusal> {
    let field = |name: &[u8]| document.and_then(|document| document.get(name).ok().flatten());
    let process_id = field(b"processId").and_then(Value::as_object_id);
    let counter = field(b"counter").and_then(Value::as_integer).filter(|counter| *counter >= 0);
    let version = process_id.zip(counter).map(|(process_id, counter)| TopologyVersion { process_id, counter });
    version.ok_or(Refusal::hello("'topologyVersion' must have a processId and a non-negative counter"))
}

/// The reply to a hello.
#[derive(Debug)]
pub struct HelloReply<'p> {
    /// The server that is presented.
    pub presentation: &'p Presentation,
    /// The face of this connection.
    pub face: Face,
    /// The request was isMaster or ismaster.
    pub is_legacy: bool,
    /// The client knows hello.
    pub is_hello_known: bool,
    /// Compressors that both have.
    pub compressors: &'p [Compressor],
    /// The connection: no other client has the number.
    pub connection_id: i32,
    /// Milliseconds since 1970.
    pub unix_ms: i64,
}

impl HelloReply<'_> {
    /// Writes the fields up to those of a login. The caller writes these, and `ok`.
    pub fn write(&self, body: &mut Writer<'_>) {
        let Presentation { service_id, wire, session_timeout_minutes, topology, .. } = self.presentation;
        if self.is_hello_known {
            body.bool("helloOk", true);
        }
        if self.is_legacy {
            body.bool("ismaster", true);
        }
        body.bool("isWritablePrimary", true);
        match self.face {
            Face::Mongos => body.string("msg", "isdbgrid"),
            Face::LoadBalancer => {
                body.string("msg", "isdbgrid");
                body.object_id("serviceId", *service_id);
            }
            Face::Standalone => {}
        }
        if let Some(topology) = topology {
            topology.write(body);
        }
        body.int32("maxBsonObjectSize", STORED_DOCUMENT_BYTES_MAX as i32);
        body.int32("maxMessageSizeBytes", MESSAGE_BYTES_MAX as i32);
        body.int32("maxWriteBatchSize", WRITE_BATCH_MAX as i32);
        body.date_time("localTime", self.unix_ms);
        if let Some(minutes) = session_timeout_minutes {
            body.int32("logicalSessionTimeoutMinutes", *minutes);
        }
        body.int32("connectionId", self.connection_id);
        body.int32("minWireVersion", wire.min);
        body.int32("maxWireVersion", wire.max);
        body.bool("readOnly", false);
        if !self.compressors.is_empty() {
            let names = self.compressors.iter().map(|compressor| compressor.name());
            body.array("compression", names, |writer, name, compressor| writer.string(name, compressor));
        }
    }
}

impl TopologyVersion {
    fn write(self, body: &mut Writer<'_>) {
        body.document("topologyVersion", |version| {
            version.object_id("processId", self.process_id);
            version.int64("counter", self.counter);
        });
    }
}

#[cfg(test)]
mod tests;
