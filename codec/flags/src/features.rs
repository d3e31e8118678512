//! The document of `GET /api/client/features`: the flags and segments of an environment, each as its original text.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::DocumentError;

/// A flag as its server wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureText {
    /// The name.
    pub name: Arc<str>,
    /// The project. Features without one belong to [`DEFAULT_PROJECT`].
    pub project: Arc<str>,
    /// The whole object on one line.
    pub json: Arc<str>,
}

/// A segment as its server wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentText {
    /// The number by which strategies name it.
    pub id: i64,
    /// The whole object on one line.
    pub json: Arc<str>,
}

/// Bytes of the texts of flags and segments.
pub fn text_bytes(features: &[FeatureText], segments: &[SegmentText]) -> usize {
    let features = features.iter().map(|feature| feature.json.len());
    features.chain(segments.iter().map(|segment| segment.json.len())).sum()
}

/// The flags and segments that a token may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeaturesDocument {
    /// The version of the form: 2 since segments exist.
    pub version: u32,
    /// The flags, in the order of the document.
    pub features: Vec<FeatureText>,
    /// The segments, in the order of the document.
    pub segments: Vec<SegmentText>,
    /// The object `meta`, on one line.
    pub meta: Option<Arc<str>>,
    /// Its member `revisionId`.
    pub revision: Option<u64>,
}

/// The project of a flag that names none.
pub const DEFAULT_PROJECT: &str = "default";

#[derive(Deserialize)]
struct WireDocument<'a> {
    #[serde(default)]
    version: u32,
    #[serde(borrow)]
    features: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    segments: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default)]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct FeatureHead<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    project: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct SegmentHead {
    id: i64,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "revisionId", default)]
    revision: Option<u64>,
}

impl FeaturesDocument {
    /// Reads a document of at most [`DOCUMENT_BYTES_MAX`](crate::limits::DOCUMENT_BYTES_MAX) bytes, which the caller bounds.
    ///
    /// # Errors
    /// It is no JSON, has no `features`, or a flag has no name or a segment no number. Nothing of it is taken then.
    pub fn read(text: &[u8]) -> Result<Self, DocumentError> {
        let wire: WireDocument<'_> = serde_json::from_slice(text)?;
        let revision = wire.meta.and_then(|meta| serde_json::from_str::<Meta>(meta.get()).ok()?.revision);
        Ok(Self {
            version: wire.version,
            features: wire.features.into_iter().map(FeatureText::read).collect::<Result<_, _>>()?,
            segments: wire.segments.unwrap_or_default().into_iter().map(SegmentText::read).collect::<Result<_, _>>()?,
            meta: wire.meta.map(|meta| one_line(meta.get())),
            revision,
        })
    }
}

impl FeatureText {
    /// The flag of an object.
    pub(crate) fn read(raw: &RawValue) -> Result<Self, DocumentError> {
        let head: FeatureHead<'_> = serde_json::from_str(raw.get())?;
        let project = head.project.as_deref().unwrap_or(DEFAULT_PROJECT);
        Ok(Self { name: head.name.into(), project: project.into(), json: one_line(raw.get()) })
    }
}

impl SegmentText {
    /// The segment of an object.
    pub(crate) fn read(raw: &RawValue) -> Result<Self, DocumentError> {
        let head: SegmentHead = serde_json::from_str(raw.get())?;
        Ok(Self { id: head.id, json: one_line(raw.get()) })
    }
}

/// The text without its line breaks. A string of JSON has none that is no escape, so they stand between tokens.
fn one_line(text: &str) -> Arc<str> {
    match text.contains(['\n', '\r']) {
        true => text.replace(['\n', '\r'], "").into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_flags_and_segments_pass_as_they_came() {
        let text = br#"{"version":2,"features":[{"name":"a","later":{"x":1e400}},
            {"project":"p",
             "name":"\u0062"}],"segments":[{"id":7,"name":"s","constraints":[]}],"meta":{"revisionId":12,"etag":"e"},"x":1}"#;
        let document = FeaturesDocument::read(text).expect("a document");
        assert_eq!((document.version, document.revision), (2, Some(12)));
        assert_eq!(&*document.features[0].json, r#"{"name":"a","later":{"x":1e400}}"#);
        assert_eq!(&*document.features[0].project, DEFAULT_PROJECT);
        assert_eq!((&*document.features[1].name, &*document.features[1].project), ("b", "p"));
        assert_eq!(&*document.features[1].json, r#"{"project":"p",             "name":"\u0062"}"#);
        assert_eq!(
            (document.segments[0].id, &*document.segments[0].json),
            (7, r#"{"id":7,"name":"s","constraints":[]}"#)
        );
        assert_eq!(document.meta.as_deref(), Some(r#"{"revisionId":12,"etag":"e"}"#));
    }

    #[test]
    fn f2_garbage_is_refused_whole() {
        for (text, is_json) in [
            ("", false),
            ("<html>", false),
            ("{}", true),
            ("[]", true),
            (r#"{"features":null}"#, true),
            (r#"{"features":[{}]}"#, true),
            (r#"{"features":[{"name":"a"}],"segments":[{}]}"#, true),
            (r#"{"features":[{"name":"a"}"#, false),
        ] {
            let error = FeaturesDocument::read(text.as_bytes()).expect_err(text);
            assert_eq!(error.is_json, is_json, "{text}: {error}");
        }
        assert!(FeaturesDocument::read(br#"{"features":[],"segments":null,"meta":null}"#).is_ok());
    }
}
