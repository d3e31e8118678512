//! The surroundings of a session: outputs, time, counters.

use weir_base::time::{Time, turn};
use weir_engine::Output;
use weir_postgres_session::io::{Clock, Event, Feeds, Tally, ToClient, ToServer};

use crate::metrics::DatabaseMetrics;

/// The outputs of a session, and where it counts.
pub(crate) struct Surroundings<'a> {
    pub(crate) client: &'a Output,
    /// That of the server that the client holds.
    pub(crate) server: Option<&'a Output>,
    pub(crate) metrics: &'a DatabaseMetrics,
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

/// Settings of listeners do not share notifications: LISTEN pins, and no session calls these.
impl Feeds for Surroundings<'_> {
    fn listen(&self, _: &[u8]) -> bool {
        false
    }

    fn unlisten(&self, _: Option<&[u8]>) {}
}

impl Tally for Surroundings<'_> {
    #[inline]
    fn count(&self, event: Event) {
        self.metrics.count(event);
    }
}
