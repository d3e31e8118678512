//! Flags as bytes: the document of `/api/client/features`, and events.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::Write as _,
    sync::OnceLock,
};

use flate2::{Compression, write::GzEncoder};

use weir_flags_codec::{DeltaEvent, FeatureText, SegmentText, delta};

use super::scope::Scope;

/// A document.
#[derive(Debug)]
pub struct Document {
    /// Its bytes.
    pub body: Vec<u8>,
    /// `"<hash of the query>:<revision>:v1"`, with its quotes.
    pub etag: String,
    compressed: OnceLock<Vec<u8>>,
}

impl Document {
    /// Its bytes as gzip, made once.
    pub fn compressed(&self) -> &[u8] {
        self.compressed.get_or_init(|| gzip(&self.body))
    }
}

/// Bytes as gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to a vector does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// The document of a scope.
pub fn render<'a>(
    environment: &str,
    revision: u64,
    scope: &Scope,
    features: impl Iterator<Item = &'a FeatureText>,
    segments: &[SegmentText],
) -> Document {
    let mut hasher = DefaultHasher::new();
    (environment, scope).hash(&mut hasher);
    let query_hash = format!("{:08x}", hasher.finish() as u32);
    let etag = format!("\"{query_hash}:{revision}:v1\"");
    let mut body = b"{\"version\":2,\"features\":".to_vec();
    delta::list(&mut body, features.map(|feature| &*feature.json));
    body.extend_from_slice(b",\"segments\":");
    delta::list(&mut body, segments.iter().map(|segment| &*segment.json));
    body.extend_from_slice(b",\"query\":{");
    if let Some(projects) = &scope.projects {
        body.extend_from_slice(b"\"projects\":");
        // Strings always have a form in JSON.
        body.extend_from_slice(&serde_json::to_vec(projects).unwrap_or_default());
        body.push(b',');
    }
    if !scope.prefix.is_empty() {
        body.extend_from_slice(b"\"namePrefix\":");
        delta::string(&mut body, &scope.prefix);
        body.push(b',');
    }
    body.extend_from_slice(b"\"environment\":");
    delta::string(&mut body, environment);
    body.extend_from_slice(
        format!(",\"inlineSegmentConstraints\":false}},\"meta\":{{\"revisionId\":{revision},\"etag\":").as_bytes(),
    );
    delta::string(&mut body, &etag);
    body.extend_from_slice(format!(",\"queryHash\":\"{query_hash}\"}}}}").as_bytes());
    Document { body, etag, compressed: OnceLock::new() }
}

/// `{"events":[…]}` on one line.
pub fn events(events: &[DeltaEvent]) -> Vec<u8> {
    let mut out = b"{\"events\":[".to_vec();
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        event.write(&mut out);
    }
    out.extend_from_slice(b"]}");
    out
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_document_is_json_whatever_the_names() {
        let scope = Scope { projects: Some(vec!["a\"b".to_owned()]), prefix: "\\".to_owned() };
        let document = render("e\"", 7, &scope, std::iter::empty(), &[]);
        let value: Value = serde_json::from_slice(&document.body).expect("JSON");
        assert_eq!((&value["query"]["environment"], &value["query"]["namePrefix"]), (&"e\"".into(), &"\\".into()));
        assert_eq!((&value["meta"]["revisionId"], value["meta"]["etag"].as_str()), (&7.into(), Some(&*document.etag)));
        assert!(document.etag.ends_with(":7:v1\"") && document.etag.starts_with('"'));
        assert_eq!(events(&[]), b"{\"events\":[]}");
    }
}
