//! Changes of flags and segments as events: `GET /api/client/delta` and `/streaming`.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::features::{DEFAULT_PROJECT, text_bytes};
use crate::{DocumentError, FeatureText, SegmentText};

/// One change, with the revision that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaEvent {
    /// The revision. Several events of one update may share it.
    pub id: u64,
    /// The change.
    pub change: DeltaChange,
}

/// The kinds of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeltaChange {
    /// A flag is new or has changed.
    FeatureUpdated(FeatureText),
    /// A flag is gone from a project.
    FeatureRemoved {
        /// Its name.
        name: Arc<str>,
        /// The project that it was in.
        project: Arc<str>,
    },
    /// A segment is new or has changed.
    SegmentUpdated(SegmentText),
    /// The segment of this number is gone.
    SegmentRemoved(i64),
    /// The whole state in place of all before.
    Hydration {
        /// All flags.
        features: Vec<FeatureText>,
        /// All segments.
        segments: Vec<SegmentText>,
    },
    /// A kind of later servers.
    Unknown,
}

#[derive(Deserialize)]
struct WireEvents<'a> {
    #[serde(borrow)]
    events: Vec<WireEvent<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEvent<'a> {
    event_id: u64,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    feature: Option<&'a RawValue>,
    #[serde(borrow, default)]
    feature_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    project: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    segment: Option<&'a RawValue>,
    #[serde(default)]
    segment_id: Option<i64>,
    #[serde(borrow, default)]
    features: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    segments: Option<Vec<&'a RawValue>>,
}

/// The document is JSON, but an event lacks a field of its kind.
const INCOMPLETE: DocumentError = DocumentError { place: (1, 1), is_json: true };

impl DeltaEvent {
    /// Bytes of the texts that the event brings, without its frame.
    pub fn text_bytes(&self) -> usize {
        match &self.change {
            DeltaChange::FeatureUpdated(text) => text.json.len(),
            DeltaChange::FeatureRemoved { name, project } => name.len() + project.len(),
            DeltaChange::SegmentUpdated(text) => text.json.len(),
            DeltaChange::SegmentRemoved(_) | DeltaChange::Unknown => 0,
            DeltaChange::Hydration { features, segments } => text_bytes(features, segments),
        }
    }

    /// Reads the document `{"events":[…]}`.
    ///
    /// # Errors
    /// It is no JSON, or an event lacks a field of its kind. Nothing of it is taken then. A kind of event that is not known is no error.
    pub fn read_all(text: &[u8]) -> Result<Vec<Self>, DocumentError> {
        let wire: WireEvents<'_> = serde_json::from_slice(text)?;
        wire.events.into_iter().map(Self::read).collect()
    }

    fn read(wire: WireEvent<'_>) -> Result<Self, DocumentError> {
        let change = match &*wire.kind {
            "feature-updated" => DeltaChange::FeatureUpdated(FeatureText::read(wire.feature.ok_or(INCOMPLETE)?)?),
            "feature-removed" => DeltaChange::FeatureRemoved {
                name: wire.feature_name.ok_or(INCOMPLETE)?.into(),
                project: wire.project.unwrap_or(Cow::Borrowed(DEFAULT_PROJECT)).into(),
            },
            "segment-updated" => DeltaChange::SegmentUpdated(SegmentText::read(wire.segment.ok_or(INCOMPLETE)?)?),
            "segment-removed" => DeltaChange::SegmentRemoved(wire.segment_id.ok_or(INCOMPLETE)?),
            "hydration" => DeltaChange::Hydration {
                features: all(wire.features.ok_or(INCOMPLETE)?, FeatureText::read)?,
                segments: all(wire.segments.unwrap_or_default(), SegmentText::read)?,
            },
            _ => DeltaChange::Unknown,
        };
        Ok(Self { id: wire.event_id, change })
    }

    /// Appends the event as a member of `events`. An unknown one has no text and appends nothing.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.change {
            DeltaChange::FeatureUpdated(feature) => {
                self.begin(out, "feature-updated");
                append(out, &[",\"feature\":", &feature.json]);
            }
            DeltaChange::FeatureRemoved { name, project } => {
                self.begin(out, "feature-removed");
                append(out, &[",\"featureName\":"]);
                string(out, name);
                append(out, &[",\"project\":"]);
                string(out, project);
            }
            DeltaChange::SegmentUpdated(segment) => {
                self.begin(out, "segment-updated");
                append(out, &[",\"segment\":", &segment.json]);
            }
            DeltaChange::SegmentRemoved(id) => {
                self.begin(out, "segment-removed");
                append(out, &[",\"segmentId\":", &id.to_string()]);
            }
            DeltaChange::Hydration { features, segments } => {
                let (features, segments) = (features.iter().map(|it| &*it.json), segments.iter().map(|it| &*it.json));
                return write_hydration(out, self.id, features, segments);
            }
            DeltaChange::Unknown => return,
        }
        out.push(b'}');
    }

    fn begin(&self, out: &mut Vec<u8>, kind: &str) {
        begin(out, self.id, kind);
    }
}

/// Appends the event that replaces the whole state, from the texts of its flags and segments.
pub fn write_hydration<'a>(
    out: &mut Vec<u8>,
    id: u64,
    features: impl Iterator<Item = &'a str>,
    segments: impl Iterator<Item = &'a str>,
) {
    begin(out, id, "hydration");
    append(out, &[",\"features\":"]);
    list(out, features);
    append(out, &[",\"segments\":"]);
    list(out, segments);
    out.push(b'}');
}

/// Appends an array of such texts.
pub fn list<'a>(out: &mut Vec<u8>, texts: impl Iterator<Item = &'a str>) {
    out.push(b'[');
    for (at, text) in texts.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b']');
}

/// Appends a text as a string with its quotes.
pub fn string(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector does not fail, and a string always has a form.
    let _ = serde_json::to_writer(out, text);
}

fn begin(out: &mut Vec<u8>, id: u64, kind: &str) {
    append(out, &["{\"eventId\":", &id.to_string(), ",\"type\":\"", kind, "\""]);
}

fn append(out: &mut Vec<u8>, parts: &[&str]) {
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

fn all<T>(texts: Vec<&RawValue>, read: fn(&RawValue) -> Result<T, DocumentError>) -> Result<Vec<T>, DocumentError> {
    texts.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = concat!(
        r#"{"events":[{"eventId":1,"type":"hydration","features":[{"name":"a"}],"segments":[{"id":1}]},"#,
        r#"{"eventId":2,"type":"feature-updated","feature":{"name":"b","project":"p"}},"#,
        r#"{"eventId":3,"type":"feature-removed","featureName":"b \"2\"","project":"p"},"#,
        r#"{"eventId":4,"type":"segment-updated","segment":{"id":-2,"x":[]}},"#,
        r#"{"eventId":5,"type":"segment-removed","segmentId":1}]}"#
    );

    #[test]
    fn events_are_written_as_they_were_read() {
        let events = DeltaEvent::read_all(EVENTS.as_bytes()).expect("events");
        let mut texts = Vec::new();
        for event in &events {
            let mut text = Vec::new();
            event.write(&mut text);
            texts.push(String::from_utf8(text).expect("UTF-8"));
        }
        assert_eq!(format!("{{\"events\":[{}]}}", texts.join(",")), EVENTS);
    }

    #[test]
    fn an_unknown_kind_is_no_error_and_an_incomplete_event_is() {
        let events = DeltaEvent::read_all(br#"{"events":[{"eventId":9,"type":"later","x":{}}]}"#).expect("events");
        assert_eq!(events, [DeltaEvent { id: 9, change: DeltaChange::Unknown }]);
        for kind in ["feature-updated", "feature-removed", "segment-updated", "segment-removed", "hydration"] {
            let text = format!(r#"{{"events":[{{"eventId":9,"type":"{kind}"}}]}}"#);
            assert_eq!(DeltaEvent::read_all(text.as_bytes()), Err(INCOMPLETE), "{kind}");
        }
    }
}
