//! The clients of one worker that listen at one server, database and user.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    rc::{Rc, Weak},
    sync::atomic::{AtomicU64, Ordering},
};

use weir_engine::{Inbox, Mailbox, mailbox};
use weir_postgres_session::{
    Refusal,
    io::{Channel, Notification},
};

use super::{FromLine, HubId, RequestNumber, ToLine, feed::Feed, lines};
use crate::{server::PoolKey, service::PostgresUpstream};

/// The number of the next hub.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The hubs of one upstream on one worker. A hub lives as long as one of its clients.
#[derive(Default)]
pub(crate) struct Hubs(RefCell<HashMap<HubKey, Weak<Hub>>>);

/// A pool, and the encoding of its clients.
type HubKey = (PoolKey, Option<Box<[u8]>>);

/// A client and whether it waits for the channel.
type Member = (Rc<Feed>, bool);

/// A channel that clients of this worker want.
struct Local {
    request: RequestNumber,
    /// The server has it.
    is_there: bool,
    members: BTreeMap<u64, Member>,
}

/// See above.
pub(super) struct Hub {
    number: HubId,
    line: Mailbox<ToLine>,
    channels: RefCell<HashMap<Box<[u8]>, Local>>,
    fences: RefCell<HashMap<u64, Rc<Feed>>>,
    last_fence: Cell<u64>,
    last_request: Cell<RequestNumber>,
    last_feed: Cell<u64>,
}

impl Hub {
    /// That of a pool's clients with this encoding.
    pub(super) fn of(upstream: &Rc<PostgresUpstream>, pool: &PoolKey, encoding: Option<Box<[u8]>>) -> Rc<Self> {
        let mut hubs = upstream.protocol().hubs().0.borrow_mut();
        let key = (pool.clone(), encoding.clone());
        if let Some(hub) = hubs.get(&key).and_then(Weak::upgrade) {
            return hub;
        }
        hubs.retain(|_, hub| hub.strong_count() > 0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (news, inbox) = mailbox();
        let line = lines::join(lines::LineKey::new(upstream, pool, encoding), upstream, number, news);
        let hub = Rc::new(Self {
            number,
            line,
            channels: RefCell::default(),
            fences: RefCell::default(),
            last_fence: Cell::new(0),
            last_request: Cell::new(0),
            last_feed: Cell::new(0),
        });
        hubs.insert(key, Rc::downgrade(&hub));
        weir_engine::spawn(attend(Rc::downgrade(&hub), inbox)).detach();
        hub
    }

    /// A number for one more client.
    pub(super) fn next_feed(&self) -> u64 {
        self.last_feed.set(self.last_feed.get() + 1);
        self.last_feed.get()
    }

    /// A client wants a channel. It asks again when it was woken.
    pub(super) fn listen(&self, feed: &Rc<Feed>, channel: &[u8]) -> Channel {
        let mut channels = self.channels.borrow_mut();
        if !channels.contains_key(channel) {
            let request = self.last_request.get() + 1;
            self.last_request.set(request);
            channels.insert(channel.into(), Local { request, is_there: false, members: BTreeMap::new() });
            self.line.send(ToLine::Listen(self.number, channel.into(), request));
        }
        let local = channels.get_mut(channel).expect("it was just inserted");
        let is_there = local.is_there;
        let (_, waits) = local.members.entry(feed.id).or_insert_with(|| (feed.clone(), !is_there));
        if *waits { Channel::Awaited } else { Channel::There }
    }

    /// A client wants it no longer.
    pub(super) fn unlisten(&self, feed: &Feed, channel: &[u8]) {
        let mut channels = self.channels.borrow_mut();
        let gone = channels.get_mut(channel).and_then(|local| local.members.remove(&feed.id));
        if channels.get(channel).is_some_and(|local| local.members.is_empty()) {
            channels.remove(channel);
            self.line.send(ToLine::Unlisten(self.number, channel.into()));
        }
        drop((channels, gone));
    }

    /// A client waits for what is on its way.
    pub(super) fn fence(&self, feed: &Rc<Feed>) {
        let number = self.last_fence.get() + 1;
        self.last_fence.set(number);
        self.fences.borrow_mut().insert(number, feed.clone());
        self.line.send(ToLine::Fence(self.number, number));
    }

    fn on_mail(&self, mail: FromLine) {
        match mail {
            FromLine::There(channel, request) => self.on_there(&channel, request),
            FromLine::Refused(channel, request, refusal) => {
                self.refuse(&refusal, |name, local| *name == *channel && local.request == request);
            }
            FromLine::Unavailable(refusal) => self.refuse(&refusal, |_, _| true),
            FromLine::Notification(notification) => self.on_notification(&notification),
            FromLine::Fenced(number) => {
                if let Some(feed) = self.fences.borrow_mut().remove(&number) {
                    feed.pass_fence();
                }
            }
            FromLine::Lost => self.channels.borrow_mut().values_mut().for_each(|local| local.is_there = false),
            FromLine::Restored => {
                for feed in self.listening() {
                    feed.note_gap();
                }
            }
            FromLine::Over => {}
        }
    }

    fn on_there(&self, channel: &[u8], request: RequestNumber) {
        let mut channels = self.channels.borrow_mut();
        // The server may have lost an earlier one since.
        let Some(local) = channels.get_mut(channel).filter(|local| local.request == request) else { return };
        local.is_there = true;
        for (feed, waits) in local.members.values_mut() {
            if std::mem::take(waits) {
                feed.wake();
            }
        }
    }

    fn on_notification(&self, notification: &std::sync::Arc<Notification>) {
        if let Some(local) = self.channels.borrow().get(&notification.channel) {
            local.members.values().for_each(|(feed, _)| feed.notify(notification));
        }
    }

    /// Clients that wait for one of these channels wait no longer.
    fn refuse(&self, refusal: &Refusal, is_meant: impl Fn(&[u8], &Local) -> bool) {
        let mut channels = self.channels.borrow_mut();
        channels.retain(|channel, local| {
            if !is_meant(channel, local) || local.is_there {
                return true;
            }
            local.members.retain(|_, (feed, waits)| {
                if *waits {
                    feed.refuse(channel, refusal);
                }
                !*waits
            });
            let is_wanted = !local.members.is_empty();
            if !is_wanted {
                self.line.send(ToLine::Unlisten(self.number, channel.clone()));
            }
            is_wanted
        });
    }

    /// Every client that listens to something, once.
    fn listening(&self) -> Vec<Rc<Feed>> {
        let channels = self.channels.borrow();
        let members = channels.values().flat_map(|local| &local.members);
        let listening = members.filter(|(_, (_, waits))| !waits).map(|(id, (feed, _))| (*id, feed.clone()));
        listening.collect::<BTreeMap<_, _>>().into_values().collect()
    }
}

#[cfg(test)]
impl Hub {
    /// One whose line is the other end of the mailbox.
    pub(super) fn with_line(line: Mailbox<ToLine>) -> Rc<Self> {
        Rc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            line,
            channels: RefCell::default(),
            fences: RefCell::default(),
            last_fence: Cell::new(0),
            last_request: Cell::new(0),
            last_feed: Cell::new(0),
        })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.line.send(ToLine::Leave(self.number));
    }
}

/// Takes the messages of the line, up to the last one.
async fn attend(hub: Weak<Hub>, inbox: Inbox<FromLine>) {
    loop {
        for mail in inbox.receive().await {
            if matches!(mail, FromLine::Over) {
                return;
            }
            if let Some(hub) = hub.upgrade() {
                hub.on_mail(mail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    /// A hub, and the messages that its line gets.
    fn hub() -> (Rc<Hub>, Inbox<ToLine>) {
        let (line, inbox) = mailbox();
        (Hub::with_line(line), inbox)
    }

    fn client(hub: &Rc<Hub>) -> Rc<Feed> {
        Rc::new(Feed::new(hub.clone(), Rc::new(|| {})))
    }

    fn sent(inbox: &Inbox<ToLine>) -> Vec<ToLine> {
        match pin!(inbox.receive()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(mail) => mail.into(),
            Poll::Pending => Vec::new(),
        }
    }

    fn fences(inbox: &Inbox<ToLine>) -> Vec<u64> {
        let number = |mail| if let ToLine::Fence(_, number) = mail { Some(number) } else { None };
        sent(inbox).into_iter().filter_map(number).collect()
    }

    fn requests(inbox: &Inbox<ToLine>) -> Vec<RequestNumber> {
        let number = |mail| if let ToLine::Listen(_, _, request) = mail { Some(request) } else { None };
        sent(inbox).into_iter().filter_map(number).collect()
    }

    #[test]
    fn the_reply_to_an_earlier_listen_is_none_for_a_later_one() {
        let (hub, inbox) = hub();
        let (first, second) = (client(&hub), client(&hub));
        let (channel, refusal): (&[u8], _) =
            (b"x", Refusal::error(weir_postgres_codec::sqlstate::INTERNAL_ERROR, "no"));
        assert_eq!(hub.listen(&first, channel), Channel::Awaited);
        let [old] = requests(&inbox)[..] else { panic!("one request") };
        hub.unlisten(&first, channel);
        assert_eq!(hub.listen(&second, channel), Channel::Awaited);
        let [new] = requests(&inbox)[..] else { panic!("another request") };
        hub.on_mail(FromLine::There(channel.into(), old));
        assert_eq!(hub.listen(&second, channel), Channel::Awaited, "the server is about to lose it");
        hub.on_mail(FromLine::Refused(channel.into(), old, refusal));
        assert_eq!(hub.listen(&second, channel), Channel::Awaited);
        hub.on_mail(FromLine::There(channel.into(), new));
        assert_eq!(hub.listen(&second, channel), Channel::There);
    }

    #[test]
    fn a_fence_under_way_is_requested_at_the_new_hub_when_its_client_moves() {
        let ((old, to_old), (new, to_new)) = (hub(), hub());
        let before = client(&old);
        let after = client(&new);
        after.replace(&before);
        assert!(fences(&to_new).is_empty(), "none is under way");
        before.fence();
        let [first] = fences(&to_old)[..] else { panic!("one fence") };
        let after = client(&new);
        after.replace(&before);
        let [second] = fences(&to_new)[..] else { panic!("the fence moves") };
        old.on_mail(FromLine::Fenced(first));
        assert!(!after.take_fenced(), "it is that of the old server");
        new.on_mail(FromLine::Fenced(second));
        assert!(after.take_fenced() && !after.take_fenced());
        // One that has come, and that the client has not seen.
        let last = client(&old);
        last.replace(&before);
        assert!(last.take_fenced() && fences(&to_old).is_empty());
    }
}
