//! `MULTI` and `WATCH`. One worker runs one command at a time, so a transaction is a loop.

use crate::redis::{
    dispatch::{self, Context},
    errors::{DISCARD_ALONE, EXEC_ABORT, EXEC_ALONE, NESTED_MULTI, OUT_OF_MEMORY, Refusal, WATCH_IN_MULTI},
    reply::Reply,
    session::{ITEM_BYTES, Transaction, WatchedKey},
};

pub fn multi(cx: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    if cx.session.transaction.is_some() {
        return Err(NESTED_MULTI);
    }
    cx.session.transaction = Some(Transaction::default());
    reply.ok();
    Ok(())
}

pub fn discard(cx: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    if cx.session.transaction.is_none() {
        return Err(DISCARD_ALONE);
    }
    cx.session.drop_transaction(&cx.core.memory);
    cx.session.unwatch(&cx.core.memory);
    reply.ok();
    Ok(())
}

pub fn exec(cx: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let Some(transaction) = cx.session.transaction.take() else { return Err(EXEC_ALONE) };
    cx.core.memory.credit(transaction.bytes);
    let is_stale = cx.session.watched.iter().any(|watched| stamp(cx, watched.database, &watched.key) != watched.stamp);
    cx.session.unwatch(&cx.core.memory);
    if transaction.is_dirty {
        return Err(EXEC_ABORT);
    }
    if is_stale {
        reply.null_array();
        return Ok(());
    }
    reply.array(transaction.queued.len());
    cx.is_nested = true;
    for queued in &transaction.queued {
        dispatch::run_queued(cx, queued, reply);
    }
    cx.is_nested = false;
    // Messages to the client's own channels: between replies, never inside one.
    reply.raw(&std::mem::take(&mut cx.session.pushes));
    Ok(())
}

pub fn watch(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    if cx.session.transaction.is_some() {
        return Err(WATCH_IN_MULTI);
    }
    let database = cx.session.database;
    for key in &args[1..] {
        let bytes = ITEM_BYTES + key.len();
        if !cx.core.memory.has_room(bytes) {
            return Err(OUT_OF_MEMORY);
        }
        cx.core.memory.charge(bytes);
        let stamp = stamp(cx, database, key);
        cx.session.watched.push(WatchedKey { database, key: Box::from(*key), stamp });
    }
    reply.ok();
    Ok(())
}

pub fn unwatch(cx: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    cx.session.unwatch(&cx.core.memory);
    reply.ok();
    Ok(())
}

fn stamp(cx: &Context<'_>, database: usize, key: &[u8]) -> u64 {
    cx.core.store.borrow_mut().keys(database).stamp(key, cx.now)
}
