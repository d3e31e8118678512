//! Starting: settings, workers.

use std::{io, rc::Rc};

use super::{connection, session::Replies, settings::HttpOriginSettings};
use crate::server::{self, Origin, Places};

/// Binds and serves. When it returns, clients can connect.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for settings out of range; otherwise the address cannot be bound, or a worker's runtime
/// cannot be built.
pub fn start(settings: HttpOriginSettings) -> io::Result<Origin> {
    settings.check()?;
    let HttpOriginSettings { bind, workers, cpus, runtime, payload, delay, connections_max } = &settings;
    let (payload, delay, connections_max) = (*payload, *delay, *connections_max);
    server::start(&Places { bind, workers: *workers, cpus, runtime }, |post| {
        move || async move {
            let _housekeeper = server::count_cpu(post.stats.clone());
            let replies = Rc::new(Replies::new(payload, connections_max, delay, post.stats.clone()));
            server::accept(&post.listener, post.inbox, &post.stats, |socket| connection::admit(&replies, socket)).await;
        }
    })
}
