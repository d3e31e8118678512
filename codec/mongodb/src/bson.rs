//! BSON documents: views that read headers of elements, a check of everything below, and a writer.
//!
//! A [`Document`] knows that its length and its end fit. [`Document::elements`] goes over its elements and skips each value by its
//! length, so that nothing is decoded. Values below are looked at when a caller descends, or by [`Document::check`].

mod check;
mod read;
mod value;
mod write;

pub use read::{Document, Element, Elements};
pub use value::{Kind, Value};
pub use write::{Writer, document};
