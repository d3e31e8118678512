//! Header compression against the examples of its RFC, a plain model and hostile blocks.

mod appendix_c;
mod hostile;
mod model;
mod policy;
mod round_trip;
mod support;
