//! Commands in a transaction that the gateway answers itself (ACL WHOAMI, CLIENT ID): a PING takes their place on the wire, and
//! when EXEC's reply comes to it, they are carried out and their replies take the place of its own. Where EXEC is not carried
//! out, neither are they.

use std::collections::VecDeque;

use weir_analysis::redis::{self, Args, Class, ClientCommand, Command, LocalCommand, Resolved};
use weir_resp::{RequestLimits, RequestParser, Step};

use crate::{
    access::is_acl,
    cluster,
    exec_reply::{ExecReply, Piece},
    io::Io,
    refusal,
    request::Request,
    state::{CommandStatus, State},
};

/// Sent in the place of such a command: a server accepts it from every client that it serves.
pub(crate) const PLACEHOLDER: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A command that is answered here.
#[derive(Debug)]
pub(crate) struct LocalReply {
    /// Its place among the commands of its transaction.
    pub(crate) place: u32,
    /// The command as an array of bulk strings.
    pub(crate) wire: Vec<u8>,
}

/// Those of an EXEC under way, in order.
#[derive(Debug)]
pub(crate) struct LocalReplies {
    exchange: u64,
    due: VecDeque<LocalReply>,
    reply: ExecReply,
    /// Bytes answered so far. From `pipeline_bytes` on the rest is refused: 10,000 times CLIENT LIST is one EXEC, and no client
    /// can be made to read between two elements of a reply.
    bytes: usize,
}

impl LocalReplies {
    pub(crate) fn new(exchange: u64, due: Vec<LocalReply>) -> Self {
        Self { exchange, due: due.into(), reply: ExecReply::default(), bytes: 0 }
    }

    pub(crate) fn exchange(&self) -> u64 {
        self.exchange
    }
}

impl State {
    /// The command is answered here, also in a transaction. The others that are answered here change how the client speaks
    /// or is served (HELLO, AUTH, CLIENT REPLY), which cannot be done in the middle of a reply.
    pub(crate) fn is_local_inside(&self, command: &Command, class: Class, io: &impl Io) -> bool {
        use ClientCommand::*;
        match class {
            Class::Local(LocalCommand::Client(client)) => {
                !matches!(client, Reply | Tracking | Caching | Unblock | Container | Capa | ImportSource)
            }
            Class::Local(local) => {
                use LocalCommand::*;
                matches!(local, AclWhoami | Readonly | Readwrite | Asking)
            }
            Class::Monitor => true,
            Class::Cluster => io.topology().is_some() && cluster::is_local(command),
            _ => self.users.is_some() && is_acl(command),
        }
    }

    /// A piece of the reply to `exchange` with the local replies in their places; `None` if it has none.
    #[cold]
    pub(crate) fn with_local_replies(&mut self, exchange: u64, mut bytes: &[u8], io: &impl Io) -> Option<Vec<u8>> {
        let mut replies = self.local_replies.take_if(|replies| replies.exchange == exchange)?;
        let mut out = Vec::with_capacity(bytes.len());
        while let Some(piece) = replies.reply.next(&mut bytes) {
            match piece {
                Piece::Inside { place, end, .. } if replies.due.front().is_some_and(|due| due.place == place) => {
                    if end.is_some()
                        && let Some(local) = replies.due.pop_front()
                    {
                        let has_room = (replies.bytes as u64) < self.settings.pipeline_bytes;
                        let reply = if has_room { self.execute_local(&local.wire, io) } else { too_much(io) };
                        replies.bytes += reply.len();
                        out.extend(reply);
                    }
                }
                Piece::Inside { bytes, .. } | Piece::Outside(bytes) => out.extend_from_slice(bytes),
            }
        }
        self.local_replies = Some(replies);
        Some(out)
    }

    /// Carries out a command of a transaction; its reply.
    fn execute_local(&mut self, wire: &[u8], io: &impl Io) -> Vec<u8> {
        let limits = RequestLimits {
            stream_bytes: self.settings.transaction_bytes_max.min(u32::MAX.into()) as u32,
            ..self.limits
        };
        let mut parser = RequestParser::new();
        // It was read once already.
        let Ok(Step::Command { len, .. }) = parser.parse(wire, &limits) else {
            return refusal::line(refusal::NOT_IN_MULTI);
        };
        let request = Request { parser: &parser, bytes: &wire[..len], is_inline: false };
        let Resolved::Known(command) = redis::resolve(request.text(0), request.arg(1)) else {
            return refusal::line(refusal::NOT_IN_MULTI);
        };
        let waiting = self.order.set_aside();
        // EXEC is not answered in full, so what is said now waits.
        let _: CommandStatus = match command.class {
            // The server decides about a number that the listener allows.
            Class::Local(LocalCommand::Select) => {
                let text = self.parse_db(request.text(1), io).err().unwrap_or(refusal::DB_RANGE);
                self.error(io, text)
            }
            Class::Local(local) => self.local_command(command, local, &request, io),
            Class::Monitor => self.error(io, refusal::MONITOR_IN_MULTI),
            Class::Cluster => self.cluster(command, &request, io),
            _ => self.acl(command, &request, io),
        };
        self.order.put_back(waiting)
    }
}

/// Instead of a reply: those before it were too long.
fn too_much(io: &impl Io) -> Vec<u8> {
    io.count_shed("transaction_size");
    refusal::line(refusal::TRANSACTION_FULL)
}
