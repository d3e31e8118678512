//! CLIENT PAUSE: commands of the clients of a listener wait (Redis 7.0 `clientCommand`, `pauseClients`).

use std::time::Duration;

use weir_analysis::redis::{Access, Args, Command, Resolved, resolve};
use weir_resp::{RequestParser, Step};

use crate::{
    io::Io,
    request::{Request, parse_integer},
    state::{CommandStatus, Hold, State},
};

impl State {
    /// Holds the command at the front of the input if its client is paused.
    pub(crate) fn is_paused(&mut self, command: Option<&'static Command>, io: &impl Io) -> bool {
        let Some(share) = io.share().filter(|share| share.pause.is_on(io.now())) else { return false };
        // A command that is in no table counts as a write, as its effects are unknown.
        let writes = command.is_none_or(|command| match command.name {
            "exec" => self.transaction_writes(),
            _ => may_replicate(command),
        });
        let until = share.pause.holds(writes, io.now());
        // A server drops what waits when its client goes: it must not come after what the client does next.
        self.is_closing |= until.is_some() && self.is_ended;
        if let Some(until) = until {
            self.hold = Some(Hold::Until(until));
        }
        until.is_some()
    }

    fn transaction_writes(&self) -> bool {
        let Some(transaction) = &self.transaction else { return false };
        let (mut parser, mut rest) = (RequestParser::new(), transaction.wire());
        while let Ok(Step::Command { len, .. }) = parser.parse(rest, &self.limits) {
            let request = Request { parser: &parser, bytes: &rest[..len], is_inline: false };
            match resolve(request.text(0), request.arg(1)) {
                Resolved::Known(command) if !may_replicate(command) => {}
                _ => return true,
            }
            rest = &rest[len..];
        }
        false
    }

    /// CLIENT PAUSE timeout [WRITE|ALL].
    pub(crate) fn client_pause(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let is_for_all = match (request.argc(), request.text(3)) {
            (3, _) => true,
            (4, mode) if mode.eq_ignore_ascii_case(b"ALL") => true,
            (4, mode) if mode.eq_ignore_ascii_case(b"WRITE") => false,
            (4, _) => return self.error(io, "ERR CLIENT PAUSE mode must be WRITE or ALL"),
            _ => return self.error(io, crate::refusal::SYNTAX),
        };
        let Some(millis) = parse_integer(request.text(2)) else {
            return self.error(io, "ERR timeout is not an integer or out of range");
        };
        let Ok(millis) = u64::try_from(millis) else { return self.error(io, "ERR timeout is negative") };
        let now = io.now();
        if let Some(share) = io.share() {
            share.pause.begin(now.saturating_add(Duration::from_millis(millis)), is_for_all, now);
        }
        self.ok(io)
    }

    /// CLIENT UNPAUSE.
    pub(crate) fn client_unpause(&mut self, io: &impl Io) -> CommandStatus {
        if let Some(share) = io.share() {
            share.pause.end();
        }
        self.ok(io)
    }
}

/// It changes data, or it reaches replicas (Redis `CMD_WRITE`, `CMD_MAY_REPLICATE`).
fn may_replicate(command: &Command) -> bool {
    command.access == Access::Write
        || matches!(command.name, "publish" | "spublish" | "pfcount" | "eval" | "evalsha" | "fcall")
}
