//! The news of one client, until its session takes them.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{HashSet, VecDeque},
    rc::Rc,
    sync::Arc,
};

use weir_postgres_codec::sqlstate;
use weir_postgres_session::{
    Refusal,
    io::{Channel, News, Notification},
};
use weir_upstream::pooled::Pool;

use super::hub::Hub;
use crate::{server::PostgresServer, service::PostgresUpstream};

/// Bytes of news that wait for one client. Default 16 MiB: 2,000 of the largest notifications, as one transaction may send them at once. The
/// clients of a worker share the payloads. A client that does not read, or stays within a transaction, is disconnected beyond it.
pub(crate) const NEWS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that one of them costs besides its payload.
const NEWS_BYTES: usize = 64;
/// Channels of one client. PostgreSQL has no limit; a client with one channel for each object that it shows has hundreds. 10,000 of
/// the longest take 2 MiB.
const CHANNELS_MAX: usize = 10_000;

/// One client that listens.
pub(super) struct Feed {
    pub(super) id: u64,
    hub: Rc<Hub>,
    wake: Rc<dyn Fn()>,
    /// Channels that the hub keeps for it.
    channels: RefCell<HashSet<Box<[u8]>>>,
    news: RefCell<VecDeque<News>>,
    bytes: Cell<usize>,
    mark: Cell<u64>,
    refused: RefCell<Option<(Box<[u8]>, Refusal)>>,
    /// Fences under way at the hub.
    fences: Cell<u32>,
    is_fenced: Cell<bool>,
    is_overrun: Cell<bool>,
}

impl Feed {
    pub(super) fn new(hub: Rc<Hub>, wake: Rc<dyn Fn()>) -> Self {
        Self {
            id: hub.next_feed(),
            hub,
            wake,
            channels: RefCell::default(),
            news: RefCell::default(),
            bytes: Cell::new(0),
            mark: Cell::new(0),
            refused: RefCell::default(),
            fences: Cell::new(0),
            is_fenced: Cell::new(false),
            is_overrun: Cell::new(false),
        }
    }

    /// Waits for what is on its way.
    pub(super) fn fence(self: &Rc<Self>) {
        self.fences.set(self.fences.get() + 1);
        self.hub.fence(self);
    }

    /// A fence was passed since the last call.
    pub(super) fn take_fenced(&self) -> bool {
        self.is_fenced.take()
    }

    /// It takes the place of `before`, which had another hub: a fence of the client that is under way there would pass unseen.
    pub(super) fn replace(self: &Rc<Self>, before: &Feed) {
        if before.is_fenced.get() {
            self.pass_fence();
        } else if before.fences.get() > 0 {
            self.fence();
        }
        self.note_gap();
    }

    fn put(&self, bytes: usize, news: News) {
        if self.is_overrun.get() {
            return;
        }
        let bytes = self.bytes.get() + bytes + NEWS_BYTES;
        self.bytes.set(bytes);
        if bytes > NEWS_BYTES_MAX {
            self.is_overrun.set(true);
            self.news.borrow_mut().clear();
        } else {
            self.news.borrow_mut().push_back(news);
        }
        (self.wake)();
    }

    /// A notification of one of its channels.
    pub(super) fn notify(&self, notification: &Arc<Notification>) {
        let number = self.mark.get();
        self.mark.set(number + 1);
        let news = News::Notification { number, notification: notification.clone() };
        self.put(bytes_of(notification), news);
    }

    /// Notifications may have been lost.
    pub(super) fn note_gap(&self) {
        self.put(0, News::Gap);
    }

    /// The channel is there: its statement goes on.
    pub(super) fn wake(&self) {
        (self.wake)();
    }

    /// It cannot be had.
    pub(super) fn refuse(&self, channel: &[u8], refusal: &Refusal) {
        self.channels.borrow_mut().remove(channel);
        *self.refused.borrow_mut() = Some((channel.into(), refusal.clone()));
        (self.wake)();
    }

    /// See [`weir_postgres_session::io::Feeds::fence`].
    pub(super) fn pass_fence(&self) {
        self.fences.set(self.fences.get().saturating_sub(1));
        self.is_fenced.set(true);
        (self.wake)();
    }
}

fn bytes_of(notification: &Notification) -> usize {
    notification.channel.len() + notification.payload.len()
}

/// The feed of a client, which it gets with its first LISTEN.
pub(crate) struct ClientFeed {
    upstream: Rc<PostgresUpstream>,
    pool: Rc<Pool<PostgresServer>>,
    wake: Rc<dyn Fn()>,
    feed: OnceCell<Rc<Feed>>,
    /// The encoding of the client at its first LISTEN.
    wanted: RefCell<Option<Box<[u8]>>>,
}

impl ClientFeed {
    /// A client of that pool; `wake` lets its task look at what has come.
    pub(crate) fn new(upstream: &Rc<PostgresUpstream>, pool: &Rc<Pool<PostgresServer>>, wake: Rc<dyn Fn()>) -> Self {
        Self { upstream: upstream.clone(), pool: pool.clone(), wake, feed: OnceCell::new(), wanted: RefCell::default() }
    }

    /// The encoding as a line has it: names that differ in letter case and punctuation are one, and that of the server is none.
    fn encoding(&self, wanted: Option<&[u8]>) -> Option<Box<[u8]>> {
        let plain = |name: &[u8]| -> Box<[u8]> {
            let letters = name.iter().filter(|byte| byte.is_ascii_alphanumeric());
            let name: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
            if name == b"unicode" { b"utf8".as_slice().into() } else { name.into() }
        };
        let wanted = plain(wanted?);
        let greeting = self.upstream.protocol().greeting(self.pool.key())?;
        let of_server = greeting.iter().find(|(name, _)| name == b"client_encoding").map(|(_, value)| plain(value));
        (of_server.as_ref() != Some(&wanted)).then_some(wanted)
    }

    /// A reload has replaced the upstream: the client listens at the new one, with a gap, and waits there for its fence.
    pub(crate) fn follow(&mut self, upstream: &Rc<PostgresUpstream>, pool: &Rc<Pool<PostgresServer>>) {
        (self.upstream, self.pool) = (upstream.clone(), pool.clone());
        let Some(before) = self.feed.take() else { return };
        let encoding = self.wanted.take();
        for channel in before.channels.take() {
            before.hub.unlisten(&before, &channel);
            // One that is refused there ends with the client's next LISTEN of it.
            let _ = self.listen(&channel, encoding.as_deref());
        }
        self.begin(encoding.as_deref()).replace(&before);
    }

    fn begin(&self, encoding: Option<&[u8]>) -> &Rc<Feed> {
        self.feed.get_or_init(|| {
            *self.wanted.borrow_mut() = encoding.map(Into::into);
            let hub = Hub::of(&self.upstream, self.pool.key(), self.encoding(encoding));
            Rc::new(Feed::new(hub, self.wake.clone()))
        })
    }

    pub(crate) fn listen(&self, channel: &[u8], encoding: Option<&[u8]>) -> Channel {
        let feed = self.begin(encoding);
        let refused = feed.refused.borrow_mut().take();
        if let Some((_, refusal)) = refused.filter(|(name, _)| **name == *channel) {
            return Channel::Refused(refusal);
        }
        let mut channels = feed.channels.borrow_mut();
        if !channels.contains(channel) {
            if channels.len() >= CHANNELS_MAX {
                let text = format!("a client may listen to {CHANNELS_MAX} channels at most");
                return Channel::Refused(Refusal::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
            }
            channels.insert(channel.into());
        }
        drop(channels);
        feed.hub.listen(feed, channel)
    }

    pub(crate) fn unlisten(&self, channel: &[u8]) {
        if let Some(feed) = self.feed.get()
            && feed.channels.borrow_mut().remove(channel)
        {
            feed.hub.unlisten(feed, channel);
        }
    }

    pub(crate) fn fence(&self) {
        if let Some(feed) = self.feed.get() {
            feed.fence();
        }
    }

    pub(crate) fn mark(&self) -> u64 {
        self.feed.get().map_or(0, |feed| feed.mark.get())
    }

    pub(crate) fn next_news(&self) -> Option<News> {
        let feed = self.feed.get()?;
        let news = feed.news.borrow_mut().pop_front()?;
        let payload = match &news {
            News::Notification { notification, .. } => bytes_of(notification),
            News::Gap => 0,
        };
        feed.bytes.set(feed.bytes.get() - payload - NEWS_BYTES);
        Some(news)
    }

    pub(crate) fn forget_news(&self, is_kept: impl Fn(&[u8]) -> bool) {
        let Some(feed) = self.feed.get() else { return };
        let mut news = feed.news.borrow_mut();
        news.retain(|news| match news {
            News::Notification { notification, .. } => is_kept(&notification.channel),
            News::Gap => true,
        });
        let of = |news: &News| match news {
            News::Notification { notification, .. } => NEWS_BYTES + bytes_of(notification),
            News::Gap => NEWS_BYTES,
        };
        feed.bytes.set(news.iter().map(of).sum());
    }

    /// A fence was passed since the last call.
    pub(crate) fn take_fenced(&self) -> bool {
        self.feed.get().is_some_and(|feed| feed.take_fenced())
    }

    /// More has come than may wait.
    pub(crate) fn is_overrun(&self) -> bool {
        self.feed.get().is_some_and(|feed| feed.is_overrun.get())
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.feed.get().map_or(0, |feed| feed.bytes.get())
    }

    /// The client has listened at some time.
    pub(crate) fn has_begun(&self) -> bool {
        self.feed.get().is_some()
    }
}

impl Drop for ClientFeed {
    fn drop(&mut self) {
        if let Some(feed) = self.feed.get() {
            for channel in feed.channels.take() {
                feed.hub.unlisten(feed, &channel);
            }
        }
    }
}
