//! MULTI … EXEC: queued at the gateway and sent as one unit, so that it needs no lane of its own.

use std::sync::Arc;

use weir_analysis::redis::{Class, ClientCommand, Command, LocalCommand};
use weir_resp::encode;

use crate::{
    database::DbChange,
    io::{Full, Io, Ticket},
    lane::LaneKey,
    local_replies::{LocalReplies, LocalReply, PLACEHOLDER},
    pin_reason::PinReason,
    refusal,
    request::Request,
    state::{CommandStatus, Hold, State},
    users::UserSettings,
};

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";
const UNWATCH: &[u8] = b"*1\r\n$7\r\nUNWATCH\r\n";

/// A transaction being queued.
#[derive(Debug)]
pub(crate) struct Transaction {
    commands: u32,
    /// MULTI and the commands so far, as they will be sent.
    wire: Vec<u8>,
    /// Those of them that are answered here.
    local_replies: Vec<LocalReply>,
    local_replies_bytes: usize,
    /// A command could not be queued: EXEC will refuse.
    is_spoiled: bool,
    /// The SELECTs inside: place among the commands, and database.
    selects: Vec<(u32, u32)>,
    /// A command inside may change the connection: on a shared lane the others would feel it.
    is_stateful: bool,
    /// Where its keys are, if there are several shards.
    pub(crate) group: Option<u16>,
    /// PUBLISH is among its commands: without keys it goes where the client's other messages go.
    pub(crate) publishes: bool,
    /// By whose rules its commands were judged.
    user: Option<Arc<UserSettings>>,
}

impl Transaction {
    fn new(user: Option<Arc<UserSettings>>) -> Self {
        Self {
            commands: 0,
            wire: MULTI.to_vec(),
            local_replies: Vec::new(),
            local_replies_bytes: 0,
            is_spoiled: false,
            selects: Vec::new(),
            is_stateful: false,
            group: None,
            publishes: false,
            user,
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.wire.len() + self.local_replies_bytes
    }

    /// MULTI and the commands so far.
    pub(crate) fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// EXEC will refuse it.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.is_spoiled
    }

    pub(crate) fn spoil(&mut self) {
        self.is_spoiled = true;
        (self.wire, self.local_replies, self.local_replies_bytes) = Default::default();
    }
}

impl State {
    pub(crate) fn multi(&mut self, command: &'static Command, io: &impl Io) -> CommandStatus {
        io.count(Some(command), 1);
        self.transaction = Some(Box::new(Transaction::new(self.user.as_ref().map(|user| user.settings.clone()))));
        self.limits.stream_bytes = self.settings.transaction_bytes_max.min(u32::MAX.into()) as u32;
        self.ok(io)
    }

    fn end_transaction(&mut self) -> Option<Box<Transaction>> {
        self.limits.stream_bytes = self.settings.stream_bytes.min(u32::MAX.into()) as u32;
        self.transaction.take()
    }

    /// A command between MULTI and EXEC.
    pub(crate) fn in_transaction(
        &mut self,
        command: &'static Command,
        class: Class,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        use LocalCommand::*;
        match class {
            Class::Exec => self.exec(command, io),
            Class::Discard => self.unwatch(command, io),
            Class::Multi => self.error(io, refusal::MULTI_NESTED),
            Class::Watch => self.error(io, refusal::WATCH_IN_MULTI),
            Class::Local(local @ (Reset | Quit)) => self.local_command(command, local, request, io),
            Class::Local(Select) => self.queue_select(request, io),
            Class::Local(Ping | Echo) => self.queue(request, io),
            Class::Local(Client(client)) if client.is_admin() && !self.settings.admin_commands => {
                self.reject_admin(command, io)
            }
            Class::Admin if !self.settings.admin_commands => self.reject_admin(command, io),
            Class::Local(Client(ClientCommand::Capa | ClientCommand::ImportSource | ClientCommand::Container)) => {
                self.reject_with(io, |out| crate::client::unsupported_subcommand(out, command, request.text(1)))
            }
            _ if self.is_local_inside(command, class, io) => self.queue_local(request, io),
            Class::Shared
            | Class::Cluster
            | Class::Info
            | Class::Admin
            | Class::Blocking
            | Class::Exclusive
            | Class::Unwatch => match self.bind_transaction(command, request, io) {
                Ok(()) => self.queue(request, io),
                Err(taken) => taken,
            },
            _ => self.reject(io, refusal::NOT_IN_MULTI),
        }
    }

    fn reject_admin(&mut self, command: &'static Command, io: &impl Io) -> CommandStatus {
        io.count_shed("admin_command");
        self.reject(io, &refusal::admin(command.name))
    }

    fn queue_select(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        let db = match self.parse_db(request.text(1), io) {
            Ok(db) => db,
            // The server may have more databases than this listener allows: the gateway decides.
            Err(_) => return self.queue_local(request, io),
        };
        if let Some(transaction) = self.transaction.as_mut().filter(|transaction| !transaction.is_spoiled) {
            transaction.selects.push((transaction.commands, db));
        }
        self.queue_stateful(request, io)
    }

    /// Queues a command that may change the connection.
    pub(crate) fn queue_stateful(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_stateful = true;
        }
        self.queue(request, io)
    }

    pub(crate) fn queue(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        self.queue_as(request, false, io)
    }

    /// Queues a command that is answered here.
    pub(crate) fn queue_local(&mut self, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        self.queue_as(request, true, io)
    }

    fn queue_as(&mut self, request: &Request<'_>, is_local: bool, io: &impl Io) -> CommandStatus {
        let limits = (self.settings.transaction_commands_max, self.settings.transaction_bytes_max as usize);
        let Some(transaction) = &mut self.transaction else { return CommandStatus::Done };
        let is_full = transaction.commands >= limits.0 || transaction.bytes() + request.bytes.len() > limits.1;
        if is_full {
            io.count_shed("transaction_size");
            return self.reject(io, refusal::TRANSACTION_FULL);
        }
        if io.full() == Some(Full::Buffered) {
            io.count_shed(Full::Buffered.name());
            return self.reject(io, refusal::BUFFERED);
        }
        if !transaction.is_spoiled {
            if is_local {
                let wire = request.with_wire(<[u8]>::to_vec);
                transaction.local_replies_bytes += wire.len();
                transaction.local_replies.push(LocalReply { place: transaction.commands, wire });
                transaction.wire.extend_from_slice(PLACEHOLDER);
            } else {
                request.with_wire(|wire| transaction.wire.extend_from_slice(wire));
            }
            transaction.commands += 1;
        }
        self.local(io, |out| out.extend_from_slice(b"+QUEUED\r\n"));
        CommandStatus::Done
    }

    fn exec(&mut self, command: &'static Command, io: &impl Io) -> CommandStatus {
        let Some(transaction) = &self.transaction else { return self.error(io, refusal::EXEC_ALONE) };
        let (is_spoiled, is_stateful, commands) =
            (transaction.is_spoiled, transaction.is_stateful, transaction.commands);
        let pinned = self.pins.as_ref().map(|(key, _)| key.shard);
        let shard = transaction.group.map(|group| io.shard_of(group)).or(pinned);
        let key = self.key_at(shard.unwrap_or_else(|| if transaction.publishes { io.home() } else { io.keyless() }));
        let is_watching = self.pins.as_ref().is_some_and(|(_, pins)| pins.has(PinReason::Watch));
        // Their slot has moved: at its new node nothing is watched.
        self.is_watch_broken |= is_watching && io.topology().is_some() && shard != pinned;
        if is_spoiled || self.is_watch_broken {
            return self.exec_in_vain(is_spoiled, command, io);
        }
        if commands == 0 && !is_watching {
            self.end_transaction();
            io.count(Some(command), 1);
            self.local(io, |out| out.extend_from_slice(b"*0\r\n"));
            return CommandStatus::Done;
        }
        if let Err(text) = self.judge_again(io) {
            io.count_refused(Some(command), "acl");
            return self.refuse_exec(&text, io);
        }
        if let Some(full) = io.full() {
            if !self.waits_in_vain() {
                return CommandStatus::Held;
            }
            io.count_refused(Some(command), full.name());
            return self.refuse_exec(full.text(), io);
        }
        if !self.is_below_knee(io) {
            io.count_refused(Some(command), refusal::KNEE_REASON);
            return self.refuse_exec(refusal::KNEE, io);
        }
        if is_stateful {
            // On a shared lane the others would find themselves in another database.
            match self.need_pin(PinReason::Transaction, key, Some(command), io) {
                Ok(()) => {}
                Err(CommandStatus::Held) => return CommandStatus::Held,
                Err(CommandStatus::Done) => {
                    self.end_transaction();
                    return CommandStatus::Done;
                }
            }
        }
        if self.must_wait_for_cluster(io) || (self.pins.is_none() && io.must_settle(key)) {
            self.hold = Some(Hold::Quiet);
            return CommandStatus::Held;
        }
        let Some(mut transaction) = self.end_transaction() else { return CommandStatus::Done };
        transaction.wire.extend_from_slice(EXEC);
        io.count(Some(command), 1);
        self.send_unit(*transaction, key, io)
    }

    /// The rules of the user may be others than when the commands were queued.
    fn judge_again(&self, io: &impl Io) -> Result<(), String> {
        let Some(transaction) = self.transaction.as_ref().filter(|_| self.is_watched) else { return Ok(()) };
        let is_same = match (&transaction.user, &self.user) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, &now.settings) || before.acl == now.settings.acl,
            _ => false,
        };
        if is_same {
            return Ok(());
        }
        // MULTI is number 0.
        let stands_for_another = |number: u32| {
            number
                .checked_sub(1)
                .is_some_and(|at| transaction.local_replies.binary_search_by_key(&at, |one| one.place).is_ok())
        };
        self.check_queued(&transaction.wire, stands_for_another, io)?;
        transaction.local_replies.iter().try_for_each(|local| self.check_queued(&local.wire, |_| false, io))
    }

    /// EXEC cannot be carried out: the transaction is over, as the server has it.
    pub(crate) fn refuse_exec(&mut self, reason: &str, io: &impl Io) -> CommandStatus {
        self.abort_transaction(io);
        self.error(io, &format!("EXECABORT Transaction discarded because of: {reason}"))
    }

    /// Forgets the queue and the watched keys.
    pub(crate) fn abort_transaction(&mut self, io: &impl Io) {
        self.end_transaction();
        self.is_watch_broken = false;
        self.forget_watch(io);
    }

    /// Sends the whole transaction; its inner replies are swallowed, the last one is the client's.
    fn send_unit(&mut self, transaction: Transaction, key: LaneKey, io: &impl Io) -> CommandStatus {
        let number = self.order.next_number();
        let ticket = Ticket { skip: transaction.commands + 1, ..Ticket::new(number) };
        let is_watching = self.end_watch();
        if let Some((held, _)) = self.pins {
            io.forward_pinned(&transaction.wire, ticket);
            self.keep_bound(ticket, transaction.group, held.shard, io);
            if is_watching {
                self.note_watching(number);
            }
        } else if let Err(refusal) = self.send_at((key, transaction.group), &transaction.wire, ticket, io) {
            io.count_shed(refusal.name());
            return self.refuse_exec(&refusal::refused(refusal), io);
        }
        self.order.sent();
        if !transaction.selects.is_empty() {
            self.changes_db = Some(Box::new(DbChange::exec(number, transaction.selects)));
            // The commands that follow need to know their database.
            self.hold = Some(Hold::Quiet);
        }
        if !transaction.local_replies.is_empty() {
            self.local_replies = Some(Box::new(LocalReplies::new(number, transaction.local_replies)));
            // Later commands come after them.
            self.hold = Some(Hold::Quiet);
        }
        CommandStatus::Done
    }

    /// EXEC of a transaction that cannot succeed: a command was refused, or the watched keys were lost with their lane.
    fn exec_in_vain(&mut self, is_spoiled: bool, command: &'static Command, io: &impl Io) -> CommandStatus {
        io.count(Some(command), 1);
        let version = self.version;
        if is_spoiled {
            self.error(io, refusal::EXEC_ABORT);
        } else {
            self.local(io, |out| encode::null_array(out, version));
        }
        self.abort_transaction(io);
        CommandStatus::Done
    }

    /// Makes the server forget the watched keys, without a reply to the client. Where that is not possible (a full core has no
    /// room for it) no other client gets the lane.
    pub(crate) fn forget_watch(&mut self, io: &impl Io) {
        if !self.end_watch() {
            return;
        }
        if io.full().is_some() {
            if let Some((_, pins)) = &mut self.pins {
                pins.soil();
            }
            return self.settle_pin(io);
        }
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.expect_reply();
            io.write_pinned(UNWATCH);
        } else {
            io.forward_pinned(UNWATCH, Ticket::new(self.order.next_number()));
        }
        self.order.sent_without_reply();
    }

    /// UNWATCH, and DISCARD, which unwatches too. Lets the server forget the watched keys; its reply is the client's.
    /// Without any the reply is known.
    pub(crate) fn unwatch(&mut self, command: &'static Command, io: &impl Io) -> CommandStatus {
        let is_watching = self.pins.as_ref().is_some_and(|(_, pins)| pins.has(PinReason::Watch));
        if is_watching && let Err(taken) = self.need_room(Some(command), io) {
            return taken;
        }
        io.count(Some(command), 1);
        self.end_transaction();
        self.is_watch_broken = false;
        if !self.end_watch() {
            return self.ok(io);
        }
        io.forward_pinned(UNWATCH, Ticket::new(self.order.next_number()));
        self.order.sent();
        CommandStatus::Done
    }
}
