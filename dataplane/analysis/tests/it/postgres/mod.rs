//! PostgreSQL: texts with their facts, against another parser, against themselves.

mod differential;
mod golden;
mod properties;
