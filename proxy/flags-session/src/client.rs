//! The document of `GET /api/client/features`, for SDKs that evaluate flags themselves.

use weir_flags_codec::delta::{list, string};
use weir_flags_codec::etag::EntityTag;
use xxhash_rust::xxh64::xxh64;

use crate::projects::Projects;
use crate::snapshot::{Scope, Snapshot};

/// The part of the flags that a request sees, as its response repeats it.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The projects of the token, restricted to those of the request.
    pub projects: &'a Projects,
    /// The environment of the token.
    pub environment: Option<&'a str>,
    /// The beginning of the names.
    pub name_prefix: Option<&'a str>,
}

/// A document with its entity tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientDocument {
    /// The JSON.
    pub json: Vec<u8>,
    /// A hash of it: the same one in every process with the same flags.
    pub tag: EntityTag,
}

impl Snapshot {
    /// The document for a scope: each flag and each segment as the upstream wrote it. To be made once for each snapshot and query: its requests
    /// share the bytes. The prefix selects flags and leaves segments as they are.
    pub fn client_document(&self, scope: &Scope, query: &Query<'_>) -> ClientDocument {
        let mut json = Vec::new();
        json.extend_from_slice(format!("{{\"version\":{},\"features\":", self.version).as_bytes());
        list(&mut json, self.seen(scope, query.name_prefix.unwrap_or_default()));
        if !self.segments.is_empty() {
            json.extend_from_slice(b",\"segments\":");
            list(&mut json, self.segments.iter().map(|segment| &*segment.json));
        }
        json.extend_from_slice(b",\"query\":{\"projects\":[");
        for (at, project) in query.projects.names().enumerate() {
            if at > 0 {
                json.push(b',');
            }
            string(&mut json, project);
        }
        json.push(b']');
        for (name, value) in [("namePrefix", query.name_prefix), ("environment", query.environment)] {
            if let Some(value) = value {
                json.extend_from_slice(format!(",\"{name}\":").as_bytes());
                string(&mut json, value);
            }
        }
        json.extend_from_slice(b",\"inlineSegmentConstraints\":false}");
        if let Some(meta) = &self.meta {
            json.extend_from_slice(b",\"meta\":");
            json.extend_from_slice(meta.as_bytes());
        }
        json.push(b'}');
        ClientDocument { tag: EntityTag::Hash(xxh64(&json, 0)), json }
    }
}
