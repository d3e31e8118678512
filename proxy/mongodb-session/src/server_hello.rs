//! The facts of a server, from its reply to hello.
//!
//! Source: "Server Discovery and Monitoring" of the driver specifications: the type of a server, and the members of its set.

use weir_mongodb_codec::BsonError;
use weir_mongodb_codec::bson::{Document, Kind, Value};
use weir_mongodb_codec::compressed::Compressor;

use crate::face::{TopologyVersion, WireVersions};

/// Members, tags and mechanisms that are read of one reply. A set has at most 50 members.
const LIST_MAX: usize = 64;

/// The kind of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServerKind {
    /// A server without a set.
    #[default]
    Standalone,
    /// A router of a sharded cluster.
    Mongos,
    /// The primary of a set.
    Primary,
    /// A secondary of a set.
    Secondary,
    /// A member that votes and has no data.
    Arbiter,
    /// A member that is starting, recovering or hidden: not for clients.
    Other,
    /// A server that is to become a member.
    Ghost,
}

/// A tag of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its name.
    pub name: Box<[u8]>,
    /// Its value.
    pub value: Box<[u8]>,
}

/// The reply of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHello {
    /// Its kind.
    pub kind: ServerKind,
    /// Versions of the wire protocol.
    pub wire: Option<WireVersions>,
    /// The name of its set.
    pub set_name: Option<Box<[u8]>>,
    /// Its own address, as its set names it.
    pub me: Option<Box<[u8]>>,
    /// The primary that it knows.
    pub primary: Option<Box<[u8]>>,
    /// Members with data, passive ones included; arbiters are left out.
    pub hosts: Vec<Box<[u8]>>,
    /// Tags for read preferences.
    pub tags: Vec<Tag>,
    /// `setVersion` and `electionId`: a primary with lower ones is an old one.
    pub election: Option<(i64, [u8; 12])>,
    /// Time of its last write, in milliseconds since 1970: for limits of staleness.
    pub last_write_ms: Option<i64>,
    /// Minutes until it forgets a session that is not used.
    pub session_timeout_minutes: Option<i32>,
    /// The version of this reply: a monitor may wait for the next.
    pub topology: Option<TopologyVersion>,
    /// The server is behind a load balancer.
    pub service_id: Option<[u8; 12]>,
    /// `saslSupportedMechs`: kinds of SCRAM that the user has.
    pub mechanisms: Option<Vec<weir_sasl::Mechanism>>,
    /// `compression`: compressors of the list that was sent which the server has, in the order of that list.
    pub compressors: Vec<Compressor>,
    /// `helloOk`: the server knows hello.
    pub is_hello_known: bool,
}

/// Fields that make the kind.
#[derive(Default)]
struct Signs {
    is_primary: bool,
    is_secondary: bool,
    is_arbiter: bool,
    is_hidden: bool,
    is_set_member: bool,
    is_mongos: bool,
}

impl ServerHello {
    /// Reads a reply. Whether it is a success is the caller's to look at.
    ///
    /// # Errors
    /// The document is broken.
    pub fn read(body: Document<'_>) -> Result<ServerHello, BsonError> {
        let (mut hello, mut signs) = (ServerHello::default(), Signs::default());
        let (mut min, mut max, mut set_version, mut election_id) = (None, None, None, None);
        for element in body.elements() {
            let element = element?;
            let (name, value) = (element.name, element.value);
            match name {
                b"isWritablePrimary" | b"ismaster" => signs.is_primary |= value.is_true(),
                b"secondary" => signs.is_secondary = value.is_true(),
                b"arbiterOnly" => signs.is_arbiter = value.is_true(),
                b"hidden" => signs.is_hidden = value.is_true(),
                b"isreplicaset" => signs.is_set_member = value.is_true(),
                b"msg" => signs.is_mongos = value.as_string() == Some(b"isdbgrid"),
                b"minWireVersion" => min = number(value),
                b"maxWireVersion" => max = number(value),
                b"setVersion" => set_version = value.as_integer(),
                b"electionId" => election_id = value.as_object_id(),
                b"helloOk" => hello.is_hello_known = value.is_true(),
                _ => hello.note(name, value)?,
            }
        }
        hello.wire = min.zip(max).map(|(min, max)| WireVersions { min, max });
        hello.election = set_version.zip(election_id);
        hello.kind = signs.kind(hello.set_name.is_some());
        Ok(hello)
    }

    fn note(&mut self, name: &[u8], value: Value<'_>) -> Result<(), BsonError> {
        match name {
            b"setName" => self.set_name = value.as_string().map(Into::into),
            b"me" => self.me = value.as_string().map(Into::into),
            b"primary" => self.primary = value.as_string().map(Into::into),
            b"hosts" | b"passives" => {
                let room = LIST_MAX.saturating_sub(self.hosts.len());
                self.hosts.extend(texts(value)?.into_iter().take(room));
            }
            b"tags" => {
                let tags = value.as_document()?.map(Document::elements).into_iter().flatten().take(LIST_MAX);
                let pair = |element: Result<weir_mongodb_codec::bson::Element<'_>, BsonError>| {
                    element.map(|tag| Tag {
                        name: tag.name.into(),
                        value: tag.value.as_string().unwrap_or_default().into(),
                    })
                };
                self.tags = tags.map(pair).collect::<Result<_, _>>()?;
            }
            b"lastWrite" => {
                let date = value.as_document()?.map(|last| last.get(b"lastWriteDate")).transpose()?.flatten();
                let bytes = date.filter(|date| date.kind == Kind::DateTime).and_then(|date| date.bytes.first_chunk());
                self.last_write_ms = bytes.map(|bytes| i64::from_le_bytes(*bytes));
            }
            b"logicalSessionTimeoutMinutes" => self.session_timeout_minutes = number(value),
            b"topologyVersion" => {
                let version = value.as_document()?;
                let field = |name: &[u8]| version.and_then(|version| version.get(name).ok().flatten());
                let process_id = field(b"processId").and_then(Value::as_object_id);
                let counter = field(b"counter").and_then(Value::as_integer);
                let version = process_id.zip(counter);
                self.topology = version.map(|(process_id, counter)| TopologyVersion { process_id, counter });
            }
            b"compression" => {
                let names = texts(value)?;
                self.compressors = names.iter().filter_map(|name| Compressor::from_name(name)).collect();
            }
            b"serviceId" => self.service_id = value.as_object_id(),
            b"saslSupportedMechs" => {
                let names = texts(value)?;
                self.mechanisms = Some(names.iter().filter_map(|name| weir_sasl::Mechanism::from_name(name)).collect());
            }
            _ => {}
        }
        Ok(())
    }
}

impl Signs {
    fn kind(&self, has_set_name: bool) -> ServerKind {
        match self {
            Signs { is_mongos: true, .. } => ServerKind::Mongos,
            Signs { is_set_member: true, .. } => ServerKind::Ghost,
            _ if !has_set_name => ServerKind::Standalone,
            Signs { is_hidden: true, .. } => ServerKind::Other,
            Signs { is_primary: true, .. } => ServerKind::Primary,
            Signs { is_secondary: true, .. } => ServerKind::Secondary,
            Signs { is_arbiter: true, .. } => ServerKind::Arbiter,
            _ => ServerKind::Other,
        }
    }
}

fn number(value: Value<'_>) -> Option<i32> {
    value.as_integer().and_then(|number| i32::try_from(number).ok())
}

fn texts(value: Value<'_>) -> Result<Vec<Box<[u8]>>, BsonError> {
    let items = value.as_document()?.map(Document::elements).into_iter().flatten().take(LIST_MAX);
    items.map(|item| item.map(|item| item.value.as_string().unwrap_or_default().into())).collect()
}

#[cfg(test)]
mod tests {
    use weir_mongodb_codec::bson::{self, Writer};

    use super::*;

    fn read(body: impl FnOnce(&mut Writer<'_>)) -> ServerHello {
        let mut out = Vec::new();
        bson::document(&mut out, body);
        ServerHello::read(Document::read(&out).unwrap()).unwrap()
    }

    #[test]
    fn the_kind_of_a_server_is_that_of_the_specification() {
        let of = |fields: &[&str], set: bool| {
            read(|body| {
                fields.iter().for_each(|field| body.bool(field, true));
                if set {
                    body.string("setName", "rs0");
                }
            })
            .kind
        };
        assert_eq!(of(&["isWritablePrimary"], true), ServerKind::Primary);
        assert_eq!(of(&["ismaster"], true), ServerKind::Primary);
        assert_eq!(of(&["secondary"], true), ServerKind::Secondary);
        assert_eq!(of(&["secondary", "hidden"], true), ServerKind::Other);
        assert_eq!(of(&["arbiterOnly"], true), ServerKind::Arbiter);
        assert_eq!(of(&[], true), ServerKind::Other);
        assert_eq!(of(&["isreplicaset"], false), ServerKind::Ghost);
        assert_eq!(of(&["isWritablePrimary"], false), ServerKind::Standalone);
        assert_eq!(read(|body| body.string("msg", "isdbgrid")).kind, ServerKind::Mongos);
    }

    #[test]
    fn members_and_tags_are_read_within_a_bound() {
        let hello = read(|body| {
            body.array("hosts", ["a:1", "b:2"], |writer, name, host| writer.string(name, host));
            body.array("passives", ["c:3"], |writer, name, host| writer.string(name, host));
            body.string("setName", "rs0");
            body.document("tags", |tags| tags.string("dc", "east"));
            body.int32("minWireVersion", 0);
            body.int32("maxWireVersion", 21);
            body.document("lastWrite", |last| last.date_time("lastWriteDate", 77));
        });
        assert_eq!(hello.hosts.concat(), b"a:1b:2c:3");
        assert_eq!(hello.tags, [Tag { name: b"dc"[..].into(), value: b"east"[..].into() }]);
        assert_eq!((hello.wire, hello.last_write_ms), (Some(WireVersions { min: 0, max: 21 }), Some(77)));
        let many = read(|body| body.array("hosts", 0..1000, |writer, name, _| writer.string(name, "a")));
        assert_eq!(many.hosts.len(), LIST_MAX);
    }
}
