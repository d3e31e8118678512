//! The handshake, and hello as monitors send it again and again.
//!
//! Source: "MongoDB Handshake" and "Server Discovery And Monitoring" of the driver specifications.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_mongodb_codec::bson::{Document, Kind, Value, Writer};
use weir_mongodb_codec::compressed::Compressor;
use weir_mongodb_codec::limits as wire;
use weir_mongodb_codec::message::Flags;
use weir_sasl::Mechanism;

use super::dispatch::{Context, Fate};
use super::face::Face;
use super::failure::{Failure, code};
use super::login;
use super::request::wrong_type;
use super::state::{Core, unix_millis};

/// Minutes for which a logical session lives without use.
const SESSION_MINUTES: i32 = 30;

/// The longest wait that a hello may ask for. 1 day: a wait is a timer, and no more.
const AWAIT_MAX: Duration = Duration::from_secs(86_400);

/// Fields of hello.
#[derive(Clone, Debug, Default)]
struct Asked<'a> {
    is_load_balanced: bool,
    says_hello_ok: bool,
    compressors: Vec<Compressor>,
    has_compressors: bool,
    user: Option<&'a [u8]>,
    speculation: Option<Document<'a>>,
    application: Option<&'a [u8]>,
    topology: Option<([u8; 12], i64)>,
    await_ms: Option<u64>,
}

impl<'a> Asked<'a> {
    fn read(body: Document<'a>) -> Result<Self, Failure> {
        let mut asked = Self::default();
        for element in body.elements() {
            let element = element?;
            let value = element.value;
            match element.name {
                b"loadBalanced" => asked.is_load_balanced = value.is_true(),
                b"helloOk" => asked.says_hello_ok = value.is_true(),
                b"compression" => {
                    asked.has_compressors = true;
                    for one in value.as_document()?.into_iter().flat_map(Document::elements) {
                        let name = one?.value.as_string().unwrap_or_default();
                        asked.compressors.extend(Compressor::from_name(name));
                    }
                }
                b"saslSupportedMechs" => asked.user = value.as_string(),
                b"speculativeAuthenticate" => asked.speculation = value.as_document()?,
                b"client" => asked.application = application(value)?,
                b"topologyVersion" => asked.topology = Some(version(value)?),
                b"maxAwaitTimeMS" => {
                    let time = value.as_integer().and_then(|time| u64::try_from(time).ok());
                    asked.await_ms = Some(time.ok_or_else(|| wrong_type("hello.maxAwaitTimeMS"))?);
                }
                _ => {}
            }
        }
        if asked.topology.is_some() != asked.await_ms.is_some() {
            let text = "A request with a 'topologyVersion' must include 'maxAwaitTimeMS' and vice versa";
            return Err(Failure::new(code::HELLO_INCOMPLETE, text));
        }
        Ok(asked)
    }
}

/// `client.application.name`.
fn application(client: Value<'_>) -> Result<Option<&[u8]>, Failure> {
    let Some(application) = client.as_document()?.map(|client| client.get(b"application")).transpose()?.flatten()
    else {
        return Ok(None);
    };
    let name = application.as_document()?.map(|application| application.get(b"name")).transpose()?.flatten();
    Ok(name.and_then(Value::as_string))
}

fn version(value: Value<'_>) -> Result<([u8; 12], i64), Failure> {
    let document = value.as_document()?.ok_or_else(|| wrong_type("hello.topologyVersion"))?;
    let process = document.get(b"processId")?.and_then(Value::as_object_id);
    let counter = document.get(b"counter")?.and_then(Value::as_integer);
    process.zip(counter).ok_or_else(|| wrong_type("hello.topologyVersion"))
}

/// `hello`, and its two names from the time before.
pub(super) fn hello(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let request = at.request;
    let asked = Asked::read(request.command.body)?;
    let state = at.core.state.clone();
    let version = state.version.load(Ordering::Acquire);
    if let (Some((process, counter)), Some(await_ms)) = (asked.topology, asked.await_ms)
        && process == state.process
    {
        let seen = at.seen.unwrap_or(counter as u64);
        if seen > version {
            return Err(Failure::new(31_382, "'topologyVersion' is ahead of the server's"));
        }
        if seen == version && !at.is_late() {
            let most = Duration::from_millis(await_ms).min(AWAIT_MAX);
            return Ok(Fate::Wait(at.until.unwrap_or_else(|| at.now.saturating_add(most))));
        }
    }
    let face = state.face();
    remember(at, &asked, &face);
    write(at, &asked, &face, version, body);
    let is_stream = asked.topology.is_some() && request.flags.contains(Flags::EXHAUST_ALLOWED);
    if let Some(speculation) = asked.speculation {
        login::speculate(at, speculation, body);
    }
    at.seen = Some(version);
    Ok(if is_stream { Fate::More } else { Fate::Done })
}

/// Notes the facts that later commands of the connection depend on.
fn remember(at: &mut Context<'_>, asked: &Asked<'_>, face: &Face) {
    let offered = &at.core.settings.compressors;
    if asked.has_compressors {
        at.client.compressors = asked.compressors.iter().copied().filter(|one| offered.contains(one)).collect();
    }
    if let Some(application) = asked.application {
        at.client.application = application.to_vec();
    }
    at.client.is_load_balanced |= asked.is_load_balanced && *face == Face::LoadBalancer;
}

fn write(at: &Context<'_>, asked: &Asked<'_>, face: &Face, version: u64, body: &mut Writer<'_>) {
    let settings = &at.core.settings;
    if asked.says_hello_ok {
        body.bool("helloOk", true);
    }
    let is_legacy = at.request.command.name != b"hello";
    body.bool(if is_legacy { "ismaster" } else { "isWritablePrimary" }, face.is_writable());
    write_version(at.core, version, body);
    face.write(body);
    if at.client.is_load_balanced {
        body.object_id("serviceId", at.core.state.process);
    }
    body.int32("maxBsonObjectSize", wire::STORED_DOCUMENT_BYTES_MAX as i32);
    body.int32("maxMessageSizeBytes", settings.message_bytes_max as i32);
    body.int32("maxWriteBatchSize", wire::WRITE_BATCH_MAX as i32);
    body.date_time("localTime", unix_millis());
    body.int32("logicalSessionTimeoutMinutes", SESSION_MINUTES);
    body.int32("connectionId", at.client.id as i32);
    body.int32("minWireVersion", 0);
    body.int32("maxWireVersion", settings.wire_version);
    body.bool("readOnly", false);
    if matches!(face, Face::Member(_)) {
        write_last(at, body);
    }
    if asked.user.is_some() && at.core.has_password() {
        let mechanisms = [Mechanism::ScramSha256, Mechanism::ScramSha1];
        body.array("saslSupportedMechs", mechanisms, |body, name, mechanism| body.string(name, mechanism.name()));
    }
    if asked.has_compressors && !at.client.compressors.is_empty() {
        let names = at.client.compressors.iter().map(|compressor| compressor.name());
        body.array("compression", names, |body, name, compressor| body.string(name, compressor));
    }
}

/// Writes the version of the topology.
pub(super) fn write_version(core: &Core, version: u64, body: &mut Writer<'_>) {
    body.document("topologyVersion", |topology| {
        topology.object_id("processId", core.state.process);
        topology.int64("counter", version as i64);
    });
}

/// The last write of a member, by which clients judge how far secondaries are behind.
fn write_last(at: &Context<'_>, body: &mut Writer<'_>) {
    let time = at.core.state.cluster_time();
    let optime = |body: &mut Writer<'_>, name: &str| {
        body.document(name, |optime| {
            optime.value("ts", Value { kind: Kind::Timestamp, bytes: &time });
            optime.int64("t", 1);
        });
    };
    body.document("lastWrite", |last| {
        optime(last, "opTime");
        last.date_time("lastWriteDate", unix_millis());
        optime(last, "majorityOpTime");
        last.date_time("majorityWriteDate", unix_millis());
    });
}
