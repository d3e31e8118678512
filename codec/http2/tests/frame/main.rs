//! Frames and settings: the errors that a single frame can have, and writers against readers.

mod errors;
mod settings;
mod support;
mod written;
