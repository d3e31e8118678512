//! The connection of an exchange as the admin API shows it: the key, the model and the stream of its last request.

use std::sync::Arc;

use weir_base::connection::ConnectionEntry;
use weir_spend::usage::record::TEXT_BYTES_MAX;

/// The connection of an exchange. The session frame counts its requests under way.
pub(crate) struct ShownConnection(pub(crate) Arc<ConnectionEntry>);

impl ShownConnection {
    /// Shows the facts of the request on its connection. With HTTP/2 the last one shows.
    pub(crate) fn show(&self, key: Option<&str>, model: &str, is_stream: bool) {
        let model = &model[..model.floor_char_boundary(TEXT_BYTES_MAX)];
        show(&self.0, key.unwrap_or_default(), model, is_stream);
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
        let entry = ConnectionEntry::new(1, "ai".into(), 0, "192.0.2.1:1".into(), Time::ZERO);
        show(&entry, "team", "m", true);
        show(&entry, "team", "other", false);
        let details = entry.details();
        assert_eq!((&*details.user, &*details.model, details.is_stream), ("team", "other", Some(false)));
    }
}
