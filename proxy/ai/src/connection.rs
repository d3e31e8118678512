//! The connection of an exchange as the admin API shows it: the key, the model and the stream of its last request.

use std::sync::{Arc, atomic::Ordering};

use weir_base::{connection::ConnectionEntry, time::turn};
use weir_spend::usage::record::TEXT_BYTES_MAX;

use crate::filter::AiFilter;

/// A request under way on a connection, which counts it until this is dropped.
pub(crate) struct OpenRequest(Arc<ConnectionEntry>);

impl OpenRequest {
    pub(crate) fn new(connection: &Arc<ConnectionEntry>) -> Self {
        connection.in_flight.fetch_add(1, Ordering::Relaxed);
        connection.active_at.store(turn::now().as_nanos(), Ordering::Relaxed);
        Self(connection.clone())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AiFilter {
    /// Shows the request on its connection, once its facts are known. With HTTP/2 the last one shows.
    pub(crate) fn show_on_connection(&self) {
        let Some(OpenRequest(entry)) = &self.connection else { return };
        let model = &self.identity.model;
        let model = &model[..model.floor_char_boundary(TEXT_BYTES_MAX)];
        let is_stream = self.planned.as_ref().map(|(facts, _)| facts.options.is_stream());
        show(entry, self.identity.key.as_deref().unwrap_or_default(), model, is_stream);
    }
}

/// Most requests of a connection are alike: nothing is allocated for them.
fn show(entry: &Arc<ConnectionEntry>, key: &str, model: &str, is_stream: Option<bool>) {
    let mut details = entry.details();
    let details = &mut *details;
    for (place, text) in [(&mut details.user, key), (&mut details.model, model)] {
        if place != text {
            text.clone_into(place);
        }
    }
    details.is_stream = is_stream;
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
        show(&entry, "team", "m", Some(true));
        show(&entry, "team", "other", Some(false));
        let details = entry.details();
        assert_eq!((&*details.user, &*details.model, details.is_stream), ("team", "other", Some(false)));
    }
}
