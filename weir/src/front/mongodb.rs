//! MongoDB: hello, the version, and whether a login is needed.

use std::time::Duration;

use weir_engine::settings::Address;
use weir_mongodb_codec::{
    bson::{Document, Value, Writer},
    header::Header,
    message::{self, Flags, Ids, Message},
    reply::{Reply, error_text},
};
use weir_mongodb_session::server_hello::{ServerHello, ServerKind};

use super::{
    Protocol,
    probe::{ProbeConnection, excerpt, millis},
};

/// The row.
pub const PROTOCOL: Protocol = Protocol {
    word: "mongodb",
    about: "Run the gateway in front of a MongoDB server, without a configuration file",
    listen_port: 27018,
    server_port: 27017,
    listener_table: "\n# Every client is let in, and the gateway does not log in at the server. For passwords:\n\
                     # auth = \"scram\", [[listener.user]], and user and password in [upstream.mongodb].\n\
                     [listener.mongodb]\nauth = \"none\"\n",
    tls_request: None,
    ask,
    try_it,
};

/// Code of a server that does not have a command.
const COMMAND_NOT_FOUND: i32 = 59;
/// Code of a server that wants a login first.
const UNAUTHORIZED: i32 = 13;

const PASSWORD_WANTED: &str = "MongoDB wants a login. Write the file with --write and add user and password: \
                               [upstream.mongodb] password = { env = \"NAME\" }";

fn ask(contact: &mut ProbeConnection<'_>) -> Result<String, String> {
    let (mut hello, mut took) = exchange(contact, &|body| body.int32("hello", 1))?;
    if facts(&hello)?.code == Some(COMMAND_NOT_FOUND) {
        (hello, took) = exchange(contact, &|body| body.int32("isMaster", 1))?;
    }
    if let Reply { is_ok: false, .. } = facts(&hello)? {
        return Err(format!("MongoDB refuses the first message: {}", error(&hello)));
    }
    // A server that refuses this one has other commands all the same.
    let build = exchange(contact, &|body| body.int32("buildInfo", 1)).map(|(reply, _)| reply).unwrap_or_default();
    let listing = |body: &mut Writer<'_>| {
        body.int32("listDatabases", 1);
        body.bool("nameOnly", true);
    };
    let (names, _) = exchange(contact, &listing)?;
    if facts(&names)?.code == Some(UNAUTHORIZED) {
        return Err(PASSWORD_WANTED.to_owned());
    }
    Ok(format!("{}, responded in {}", server(&hello, &build)?, millis(took)))
}

/// Sends a command to the database `admin`. The reply with its header, and the time that it took.
fn exchange(
    contact: &mut ProbeConnection<'_>,
    command: &dyn Fn(&mut Writer<'_>),
) -> Result<(Vec<u8>, Duration), String> {
    let mut request = Vec::new();
    message::write(&mut request, Ids { request: 1, response_to: 0 }, Flags::empty(), |body| {
        command(body);
        body.string("$db", "admin");
    });
    contact.exchange(&request, is_whole)
}

/// The message is there, or the bytes are none of MongoDB.
fn is_whole(bytes: &[u8]) -> bool {
    Header::read(bytes).map_or(true, |header| header.is_some_and(|header| bytes.len() >= header.bytes))
}

/// The document of a reply.
fn document(reply: &[u8]) -> Result<Document<'_>, String> {
    let found = Message::read(reply).map(|message| message.body);
    found.map_err(|_| format!("something listens there that is not MongoDB: it responds with {}", excerpt(reply)))
}

fn facts(reply: &[u8]) -> Result<Reply, String> {
    Reply::read(document(reply)?).map_err(|error| format!("MongoDB's reply cannot be read: {error}"))
}

fn error(reply: &[u8]) -> String {
    let text = document(reply).ok().and_then(error_text).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// `MongoDB 7.0.14, primary of rs0`, as far as the server says it.
fn server(hello: &[u8], build: &[u8]) -> Result<String, String> {
    let hello = document(hello)?;
    let hello = ServerHello::read(hello).map_err(|error| format!("MongoDB's reply cannot be read: {error}"))?;
    let version = document(build).ok().and_then(|build| build.get(b"version").ok().flatten());
    let version = version.and_then(Value::as_string).map(|text| String::from_utf8_lossy(text).into_owned());
    let set = hello.set_name.as_deref().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
    let role = match hello.kind {
        ServerKind::Standalone => "a server without a set".to_owned(),
        ServerKind::Mongos => "mongos".to_owned(),
        ServerKind::Primary => format!("primary of {set}"),
        ServerKind::Secondary => format!("secondary of {set}"),
        ServerKind::Arbiter => format!("arbiter of {set}, which has no data"),
        ServerKind::Other => format!("member of {set} that serves no clients now"),
        ServerKind::Ghost => "a server that is no member of its set yet".to_owned(),
    };
    let follow = match hello.kind {
        ServerKind::Primary | ServerKind::Secondary => {
            format!(" (replica_set = \"{set}\" in the file serves all of it)")
        }
        _ => String::new(),
    };
    let name = version.map_or_else(|| "MongoDB".to_owned(), |version| format!("MongoDB {version}"));
    Ok(format!("{name}, {role}{follow}"))
}

fn try_it(address: &Address) -> String {
    let place = match address {
        // A connection string has a path as a host, whose slashes are escaped.
        Address::Unix(path) => path.display().to_string().replace('%', "%25").replace('/', "%2F"),
        other => other.to_string(),
    };
    format!("mongosh \"mongodb://{place}/\" --eval \"db.stats()\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        message::write(&mut bytes, Ids { request: 7, response_to: 1 }, Flags::empty(), |writer| {
            body(writer);
            writer.double("ok", 1.0);
        });
        bytes
    }

    #[test]
    fn the_server_is_named_as_its_replies_have_it() {
        let build = reply(|body| body.string("version", "7.0.14"));
        let member = |field: &'static str| {
            reply(|body| {
                body.string("setName", "rs0");
                body.bool(field, true);
            })
        };
        let primary = server(&member("isWritablePrimary"), &build).expect("a server");
        assert_eq!(primary, "MongoDB 7.0.14, primary of rs0 (replica_set = \"rs0\" in the file serves all of it)");
        assert!(server(&member("secondary"), &build).expect("a server").contains("secondary of rs0"));
        let router = server(&reply(|body| body.string("msg", "isdbgrid")), &[]).expect("a server");
        assert_eq!(router, "MongoDB, mongos");
        let alone = server(&reply(|body| body.bool("isWritablePrimary", true)), &build).expect("a server");
        assert_eq!(alone, "MongoDB 7.0.14, a server without a set");
    }

    #[test]
    fn a_reply_is_whole_at_its_last_byte_and_other_protocols_at_once() {
        let whole = reply(|body| body.bool("isWritablePrimary", true));
        assert!(is_whole(&whole) && (0..whole.len()).all(|end| !is_whole(&whole[..end])));
        assert!(is_whole(b"HTTP/1.1 400 Bad Request\r\n"));
        assert!(server(b"HTTP/1.1 400 Bad Request\r\n", &[]).expect_err("no MongoDB").contains("not MongoDB"));
    }

    #[test]
    fn the_line_to_try_has_a_connection_string() {
        for (address, place) in [
            ("127.0.0.1:27018", "127.0.0.1:27018"),
            ("[::1]:27018", "[::1]:27018"),
            ("unix:/run/weir.sock", "%2Frun%2Fweir.sock"),
        ] {
            let line = try_it(&address.parse().expect("an address"));
            assert_eq!(line, format!("mongosh \"mongodb://{place}/\" --eval \"db.stats()\""));
        }
    }
}
