//! Commands too large to hold: their bytes flow to a lane of the client's own while they arrive.

use weir_analysis::redis::{self, Args, Categories, Class, LocalCommand, Resolved};
use weir_resp::{ProtocolError, RequestParser};

use crate::{
    access::is_acl,
    io::{Io, Ticket},
    lane::LaneKey,
    pin::NoPin,
    pin_reason::PinReason,
    refusal,
    request::Request,
    spread::NoPlace,
    state::{Hold, State},
};

/// The reply to a large command that must be held whole to be understood (SUBSCRIBE with 10,000 channels, say).
const TOO_LARGE: &str = "ERR weir: command too large";

/// A large command before it flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingStream {
    /// So many bytes of the input belong to it.
    held: usize,
    reason: PinReason,
    pub(crate) key: LaneKey,
    /// Group of its keys. The shard of the group may change until it flows.
    group: Option<u16>,
    is_script: bool,
}

/// A command on its way through.
#[derive(Debug)]
pub(crate) enum Streaming {
    /// The beginning of the input belongs to it and waits for a lane.
    Waiting(PendingStream),
    /// The rest goes on as it comes.
    Flowing,
    /// It is refused: `held` bytes of the input belong to it, the rest is dropped as it comes, then the error is sent.
    Refused { held: usize, error: Vec<u8> },
}

impl State {
    /// Decides what becomes of a command of which only the beginning is here.
    pub(crate) fn begin_stream(&mut self, request: &Request<'_>, io: &impl Io) {
        let held = request.bytes.len();
        self.follow_primary(io);
        let streaming = match self.judge_stream(request, io) {
            Ok(waiting) => Streaming::Waiting(waiting),
            Err(error) => Streaming::Refused { held, error },
        };
        self.streaming = Some(Box::new(streaming));
        self.stream_again();
    }

    /// Why the command gets a lane of its own, and which; or the error it gets instead.
    fn judge_stream(&mut self, request: &Request<'_>, io: &impl Io) -> Result<PendingStream, Vec<u8>> {
        if self.transaction.is_some() {
            return Err(refusal::TRANSACTION_FULL.into());
        }
        let mut text = Vec::new();
        let command = match redis::resolve(request.text(0), request.arg(1)) {
            Resolved::Known(command) => command,
            Resolved::Unknown if self.forwards_unknown(request) => return self.judge_unknown_stream(request, io),
            Resolved::UnknownSubcommand(container) if self.forwards_unknown_subcommand(container, request) => {
                return self.judge_unknown_stream(request, io);
            }
            Resolved::UnknownSubcommand(container) => {
                redis::text::unknown_subcommand(&mut text, container, request.text(1));
                return Err(text);
            }
            Resolved::Unknown => {
                redis::text::unknown_command(&mut text, request);
                return Err(text);
            }
        };
        if !redis::check_arity(command, request.argc()) {
            redis::text::wrong_arity(&mut text, command);
            return Err(text);
        }
        if !self.is_authenticated {
            return Err(refusal::NO_AUTH.into());
        }
        // A subcommand that is not here is not known, so neither is what the command may do: servers compare names up to the
        // first NUL. ACL is the gateway's own where it has users.
        let is_unnamed = command.container && request.arg(1).is_none();
        let is_own = self.users.is_some() && (is_acl(command) || command.name == "acl");
        if is_unnamed || is_own {
            return Err(TOO_LARGE.into());
        }
        if let Some(error) = self.refuse_large(Some(command), request, io) {
            return Err(error);
        }
        let class = redis::treatment(command, request);
        if let Some(no) = self.forbids(command, class) {
            return Err(no.into());
        }
        // A command whose keys must be known is held whole, and this one does not fit.
        if self.must_know_keys(command) {
            return Err(TOO_LARGE.into());
        }
        let is_plain = match class {
            Class::Shared | Class::Local(LocalCommand::Ping | LocalCommand::Echo) => true,
            Class::Admin => self.settings.admin_commands,
            _ => false,
        };
        if !is_plain {
            return Err(TOO_LARGE.into());
        }
        let refused = |no: NoPlace| {
            no.count(command, io);
            no.text(command)
        };
        let (key, group) = self.lane_key_of_head(command, request, io).map_err(refused)?.ok_or(TOO_LARGE)?;
        io.count(Some(command), 1);
        let is_script = command.categories.contains(Categories::SCRIPTING);
        Ok(PendingStream { held: request.bytes.len(), reason: PinReason::Large, key, group, is_script })
    }

    fn judge_unknown_stream(&mut self, request: &Request<'_>, io: &impl Io) -> Result<PendingStream, Vec<u8>> {
        if let Some(error) = self.refuse_large(None, request, io) {
            return Err(error);
        }
        if self.tunnel.is_some() {
            return Err(TOO_LARGE.into());
        }
        io.count(None, 1);
        let (held, key) = (request.bytes.len(), self.key());
        Ok(PendingStream { held, reason: PinReason::Unknown, key, group: None, is_script: false })
    }

    /// Moves bytes of the command in flight; how many were taken. Zero: it waits for its lane.
    pub(crate) fn stream(
        &mut self,
        parser: &mut RequestParser,
        input: &[u8],
        io: &impl Io,
    ) -> Result<usize, ProtocolError> {
        match self.streaming.as_deref_mut() {
            Some(&mut Streaming::Waiting(waiting)) => Ok(self.start_flow(waiting, input, io)),
            Some(Streaming::Refused { held, .. }) if *held > 0 => Ok(std::mem::take(held)),
            _ => self.flow(parser, input, io),
        }
    }

    /// Sends the beginning of the command once nothing else is on its way: should the rest be wrong, the lane is lost
    /// with all that waits on it.
    fn start_flow(&mut self, waiting: PendingStream, input: &[u8], io: &impl Io) -> usize {
        let PendingStream { held, reason, group, is_script, .. } = waiting;
        if !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return 0;
        }
        // Large commands write.
        if self.is_paused(None, io) {
            return 0;
        }
        let key = self.key_of_now(waiting, io);
        if let Some(full) = io.full() {
            if !self.waits_in_vain() {
                return 0;
            }
            io.count_shed(full.name());
            return self.refuse_stream(held, full.text().into(), io);
        }
        if !self.is_below_knee(io) {
            io.count_shed(refusal::KNEE_REASON);
            return self.refuse_stream(held, refusal::KNEE.into(), io);
        }
        match self.request_pin(reason, key, io) {
            Ok(()) => {}
            Err(NoPin::Yet) => return 0,
            Err(NoPin::TooManyBlocked) => return self.refuse_stream(held, refusal::BLOCKED_CLIENTS.into(), io),
            Err(NoPin::Elsewhere) => return self.refuse_stream(held, refusal::PINNED_ELSEWHERE.into(), io),
            Err(NoPin::Refused(refusal)) => {
                io.count_shed(refusal.name());
                return self.refuse_stream(held, refusal::refused(refusal).into(), io);
            }
        }
        // The client chooses how long the upload takes; its own rate is watched instead.
        let ticket = Ticket { has_deadline: false, ..Ticket::new(self.order.next_number()) };
        io.forward_pinned(&input[..held], ticket);
        self.keep_bound(ticket, group, key.shard, io);
        if is_script {
            self.note_script(ticket.number);
        }
        self.order.sent();
        self.note_unseen(ticket.number, io);
        self.is_admitted = false;
        self.is_rated = false;
        self.streaming = Some(Box::new(Streaming::Flowing));
        held
    }

    /// A command for the primary goes to the present primary, and a command with keys to their present shard: a redirection of an
    /// earlier command may have changed the map.
    fn key_of_now(&mut self, PendingStream { key, group, .. }: PendingStream, io: &impl Io) -> LaneKey {
        let is_for_primary = key.shard == self.primary;
        self.follow_primary(io);
        // Nothing is under way: it is sent by the map of now.
        self.must_wait_for_cluster(io);
        let shard = match group.filter(|_| io.is_sharded()) {
            Some(group) => io.shard_of(group),
            None if is_for_primary => self.primary,
            None => key.shard,
        };
        let key = LaneKey { shard, ..key };
        if let Some(Streaming::Waiting(waiting)) = self.streaming.as_deref_mut() {
            waiting.key = key;
        }
        self.settle_pin(io);
        key
    }

    fn refuse_stream(&mut self, held: usize, error: Vec<u8>, io: &impl Io) -> usize {
        self.forget_wait(io);
        self.streaming = Some(Box::new(Streaming::Refused { held: 0, error }));
        self.unpark(io);
        self.settle_pin(io);
        held
    }

    fn flow(&mut self, parser: &mut RequestParser, input: &[u8], io: &impl Io) -> Result<usize, ProtocolError> {
        let relay = match parser.relay(input) {
            Ok(relay) => relay,
            Err(error) => {
                self.abandon_flow(io);
                return Err(error);
            }
        };
        if matches!(self.streaming.as_deref(), Some(Streaming::Flowing)) {
            io.write_pinned(&input[..relay.taken]);
        }
        if relay.done
            && let Some(streaming) = self.streaming.take()
        {
            match *streaming {
                Streaming::Refused { error, .. } => drop(self.reject_with(io, |out| out.extend_from_slice(&error))),
                _ => {
                    io.request_complete();
                    self.settle_pin(io);
                    if self.parked.is_some() {
                        self.hold = Some(Hold::Quiet);
                    }
                }
            }
        }
        Ok(relay.taken)
    }

    /// The server has half a command: no other client may get that lane, and no reply will come.
    fn abandon_flow(&mut self, io: &impl Io) {
        if !matches!(self.streaming.take().as_deref(), Some(Streaming::Flowing)) {
            return;
        }
        if self.is_mid_frame {
            self.cut();
        }
        if !self.order.is_quiet() {
            self.forget_attempt(self.order.oldest());
            self.order.completed(self.order.oldest());
        }
        self.drop_pin(io);
    }

    /// The server answered a command before it had all of it: it may think that the rest is the next one.
    pub(crate) fn note_early_reply(&mut self) {
        if let (Some(Streaming::Flowing), Some((_, pins))) = (self.streaming.as_deref(), &mut self.pins) {
            pins.soil();
        }
    }
}
