//! CLIENT UNBLOCK: releases a client of the gateway from a blocking command.
//!
//! Only the server can end a blocking command without losing an element that is on its way. It knows the client by another
//! number: that of the lane, from its greeting. So the gateway translates the number and forwards the command.

use weir_analysis::redis::{Args, Command};
use weir_resp::encode;

use crate::{
    io::{Io, Ticket},
    lane::LaneKey,
    refusal,
    request::Request,
    request::parse_integer,
    state::{CommandStatus, Hold, State},
};

impl State {
    /// CLIENT UNBLOCK client-id [TIMEOUT|ERROR].
    pub(crate) fn client_unblock(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        let reason: &[u8] = match (request.argc(), request.text(3)) {
            (3, _) => b"TIMEOUT",
            (4, word) if word.eq_ignore_ascii_case(b"TIMEOUT") => b"TIMEOUT",
            (4, word) if word.eq_ignore_ascii_case(b"ERROR") => b"ERROR",
            (4, _) => return self.error(io, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
            _ => return self.error(io, refusal::SYNTAX),
        };
        let Some(id) = parse_integer(request.text(2)) else { return self.error(io, refusal::NOT_INTEGER) };
        let Some((shard, own_id)) = u64::try_from(id).ok().and_then(|id| io.blocked_as(id)) else {
            self.local(io, |out| encode::integer(out, 0));
            return CommandStatus::Done;
        };
        if let Err(taken) = self.need_room(Some(command), io) {
            return taken;
        }
        let mut wire = Vec::new();
        let digits = own_id.to_string();
        encode::command(&mut wire, [b"CLIENT".as_slice(), b"UNBLOCK", digits.as_bytes(), reason]);
        let key = LaneKey { shard, ..self.key() };
        match io.forward(key, &wire, Ticket::new(self.order.next_number())) {
            Ok(()) => {
                self.order.sent();
                // Later commands may take another way, and must not overtake.
                self.hold = Some(Hold::Quiet);
                CommandStatus::Done
            }
            Err(refusal) => self.refuse(refusal, io),
        }
    }
}
