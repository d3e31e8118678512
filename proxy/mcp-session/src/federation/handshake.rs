//! The handshake (`initialize`): the request for servers, their offers, and the offer of all of them together.

use std::ops::Range;

use weir_json_codec::{Duplicates, JsonError, Kind, Node, Scanner, Sink, Value, write::string};

use super::{SEPARATOR, ServerMessageError, begin_response};
use crate::limits::INSTRUCTIONS_BYTES_MAX;

/// The name of a revision of MCP, such as `2025-11-25`.
pub type Revision = Box<[u8]>;

/// The first revision with the transport of a gateway. An offer of an earlier one is of no use.
pub const REVISION_MIN: &[u8] = b"2025-03-26";

/// Whether a text is the name of a revision: a date, by which revisions have their order.
pub fn is_revision(text: &[u8]) -> bool {
    text.len() == 10
        && text
            .iter()
            .enumerate()
            .all(|(at, byte)| if matches!(at, 4 | 7) { *byte == b'-' } else { byte.is_ascii_digit() })
}

/// A watched place of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPlace {
    Id,
    Revision,
    Capabilities,
}

static REQUEST: Node<RequestPlace> = Node::NEW.members(&[
    ("id", Node::value(RequestPlace::Id)),
    (
        "params",
        Node::NEW.members(&[
            ("protocolVersion", Node::value(RequestPlace::Revision)),
            ("capabilities", Node::value(RequestPlace::Capabilities)),
        ]),
    ),
]);

/// The watched values of a request.
#[derive(Default)]
struct Request {
    /// Ranges that are replaced, in their order.
    replaced: Vec<(Range<usize>, bool)>,
    revision: Option<Revision>,
}

impl Sink<RequestPlace> for Request {
    fn value(&mut self, value: Value<'_, RequestPlace>) {
        let range = value.start as usize..value.end as usize;
        match value.path {
            RequestPlace::Id => self.replaced.push((range, true)),
            RequestPlace::Capabilities => self.replaced.push((range, false)),
            RequestPlace::Revision => self.revision = value.string().filter(|text| is_revision(text)).map(Into::into),
        }
    }
}

/// The handshake of a client for each server: with this id, and without the abilities of the client, since nothing could tell the
/// requests of several servers to it apart. All other bytes stay. Returns the revision that the client wants, too: `None` if it is none.
///
/// # Errors
/// The message could be read in two ways, or is no JSON.
pub fn initialize_for_servers(message: &[u8], id: &[u8]) -> Result<(Option<Revision>, Vec<u8>), JsonError> {
    let mut request = Request::default();
    let mut scanner = Scanner::new(&REQUEST, Duplicates::Refuse);
    scanner.push(message, &mut request)?;
    scanner.finish(&mut request)?;
    let (mut out, mut at) = (Vec::with_capacity(message.len()), 0);
    for (range, is_id) in &request.replaced {
        out.extend_from_slice(&message[at..range.start]);
        out.extend_from_slice(if *is_id { id } else { b"{}" });
        at = range.end;
    }
    out.extend_from_slice(&message[at..]);
    Ok((request.revision, out))
}

/// A watched place of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferPlace {
    Result,
    Revision,
    Tools,
    Prompts,
    Instructions,
    Error,
}

static RESPONSE: Node<OfferPlace> = Node::NEW.members(&[
    (
        "result",
        Node::value(OfferPlace::Result).members(&[
            ("protocolVersion", Node::value(OfferPlace::Revision)),
            (
                "capabilities",
                Node::NEW.members(&[
                    ("tools", Node::value(OfferPlace::Tools)),
                    ("prompts", Node::value(OfferPlace::Prompts)),
                ]),
            ),
            ("instructions", Node::value(OfferPlace::Instructions)),
        ]),
    ),
    ("error", Node::value(OfferPlace::Error)),
]);

/// The offer of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The revision that it will speak.
    pub revision: Revision,
    /// It has tools.
    pub has_tools: bool,
    /// It has prompts.
    pub has_prompts: bool,
    /// Its instructions, as they stand in its message between their quotes. Empty: none, or too long ones.
    instructions: Box<[u8]>,
}

impl Offer {
    /// Reads the response of a server to `initialize`.
    ///
    /// # Errors
    /// The message is of no use.
    pub fn read(message: &[u8]) -> Result<Self, ServerMessageError> {
        let mut found = FoundOffer { message, offer: Self::default(), is_error: false };
        let mut scanner = Scanner::new(&RESPONSE, Duplicates::Refuse);
        scanner.push(message, &mut found)?;
        scanner.finish(&mut found)?;
        match found {
            FoundOffer { is_error: true, .. } => Err(ServerMessageError::Error),
            FoundOffer { offer, .. } if offer.revision.is_empty() => Err(ServerMessageError::Form),
            FoundOffer { offer, .. } => Ok(offer),
        }
    }

    /// Whether its revision has a meaning for a client that wants this one: no later one, and none before [`REVISION_MIN`].
    pub fn is_fit(&self, wanted: &[u8]) -> bool {
        (REVISION_MIN..=wanted).contains(&&*self.revision)
    }
}

/// An offer while it is read.
struct FoundOffer<'a> {
    message: &'a [u8],
    offer: Offer,
    is_error: bool,
}

impl Sink<OfferPlace> for FoundOffer<'_> {
    fn value(&mut self, value: Value<'_, OfferPlace>) {
        let is_object = value.kind == Kind::Object;
        match value.path {
            OfferPlace::Result => {}
            OfferPlace::Revision => {
                let revision = value.string().filter(|text| is_revision(text));
                self.offer.revision = revision.unwrap_or_default().into();
            }
            OfferPlace::Tools => self.offer.has_tools = is_object,
            OfferPlace::Prompts => self.offer.has_prompts = is_object,
            OfferPlace::Instructions => {
                let is_fit =
                    matches!(value.kind, Kind::String { .. }) && value.bytes() <= INSTRUCTIONS_BYTES_MAX as u64;
                let text = self.message.get(value.start as usize + 1..value.end as usize - 1).filter(|_| is_fit);
                self.offer.instructions = text.unwrap_or_default().into();
            }
            OfferPlace::Error => self.is_error = true,
        }
    }
}

/// The offer of several servers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JointOffer {
    revision: Box<[u8]>,
    has_tools: bool,
    has_prompts: bool,
    /// As in a message, between the quotes.
    instructions: Vec<u8>,
}

impl JointOffer {
    /// Adds the offer of a server: the lowest revision holds, and every ability.
    pub fn add(&mut self, server: &str, offer: &Offer) {
        if self.revision.is_empty() || offer.revision < self.revision {
            self.revision = offer.revision.clone();
        }
        self.has_tools |= offer.has_tools;
        self.has_prompts |= offer.has_prompts;
        if !offer.instructions.is_empty() {
            if !self.instructions.is_empty() {
                self.instructions.extend_from_slice(b"\\n\\n");
            }
            self.instructions.extend_from_slice(format!("{server}{SEPARATOR}*: ").as_bytes());
            self.instructions.extend_from_slice(&offer.instructions);
        }
    }

    /// The response to the request of this id, from a server of this name and version. Changes of lists are not announced, since there is
    /// no stream for them.
    pub fn response(&self, id: &[u8], (name, version): (&str, &str)) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.instructions.len());
        begin_response(id, &mut out);
        out.extend_from_slice(b"{\"protocolVersion\":\"");
        out.extend_from_slice(&self.revision);
        out.extend_from_slice(b"\",\"capabilities\":{");
        let (tools, prompts): (&[u8], &[u8]) = (b"\"tools\":{}", b"\"prompts\":{}");
        let abilities = [(self.has_tools, tools), (self.has_prompts, prompts)];
        let abilities: Vec<&[u8]> = abilities.into_iter().filter(|(has, _)| *has).map(|(_, text)| text).collect();
        out.extend_from_slice(&abilities.join(&b','));
        out.extend_from_slice(b"},\"serverInfo\":{\"name\":");
        string(&mut out, name);
        out.extend_from_slice(b",\"version\":");
        string(&mut out, version);
        out.push(b'}');
        if !self.instructions.is_empty() {
            out.extend_from_slice(b",\"instructions\":\"");
            out.extend_from_slice(&self.instructions);
            out.push(b'"');
        }
        out.extend_from_slice(b"}}");
        out
    }
}
