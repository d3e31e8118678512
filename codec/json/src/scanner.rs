//! The scan of a text in pieces.

use crate::decode;
use crate::error::{JsonError, Rule};
use crate::limits::{DEPTH_MAX, KEY_BYTES_MAX, KEY_RAW_BYTES_MAX, LEVELS_MAX, VALUE_BYTES_MAX};
use crate::path::Node;
use crate::{number, string};

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String {
        /// It has a backslash: its text is not its value.
        has_escapes: bool,
    },
    /// A number, as text.
    Number,
    /// `true`
    True,
    /// `false`
    False,
    /// `null`
    Null,
}

/// A value at a watched place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a, P> {
    /// The place.
    pub path: P,
    /// The kind.
    pub kind: Kind,
    /// Where it begins in the text, a string with its quote.
    pub start: u64,
    /// Behind its last byte, a string with its quote.
    pub end: u64,
    /// The raw bytes of a string or a number of up to [`VALUE_BYTES_MAX`] bytes, a string with its quotes.
    pub text: Option<&'a [u8]>,
    /// Members of an object, items of an array.
    pub count: u64,
}

impl<'a, P> Value<'a, P> {
    /// The raw text of a string without its quotes.
    pub fn string(&self) -> Option<&'a [u8]> {
        match (self.kind, self.text) {
            (Kind::String { .. }, Some([b'"', text @ .., b'"'])) => Some(text),
            _ => None,
        }
    }

    /// The text of a number.
    pub fn number(&self) -> Option<&'a [u8]> {
        self.text.filter(|_| self.kind == Kind::Number)
    }

    /// Bytes of the value.
    pub const fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// Receives the values at watched places, in the order in which they end.
pub trait Sink<P> {
    /// An object or array begins at a watched place. [`value`](Self::value) reports it, too, at its end.
    fn begin(&mut self, path: P, kind: Kind, start: u64) {
        let _ = (path, kind, start);
    }

    /// A value has ended.
    fn value(&mut self, value: Value<'_, P>);
}

/// The treatment of a watched member that occurs twice in its object, or beside one that some readers take for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// The text is invalid, also if a key differs from a watched one in case alone.
    Refuse,
    /// Each is reported: the caller takes the last, as most readers do.
    Report,
}

/// The token that may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Value,
    /// A value, or the end of an empty array.
    FirstItem,
    /// A key, or the end of an empty object.
    FirstKey,
    Key,
    Colon,
    /// A comma, or the end of the container.
    Next,
    /// White space.
    End,
}

/// A token that a piece may cut.
#[derive(Clone, Copy, Debug)]
enum Token {
    None,
    Key(string::Progress),
    String(string::Progress),
    Number(number::State),
    /// A word, and the rest of it.
    Word(Kind, &'static [u8]),
}

/// An open container at a watched place.
#[derive(Clone, Copy, Debug)]
struct Frame<P: 'static> {
    node: &'static Node<P>,
    /// Where it begins.
    start: u64,
    /// Members or items that have begun.
    count: u64,
    /// Watched members that have been seen, by their position in the node.
    seen: u64,
}

/// Scans one text. It allocates only for the beginning of a watched key or value that a piece cuts.
#[derive(Clone, Debug)]
pub struct Scanner<P: 'static> {
    root: &'static Node<P>,
    duplicates: Duplicates,
    /// Bytes in front of the present piece.
    offset: u64,
    expect: Expect,
    token: Token,
    /// Where the present token begins.
    token_start: u64,
    /// The text of the present token is needed, up to so many bytes.
    token_bytes_max: usize,
    /// The beginning of such a token in earlier pieces.
    held: Vec<u8>,
    /// Open containers.
    depth: usize,
    /// A bit for each: whether it is an object. The innermost is the lowest.
    objects: u128,
    /// Containers at watched places, from the outermost: the first of all that are open.
    frames: [Frame<P>; LEVELS_MAX],
    watched: usize,
    /// The place of the present member, or of the present value.
    place: Option<&'static Node<P>>,
}

impl<P: Copy> Scanner<P> {
    /// At the beginning of a text.
    pub fn new(root: &'static Node<P>, duplicates: Duplicates) -> Self {
        Self {
            root,
            duplicates,
            offset: 0,
            expect: Expect::Value,
            token: Token::None,
            token_start: 0,
            token_bytes_max: 0,
            held: Vec::new(),
            depth: 0,
            objects: 0,
            frames: [Frame { node: root, start: 0, count: 0, seen: 0 }; LEVELS_MAX],
            watched: 0,
            place: None,
        }
    }

    /// In front of a key of the outermost object, whose beginning the caller has not: see [`MemberScan`](crate::MemberScan).
    pub(crate) fn within_object(root: &'static Node<P>) -> Self {
        let at_start = Self::new(root, Duplicates::Report);
        Self { expect: Expect::Key, depth: 1, objects: 1, watched: 1, ..at_start }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// The text breaks a rule. The scanner is of no more use. Wherever the text is cut, the error is the same.
    pub fn push(&mut self, piece: &[u8], sink: &mut impl Sink<P>) -> Result<(), JsonError> {
        let mut at = self.resume(piece, sink)?;
        loop {
            if self.watched != self.depth {
                at = self.pass_over(piece, at);
            }
            let Some(&byte) = piece.get(at) else { break };
            at = match byte {
                b' ' | b'\t' | b'\n' | b'\r' => at + 1,
                b'"' => self.begin_string(piece, at, sink)?,
                b':' if self.expect == Expect::Colon => {
                    self.expect = Expect::Value;
                    at + 1
                }
                b',' if self.expect == Expect::Next => {
                    self.expect = if self.objects & 1 == 1 { Expect::Key } else { Expect::Value };
                    at + 1
                }
                b'{' | b'[' => self.open(byte, at, sink)?,
                b'}' | b']' => self.close(byte, at, sink)?,
                _ => self.begin_scalar(byte, piece, at, sink)?,
            };
        }
        self.offset += piece.len() as u64;
        Ok(())
    }

    /// The text has ended.
    ///
    /// # Errors
    /// The text is not whole.
    pub fn finish(&mut self, sink: &mut impl Sink<P>) -> Result<(), JsonError> {
        // Only a number needs to be followed by another byte.
        if let Token::Number(state) = self.token {
            if !state.is_whole() {
                return Err(self.error(Rule::End, 0));
            }
            self.token = Token::None;
            self.end_scalar(Kind::Number, &[], 0, sink);
        }
        if self.is_done() { Ok(()) } else { Err(self.error(Rule::End, 0)) }
    }

    /// The outermost value has ended. Only white space may follow. A number ends with the text.
    pub fn is_done(&self) -> bool {
        self.expect == Expect::End && matches!(self.token, Token::None)
    }

    /// Bytes of the text that [`push`](Self::push) has taken.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn error(&self, rule: Rule, at: usize) -> JsonError {
        JsonError { rule, offset: self.offset + at as u64 }
    }

    /// Passes over strings and containers at places that no path names, whose grammar alone counts, from `at` on. Where it stops: mistakes,
    /// numbers, words and what the piece cuts are the caller's, as is all behind the end of the outermost of these containers.
    fn pass_over(&mut self, piece: &[u8], mut at: usize) -> usize {
        let Self { mut expect, mut depth, mut objects, watched, .. } = *self;
        while depth != watched
            && let Some(&byte) = piece.get(at)
        {
            let is_object = objects & 1 == 1;
            (expect, at) = match (byte, expect) {
                (b'"', Expect::Key | Expect::FirstKey | Expect::Value | Expect::FirstItem) => {
                    let mut progress = string::Progress::BEGIN;
                    let Ok(Some(end)) = progress.scan(piece, at + 1) else { break };
                    match (expect, piece.get(end)) {
                        (Expect::Value | Expect::FirstItem, _) => (Expect::Next, end),
                        (_, Some(b':')) => (Expect::Value, end + 1),
                        _ => (Expect::Colon, end),
                    }
                }
                (b',', Expect::Next) => (if is_object { Expect::Key } else { Expect::Value }, at + 1),
                (b':', Expect::Colon) => (Expect::Value, at + 1),
                (b'{' | b'[', Expect::Value | Expect::FirstItem) if depth < DEPTH_MAX => {
                    (depth, objects) = (depth + 1, (objects << 1) | u128::from(byte == b'{'));
                    (if byte == b'{' { Expect::FirstKey } else { Expect::FirstItem }, at + 1)
                }
                (b'}', Expect::Next | Expect::FirstKey) if is_object => {
                    (depth, objects) = (depth - 1, objects >> 1);
                    (Expect::Next, at + 1)
                }
                (b']', Expect::Next | Expect::FirstItem) if !is_object => {
                    (depth, objects) = (depth - 1, objects >> 1);
                    (Expect::Next, at + 1)
                }
                (b' ' | b'\t' | b'\n' | b'\r', _) => (expect, at + 1),
                _ => break,
            };
        }
        (self.expect, self.depth, self.objects) = (expect, depth, objects);
        at
    }

    fn open(&mut self, byte: u8, at: usize, sink: &mut impl Sink<P>) -> Result<usize, JsonError> {
        self.begin_value(at)?;
        if self.depth == DEPTH_MAX {
            return Err(self.error(Rule::Depth, at));
        }
        let is_object = byte == b'{';
        if let Some(node) = self.place {
            let start = self.offset + at as u64;
            self.frames[self.watched] = Frame { node, start, count: 0, seen: 0 };
            self.watched += 1;
            if let Some(path) = node.id {
                sink.begin(path, if is_object { Kind::Object } else { Kind::Array }, start);
            }
        }
        self.depth += 1;
        self.objects = (self.objects << 1) | u128::from(is_object);
        self.expect = if is_object { Expect::FirstKey } else { Expect::FirstItem };
        Ok(at + 1)
    }

    fn close(&mut self, byte: u8, at: usize, sink: &mut impl Sink<P>) -> Result<usize, JsonError> {
        let is_object = self.objects & 1 == 1;
        let kind = match (byte, self.expect) {
            (b'}', Expect::Next) if is_object => Kind::Object,
            (b']', Expect::Next) if !is_object => Kind::Array,
            (b'}', Expect::FirstKey) => Kind::Object,
            (b']', Expect::FirstItem) => Kind::Array,
            _ => return Err(self.error(Rule::Syntax, at)),
        };
        if self.watched == self.depth {
            self.watched -= 1;
            let Frame { node, start, count, .. } = self.frames[self.watched];
            if let Some(path) = node.id {
                sink.value(Value { path, kind, start, end: self.offset + at as u64 + 1, text: None, count });
            }
        }
        self.depth -= 1;
        self.objects >>= 1;
        self.end_value();
        Ok(at + 1)
    }

    /// Finds the place of the value that begins here.
    #[inline]
    fn begin_value(&mut self, at: usize) -> Result<(), JsonError> {
        if !matches!(self.expect, Expect::Value | Expect::FirstItem) {
            return Err(self.error(Rule::Syntax, at));
        }
        if self.watched != self.depth {
            self.place = None;
            return Ok(());
        }
        match self.watched.checked_sub(1) {
            None => self.place = Some(self.root),
            Some(last) => {
                let frame = &mut self.frames[last];
                frame.count += 1;
                if self.objects & 1 == 0 {
                    self.place = frame.node.items;
                }
            }
        }
        Ok(())
    }

    fn end_value(&mut self) {
        self.expect = if self.depth == 0 { Expect::End } else { Expect::Next };
    }

    fn begin_string(&mut self, piece: &[u8], at: usize, sink: &mut impl Sink<P>) -> Result<usize, JsonError> {
        let is_key = matches!(self.expect, Expect::Key | Expect::FirstKey);
        if is_key {
            self.token_bytes_max = if self.watched == self.depth { KEY_RAW_BYTES_MAX } else { 0 };
        } else {
            self.begin_value(at)?;
            self.token_bytes_max = self.value_bytes_max();
        }
        self.token_start = self.offset + at as u64;
        self.string(is_key, string::Progress::BEGIN, piece, at + 1, sink)
    }

    /// Follows a string from `at`. Where it ends in the piece, or the end of the piece.
    fn string(
        &mut self,
        is_key: bool,
        mut progress: string::Progress,
        piece: &[u8],
        at: usize,
        sink: &mut impl Sink<P>,
    ) -> Result<usize, JsonError> {
        let scanned = progress.scan(piece, at).map_err(|(rule, at)| self.error(rule, at))?;
        let has_escapes = progress.has_escapes;
        match scanned {
            Some(end) if is_key => self.end_key(has_escapes, piece, end)?,
            Some(end) => self.end_scalar(Kind::String { has_escapes }, piece, end, sink),
            None => self.hold(if is_key { Token::Key(progress) } else { Token::String(progress) }, piece),
        }
        Ok(scanned.unwrap_or(piece.len()))
    }

    /// The first byte of a number or a word; any other is a mistake.
    fn begin_scalar(&mut self, byte: u8, piece: &[u8], at: usize, sink: &mut impl Sink<P>) -> Result<usize, JsonError> {
        self.begin_value(at)?;
        self.token_start = self.offset + at as u64;
        self.token_bytes_max = self.value_bytes_max();
        let (kind, rest): (Kind, &'static [u8]) = match byte {
            b'-' | b'0'..=b'9' => return self.number(number::State::begin(byte), piece, at + 1, sink),
            b't' => (Kind::True, b"rue"),
            b'f' => (Kind::False, b"alse"),
            b'n' => (Kind::Null, b"ull"),
            _ => return Err(self.error(Rule::Syntax, at)),
        };
        self.word(kind, rest, piece, at + 1, sink)
    }

    /// Follows a number from `at`, as [`string`](Self::string) does.
    fn number(
        &mut self,
        mut state: number::State,
        piece: &[u8],
        at: usize,
        sink: &mut impl Sink<P>,
    ) -> Result<usize, JsonError> {
        let mut end = at;
        while let Some(next) = piece.get(end).and_then(|&byte| state.step(byte)) {
            state = next;
            end += 1;
        }
        if end == piece.len() {
            self.hold(Token::Number(state), piece);
        } else if state.is_whole() {
            self.end_scalar(Kind::Number, piece, end, sink);
        } else {
            return Err(self.error(Rule::Number, end));
        }
        Ok(end)
    }

    /// Follows a word of which `rest` is to come, as [`string`](Self::string) does.
    fn word(
        &mut self,
        kind: Kind,
        rest: &'static [u8],
        piece: &[u8],
        at: usize,
        sink: &mut impl Sink<P>,
    ) -> Result<usize, JsonError> {
        let here = rest.len().min(piece.len() - at);
        if let Some(wrong) = (0..here).find(|&index| rest[index] != piece[at + index]) {
            return Err(self.error(Rule::Syntax, at + wrong));
        }
        match &rest[here..] {
            [] => self.end_scalar(kind, piece, at + here, sink),
            rest => self.hold(Token::Word(kind, rest), piece),
        }
        Ok(at + here)
    }

    /// Follows the token that the last piece has cut.
    fn resume(&mut self, piece: &[u8], sink: &mut impl Sink<P>) -> Result<usize, JsonError> {
        match std::mem::replace(&mut self.token, Token::None) {
            Token::None => Ok(0),
            Token::Key(progress) => self.string(true, progress, piece, 0, sink),
            Token::String(progress) => self.string(false, progress, piece, 0, sink),
            Token::Number(state) => self.number(state, piece, 0, sink),
            Token::Word(kind, rest) => self.word(kind, rest, piece, 0, sink),
        }
    }

    /// Bytes of the present value whose text is reported.
    fn value_bytes_max(&self) -> usize {
        match self.place {
            Some(Node { id: Some(_), .. }) => VALUE_BYTES_MAX,
            _ => 0,
        }
    }

    fn end_scalar(&mut self, kind: Kind, piece: &[u8], end: usize, sink: &mut impl Sink<P>) {
        if let Some(Node { id: Some(path), .. }) = self.place {
            let (path, start) = (*path, self.token_start);
            let end_offset = self.offset + end as u64;
            let text = match kind {
                Kind::String { .. } | Kind::Number => self.text(piece, end),
                _ => None,
            };
            sink.value(Value { path, kind, start, end: end_offset, text, count: 0 });
        }
        self.end_value();
    }

    /// Finds the place of the member whose key has ended.
    fn end_key(&mut self, has_escapes: bool, piece: &[u8], end: usize) -> Result<(), JsonError> {
        self.expect = Expect::Colon;
        if self.watched != self.depth {
            return Ok(());
        }
        let node = self.frames[self.watched - 1].node;
        let is_strict = self.duplicates == Duplicates::Refuse;
        // Filled for keys with escapes alone, which are rare.
        let mut buffer;
        let key = match self.text(piece, end) {
            Some([b'"', key @ .., b'"']) if has_escapes => {
                buffer = [0; KEY_BYTES_MAX];
                decode::into_slice(key, &mut buffer)
            }
            Some([b'"', key @ .., b'"']) => Some(key),
            // Longer than any watched key.
            _ => None,
        };
        let found = key.and_then(|key| node.position(key));
        let is_alike = is_strict && found.is_none() && key.is_some_and(|key| node.has_key_like(key));
        self.place = found.map(|index| &node.members[index].1);
        let offset = self.token_start;
        if is_alike {
            return Err(JsonError { rule: Rule::Case, offset });
        }
        if let Some(index) = found {
            let seen = &mut self.frames[self.watched - 1].seen;
            if is_strict && (*seen >> index) & 1 == 1 {
                return Err(JsonError { rule: Rule::Duplicate, offset });
            }
            *seen |= 1 << index;
        }
        Ok(())
    }

    /// The text of the present token, which ends in the piece. `None`: it is not needed, or too long.
    fn text<'a>(&'a mut self, piece: &'a [u8], end: usize) -> Option<&'a [u8]> {
        let bytes = self.offset + end as u64 - self.token_start;
        if bytes > self.token_bytes_max as u64 {
            return None;
        }
        match self.token_start.checked_sub(self.offset) {
            Some(start) => Some(&piece[start as usize..end]),
            None => {
                self.held.extend_from_slice(&piece[..end]);
                Some(&self.held)
            }
        }
    }

    /// The piece ends within a token. Its text is held while it may still be needed.
    fn hold(&mut self, token: Token, piece: &[u8]) {
        self.token = token;
        let start = match self.token_start.checked_sub(self.offset) {
            Some(start) => {
                self.held.clear();
                start as usize
            }
            None => 0,
        };
        let part = &piece[start..];
        if self.held.len() + part.len() <= self.token_bytes_max {
            self.held.extend_from_slice(part);
        } else {
            // Further bytes make it no shorter: it is too long, and `text` finds so by its bounds.
            self.held.clear();
        }
    }
}
