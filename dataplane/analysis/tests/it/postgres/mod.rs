//! PostgreSQL: texts with their facts, against another parser, against themselves.

mod cost;
mod differential;
mod golden;
mod properties;
