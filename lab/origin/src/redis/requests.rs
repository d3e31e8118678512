//! From received bytes to answered commands.

use std::rc::Rc;

use weir_base::time::turn;
use weir_resp::{RequestParser, Step, encode};

use super::{
    connection::HIGH_WATER_BYTES,
    core::Core,
    dispatch::{self, Context},
    errors::{MESSAGE_TOO_LARGE, OUT_OF_MEMORY, Refusal},
    memory::Memory,
    reply::Reply,
    session::Session,
};
use crate::server::add;

/// Beside one message of data: the headers of its arguments, and commands pipelined behind it.
const OVERHEAD_BYTES: usize = 1024 * 1024;

/// Capacity kept from one unfinished command to the next.
const KEPT_BYTES_IDLE: usize = 16 * 1024;

/// Arguments whose slices stand on the stack.
const ARGS_INLINE: usize = 8;

/// How far the input was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All complete commands, or the connection is closing.
    Done,
    /// Commands remain, because enough is waiting to be sent: call [`Requests::resume`] when it has left.
    Congested,
}

/// The input side of one client: its parser and the bytes of a command that is not complete.
pub struct Requests {
    parser: RequestParser,
    kept: Vec<u8>,
    /// Bytes of `kept` on the account.
    charged: usize,
    memory: Rc<Memory>,
}

impl Requests {
    pub fn new(memory: Rc<Memory>) -> Self {
        Self { parser: RequestParser::new(), kept: Vec::new(), charged: 0, memory }
    }

    /// Executes the commands that `chunk` completes.
    pub fn execute(&mut self, chunk: &[u8], core: &Core, session: &mut Session, out: &mut Vec<u8>) -> Progress {
        if !self.kept.is_empty() {
            self.keep(chunk, core, session, out);
            return self.resume(core, session, out);
        }
        let (used, progress) = execute_commands(&mut self.parser, chunk, core, session, out);
        match &chunk[used..] {
            [] => self.parser.release(),
            rest => self.keep(rest, core, session, out),
        }
        progress
    }

    /// Goes on with the commands that are there already.
    pub fn resume(&mut self, core: &Core, session: &mut Session, out: &mut Vec<u8>) -> Progress {
        let (used, progress) = execute_commands(&mut self.parser, &self.kept, core, session, out);
        self.kept.drain(..used);
        if self.kept.is_empty() {
            self.parser.release();
            if self.kept.capacity() > KEPT_BYTES_IDLE {
                self.kept = Vec::new();
                self.charge();
            }
        }
        progress
    }

    /// Keeps bytes for the next call, unless the client has more than its share.
    fn keep(&mut self, bytes: &[u8], core: &Core, session: &mut Session, out: &mut Vec<u8>) {
        if session.is_closing {
            return;
        }
        let len = self.kept.len() + bytes.len();
        if len > core.settings.message_bytes_max + OVERHEAD_BYTES {
            return refuse(session, out, &MESSAGE_TOO_LARGE);
        }
        // A doubling of the capacity would add this much.
        if len > self.kept.capacity() && len > KEPT_BYTES_IDLE && !self.memory.has_room(len) {
            return refuse(session, out, &OUT_OF_MEMORY);
        }
        self.kept.extend_from_slice(bytes);
        self.charge();
    }

    fn charge(&mut self) {
        let bytes = self.kept.capacity();
        if bytes != self.charged {
            self.memory.adjust(self.charged, bytes);
            self.charged = bytes;
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.memory.credit(self.charged);
    }
}

/// The last words to a client that cannot be served any further.
fn refuse(session: &mut Session, out: &mut Vec<u8>, refusal: &Refusal) {
    encode::error(out, refusal.text());
    session.is_closing = true;
}

/// Executes complete commands at the front of `input`; gives the bytes they had.
fn execute_commands(
    parser: &mut RequestParser,
    input: &[u8],
    core: &Core,
    session: &mut Session,
    out: &mut Vec<u8>,
) -> (usize, Progress) {
    let mut context = Context { core, session, now: turn::now(), is_nested: false };
    let (mut at, mut requests) = (0, 0);
    let mut progress = Progress::Done;
    while at < input.len() && !context.session.is_closing {
        if out.len() >= HIGH_WATER_BYTES {
            progress = Progress::Congested;
            break;
        }
        let rest = &input[at..];
        match parser.parse(rest, &context.session.limits) {
            Ok(Step::Command { len, .. }) => {
                execute_command(parser, rest, &mut context, out);
                at += len;
                requests += 1;
            }
            Ok(Step::Skip { len }) => at += len,
            Ok(Step::Incomplete) => break,
            // The limits leave no command that is larger than what is kept, so this one is past any limit.
            Ok(Step::Streaming { .. }) => refuse(context.session, out, &MESSAGE_TOO_LARGE),
            Err(error) => {
                if let Some(text) = error.client_text() {
                    encode::error(out, text.as_bytes());
                }
                context.session.is_closing = true;
            }
        }
    }
    add(&core.stats.requests, requests);
    (at, progress)
}

#[inline]
fn execute_command(parser: &RequestParser, input: &[u8], context: &mut Context<'_>, out: &mut Vec<u8>) {
    let mut reply = Reply::new(out, context.core.settings.message_bytes_max, context.session.version.get());
    let count = parser.argc();
    if count > ARGS_INLINE {
        let args: Vec<&[u8]> = parser.args(input).collect();
        return dispatch::execute(context, &args, &mut reply);
    }
    let mut args: [&[u8]; ARGS_INLINE] = [&[]; ARGS_INLINE];
    for (index, arg) in args[..count].iter_mut().enumerate() {
        *arg = parser.arg(index, input);
    }
    dispatch::execute(context, &args[..count], &mut reply);
}
