//! Changes for a client that follows an environment: the document of `GET /api/client/delta` and the events of `/streaming`.

use weir_flags_codec::delta::write_hydration;
use weir_flags_codec::etag::EntityTag;
use weir_flags_codec::{DeltaChange, DeltaEvent};

use crate::history::Lacking;
use crate::projects::Projects;
use crate::snapshot::{Scope, Snapshot};

/// The part of an environment that a client follows.
#[derive(Clone, Copy, Debug)]
pub struct Follower<'a> {
    /// The projects of its token.
    pub projects: &'a Projects,
    /// The same as a scope of the snapshot.
    pub scope: &'a Scope,
    /// The beginning of the names.
    pub name_prefix: &'a str,
}

/// The name of an event of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The first one: the whole state, or what has changed since `Last-Event-ID`.
    Connected,
    /// A later change.
    Updated,
}

impl StreamEvent {
    /// The part of an event behind its document.
    pub const END: &'static str = "\n\n";

    /// The document without changes.
    pub const NO_NEWS: &'static str = "{\"events\":[]}";

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connected => "unleash-connected",
            Self::Updated => "unleash-updated",
        }
    }
}

impl Snapshot {
    /// The entity tag of a delta that leads to this snapshot.
    pub const fn delta_tag(&self) -> EntityTag {
        EntityTag::Revision(self.revision())
    }

    /// Whether a client with a revision gets the whole state.
    pub fn lacks_everything(&self, client: Option<u64>) -> bool {
        matches!(self.history.lacking(client), Lacking::Everything)
    }

    /// Bytes of the changes that a client with a revision lacks and sees. Zero if that is the whole state.
    pub fn change_bytes(&self, follower: &Follower<'_>, client: Option<u64>) -> usize {
        match self.history.lacking(client) {
            Lacking::Events(events) => events.filter(|event| follower.sees(event)).map(DeltaEvent::text_bytes).sum(),
            Lacking::Nothing | Lacking::Everything => 0,
        }
    }

    /// Appends `{"events":[…]}` for a client with a revision, and says whether there is something new: without it the response is a 304. A
    /// client whose revision is not known here, too old, or ahead of this gateway gets the whole state.
    pub fn delta(&self, follower: &Follower<'_>, client: Option<u64>, out: &mut Vec<u8>) -> bool {
        let begun = out.len();
        out.extend_from_slice(b"{\"events\":[");
        let empty = out.len();
        match self.history.lacking(client) {
            Lacking::Nothing => {}
            Lacking::Events(events) => {
                for event in events.filter(|event| follower.sees(event)) {
                    if out.len() > empty {
                        out.push(b',');
                    }
                    event.write(out);
                }
            }
            Lacking::Everything => {
                let features = self.seen(follower.scope, follower.name_prefix);
                let segments = self.segments.iter().map(|segment| &*segment.json);
                write_hydration(out, self.revision(), features, segments);
            }
        }
        let has_news = out.len() > empty;
        out.extend_from_slice(b"]}");
        if !has_news {
            out.truncate(begun);
        }
        has_news
    }

    /// Appends the same as an event of a stream, on one line of data. Without news a [`StreamEvent::Connected`] has no events, and nothing is
    /// appended for a [`StreamEvent::Updated`].
    pub fn stream_event(&self, event: StreamEvent, follower: &Follower<'_>, client: Option<u64>, out: &mut Vec<u8>) {
        let begun = out.len();
        out.extend_from_slice(self.stream_head(event).as_bytes());
        if !self.delta(follower, client, out) {
            match event {
                StreamEvent::Connected => out.extend_from_slice(StreamEvent::NO_NEWS.as_bytes()),
                StreamEvent::Updated => return out.truncate(begun),
            }
        }
        out.extend_from_slice(StreamEvent::END.as_bytes());
    }

    /// The part of an event of a stream in front of its document.
    pub fn stream_head(&self, event: StreamEvent) -> String {
        format!("event: {}\nid: {}\ndata: ", event.name(), self.revision())
    }
}

impl Follower<'_> {
    /// Segments concern every client: which flags use them is not known here.
    fn sees(&self, event: &DeltaEvent) -> bool {
        let (name, project) = match &event.change {
            DeltaChange::FeatureUpdated(feature) => (&feature.name, &feature.project),
            DeltaChange::FeatureRemoved { name, project } => (name, project),
            DeltaChange::SegmentUpdated(_) | DeltaChange::SegmentRemoved(_) => return true,
            DeltaChange::Hydration { .. } | DeltaChange::Unknown => return false,
        };
        self.projects.has(project) && name.starts_with(self.name_prefix)
    }
}
