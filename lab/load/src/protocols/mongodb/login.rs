//! hello, and the login by SCRAM that begins in it.

use weir_engine::Stream;
use weir_mongodb_codec::Header;
use weir_mongodb_codec::bson::{Document, Value, Writer};
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_mongodb_codec::reply::Reply;
use weir_sasl::{ChannelBinding, ClientProven, Derivation, ScramClient, mongodb};

use super::wire::error_text;
use crate::protocols::scram::{keys_of, nonce};
use crate::scenario::Mongodb;
use crate::wire::receive_chunk;

/// Bytes of one reply of a login. Default 64 KiB: that to hello has less than 1 KiB.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The database of users.
const ADMIN: &str = "admin";

/// Says hello, and logs in if there is a password.
///
/// # Errors
/// The server refuses, or does not speak the protocol as the scenario needs it; a sentence for people.
pub(super) async fn begin(stream: &mut Stream, settings: &Mongodb) -> Result<(), String> {
    let mut commands = Commands { stream, received: Vec::new(), next: -1 };
    let client = match &settings.password {
        Some(_) => Some(ScramClient::new(settings.mechanism, settings.user.as_bytes(), ChannelBinding::None, nonce()?)),
        None => None,
    };
    let hello = commands.run(|body| write_hello(body, settings, client.as_ref())).await?;
    check(hello.body(), settings)?;
    if let Some(client) = client {
        let speculation = Some(hello.body()).and_then(|body| body.get(b"speculativeAuthenticate").ok()?);
        let challenge = match speculation.and_then(|value| value.as_document().ok()?) {
            Some(begun) => payload(begun)?,
            // The user may lack the mechanism of a speculation, and then the server says nothing about it.
            None => {
                let begun = commands.run(|body| write_start(body, settings, &client)).await?;
                payload(begun.body())?
            }
        };
        log_in(&mut commands, settings, client, &challenge).await?;
    }
    if commands.received.is_empty() { Ok(()) } else { Err("it sent a reply without a request".to_owned()) }
}

fn write_hello(body: &mut Writer<'_>, settings: &Mongodb, client: Option<&ScramClient>) {
    body.int32("hello", 1);
    body.bool("helloOk", true);
    body.document("client", |body| {
        body.document("application", |body| body.string("name", "weir-load"));
        body.document("driver", |body| {
            body.string("name", "weir-load");
            body.string("version", env!("CARGO_PKG_VERSION"));
        });
        body.document("os", |body| body.string("type", std::env::consts::OS));
    });
    body.array("compression", settings.compressor, |body, name, compressor| body.string(name, compressor.name()));
    if settings.is_load_balanced {
        body.bool("loadBalanced", true);
    }
    if let Some(client) = client {
        body.document("speculativeAuthenticate", |body| {
            write_start(body, settings, client);
            body.string("db", ADMIN);
        });
    }
}

fn write_start(body: &mut Writer<'_>, settings: &Mongodb, client: &ScramClient) {
    body.int32("saslStart", 1);
    body.string("mechanism", settings.mechanism.name());
    body.binary("payload", 0, client.first_message());
    body.document("options", |options| options.bool("skipEmptyExchange", true));
}

/// The server is the kind that the scenario needs.
fn check(hello: Document<'_>, settings: &Mongodb) -> Result<(), String> {
    let get = |name: &[u8]| hello.get(name).ok().flatten();
    if settings.is_load_balanced && get(b"serviceId").is_none() {
        return Err("it is behind no load balancer: its hello has no serviceId".to_owned());
    }
    let Some(compressor) = settings.compressor else { return Ok(()) };
    let offered = get(b"compression").and_then(|value| value.as_document().ok().flatten());
    let mut names = offered.into_iter().flat_map(Document::elements).flatten();
    let is_offered = names.any(|one| one.value.as_string() == Some(compressor.name().as_bytes()));
    if is_offered { Ok(()) } else { Err(format!("it does not offer the compressor {}", compressor.name())) }
}

async fn log_in(
    commands: &mut Commands<'_>,
    settings: &Mongodb,
    client: ScramClient,
    challenge: &[u8],
) -> Result<(), String> {
    let failed = |error: weir_sasl::ClientError| format!("its SCRAM is wrong: {error}");
    let Some(password) = &settings.password else { return Ok(()) };
    let (waiting, challenge) = client.on_challenge(challenge).map_err(failed)?;
    if challenge.iterations < mongodb::ITERATIONS_MIN {
        return Err(format!(
            "its SCRAM has {} iterations, and no driver takes fewer than {}",
            challenge.iterations,
            mongodb::ITERATIONS_MIN
        ));
    }
    let password = mongodb::password(settings.mechanism, settings.user.as_bytes(), password);
    let keys = keys_of(&Derivation::new(settings.mechanism, &password, challenge));
    let (proven, proof): (ClientProven, _) = waiting.prove(&keys);
    let end = commands.run(|body| write_continue(body, &proof)).await?;
    proven.finish(&payload(end.body())?).map_err(failed)?;
    let is_done = |body: Document<'_>| body.get(b"done").ok().flatten().is_some_and(Value::is_true);
    // A server that does not know how to skip it wants an empty exchange.
    if !is_done(end.body()) && !is_done(commands.run(|body| write_continue(body, b"")).await?.body()) {
        return Err("its login has no end".to_owned());
    }
    Ok(())
}

fn write_continue(body: &mut Writer<'_>, payload: &[u8]) {
    body.int32("saslContinue", 1);
    body.int32("conversationId", 1);
    body.binary("payload", 0, payload);
}

fn payload(body: Document<'_>) -> Result<Vec<u8>, String> {
    let payload = body.get(b"payload").ok().flatten().and_then(Value::as_binary);
    payload.map(|(_, data)| data.to_vec()).ok_or_else(|| "a reply of its login has no payload".to_owned())
}

/// Commands on a stream, each sent after the reply to the one before.
struct Commands<'a> {
    stream: &'a mut Stream,
    received: Vec<u8>,
    /// The id of the next command. They are negative, so that no request has them.
    next: i32,
}

/// A reply that says that its command has succeeded.
struct Success(Vec<u8>);

impl Success {
    fn body(&self) -> Document<'_> {
        // Its bytes were read before.
        Document::read(&self.0).expect("a document")
    }
}

impl Commands<'_> {
    /// Sends a command of the database of users. An error of the server is an error.
    async fn run(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> Result<Success, String> {
        let request = self.next;
        self.next -= 1;
        self.stream.output.with(|out| {
            message::write(out, Ids { request, response_to: 0 }, Flags::empty(), |body| {
                write(body);
                body.string("$db", ADMIN);
            });
        });
        let wrong = |error: &dyn std::fmt::Display| format!("its reply is not MongoDB's: {error}");
        let whole = self.message().await?;
        let reply = Message::read(&whole).map_err(|error| wrong(&error))?;
        if reply.header.response_to != request {
            return Err(wrong(&"it names another request"));
        }
        let facts = Reply::read(reply.body).map_err(|error| wrong(&error))?;
        match facts.is_ok {
            true => Ok(Success(reply.body.bytes().to_vec())),
            false => Err(format!("it refused with {}", String::from_utf8_lossy(&error_text(reply.body)))),
        }
    }

    async fn message(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let header =
                Header::read(&self.received).map_err(|error| format!("its reply is not MongoDB's: {error}"))?;
            if let Some(header) = header.filter(|header| header.bytes <= self.received.len()) {
                return Ok(self.received.drain(..header.bytes).collect());
            }
            if self.received.len() > MESSAGE_BYTES_MAX {
                return Err(format!("a reply of its login has more than {MESSAGE_BYTES_MAX} bytes"));
            }
            self.received.extend_from_slice(&receive_chunk(self.stream).await?);
        }
    }
}
