//! Messages become requests, and requests replies, of every form on the wire.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_base::Time;
use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::compressed::{self, Compressed, Compressor, is_never_compressed};
use weir_mongodb_codec::legacy::{self, Query};
use weir_mongodb_codec::message::{self, Flags, Ids, Message};
use weir_mongodb_codec::{Header, OpCode};

use super::connection::HIGH_WATER_BYTES;
use super::dispatch::{self, Context, Fate};
use super::fail_point::Strike;
use super::failure::{Failure, code, is_state_change};
use super::hello;
use super::login::Conversation;
use super::request::Request;
use super::state::Core;
use crate::server::add;

/// How often a request that waits for a change looks for it. 10 ms: a hundredth of the shortest wait of drivers.
const LOOK: Duration = Duration::from_millis(10);

/// Where the flags of an OP_MSG are.
const FLAGS_AT: usize = 16;

/// The facts about a client.
#[derive(Debug)]
pub(super) struct Client {
    pub id: u64,
    /// The name of its application, by which fail points know it.
    pub application: Vec<u8>,
    /// Compressors that both sides know.
    pub compressors: Vec<Compressor>,
    /// It has come through a load balancer: cursors and transactions stay on its connection.
    pub is_load_balanced: bool,
    /// The user who has logged in.
    pub user: Option<Vec<u8>>,
    pub conversation: Option<Conversation>,
}

/// One client.
pub(super) struct Session {
    client: Client,
    /// The request that has no end yet. Those behind it wait.
    course: Option<(Vec<u8>, Turn)>,
    is_closing: bool,
}

/// A run of a request.
#[derive(Debug)]
struct Turn {
    form: Form,
    /// The message that the next reply names: the request, or the reply before.
    response_to: i32,
    /// When it runs.
    next: Time,
    /// It has waited, until this time at most.
    until: Option<Time>,
    /// The version of the topology in the reply before.
    seen: Option<u64>,
    /// The effect of the fail points on this run; `None`: they were not looked at.
    strike: Option<Strike>,
}

/// How a request came, and its reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Compressed(Compressor),
    /// OP_QUERY and OP_REPLY.
    Legacy,
}

/// Why a message is no request.
enum Unreadable {
    /// It breaks the protocol: the connection ends.
    Broken,
    /// The reply says why.
    Refused(Failure),
}

impl Session {
    pub fn new(core: &Core) -> Self {
        let client = Client {
            id: core.state.next_connection(),
            application: Vec::new(),
            compressors: Vec::new(),
            is_load_balanced: false,
            user: None,
            conversation: None,
        };
        Self { client, course: None, is_closing: false }
    }

    /// The connection ends once its replies have left.
    pub const fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// When the request under way runs again; `None`: there is none.
    pub fn due(&self) -> Option<Time> {
        self.course.as_ref().map(|(_, turn)| turn.next)
    }

    /// Responds to the messages that `input` begins with, until one has to wait or `out` is full. The result is their bytes.
    pub fn respond(&mut self, core: &Core, now: Time, input: &[u8], out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while !self.is_closing && self.course.is_none() && out.len() < HIGH_WATER_BYTES {
            let header = match Header::read(&input[used..]) {
                Ok(Some(header)) if header.bytes <= core.settings.message_bytes_max => header,
                Ok(None) => break,
                _ => {
                    self.is_closing = true;
                    break;
                }
            };
            let Some(message) = input.get(used..used + header.bytes) else { break };
            used += header.bytes;
            add(&core.stats.requests, 1);
            self.begin(core, now, &header, message, out);
        }
        used
    }

    /// Goes on with the request under way, if it is due. False: nothing was to do.
    pub fn go_on(&mut self, core: &Core, now: Time, out: &mut Vec<u8>) -> bool {
        if self.is_closing || self.due().is_none_or(|due| due > now) {
            return false;
        }
        let Some((message, turn)) = self.course.take() else { return false };
        self.run(core, now, &message, turn, out);
        true
    }

    /// The connection has ended, and with it all that is bound to it.
    pub fn leave(&self, core: &Core) {
        if self.client.is_load_balanced {
            let id = self.client.id;
            core.state.transactions().leave(id);
            let watchers = core.state.cursors().kill_all(|cursor| cursor.connection == Some(id));
            core.state.watchers.fetch_sub(watchers, Ordering::AcqRel);
        }
    }

    fn begin(&mut self, core: &Core, now: Time, header: &Header, message: &[u8], out: &mut Vec<u8>) {
        let turn = |form| Turn { form, response_to: header.request, next: now, until: None, seen: None, strike: None };
        match header.op_code {
            OpCode::Msg => self.run(core, now, message, turn(Form::Plain), out),
            OpCode::Query => self.run(core, now, message, turn(Form::Legacy), out),
            OpCode::Compressed => match self.inflate(message) {
                Some((inflated, form)) => {
                    core.state.counts.compressed.fetch_add(1, Ordering::Relaxed);
                    self.run(core, now, &inflated, turn(form), out);
                }
                None => self.is_closing = true,
            },
            OpCode::Reply | OpCode::Retired(_) => self.is_closing = true,
        }
    }

    /// The OP_MSG inside; `None`: it is broken, or its compressor was not agreed on.
    fn inflate(&self, message: &[u8]) -> Option<(Vec<u8>, Form)> {
        let compressed = Compressed::read(message).ok().filter(|compressed| compressed.op_code == OpCode::Msg)?;
        let compressor = compressed.compressor;
        if compressor != Compressor::Noop && !self.client.compressors.contains(&compressor) {
            return None;
        }
        let mut inflated = Vec::new();
        compressed.inflate(&mut inflated).ok()?;
        Some((inflated, Form::Compressed(compressor)))
    }

    fn run(&mut self, core: &Core, now: Time, message: &[u8], mut turn: Turn, out: &mut Vec<u8>) {
        let request = match read(message, turn.form) {
            Ok(request) => request,
            Err(Unreadable::Broken) => {
                self.is_closing = true;
                return;
            }
            Err(Unreadable::Refused(failure)) => {
                let ids = Ids { request: core.next_request(), response_to: turn.response_to };
                return write(out, turn.form, ids, true, |body| {
                    failure.write(body, &[]);
                    None
                });
            }
        };
        if turn.strike.is_none() {
            let strike = self.strike(core, &request);
            let block = strike.block;
            turn.strike = Some(strike);
            if let Some(block) = block {
                turn.next = now.saturating_add(block);
                self.course = Some((message.to_vec(), turn));
                return;
            }
        }
        if turn.strike.as_ref().is_some_and(|strike| strike.closes) {
            self.is_closing = true;
        } else if let Some(turn) = self.reply(core, now, &request, turn, out) {
            self.course = Some((message.to_vec(), turn));
        }
    }

    fn strike(&self, core: &Core, request: &Request<'_>) -> Strike {
        let state = &core.state;
        if !state.has_fail_point.load(Ordering::Acquire) || !dispatch::can_fail(request.command.name) {
            return Strike::default();
        }
        let mut points = state.fail_points();
        let strike = points.strike(request, &self.client.application);
        state.has_fail_point.store(points.is_set(), Ordering::Release);
        strike.unwrap_or_default()
    }

    /// Runs the command and writes its reply. The result is its next run, if there is one.
    fn reply(&mut self, core: &Core, now: Time, request: &Request<'_>, turn: Turn, out: &mut Vec<u8>) -> Option<Turn> {
        let ids = Ids { request: core.next_request(), response_to: turn.response_to };
        let form = match turn.form {
            Form::Compressed(_) if is_never_compressed(request.command.name) => Form::Plain,
            form => form,
        };
        let strike = turn.strike.unwrap_or_default();
        let mut at = Context {
            core,
            client: &mut self.client,
            request,
            now,
            until: turn.until,
            seen: turn.seen,
            is_repeated: false,
        };
        let start = out.len();
        let mut outcome = Ok(Fate::Done);
        write(out, form, ids, false, |body| {
            outcome = match &strike.failure {
                Some(failure) => Err(failure.clone()),
                None => dispatch::run(&mut at, &strike, body),
            };
            outcome.as_ref().ok().copied()
        });
        let seen = at.seen;
        if outcome.is_err() || request.is_silent() {
            out.truncate(start);
        }
        match outcome {
            Ok(Fate::More) if !request.is_silent() => {
                Some(Turn { form, response_to: ids.request, next: now, until: None, seen, strike: None })
            }
            Ok(Fate::Wait(until)) if !request.is_silent() => {
                out.truncate(start);
                let next = now.saturating_add(LOOK).min(until);
                Some(Turn { form, next, until: Some(until), seen, strike: Some(strike), ..turn })
            }
            Ok(_) => None,
            Err(failure) => {
                match strike.failure {
                    None => abort(core, request, &failure),
                    // As in MongoDB: monitors of clients that wait for another version look again.
                    Some(_) if is_state_change(failure.code) => drop(core.state.version.fetch_add(1, Ordering::AcqRel)),
                    Some(_) => {}
                }
                if !request.is_silent() {
                    write_failure(core, request, form, ids, &failure, out);
                }
                None
            }
        }
    }
}

/// A statement that fails ends its transaction, unless it was none of its statements.
fn abort(core: &Core, request: &Request<'_>, failure: &Failure) {
    let was_admitted =
        !matches!(failure.code, code::TRANSACTION_NUMBER_USED | code::TRANSACTION_TOO_OLD | code::INVALID_OPTIONS);
    let command = &request.command;
    if let (Some(session), Some(number)) = (command.session, command.txn_number)
        && was_admitted
        && request.is_in_transaction()
        && !request.is_end()
    {
        core.state.transactions().fail(session, number);
    }
}

fn write_failure(core: &Core, request: &Request<'_>, form: Form, ids: Ids, failure: &Failure, out: &mut Vec<u8>) {
    let labels = failure.labels.clone().unwrap_or_else(|| dispatch::labels(request, failure.code));
    write(out, form, ids, true, |body| {
        failure.write(body, &labels);
        if let Some(mark) = request.mark() {
            body.value("request", mark);
        }
        if is_state_change(failure.code) {
            hello::write_version(core, core.state.version.load(Ordering::Acquire), body);
        }
        dispatch::write_times(core, body);
        None
    });
}

fn read(message: &[u8], form: Form) -> Result<Request<'_>, Unreadable> {
    if form != Form::Legacy {
        let message = Message::read(message).map_err(|_| Unreadable::Broken)?;
        return Request::of_message(message).map_err(Unreadable::Refused);
    }
    let query = Query::read(message).map_err(|_| Unreadable::Broken)?;
    let database = query.database().ok_or_else(|| unsupported("query"))?;
    let request = Request::of_query(query.body, database).map_err(Unreadable::Refused)?;
    match request.command.name {
        b"hello" | b"isMaster" | b"ismaster" => Ok(request),
        _ => Err(unsupported(&request.name())),
    }
}

fn unsupported(name: &str) -> Unreadable {
    let text = format!("Unsupported OP_QUERY command: {name}. The client driver may require an upgrade.");
    Unreadable::Refused(Failure::new(code::UNSUPPORTED_OP_QUERY_COMMAND, text))
}

/// Appends a message with the body that `fields` writes. If its result is [`Fate::More`], the message says that another follows.
fn write(
    out: &mut Vec<u8>,
    form: Form,
    ids: Ids,
    is_error: bool,
    fields: impl FnOnce(&mut Writer<'_>) -> Option<Fate>,
) {
    match form {
        Form::Plain => write_plain(out, ids, fields),
        Form::Legacy => legacy::write_reply(out, ids, is_error, |body| {
            fields(body);
        }),
        Form::Compressed(compressor) => {
            let mut whole = Vec::new();
            write_plain(&mut whole, ids, fields);
            // It was written here, so it has the length that it says.
            let written = compressed::write(out, &whole, compressor);
            debug_assert_eq!(written, Ok(()));
        }
    }
}

fn write_plain(out: &mut Vec<u8>, ids: Ids, fields: impl FnOnce(&mut Writer<'_>) -> Option<Fate>) {
    let start = out.len();
    let mut fate = None;
    message::write(out, ids, Flags::empty(), |body| fate = fields(body));
    if fate == Some(Fate::More) {
        out[start + FLAGS_AT] |= Flags::MORE_TO_COME.bits() as u8;
    }
}
