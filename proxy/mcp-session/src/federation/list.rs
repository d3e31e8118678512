//! Lists of tools or prompts: the pages of one server, with its prefix, and the list of all.

use std::ops::Range;

use weir_json_codec::{Duplicates, Kind, Node, Scanner, Sink, Value, decode, write::string};

use super::{SEPARATOR, ServerMessageError, begin_response, response::find_event};
use crate::limits::NAME_BYTES_MAX;

/// Lists that a federation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
}

impl ListKind {
    /// Every list.
    pub const ALL: [Self; 2] = [Self::Tools, Self::Prompts];

    /// The list of a method that lists.
    pub fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// The list of a method that takes the name of an item.
    pub fn of_use_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.use_method() == method)
    }

    /// The method that lists.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// The method that takes the name of an item.
    pub const fn use_method(self) -> &'static str {
        match self {
            Self::Tools => "tools/call",
            Self::Prompts => "prompts/get",
        }
    }

    /// The member of the result.
    const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
        }
    }

    /// The request for the page behind a cursor, which stands as in a message, with its quotes. `None`: the first page.
    pub fn request(self, id: &[u8], cursor: Option<&[u8]>) -> Vec<u8> {
        let mut out = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        out.extend_from_slice(id);
        out.extend_from_slice(b",\"method\":");
        string(&mut out, self.method());
        if let Some(cursor) = cursor {
            out.extend_from_slice(b",\"params\":{\"cursor\":");
            out.extend_from_slice(cursor);
            out.push(b'}');
        }
        out.push(b'}');
        out
    }
}

/// A watched place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Items,
    Item,
    Name,
    Cursor,
    Id,
    Method,
    Result,
    Error,
}

static TOOLS: Node<Place> =
    Node::NEW.members(&[("result", RESULT.members(&[("tools", ITEMS), CURSOR])), ID, METHOD, ERROR]);
static PROMPTS: Node<Place> =
    Node::NEW.members(&[("result", RESULT.members(&[("prompts", ITEMS), CURSOR])), ID, METHOD, ERROR]);
const RESULT: Node<Place> = Node::value(Place::Result);
const ID: (&str, Node<Place>) = ("id", Node::value(Place::Id));
const METHOD: (&str, Node<Place>) = ("method", Node::value(Place::Method));
const ERROR: (&str, Node<Place>) = ("error", Node::value(Place::Error));
const ITEMS: Node<Place> = Node::value(Place::Items).items(&ITEM);
const CURSOR: (&str, Node<Place>) = ("nextCursor", Node::value(Place::Cursor));
static ITEM: Node<Place> = Node::value(Place::Item).members(&[("name", Node::value(Place::Name))]);

/// The list of one server, page by page. Each item has the prefix of the server in its name; all its other bytes are those of the server.
#[derive(Clone, Debug)]
pub struct PrefixedList {
    kind: ListKind,
    /// The server and the separator, which need no escapes.
    prefix: Box<str>,
    /// The items, with commas between them.
    items: Vec<u8>,
}

impl PrefixedList {
    /// The empty list of a server, whose name is plain ASCII without quotes and backslashes.
    pub fn new(kind: ListKind, server: &str) -> Self {
        Self { kind, prefix: format!("{server}{SEPARATOR}").into(), items: Vec::new() }
    }

    /// Adds the page in the body of a response: the message that responds to the request of this id. In a stream of events, other
    /// messages of the server are passed over. See [`add_page`](Self::add_page).
    ///
    /// # Errors
    /// There is no such message, or it is of no use. Nothing is added.
    pub fn add_response(
        &mut self,
        body: &[u8],
        is_stream: bool,
        id: &[u8],
        may_use: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Box<[u8]>>, ServerMessageError> {
        if !is_stream {
            return self.add_page(body, id, may_use);
        }
        let found = find_event(body, |message| match self.add_page(message, id, may_use) {
            Err(ServerMessageError::Other | ServerMessageError::Json(_)) => None,
            page => Some(page),
        });
        found.unwrap_or(Err(ServerMessageError::Other))
    }

    /// Adds the items of a page that may be used, by the server's own names. Items without a name are left out, and those whose name
    /// would be too long for a call. `id`: that of the request. Returns the cursor of the next page, as it stands in the message.
    ///
    /// # Errors
    /// The message is of no use. Nothing is added.
    pub fn add_page(
        &mut self,
        message: &[u8],
        id: &[u8],
        may_use: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Box<[u8]>>, ServerMessageError> {
        let before = self.items.len();
        let mut page = Page {
            message,
            id,
            may_use,
            prefix: &self.prefix,
            items: &mut self.items,
            name: None,
            cursor: Cursor::None,
            has_items: false,
            is_ours: false,
            has_method: false,
            has_result: false,
            has_error: false,
        };
        let root = if self.kind == ListKind::Tools { &TOOLS } else { &PROMPTS };
        let mut scanner = Scanner::new(root, Duplicates::Refuse);
        let scanned = scanner.push(message, &mut page).and_then(|()| scanner.finish(&mut page));
        let next = scanned.map_err(ServerMessageError::Json).and_then(|()| page.next());
        if next.is_err() {
            self.items.truncate(before);
        }
        next
    }

    /// Bytes of the items.
    pub fn bytes(&self) -> usize {
        self.items.len()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.items.capacity()
    }
}

/// The cursor of a page.
enum Cursor {
    None,
    Next(Box<[u8]>),
    Bad,
}

/// One page while it is read.
struct Page<'a> {
    message: &'a [u8],
    /// That of the request.
    id: &'a [u8],
    may_use: &'a dyn Fn(&str) -> bool,
    prefix: &'a str,
    items: &'a mut Vec<u8>,
    /// Where the name of the present item stands, if it may be used.
    name: Option<Range<usize>>,
    cursor: Cursor,
    has_items: bool,
    /// The id is that of the request.
    is_ours: bool,
    has_method: bool,
    has_result: bool,
    has_error: bool,
}

impl Page<'_> {
    fn next(self) -> Result<Option<Box<[u8]>>, ServerMessageError> {
        if !self.is_ours || self.has_method || self.has_result == self.has_error {
            return Err(ServerMessageError::Other);
        }
        match (self.has_error, self.has_items, self.cursor) {
            (true, ..) => Err(ServerMessageError::Error),
            (_, false, _) | (_, _, Cursor::Bad) => Err(ServerMessageError::Form),
            (_, _, Cursor::Next(cursor)) => Ok(Some(cursor)),
            (_, _, Cursor::None) => Ok(None),
        }
    }

    /// Adds an item whose name stands here.
    fn add(&mut self, item: Range<usize>, name: Range<usize>) {
        if !self.items.is_empty() {
            self.items.push(b',');
        }
        // Behind the quote.
        let at = name.start + 1;
        self.items.extend_from_slice(&self.message[item.start..at]);
        self.items.extend_from_slice(self.prefix.as_bytes());
        self.items.extend_from_slice(&self.message[at..item.end]);
    }
}

impl Sink<Place> for Page<'_> {
    fn value(&mut self, value: Value<'_, Place>) {
        let range = value.start as usize..value.end as usize;
        match value.path {
            Place::Name => {
                let most = NAME_BYTES_MAX - self.prefix.len().min(NAME_BYTES_MAX);
                let name = value.string().and_then(|raw| decode::text(raw, most).ok());
                self.name = name.filter(|name| (self.may_use)(name)).map(|_| range);
            }
            Place::Item => {
                if let Some(name) = self.name.take().filter(|_| value.kind == Kind::Object) {
                    self.add(range, name);
                }
            }
            Place::Items => self.has_items = value.kind == Kind::Array,
            Place::Cursor => {
                self.cursor = match (value.kind, value.text) {
                    (Kind::Null, _) => Cursor::None,
                    (Kind::String { .. }, Some(text)) => Cursor::Next(text.into()),
                    _ => Cursor::Bad,
                }
            }
            Place::Id => self.is_ours = value.text == Some(self.id),
            Place::Method => self.has_method = true,
            Place::Result => self.has_result = true,
            Place::Error => self.has_error = true,
        }
    }
}

/// The response to the request of this id: the items of these lists, one after the other.
pub fn joint_list<'a>(kind: ListKind, id: &[u8], lists: impl IntoIterator<Item = &'a PrefixedList>) -> Vec<u8> {
    let mut out = Vec::new();
    begin_response(id, &mut out);
    out.push(b'{');
    string(&mut out, kind.member());
    out.extend_from_slice(b":[");
    let mut is_first = true;
    for list in lists.into_iter().filter(|list| !list.items.is_empty()) {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        out.extend_from_slice(&list.items);
    }
    out.extend_from_slice(b"]}}");
    out
}
