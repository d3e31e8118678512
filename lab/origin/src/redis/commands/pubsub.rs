//! Channels. Patterns and shard channels are not known.

use weir_resp::{Version, encode};

use crate::redis::{
    channels::Subscriber,
    dispatch::Context,
    errors::{OUT_OF_MEMORY, Refusal},
    reply::Reply,
    session::ITEM_BYTES,
};

pub fn subscribe(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    for channel in &args[1..] {
        let bytes = ITEM_BYTES + channel.len();
        if !cx.session.channels.contains(*channel) {
            if !cx.core.memory.has_room(bytes) {
                return Err(OUT_OF_MEMORY);
            }
            cx.core.memory.charge(bytes);
            cx.session.channels.insert(Box::from(*channel));
            let session = &*cx.session;
            let subscriber = Subscriber {
                id: session.id,
                version: session.version.clone(),
                output: session.output.clone(),
                cutter: session.cutter.clone(),
            };
            cx.core.channels.borrow_mut().subscribe(channel, subscriber);
        }
        confirm(reply, "subscribe", Some(channel), cx.session.channels.len());
    }
    Ok(())
}

/// Without arguments: all of them, and one confirmation without a name if there are none.
pub fn unsubscribe(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let names: Vec<Box<[u8]>> = match args.len() {
        1 => cx.session.channels.iter().cloned().collect(),
        _ => args[1..].iter().map(|name| Box::from(*name)).collect(),
    };
    if names.is_empty() {
        confirm(reply, "unsubscribe", None, 0);
    }
    for channel in names {
        if cx.session.channels.remove(&channel) {
            cx.core.channels.borrow_mut().unsubscribe(&channel, cx.session.id);
            cx.core.memory.credit(ITEM_BYTES + channel.len());
        }
        confirm(reply, "unsubscribe", Some(&channel), cx.session.channels.len());
    }
    Ok(())
}

fn confirm(reply: &mut Reply<'_>, kind: &str, channel: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(kind.as_bytes());
    reply.optional(channel);
    reply.count(count);
}

/// A client that publishes to its own channel reads the message before the number of receivers.
pub fn publish(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let (channel, message) = (args[1], args[2]);
    let mut count = cx.core.channels.borrow().publish(channel, message, cx.session.id);
    if cx.session.channels.contains(channel) {
        count += 1;
        let mut own = Vec::new();
        message_to(&mut own, channel, message, cx.session.version.get());
        match cx.is_nested {
            true => cx.session.pushes.extend_from_slice(&own),
            false => reply.raw(&own),
        }
    }
    reply.count(count);
    Ok(())
}

fn message_to(out: &mut Vec<u8>, channel: &[u8], message: &[u8], version: Version) {
    encode::push(out, 3, version);
    encode::bulk(out, b"message");
    encode::bulk(out, channel);
    encode::bulk(out, message);
}
