//! The surroundings of a session: outputs, time, counters.

use weir_base::time::{Time, turn};
use weir_engine::Output;
use weir_postgres_session::io::{Channel, Clock, Event, Feeds, News, Tally, ToClient, ToServer};

use crate::{listen::ClientFeed, metrics::DatabaseMetrics};

/// The outputs of a session, and where it counts.
pub(crate) struct Surroundings<'a> {
    pub(crate) client: &'a Output,
    /// That of the server that the client holds.
    pub(crate) server: Option<&'a Output>,
    pub(crate) metrics: &'a DatabaseMetrics,
    /// The channels that it listens to.
    pub(crate) feed: &'a ClientFeed,
}

impl Clock for Surroundings<'_> {
    #[inline]
    fn now(&self) -> Time {
        turn::now()
    }
}

impl ToClient for Surroundings<'_> {
    #[inline]
    fn to_client(&self, bytes: &[u8]) {
        self.client.append(bytes);
    }

    #[inline]
    fn encode_to_client(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.client.with(encode);
    }
}

impl ToServer for Surroundings<'_> {
    #[inline]
    fn to_server(&self, bytes: &[u8]) {
        if let Some(server) = self.server {
            server.append(bytes);
        }
    }

    #[inline]
    fn encode_to_server(&self, encode: impl FnOnce(&mut Vec<u8>)) {
        if let Some(server) = self.server {
            server.with(encode);
        }
    }

    #[inline]
    fn is_server_congested(&self) -> bool {
        self.server.is_some_and(Output::is_congested)
    }
}

impl Feeds for Surroundings<'_> {
    fn listen(&self, channel: &[u8], encoding: Option<&[u8]>) -> Channel {
        self.feed.listen(channel, encoding)
    }

    fn unlisten(&self, channel: &[u8]) {
        self.feed.unlisten(channel);
    }

    fn fence(&self) {
        self.feed.fence();
    }

    fn mark(&self) -> u64 {
        self.feed.mark()
    }

    fn next_news(&self) -> Option<News> {
        self.feed.next_news()
    }

    fn forget_news(&self, is_kept: impl Fn(&[u8]) -> bool) {
        self.feed.forget_news(is_kept);
    }
}

impl Tally for Surroundings<'_> {
    #[inline]
    fn count(&self, event: Event) {
        self.metrics.count(event);
    }
}
