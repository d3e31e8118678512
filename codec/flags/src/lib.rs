//! Codec of feature flags: the documents of Unleash's APIs, without I/O and without a clock.
//!
//! Sources: unleash-server 7.5, Unleash Edge 19.15 and the client specification 6.1.0, whose names of fields the types have.
//! Documents arrive once per poll, so a tree of serde is right here; contexts arrive with each request and borrow what they can.
//!
//! | file | concept |
//! |---|---|
//! | [`features`] | [`FeaturesDocument`]: the flags and segments of an environment, each as its original text |
//! | `bootstrap.rs` | the file of a gateway without an upstream: the same, or a short form |
//! | [`definition`] | [`FeatureDefinition`]: the meaning of a flag and of a segment |
//! | [`delta`] | [`DeltaEvent`]: a change of flags and segments by an event |
//! | [`context`] | [`Context`]: the values that an evaluation looks at, from a query or from JSON |
//! | `query.rs` | the form of a query string |
//! | [`metrics`] | counts of evaluations, impact metrics and applications, as they arrive and as they are sent |
//! | [`tokens`] | the documents of the validation of tokens |
//! | [`etag`] | entity tags, and the header fields that name some |
//! | [`timestamp`] | [`Timestamp`]: a point in time with its offset |
//! | `scalar.rs` | a string, number or truth value as text |
//! | [`limits`] | every bound with its reason |
//! | `error.rs` | a document that is refused |
//!
//! The text of a flag and of a segment passes as it came, so fields and operators of later servers survive. Only its line
//! breaks are left out: an event of a stream has one line.
#![forbid(unsafe_code)]

mod bootstrap;
pub mod context;
pub mod definition;
pub mod delta;
mod error;
pub mod etag;
pub mod features;
pub mod limits;
pub mod metrics;
pub mod query;
mod scalar;
pub mod timestamp;
pub mod tokens;

pub use context::{Context, ContextError, ContextField, UnknownFields};
pub use definition::{FeatureDefinition, SegmentDefinition};
pub use delta::{DeltaChange, DeltaEvent};
pub use error::DocumentError;
pub use features::{FeatureText, FeaturesDocument, SegmentText, text_bytes};
pub use scalar::{OwnedScalar, Scalar};
pub use timestamp::Timestamp;
