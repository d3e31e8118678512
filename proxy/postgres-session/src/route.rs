//! Which server a statement may have: the primary, or a standby.
//!
//! The unit of the decision is a Query, or a batch of the extended protocol up to its Sync. A unit that provably only reads may go to a standby.
//! The text shows that; functions that are not known to read only count as writes, and so does everything that is not there as a whole. A
//! server that a unit has got for reading serves further reading units, and is given back before anything else is sent.

use weir_analysis::postgres::{Class, Effect, Range, Statement, Verb, name, only_reads};
use weir_postgres_codec::{frame, frame::HEAD_BYTES, frame::Head, frontend, frontend::Kind, frontend::tag};

use crate::server::ServerState;
use crate::session::{Attachment, Next, Session};
use crate::statements::Meaning;
use crate::variables::{Value, Variables};

/// The parameter by which a session chooses.
const ROLE: &[u8] = b"weir.role";
/// The parameter that makes the blocks of a session read only.
const READ_ONLY: &[u8] = b"default_transaction_read_only";
/// The comment by which a statement chooses.
const HINT: &[u8] = b"weir:";

/// The servers that serve a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The primary; perhaps it writes.
    #[default]
    Write,
    /// The primary. It writes nothing that another session could see.
    Neutral,
    /// A standby that has all that the client has written, or the primary.
    Read,
    /// A standby, as the client requests, whatever it has written, or the primary: it only reads, and leaves nothing at its server.
    ReadStandby,
    /// A standby and nothing else, as the client requests: perhaps it writes, or keeps its server for what comes next.
    Standby,
}

/// Facts of a session that decide about its next server.
#[derive(Debug, Default)]
pub(crate) struct Route {
    /// The unit for which the session has its server.
    access: Access,
    /// Only units that read may follow on this server.
    pub(crate) is_bounded: bool,
    /// A unit that perhaps writes has gone to the primary.
    has_written: bool,
    /// A server has refused a statement because it only reads.
    pub(crate) saw_read_only: bool,
}

impl Session {
    /// A server has refused a statement with SQLSTATE 25006 since the last call: perhaps it is a standby.
    pub fn has_seen_read_only(&mut self) -> bool {
        std::mem::take(&mut self.route.saw_read_only)
    }

    /// The client has perhaps written since the last call.
    pub fn has_written(&mut self) -> bool {
        std::mem::take(&mut self.route.has_written)
    }

    /// The access of the unit that begins with the next message, which needs a server.
    pub(crate) fn choose_access(&mut self, head: Head, rest: &[u8]) -> Access {
        let access = match self.settings.splits_reads {
            true => self.access_of(head, rest, None),
            false => Access::Write,
        };
        self.note_access(access);
        access
    }

    fn note_access(&mut self, access: Access) {
        self.route.access = access;
        self.route.is_bounded = matches!(access, Access::Read | Access::ReadStandby | Access::Neutral);
        self.route.has_written |= access == Access::Write;
    }

    /// The next action, if the next unit may not follow on the server that the session has for reading.
    pub(crate) fn outgrows(&mut self, head: Head, rest: &[u8], server: &ServerState) -> Option<Next> {
        let is_unit = matches!(
            head.tag,
            tag::QUERY | tag::PARSE | tag::BIND | tag::DESCRIBE | tag::EXECUTE | tag::CLOSE | tag::FUNCTION_CALL
        );
        if !is_unit || self.attachment != Attachment::Used || server.queue.needs_sync() {
            return None;
        }
        let is_whole = rest.len() >= head.whole() || head.body > self.settings.message_bytes;
        if head.tag == tag::QUERY && !is_whole {
            return None;
        }
        let access = self.access_of(head, rest, Some(server));
        if access == Access::Read || access == self.route.access && access != Access::Neutral {
            return None;
        }
        // The replies say whether a block is open; the last one gives the server back if none is.
        if !server.queue.is_quiet() {
            return Some(Next::Wait);
        }
        // A block, or state of the session, keeps this server.
        self.route.has_written = true;
        None
    }

    fn access_of(&self, head: Head, rest: &[u8], server: Option<&ServerState>) -> Access {
        let variables: &Variables = server.map_or(&self.variables, |server| server.variables.now());
        let mut unit = Unit { reads_only: is_on(variables.get(READ_ONLY)), ..Unit::default() };
        let is_read = self.read_unit(head, rest, &mut unit).is_some();
        let role_hint = unit.role_hint.or_else(|| match variables.get(ROLE)? {
            Value::Literal(text) => role_hint(text),
            Value::Expression(text) | Value::Config(text) => role_hint(unquoted(text)),
        });
        match (role_hint, is_read) {
            (Some(RoleHint::Standby), true) if !unit.keeps_server => Access::ReadStandby,
            (Some(RoleHint::Standby), _) => Access::Standby,
            (Some(RoleHint::Primary), true) => Access::Neutral,
            (_, true) if unit.is_neutral => Access::Neutral,
            (_, true) => Access::Read,
            (_, false) => Access::Write,
        }
    }

    /// Looks at each message of the unit. `None`: it perhaps writes, or is not there as a whole.
    fn read_unit<'r>(&self, head: Head, rest: &'r [u8], unit: &mut Unit<'r>) -> Option<()> {
        if head.body > self.settings.message_bytes {
            return None;
        }
        if head.tag == tag::QUERY {
            let body = rest.get(HEAD_BYTES..head.whole())?;
            return self.read_text(frontend::Query::read(body).ok()?.text, unit);
        }
        let mut rest = rest;
        for _ in 0..UNIT_MESSAGES_MAX {
            let head = frame::head(rest).ok()??;
            let body = rest.get(HEAD_BYTES..head.whole())?;
            match head.tag {
                tag::PARSE => {
                    let parse = frontend::Parse::read(body).ok()?;
                    self.read_text(parse.text, unit)?;
                    unit.parsed.push(parse.name);
                }
                tag::BIND => self.read_named(frontend::Bind::read(body).ok()?.statement, unit)?,
                tag::DESCRIBE => {
                    let describe = frontend::Describe::read(body).ok()?;
                    if describe.kind == Kind::Statement {
                        self.read_named(describe.name, unit)?;
                    }
                }
                tag::EXECUTE | tag::CLOSE | tag::FLUSH => {}
                // Execute runs what the unit binds: a portal of an earlier unit is gone.
                tag::SYNC => return unit.has_text.then_some(()),
                _ => return None,
            }
            rest = &rest[head.whole()..];
        }
        None
    }

    /// The statement of a Bind.
    fn read_named<'r>(&self, name: &[u8], unit: &mut Unit<'r>) -> Option<()> {
        if unit.parsed.contains(&name) {
            return Some(());
        }
        let statement = match name {
            b"" => self.unnamed.as_ref()?,
            _ => match &self.names.get(name)?.meaning {
                Meaning::Protocol(statement) => statement,
                Meaning::Sql(_) => return None,
            },
        };
        let text = statement.rest();
        self.read_text(&text[..memchr::memchr(0, text).unwrap_or(text.len())], unit)
    }

    fn read_text(&self, text: &[u8], unit: &mut Unit<'_>) -> Option<()> {
        if self.is_unreadable(text) {
            return None;
        }
        let analysis = self.share.analysis(text);
        for comment in [analysis.leading_comment, analysis.trailing_comment].into_iter().flatten() {
            unit.role_hint = hint(comment.of(text)).or(unit.role_hint);
        }
        if !analysis.is_whole || analysis.statements.is_empty() {
            return None;
        }
        unit.has_text = true;
        unit.keeps_server |= !analysis.statements.iter().all(leaves_nothing);
        let all = |is: fn(&Statement, &[u8], bool) -> bool| {
            analysis.statements.iter().all(|statement| is(statement, text, unit.reads_only))
        };
        if all(may_go_to_standby) {
            return Some(());
        }
        unit.is_neutral = true;
        all(is_neutral).then_some(())
    }
}

/// Messages of a unit that are looked at. Longer ones go to the primary.
const UNIT_MESSAGES_MAX: usize = 256;

/// Facts of a unit.
#[derive(Default)]
struct Unit<'r> {
    /// Names of the statements that it prepares.
    parsed: Vec<&'r [u8]>,
    has_text: bool,
    /// The session's blocks only read.
    reads_only: bool,
    /// It writes nothing, and belongs to the primary.
    is_neutral: bool,
    /// A transaction, or state of the session, may keep its server.
    keeps_server: bool,
    role_hint: Option<RoleHint>,
}

/// The role of its server that a client names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoleHint {
    Primary,
    Standby,
    Auto,
}

fn role_hint(word: &[u8]) -> Option<RoleHint> {
    [
        (&b"primary"[..], RoleHint::Primary),
        (b"replica", RoleHint::Standby),
        (b"standby", RoleHint::Standby),
        (b"auto", RoleHint::Auto),
    ]
    .into_iter()
    .find_map(|(known, hint)| word.eq_ignore_ascii_case(known).then_some(hint))
}

/// The hint of a comment: `weir: role=primary`.
fn hint(comment: &[u8]) -> Option<RoleHint> {
    let words = comment.trim_ascii().strip_prefix(HINT)?;
    words
        .split(|byte| byte.is_ascii_whitespace() || *byte == b',')
        .find_map(|word| role_hint(word.strip_prefix(b"role=")?))
}

/// A string of SQL without its quotes.
fn unquoted(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    text.strip_prefix(b"'").and_then(|text| text.strip_suffix(b"'")).unwrap_or(text)
}

fn is_on(value: Option<&Value>) -> bool {
    let Some(Value::Literal(text)) = value else { return false };
    [&b"on"[..], b"true", b"yes", b"1"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// It provably only reads, or begins a block that does.
fn may_go_to_standby(statement: &Statement, text: &[u8], reads_only: bool) -> bool {
    match &statement.effects[..] {
        [] => {
            let is_query = match statement.class {
                Class::Read => statement.verb != Verb::Show,
                Class::Copy => true,
                _ => false,
            };
            let are_known = || statement.functions.iter().all(|function| is_known(text, *function));
            is_query && statement.is_read_only && (reads_only || are_known())
        }
        [Effect::Begin { read_only }] => *read_only == Some(true) || (reads_only && read_only.is_none()),
        [Effect::Commit { chain: false } | Effect::Rollback { chain: false }] => true,
        _ => false,
    }
}

/// It keeps no server: it begins nothing, and changes nothing of its session but settings, which are the client's wherever it is.
fn leaves_nothing(statement: &Statement) -> bool {
    let is_nothing =
        |effect: &Effect| matches!(effect, Effect::Set { .. } | Effect::Reset(_) | Effect::ResetAll | Effect::Create);
    statement.effects.iter().all(is_nothing)
}

/// It writes nothing outside of its session, and begins nothing.
fn is_neutral(statement: &Statement, text: &[u8], _: bool) -> bool {
    let begins = |effect: &Effect| matches!(effect, Effect::Begin { .. } | Effect::Commit { chain: true });
    statement.is_read_only
        && !statement.effects.iter().any(begins)
        && statement.functions.iter().all(|function| is_known(text, *function))
}

fn is_known(text: &[u8], function: Range) -> bool {
    let name = name(text, function);
    name.schema.as_deref().is_none_or(|schema| schema == b"pg_catalog") && only_reads(&name.object)
}
