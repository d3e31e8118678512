//! MULTI … EXEC: queued at the gateway and sent as one unit, so that it needs no lane of its own.

use weir_analysis::redis::{Class, Command, LocalCommand};

use crate::{
    io::{Io, Ticket},
    pin::PinReason,
    refusal,
    session::{Request, State, Taken},
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
    /// A command could not be queued: EXEC will refuse.
    is_spoiled: bool,
    /// The database that a SELECT inside asks for.
    db: Option<u32>,
}

impl Transaction {
    fn new() -> Self {
        Self { commands: 0, wire: MULTI.to_vec(), is_spoiled: false, db: None }
    }

    pub(crate) fn spoil(&mut self) {
        self.is_spoiled = true;
        self.wire = Vec::new();
    }
}

impl State {
    pub(crate) fn multi(&mut self, command: &'static Command, io: &impl Io) -> Taken {
        io.count(Some(command));
        self.transaction = Some(Box::new(Transaction::new()));
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
    ) -> Taken {
        use LocalCommand::*;
        match class {
            Class::Exec => self.exec(command, io),
            Class::Discard => self.discard(command, io),
            Class::Multi => self.error(io, refusal::MULTI_NESTED),
            Class::Watch => self.error(io, refusal::WATCH_IN_MULTI),
            Class::Local(local @ (Reset | Quit)) => self.local_command(command, local, request, io),
            Class::Local(Select) => self.queue_select(request, io),
            Class::Local(Ping | Echo | Readonly | Readwrite | Asking) => self.queue(request, io),
            Class::Admin if !self.settings.admin_commands => {
                io.count_shed("admin_command");
                self.reject(io, &refusal::admin(command.name))
            }
            Class::Shared | Class::Cluster | Class::Admin | Class::Blocking | Class::Exclusive | Class::Unwatch => {
                self.queue(request, io)
            }
            _ => self.reject(io, refusal::NOT_IN_MULTI),
        }
    }

    fn queue_select(&mut self, request: &Request<'_>, io: &impl Io) -> Taken {
        let db = self.parse_db(request.text(1));
        if let (Ok(db), Some(transaction)) = (db, &mut self.transaction) {
            transaction.db = Some(db);
        }
        self.queue(request, io)
    }

    pub(crate) fn queue(&mut self, request: &Request<'_>, io: &impl Io) -> Taken {
        let limits = (self.settings.transaction_commands_max, self.settings.transaction_bytes_max as usize);
        let Some(transaction) = &mut self.transaction else { return Taken::Yes };
        let is_full = transaction.commands >= limits.0 || transaction.wire.len() + request.bytes.len() > limits.1;
        if is_full {
            io.count_shed("transaction_size");
            return self.reject(io, refusal::TRANSACTION_FULL);
        }
        if !transaction.is_spoiled {
            transaction.commands += 1;
            request.with_wire(|wire| transaction.wire.extend_from_slice(wire));
        }
        self.local(io, |out| out.extend_from_slice(b"+QUEUED\r\n"));
        Taken::Yes
    }

    fn exec(&mut self, command: &'static Command, io: &impl Io) -> Taken {
        let Some(transaction) = &self.transaction else { return self.error(io, refusal::EXEC_ALONE) };
        let (is_spoiled, db, commands) = (transaction.is_spoiled, transaction.db, transaction.commands);
        if is_spoiled || self.is_watch_broken {
            return self.exec_in_vain(is_spoiled, command, io);
        }
        let is_watching = self.pins.as_ref().is_some_and(|(_, pins)| pins.has(PinReason::Watch));
        if commands == 0 && !is_watching {
            self.end_transaction();
            io.count(Some(command));
            self.local(io, |out| out.extend_from_slice(b"*0\r\n"));
            return Taken::Yes;
        }
        if db.is_some() && self.tunnel.is_none() {
            // On a shared lane the others would find themselves in another database.
            match self.need_pin(PinReason::Transaction, self.key(), io) {
                Ok(()) => {}
                Err(Taken::Held) => return Taken::Held,
                Err(Taken::Yes) => {
                    self.end_transaction();
                    return Taken::Yes;
                }
            }
        }
        let Some(mut transaction) = self.end_transaction() else { return Taken::Yes };
        transaction.wire.extend_from_slice(EXEC);
        io.count(Some(command));
        self.send_unit(&transaction, io)
    }

    /// Sends the whole transaction; its inner replies are swallowed, the last one is the client's.
    fn send_unit(&mut self, transaction: &Transaction, io: &impl Io) -> Taken {
        let number = self.order.next_number();
        let ticket = Ticket { number, skip: transaction.commands + 1, has_deadline: true };
        if let Some(tunnel) = &mut self.tunnel {
            (0..ticket.skip).for_each(|_| tunnel.expect_fence());
            tunnel.expect_reply();
            io.write_pinned(&transaction.wire);
            return Taken::Yes;
        }
        if let Some((_, pins)) = &mut self.pins {
            pins.remove(PinReason::Watch);
            io.forward_pinned(&transaction.wire, ticket);
        } else if let Err(refusal) = io.forward(self.key(), &transaction.wire, ticket) {
            io.count_shed(refusal.name());
            let text = format!("EXECABORT Transaction discarded because of: {}", refusal::refused(refusal));
            return self.error(io, &text);
        }
        self.order.sent();
        self.changes_db = transaction.db.map(|db| (number, db));
        Taken::Yes
    }

    /// EXEC of a transaction that cannot succeed: a command was refused, or the watched keys were lost with their lane.
    fn exec_in_vain(&mut self, is_spoiled: bool, command: &'static Command, io: &impl Io) -> Taken {
        io.count(Some(command));
        self.end_transaction();
        self.is_watch_broken = false;
        let version = self.version;
        if is_spoiled {
            self.error(io, refusal::EXEC_ABORT);
        } else {
            self.local(io, |out| weir_resp::encode::null_array(out, version));
        }
        self.forget_watch(io);
        Taken::Yes
    }

    fn forget_watch(&mut self, io: &impl Io) {
        if let Some((_, pins)) = &mut self.pins
            && pins.has(PinReason::Watch)
        {
            pins.remove(PinReason::Watch);
            pins.soil();
            self.settle_pin(io);
        }
    }

    fn discard(&mut self, command: &'static Command, io: &impl Io) -> Taken {
        self.end_transaction();
        self.is_watch_broken = false;
        io.count(Some(command));
        self.answer_unwatch(io)
    }

    pub(crate) fn unwatch(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> Taken {
        if self.tunnel.is_some() {
            return self.forward_in_tunnel(command, request, io);
        }
        self.is_watch_broken = false;
        io.count(Some(command));
        self.answer_unwatch(io)
    }

    /// Lets the server forget the watched keys; its answer is the client's. Without any the answer is known.
    fn answer_unwatch(&mut self, io: &impl Io) -> Taken {
        match &mut self.pins {
            Some((_, pins)) if pins.has(PinReason::Watch) && self.tunnel.is_none() => {
                pins.remove(PinReason::Watch);
                let ticket = Ticket { number: self.order.next_number(), skip: 0, has_deadline: true };
                io.forward_pinned(UNWATCH, ticket);
                self.order.sent();
                Taken::Yes
            }
            _ => self.ok(io),
        }
    }
}
