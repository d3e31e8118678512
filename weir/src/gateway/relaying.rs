//! The link between the processes of an upgrade: cancel requests and pauses at the new one, for clients that the old one has.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex,
        mpsc::{self, sync_channel},
    },
    thread,
};

use weir_engine::{Mailbox, handover::Channel};
use weir_postgres::{CancelMessage, Foreign, ForeignCancel, ForeignPause, Over, PauseOrder, UpgradeRelay};

use super::{Gateway, Sockets, lock, plan::Mail, upgrading::bind_text};
use crate::upgrade::message::{KeySecret, Message, PeerEvent, receive};

/// Requests and orders on their way to the other process. Default 1,024: as many as some tens of sources may send in a second.
const FOREIGN_MAX: usize = 1_024;

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
    /// Sends the requests and orders for clients of the process before to it, and lets operators give orders from now on.
    pub(super) fn send_to_predecessor(self: &Arc<Self>, channel: Arc<Channel>) -> SentCancels {
        let (sender, foreign) = sync_channel::<Foreign>(FOREIGN_MAX);
        let (sent, gateway) = (SentCancels::default(), self.clone());
        let own = sent.clone();
        let send = move || {
            for (number, foreign) in (0..).zip(foreign) {
                gateway.send_foreign(foreign, number, &channel, &own);
            }
        };
        match thread::Builder::new().name("relay".into()).spawn(send) {
            Ok(_) => self.upgrading.relay.connect(Some(sender)),
            Err(error) => tracing::error!(%error, "no cancel request or order reaches the process before this one"),
        }
        self.upgrading.relay.open_gate();
        sent
    }

    fn send_foreign(&self, foreign: Foreign, number: u64, channel: &Channel, sent: &SentCancels) {
        let snapshot = self.snapshot();
        let bind_of = |listener: &str| snapshot.listener(listener).map(|found| found.settings.bind.to_string());
        match foreign {
            Foreign::Cancel(request) => {
                let Some(bind) = bind_of(&request.listener) else { return (request.over)() };
                let message =
                    Message::Cancel { number, bind, pid: request.pid, secret: KeySecret(request.secret.into()) };
                lock(&sent.0).insert(number, request.over);
                if message.send(channel, &[]).is_err() {
                    sent.over(number);
                }
            }
            Foreign::Pause(ForeignPause { listener, order }) => {
                let Some(bind) = bind_of(&listener).filter(|_| self.upgrading.takes_orders) else { return };
                let PauseOrder { database, is_paused } = order;
                // A process that has ended has no client that waits.
                let _ = Message::Paused { bind, database: database.map(Vec::from), is_paused }.send(channel, &[]);
            }
        }
    }

    /// Takes requests and orders from the new process in, until one of the two ends.
    pub(super) fn receive_from_successor(&self, channel: &Arc<Channel>, listening: &Sockets) {
        let listeners: HashMap<String, Arc<str>> =
            listening.iter().map(|(name, sockets)| (bind_text(sockets), name.clone())).collect();
        let (channel, mailboxes, relay) = (channel.clone(), self.mailboxes.clone(), self.upgrading.relay.clone());
        let receive = move || take_foreign(&channel, &listeners, &mailboxes, &relay);
        if let Err(error) = thread::Builder::new().name("relay".into()).spawn(receive) {
            tracing::error!(%error, "cancel requests and orders that come to the new process do not reach this one");
        }
    }
}

/// The channel has a patience, after which the numbers of requests that are over are sent back. Requests with the key of a process before
/// this one go on to it, and so do orders.
fn take_foreign(
    channel: &Channel,
    listeners: &HashMap<String, Arc<str>>,
    mailboxes: &[Mailbox<Mail>],
    relay: &UpgradeRelay,
) {
    let (over, are_over) = mpsc::channel();
    loop {
        for number in are_over.try_iter() {
            // A process that is gone, or does not read, has no client that waits.
            let _ = Message::CancelOver { number }.send(channel, &[]);
        }
        match receive(channel) {
            Ok(PeerEvent::Message(Message::Cancel { number, bind, pid, secret }, _)) => {
                let own = over.clone();
                let is_over: Over = Arc::new(move || {
                    let _ = own.send(number);
                });
                match listeners.get(&bind) {
                    Some(listener) => {
                        take_cancel(
                            ForeignCancel { listener: listener.clone(), pid, secret: secret.0.into(), over: is_over },
                            mailboxes,
                            relay,
                        );
                    }
                    None => is_over(),
                }
            }
            Ok(PeerEvent::Message(Message::Paused { bind, database, is_paused }, _)) => {
                let Some(listener) = listeners.get(&bind) else { continue };
                let order = PauseOrder { database: database.map(Vec::into_boxed_slice), is_paused };
                relay.forward_pause(ForeignPause { listener: listener.clone(), order: order.clone() });
                for worker in mailboxes {
                    worker.send(Mail::Deliver { listener: listener.clone(), message: Box::new(order.clone()) });
                }
            }
            Ok(PeerEvent::Message(..) | PeerEvent::Nothing) => {}
            // The words of a newer program.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            Ok(PeerEvent::End) | Err(_) => return,
        }
    }
}

fn take_cancel(request: ForeignCancel, mailboxes: &[Mailbox<Mail>], relay: &UpgradeRelay) {
    let ForeignCancel { listener, pid, secret, over } = &request;
    let (listener, own) = (listener.clone(), CancelMessage::of(*pid, secret.clone(), over.clone()));
    let over = over.clone();
    if relay.forward(request) {
        return;
    }
    match own.and_then(|(worker, message)| Some((mailboxes.get(worker)?, message))) {
        Some((worker, message)) => worker.send(Mail::Deliver { listener, message: Box::new(message) }),
        None => over(),
    }
}
