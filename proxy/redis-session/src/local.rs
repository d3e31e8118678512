//! Commands that the gateway answers itself.

use weir_analysis::redis::{Args, ClientCommand, Command, LocalCommand};
use weir_resp::{Version, encode};

use crate::{
    database::DbChange,
    io::{Io, Ticket},
    ordering::ReplyMode,
    refusal,
    request::{Request, parse_integer},
    state::{CommandStatus, Hold, State},
};

impl State {
    pub(crate) fn local_command(
        &mut self,
        command: &'static Command,
        local: LocalCommand,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        use LocalCommand::*;
        if local == Ping && self.tunnel.is_some() {
            return self.forward_in_tunnel(command, request, io);
        }
        // UNBLOCK goes on a lane that need not be the one of what is under way.
        let changes_session =
            matches!(local, Reset | Hello | Auth | Select | Client(ClientCommand::Tracking | ClientCommand::Unblock));
        if (changes_session || self.tunnel.is_some()) && !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return CommandStatus::Held;
        }
        match local {
            Hello => return self.hello(command, request, io),
            // It may have to wait, and is counted once.
            Auth => return self.auth(command, request, io),
            Select if self.pins.is_some() => return self.select_on_pin(command, request, io),
            _ => io.count(Some(command), 1),
        }
        match local {
            Ping if request.argc() > 2 => self.error(io, "ERR wrong number of arguments for 'ping' command"),
            Ping if self.is_modal() => {
                self.local(io, |out| {
                    encode::array(out, 2);
                    encode::bulk(out, b"pong");
                    encode::bulk(out, request.text(1));
                });
                CommandStatus::Done
            }
            Ping if request.argc() == 1 => {
                self.local(io, |out| out.extend_from_slice(b"+PONG\r\n"));
                CommandStatus::Done
            }
            Ping | Echo => self.bulk(io, request.text(1)),
            Quit => {
                self.ok(io);
                self.close();
                CommandStatus::Done
            }
            Reset => self.reset(io),
            Select => self.select(request, io),
            // Every slot is here, so there is nothing to allow.
            Readonly | Readwrite | Asking if io.topology().is_some() => self.ok(io),
            Readonly | Readwrite | Asking => self.error(io, refusal::NO_CLUSTER),
            AclWhoami => {
                let user = io.entry().details().user.clone();
                self.bulk(io, user.as_bytes())
            }
            Client(client) => self.client(client, command, request, io),
            Hello | Auth => CommandStatus::Done,
        }
    }

    pub(crate) fn bulk(&mut self, io: &impl Io, bytes: &[u8]) -> CommandStatus {
        self.local(io, |out| encode::bulk(out, bytes));
        CommandStatus::Done
    }

    /// The number of a database that this listener allows.
    pub(crate) fn parse_db(&self, text: &[u8], io: &impl Io) -> Result<u32, &'static str> {
        let number: i64 = parse_integer(text).ok_or(refusal::NOT_INTEGER)?;
        if number != 0 && io.topology().is_some() {
            return Err(refusal::SELECT_IN_CLUSTER);
        }
        let db = u32::try_from(number).map_err(|_| refusal::DB_RANGE)?;
        if db < self.settings.databases { Ok(db) } else { Err(refusal::DB_RANGE) }
    }

    /// The upstream has the database that the client is in; another one, or other settings, may not.
    pub(crate) fn has_database(&self, io: &impl Io) -> bool {
        self.db == 0 || (self.db < self.settings.databases && io.topology().is_none())
    }

    fn select(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        match self.parse_db(request.text(1), io) {
            Err(text) => self.error(io, text),
            Ok(db) => {
                self.db = db;
                io.entry().details().db = Some(db);
                self.ok(io)
            }
        }
    }

    /// SELECT of a client with a lane of its own: the server must follow.
    fn select_on_pin(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let db = match self.parse_db(request.text(1), io) {
            Ok(db) => db,
            Err(text) => return self.error(io, text),
        };
        if let Err(taken) = self.need_room(Some(command), io) {
            return taken;
        }
        io.count(Some(command), 1);
        let number = self.order.next_number();
        request.with_wire(|wire| io.forward_pinned(wire, Ticket::new(number)));
        self.order.sent();
        self.changes_db = Some(Box::new(DbChange::select(number, db)));
        // The commands that follow need to know their database.
        self.hold = Some(Hold::Quiet);
        CommandStatus::Done
    }

    /// RESET: everything a connection can hold is let go, and it is a stranger again (Redis `resetCommand`).
    fn reset(&mut self, io: &impl Io) -> CommandStatus {
        self.drop_pin(io);
        self.drop_subscriptions(io);
        self.drop_tracking(io);
        self.transaction = None;
        self.is_watch_broken = false;
        self.db = 0;
        self.version = Version::Resp2;
        // A SKIP covers this very reply.
        if self.order.mode == ReplyMode::Off {
            self.order.mode = ReplyMode::On;
        }
        self.forget_user(io);
        self.limits.stream_bytes = self.settings.stream_bytes.min(u32::MAX.into()) as u32;
        {
            let mut details = io.entry().details();
            details.name.clear();
            details.db = Some(0);
            details.version = Version::Resp2.name();
        }
        self.local(io, |out| out.extend_from_slice(b"+RESET\r\n"));
        CommandStatus::Done
    }
}
