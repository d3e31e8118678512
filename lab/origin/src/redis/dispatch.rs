//! Which command may run, in the order in which Redis asks (`server.c`, `processCommand`): is it known, is its arity
//! right, is the client authenticated, is there memory, is the client a subscriber, is it inside a transaction.

use std::cell::RefMut;

use weir_base::Time;

use super::{
    core::Core,
    errors::{self, MESSAGE_TOO_LARGE, NO_AUTH, OUT_OF_MEMORY, Refusal, SCRIPTED},
    faults::InjectedFault,
    keyspace::Keyspace,
    reply::Reply,
    session::{ITEM_BYTES, QueuedCommand, Session},
    table::{self, Command},
};

/// The environment of a command.
pub struct Context<'a> {
    pub core: &'a Core,
    pub session: &'a mut Session,
    /// When this loop turn began.
    pub now: Time,
    /// Inside `EXEC`.
    pub is_nested: bool,
}

impl Context<'_> {
    /// The client's database.
    #[inline]
    pub fn keys(&self) -> RefMut<'_, Keyspace> {
        RefMut::map(self.core.store.borrow_mut(), |store| store.keys(self.session.database))
    }
}

/// Executes one command. `args` is not empty.
pub fn execute(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) {
    let command = match admit(cx, args) {
        Ok(command) => command,
        Err(refusal) => {
            if let Some(transaction) = &mut cx.session.transaction {
                transaction.is_dirty = true;
            }
            return reply.error(&refusal);
        }
    };
    if cx.session.transaction.is_some() && !command.is(table::IMMEDIATE) {
        return match queue(cx, command, args) {
            Ok(()) => reply.simple("QUEUED"),
            Err(refusal) => reply.error(&refusal),
        };
    }
    match &cx.core.dice {
        Some(dice) if command.is(table::READ | table::WRITE) => {
            let strike = dice.borrow_mut().roll();
            run_struck(cx, command, args, reply, strike);
        }
        _ => run(cx, command, args, reply),
    }
}

fn admit(cx: &Context<'_>, args: &[&[u8]]) -> Result<&'static Command, Refusal> {
    let is_fixed = cx.core.payload.is_some();
    let command = table::find(args[0])
        .filter(|command| !is_fixed || command.fixed.is_some())
        .ok_or_else(|| errors::unknown_command(args))?;
    if !command.takes(args.len()) {
        return Err(errors::arity(command.name));
    }
    if !cx.session.is_authenticated() && !command.is(table::NO_AUTH) {
        return Err(NO_AUTH);
    }
    if command.is(table::GROWS) && !has_room(cx, args) {
        return Err(OUT_OF_MEMORY);
    }
    if cx.session.is_subscriber() && !command.is(table::SUBSCRIBER) {
        return Err(errors::subscriber_only(command.name));
    }
    Ok(command)
}

/// Redis looks only at what is used already; counting the arguments keeps a single command from passing the limit.
#[inline]
fn has_room(cx: &Context<'_>, args: &[&[u8]]) -> bool {
    let bytes = args[1..].iter().map(|arg| arg.len() + ITEM_BYTES).sum();
    cx.core.memory.has_room(bytes)
}

fn queue(cx: &mut Context<'_>, command: &'static Command, args: &[&[u8]]) -> Result<(), Refusal> {
    let Some(transaction) = &mut cx.session.transaction else { return Ok(()) };
    let bytes = args.iter().map(|arg| arg.len() + ITEM_BYTES).sum();
    if !cx.core.memory.has_room(bytes) {
        transaction.is_dirty = true;
        return Err(OUT_OF_MEMORY);
    }
    cx.core.memory.charge(bytes);
    transaction.bytes += bytes;
    let args = args.iter().map(|arg| Box::from(*arg)).collect();
    transaction.queued.push(QueuedCommand { command, args });
    Ok(())
}

/// Runs a command that was let in; its reply is complete afterwards, or an error.
#[inline]
pub fn run(cx: &mut Context<'_>, command: &Command, args: &[&[u8]], reply: &mut Reply<'_>) {
    let mark = reply.mark();
    let handler = match command.fixed {
        Some(fixed) if cx.core.payload.is_some() => fixed,
        _ => command.run,
    };
    if let Err(refusal) = handler(cx, args, reply) {
        reply.rewind(mark);
        reply.error(&refusal);
    } else if reply.is_overflown() {
        reply.rewind(mark);
        reply.error(&MESSAGE_TOO_LARGE);
    }
}

/// Runs a command queued earlier, when memory may have become scarce.
pub fn run_queued(cx: &mut Context<'_>, queued: &QueuedCommand, reply: &mut Reply<'_>) {
    let args: Vec<&[u8]> = queued.args.iter().map(|arg| &**arg).collect();
    if queued.command.is(table::GROWS) && !has_room(cx, &args) {
        return reply.error(&OUT_OF_MEMORY);
    }
    run(cx, queued.command, &args, reply);
}

#[cold]
fn run_struck(cx: &mut Context<'_>, command: &Command, args: &[&[u8]], reply: &mut Reply<'_>, strike: InjectedFault) {
    match strike {
        InjectedFault::None => run(cx, command, args, reply),
        InjectedFault::Error => reply.error(&SCRIPTED),
        InjectedFault::Disconnect => cx.session.is_closing = true,
        InjectedFault::ExtraReply => {
            run(cx, command, args, reply);
            reply.repeat();
        }
        InjectedFault::HalfReply => {
            let mark = reply.mark();
            run(cx, command, args, reply);
            reply.rewind(mark + reply.len() / 2);
            cx.session.is_closing = true;
        }
    }
}
