//! The connection of an exchange as the admin API shows it: the key, the model and the stream of its last request.

use std::sync::{Arc, atomic::Ordering};

use weir_base::{connection::ConnectionEntry, time::turn};
use weir_spend::usage::record::TEXT_BYTES_MAX;

/// A request under way on a connection, which counts it until this is dropped.
pub(crate) struct OpenRequest(Arc<ConnectionEntry>);

impl OpenRequest {
    pub(crate) fn new(connection: &Arc<ConnectionEntry>) -> Self {
        connection.in_flight.fetch_add(1, Ordering::Relaxed);
        connection.active_at.store(turn::now().as_nanos(), Ordering::Relaxed);
        Self(connection.clone())
    }

    /// Shows the facts of the request on its connection. With HTTP/2 the last one shows.
    pub(crate) fn show(&self, key: Option<&str>, model: &str, is_stream: bool) {
        let model = &model[..model.floor_char_boundary(TEXT_BYTES_MAX)];
        show(&self.0, key.unwrap_or_default(), model, is_stream);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Most requests of a connection are alike: nothing is allocated for them.
fn show(entry: &ConnectionEntry, key: &str, model: &str, is_stream: bool) {
    let mut details = entry.details();
    let details = &mut *details;
    for (place, text) in [(&mut details.user, key), (&mut details.model, model)] {
        if place != text {
            text.clone_into(place);
        }
    }
    details.is_stream = Some(is_stream);
}

#[cfg(test)]
mod tests {
    use weir_base::time::Time;

    use super::*;

    #[test]
    fn the_last_request_shows() {
        let entry = Arc::new(ConnectionEntry::new(1, "ai".into(), 0, "192.0.2.1:1".into(), Time::ZERO));
        let both = [(); 2].map(|()| OpenRequest::new(&entry));
        assert_eq!(entry.in_flight.load(Ordering::Relaxed), 2);
        drop(both);
        assert_eq!(entry.in_flight.load(Ordering::Relaxed), 0);
        show(&entry, "team", "m", true);
        show(&entry, "team", "other", false);
        let details = entry.details();
        assert_eq!((&*details.user, &*details.model, details.is_stream), ("team", "other", Some(false)));
    }
}
