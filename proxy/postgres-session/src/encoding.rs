//! The client encoding: whether a lexer may read the texts of a session.
//!
//! A server converts a text from the encoding of its client to its own before it reads it. Encodings that only clients may have (SJIS,
//! BIG5, GBK, UHC, GB18030, JOHAB, SHIFT_JIS_2004) have characters whose second byte is one of ASCII: `0x83 0x5C` is one character
//! of SJIS, and no backslash. A string then ends at another place than for a lexer of ASCII. So a text with a byte of 0x80 or above
//! is read only if the encoding is known to be one whose other characters have no byte of ASCII: those of `PG_VALID_BE_ENCODING` in
//! the server's `pg_wchar.h`. Otherwise it passes unread, as a text that is too large does.

use std::rc::Rc;

use weir_analysis::postgres::{Effect, Value as Wanted};
use weir_postgres_codec::frame::Head;

use crate::client::Turn;
use crate::facts::Facts;
use crate::io::Io;
use crate::outstanding::Request;
use crate::pin::PinReasons;
use crate::refusal::Refusal;
use crate::server::ServerState;
use crate::session::{Next, Session};
use crate::statements::{Meaning, Statement};
use crate::variables::{Value, Variables, assign, difference};

/// The parameter.
pub(crate) const ENCODING: &[u8] = b"client_encoding";

/// Names of encodings that can be read, as the server compares them: letters and digits in lower case. Sorted. From `encnames.c`.
const READABLE: [&[u8]; 64] = [
    b"abc",
    b"alt",
    b"euccn",
    b"eucjis2004",
    b"eucjp",
    b"euckr",
    b"euctw",
    b"iso88591",
    b"iso885910",
    b"iso885913",
    b"iso885914",
    b"iso885915",
    b"iso885916",
    b"iso88592",
    b"iso88593",
    b"iso88594",
    b"iso88595",
    b"iso88596",
    b"iso88597",
    b"iso88598",
    b"iso88599",
    b"koi8",
    b"koi8r",
    b"koi8u",
    b"latin1",
    b"latin10",
    b"latin2",
    b"latin3",
    b"latin4",
    b"latin5",
    b"latin6",
    b"latin7",
    b"latin8",
    b"latin9",
    b"muleinternal",
    b"sqlascii",
    b"tcvn",
    b"tcvn5712",
    b"unicode",
    b"utf8",
    b"vscii",
    b"win",
    b"win1250",
    b"win1251",
    b"win1252",
    b"win1253",
    b"win1254",
    b"win1255",
    b"win1256",
    b"win1257",
    b"win1258",
    b"win866",
    b"win874",
    b"windows1250",
    b"windows1251",
    b"windows1252",
    b"windows1253",
    b"windows1254",
    b"windows1255",
    b"windows1256",
    b"windows1257",
    b"windows1258",
    b"windows866",
    b"windows874",
];

/// Longest text of an encoding that is compared. Default 63: no name of a server is longer.
const NAME_BYTES_MAX: usize = 63;

/// The encoding of this name, with or without quotes, can be read.
fn is_readable(name: &[u8]) -> bool {
    let mut letters = [0; NAME_BYTES_MAX];
    if name.len() > NAME_BYTES_MAX || !name.is_ascii() {
        return false;
    }
    let mut count = 0;
    for byte in name.iter().filter(|byte| byte.is_ascii_alphanumeric()) {
        letters[count] = byte.to_ascii_lowercase();
        count += 1;
    }
    READABLE.binary_search_by(|known| (**known).cmp(&letters[..count])).is_ok()
}

/// The value of the parameter is an encoding that can be read.
fn is_readable_value(value: &Value) -> bool {
    let (Value::Literal(text) | Value::Expression(text) | Value::Config(text)) = value;
    is_readable(text)
}

/// These parameters leave the session with an encoding that can be read; without the parameter, the server's default is another's
/// business.
pub(crate) fn is_readable_in(variables: &Variables) -> bool {
    variables.get(ENCODING).is_none_or(is_readable_value)
}

/// The encoding of a server's session with these parameters can be read.
fn is_readable_at(server: &ServerState, variables: &Variables) -> bool {
    variables.get(ENCODING).map_or(server.variables.has_readable_default(), is_readable_value)
}

/// The Queries that make a server like `wanted`, in place of the one with the `whole` text, which ends with `names`; `None`: that one will do.
///
/// Values were read in an encoding that can be read. So they go out while the server has one: that of the client if it can be read,
/// else UTF-8.
pub(crate) fn parts(server: &ServerState, wanted: &Variables, whole: &[u8], names: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (is_now, will_be) = (is_readable_at(server, server.variables.now()), is_readable_at(server, wanted));
    if (is_now && will_be) || whole.is_ascii() {
        return None;
    }
    let set = |value: Option<&Value>| {
        let mut text = Vec::new();
        assign(&mut text, ENCODING, value);
        text
    };
    let utf8 = Value::Literal(b"UTF8"[..].into());
    let first = set(if will_be { wanted.get(ENCODING) } else { Some(&utf8) });
    let mut others = wanted.clone();
    match server.variables.now().get(ENCODING) {
        Some(value) => others.set(ENCODING, value.clone()),
        None => others.unset(ENCODING),
    }
    let mut second = difference(&server.variables, &others).text;
    second.extend_from_slice(names);
    let third = (!will_be).then(|| set(wanted.get(ENCODING)));
    Some([first, second].into_iter().chain(third).collect())
}

/// Facts about the encoding of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Encoding {
    /// It cannot be read, or a rollback may bring back one that cannot.
    is_unreadable: bool,
    /// An outstanding request may change it.
    is_unsure: bool,
    /// A prepared statement of session pooling, whose effects are not kept, may change it.
    has_setter: bool,
}

impl Encoding {
    /// A text with a byte of 0x80 or above is not read.
    pub(crate) fn is_doubtful(self) -> bool {
        self.is_unreadable || self.is_unsure
    }
}

/// The consequence of a text for the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    No,
    /// The reply says to what.
    Perhaps,
    /// To one that cannot be read.
    ToUnreadable,
}

impl Session {
    /// The parameters of the startup packet are known.
    pub(crate) fn note_first_encoding(&mut self) {
        self.encoding.is_unreadable = !is_readable_in(&self.variables);
    }

    /// A server comes, perhaps with a default that cannot be read. A message that was looked at before is looked at again.
    pub(crate) fn note_server_encoding(&mut self, server: &ServerState) {
        self.encoding.is_unsure = false;
        if server.variables.has_readable_default() || self.encoding.is_unreadable {
            return;
        }
        if self.variables.get(ENCODING).is_none() {
            self.encoding.is_unreadable = true;
            self.judged_at = None;
            self.awaiting_server = None;
        }
    }

    /// The server has reported a parameter.
    pub(crate) fn note_reported_encoding(&mut self, name: &[u8], value: &[u8]) {
        if name.eq_ignore_ascii_case(ENCODING) && !is_readable(value) {
            self.encoding.is_unreadable = true;
        }
    }

    /// Everything sent has its reply: the encoding of the server is known.
    pub(crate) fn settle_encoding(&mut self, server: &ServerState) {
        // These were looked at when they became the client's.
        if !self.encoding.is_doubtful() && Rc::ptr_eq(&self.variables, server.variables.now()) {
            return;
        }
        let is_readable = is_readable_at(server, server.variables.now());
        let is_idle = server.status == weir_postgres_codec::TransactionStatus::Idle;
        self.encoding.is_unsure = false;
        self.encoding.is_unreadable = !is_readable || (self.encoding.is_unreadable && !is_idle);
    }

    /// A text with these effects is about to go to the server.
    pub(crate) fn note_encoding_effects(&mut self, facts: &Facts, server: &ServerState) {
        match self.change_of(facts, server) {
            Change::No => {}
            Change::Perhaps => self.encoding.is_unsure = true,
            Change::ToUnreadable => self.encoding.is_unreadable = true,
        }
        // It keeps an encoding that no report shows if another one follows before ReadyForQuery.
        if self.encoding.is_unsure && facts.all().any(|effect| matches!(effect, Effect::Savepoint(_))) {
            self.encoding.is_unreadable = true;
        }
    }

    /// A request of unknown effects is about to go to the server.
    pub(crate) fn note_encoding_unsure(&mut self) {
        self.encoding.is_unsure = true;
    }

    /// The same for an Execute, whose effects are known or not.
    pub(crate) fn note_encoding_execute(&mut self, facts: Option<&Facts>, server: &ServerState) {
        if let Some(facts) = facts {
            self.note_encoding_effects(facts, server);
        }
        self.encoding.is_unsure |= self.encoding.has_setter || self.pin.reasons.contains(PinReasons::OPAQUE);
    }

    /// In session pooling the effects of texts are not followed. Rules need to know of those on the encoding.
    pub(crate) fn note_judged_encoding(&mut self, text: &[u8], is_parse: bool, server: &ServerState) {
        if self.judge.is_none() || self.is_multiplexed() {
            return;
        }
        let Some(facts) = self.share.facts_of_query(text).facts else { return };
        if is_parse {
            self.encoding.has_setter |= self.change_of(&facts, server) != Change::No;
        } else {
            self.note_encoding_effects(&facts, server);
        }
    }

    fn change_of(&self, facts: &Facts, server: &ServerState) -> Change {
        let resets = || {
            let is_safe = server.variables.has_readable_default() && is_readable_in(self.startup.parameters());
            if is_safe { Change::No } else { Change::ToUnreadable }
        };
        let is_meant = |name: &[u8]| name == ENCODING;
        let mut change = if facts.is_opaque { Change::Perhaps } else { Change::No };
        for effect in facts.all() {
            let of_effect = match effect {
                Effect::Set { name, value, .. } if is_meant(name) => match value {
                    Wanted::Sql(text) | Wanted::Config(text) if is_readable(text) => Change::No,
                    Wanted::Sql(_) | Wanted::Config(_) => Change::ToUnreadable,
                    Wanted::Default => resets(),
                    Wanted::Unknown => Change::Perhaps,
                },
                Effect::SetConfig { name, .. } if name.as_deref().is_none_or(is_meant) => Change::Perhaps,
                Effect::Reset(name) if is_meant(name) => resets(),
                Effect::ResetAll | Effect::DiscardAll => resets(),
                Effect::Execute { .. } | Effect::Opaque => Change::Perhaps,
                _ => Change::No,
            };
            match of_effect {
                Change::No => {}
                Change::Perhaps if change == Change::ToUnreadable => {}
                found => change = found,
            }
        }
        change
    }

    /// The text may mean something else than a lexer reads.
    #[inline]
    pub(crate) fn is_unreadable(&self, text: &[u8]) -> bool {
        self.encoding.is_doubtful() && !text.is_ascii()
    }

    /// The replies that are due can tell whether the text can be read.
    pub(crate) fn awaits_encoding(&self, server: &ServerState) -> bool {
        !self.encoding.is_unreadable && !server.queue.is_empty()
    }

    /// A Query or Parse whose text cannot be read: it waits for what decides about the encoding, or passes unread.
    #[cold]
    pub(crate) fn on_unreadable<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
        request: Request,
    ) -> Option<Next> {
        match server {
            Some(server) if self.awaits_encoding(server) => Some(self.wait_for_replies(turn, server)),
            server => self.pass_opaque(head, turn, server, request),
        }
    }

    /// A Bind or Describe of such a statement.
    pub(crate) fn on_other_encoding<I: Io>(
        &mut self,
        waits: bool,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) -> Option<Next> {
        if waits {
            return Some(self.wait_for_replies(turn, server));
        }
        self.refuse(&Refusal::OTHER_ENCODING, head, turn, Some(server));
        None
    }

    /// The server would have to prepare the statement of this name, which was read in another encoding: it may not get it in this one.
    /// `Some`: whether the replies that are due can still change that.
    pub(crate) fn is_of_other_encoding(&self, name: &[u8], server: &mut ServerState) -> Option<bool> {
        if !self.encoding.is_doubtful() {
            return None;
        }
        let lacks: &Statement = match name {
            b"" => {
                let wanted = self.unnamed.as_ref()?;
                let has = server.unnamed.as_ref();
                has.is_none_or(|has| !Rc::ptr_eq(has, wanted)).then_some(&**wanted)?
            }
            _ => match &self.names.get(name)?.meaning {
                Meaning::Protocol(statement) => {
                    let has = server.statements.use_number(statement);
                    has.is_none().then_some(&**statement)?
                }
                Meaning::Sql(_) => return None,
            },
        };
        (!lacks.text().is_ascii()).then(|| self.awaits_encoding(server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encodings_without_bytes_of_ascii_in_other_characters_are_read() {
        assert!(READABLE.is_sorted());
        for name in
            ["UTF8", "'utf-8'", "\"Latin1\"", "unicode", "EUC_JP", "SQL_ASCII", "WIN1252", "ISO-8859-1", "koi8-r"]
        {
            assert!(is_readable(name.as_bytes()), "{name}");
        }
        let unsafe_ones =
            ["SJIS", "Shift_JIS", "SHIFT_JIS_2004", "MSKANJI", "WIN932", "BIG5", "WIN950", "GBK", "WIN936"];
        for name in
            unsafe_ones.into_iter().chain(["UHC", "WIN949", "GB18030", "JOHAB", "", "E'\\x53JIS'", "utf8\u{e9}"])
        {
            assert!(!is_readable(name.as_bytes()), "{name}");
        }
    }
}
