//! Notifications for a client that listens.

use std::sync::atomic::Ordering::Relaxed;

use weir_base::{error::Culprit, violation::Violation};
use weir_listener::CloseReason;
use weir_postgres_codec::{
    backend::{self, ErrorReport},
    sqlstate,
};
use weir_postgres_session::Session;

use super::{
    life::{Life, Wanted},
    surroundings::Surroundings,
};
use crate::listen::NEWS_BYTES_MAX;

impl Life<'_> {
    /// The hub has something for the client: news, a channel, a fence.
    pub(super) fn on_news(&mut self) -> Result<(), CloseReason> {
        if self.client.feed.is_overrun() {
            return Err(self.overrun());
        }
        let metrics = &*self.client.metrics;
        let io = Surroundings { client: &self.output, server: None, metrics, feed: &self.client.feed };
        if self.client.feed.take_fenced() {
            self.client.session.on_fence(self.lease.state(), &io);
            if self.lease.server.is_some() {
                // The server may be free now.
                self.on_reply(&[])?;
            }
        }
        self.has_news = self.output.is_congested();
        if !self.has_news {
            let metrics = &*self.client.metrics;
            let io = Surroundings { client: &self.output, server: None, metrics, feed: &self.client.feed };
            self.client.session.on_news(self.lease.state(), &io);
        }
        if self.wanted == Wanted::Reply { self.go_on() } else { Ok(()) }
    }

    /// More waits for the client than may.
    fn overrun(&self) -> CloseReason {
        let text = format!(
            "terminating connection: {NEWS_BYTES_MAX} bytes of notifications wait for the client to read them or to end its transaction"
        );
        if Session::is_between_replies(self.lease.state()) {
            let report = ErrorReport::fatal(sqlstate::PROGRAM_LIMIT_EXCEEDED, &text);
            self.output.with(|out| backend::error(out, &report));
        }
        let most = NEWS_BYTES_MAX as u64;
        self.connection.violated(&Violation::limit("slow_listener", Culprit::Client, text, most, most))
    }

    /// Shows operators how many channels the client listens to.
    #[inline]
    pub(super) fn show_channels(&mut self, channels: usize) {
        if self.shown_channels == channels {
            return;
        }
        let listeners = &self.client.metrics.listeners;
        listeners.add(i64::from(channels > 0) - i64::from(self.shown_channels > 0));
        self.shown_channels = channels;
        self.connection.handle.entry().subscriptions.store(channels as u32, Relaxed);
    }
}
