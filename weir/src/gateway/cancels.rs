//! Cancel requests between the processes of an upgrade: the new one accepts them, and the old one has the clients that they are for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        mpsc::{self, sync_channel},
    },
    thread,
};

use weir_engine::{Mailbox, handover::Channel};
use weir_postgres::{CancelMessage, CancelRelay, ForeignCancel, Over};

use super::{Gateway, Sockets, lock, plan::Mail, upgrading::bind_text};
use crate::upgrade::message::{KeySecret, Message, PeerEvent, receive};

/// Requests on their way to the other process. Default 1,024: as many as some tens of sources may send in a second.
const CANCELS_MAX: usize = 1_024;

/// Requests that the process before has, by their numbers. Clones share them.
#[derive(Clone, Default)]
pub(super) struct SentCancels(Arc<Mutex<HashMap<u64, Over>>>);

impl SentCancels {
    /// One is over.
    pub(super) fn over(&self, number: u64) {
        let over = lock(&self.0).remove(&number);
        over.into_iter().for_each(|over| over());
    }

    /// The other process has ended, and its clients with it.
    pub(super) fn end(&self) {
        let all = std::mem::take(&mut *lock(&self.0));
        all.into_values().for_each(|over| over());
    }
}

impl Gateway {
    /// Sends the requests for clients of the process before to it.
    pub(super) fn send_cancels(self: &Arc<Self>, channel: Arc<Channel>) -> SentCancels {
        let (sender, requests) = sync_channel::<ForeignCancel>(CANCELS_MAX);
        let (sent, gateway) = (SentCancels::default(), self.clone());
        let own = sent.clone();
        let send = move || {
            for (number, request) in (0..).zip(requests) {
                let snapshot = gateway.snapshot();
                let Some(listener) = snapshot.listener(&request.listener) else {
                    (request.over)();
                    continue;
                };
                let bind = listener.settings.bind.to_string();
                let message =
                    Message::Cancel { number, bind, pid: request.pid, secret: KeySecret(request.secret.into()) };
                lock(&own.0).insert(number, request.over);
                if message.send(&channel, &[]).is_err() {
                    own.over(number);
                }
            }
        };
        match thread::Builder::new().name("cancels".into()).spawn(send) {
            Ok(_) => self.upgrading.cancels.connect(Some(sender)),
            Err(error) => tracing::error!(%error, "cancel requests do not reach the process before this one"),
        }
        sent
    }

    /// Takes requests from the new process in, until one of the two ends.
    pub(super) fn receive_cancels(&self, channel: &Arc<Channel>, listening: &Sockets) {
        let listeners: HashMap<String, Arc<str>> =
            listening.iter().map(|(name, sockets)| (bind_text(sockets), name.clone())).collect();
        let (channel, mailboxes, relay) = (channel.clone(), self.mailboxes.clone(), self.upgrading.cancels.clone());
        let receive = move || take_cancels(&channel, &listeners, &mailboxes, &relay);
        if let Err(error) = thread::Builder::new().name("cancels".into()).spawn(receive) {
            tracing::error!(%error, "cancel requests that come to the new process do not reach this one");
        }
    }
}

/// The channel has a patience, after which the numbers of requests that are over are sent back. Requests with the key of a process before
/// this one go on to it.
fn take_cancels(
    channel: &Channel,
    listeners: &HashMap<String, Arc<str>>,
    mailboxes: &[Mailbox<Mail>],
    relay: &CancelRelay,
) {
    let (over, are_over) = mpsc::channel();
    loop {
        for number in are_over.try_iter() {
            // A process that is gone, or does not read, has no client that waits.
            let _ = Message::CancelOver { number }.send(channel, &[]);
        }
        let (number, bind, pid, secret) = match receive(channel) {
            Ok(PeerEvent::Message(Message::Cancel { number, bind, pid, secret }, _)) => (number, bind, pid, secret),
            Ok(PeerEvent::Message(..) | PeerEvent::Nothing) => continue,
            Ok(PeerEvent::End) | Err(_) => return,
        };
        let own = over.clone();
        let is_over: Over = Arc::new(move || {
            let _ = own.send(number);
        });
        let Some(listener) = listeners.get(&bind) else {
            is_over();
            continue;
        };
        let secret: Box<[u8]> = secret.0.into();
        let foreign = ForeignCancel { listener: listener.clone(), pid, secret: secret.clone(), over: is_over.clone() };
        if relay.forward(foreign) {
            continue;
        }
        let found = CancelMessage::of(pid, secret, is_over)
            .and_then(|(worker, message)| Some((mailboxes.get(worker)?, message)));
        match found {
            Some((worker, message)) => {
                worker.send(Mail::Deliver { listener: listener.clone(), message: Box::new(message) });
            }
            None => {
                let _ = over.send(number);
            }
        }
    }
}
