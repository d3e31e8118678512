//! A PostgreSQL origin: it speaks protocol 3 as PostgreSQL 15 does, and answers from the request alone.
//!
//! ```no_run
//! use weir_origin::postgres::{PostgresOriginSettings, start};
//!
//! let origin = start(PostgresOriginSettings::default())?; // one worker, 127.0.0.1, any free port
//! println!("psql -h 127.0.0.1 -p {} -c 'select 1'", origin.addresses()[0].port());
//! origin.stop()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! It stores no rows. The accounts of `pgbench` seem to be there, and each row follows from its number ([`abalance`]); any other
//! SELECT has one row that follows from its text and parameters. A foreign row therefore shows. Transaction blocks, errors,
//! prepared statements and portals behave as in PostgreSQL; writes are confirmed and forgotten.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options of the server |
//! | `connection` | one connection: chunks in, replies out, held back if there is a delay |
//! | `login` | from the first packet to the first ReadyForQuery |
//! | `parameters` | settings that are reported |
//! | `session` | messages after the login: simple and extended protocol, transaction blocks |
//! | `extended` | prepared statements and portals |
//! | `statement` | the text of a statement becomes an action |
//! | `select` | columns and rows of a SELECT |
//! | `value` | values of parameters and columns, as text and binary |
//! | `tokens` | words, numbers and signs of a text |

mod connection;
mod extended;
mod login;
mod parameters;
mod select;
mod session;
mod settings;
mod statement;
mod tokens;
mod value;

use std::{io, rc::Rc};

pub use self::select::abalance;
pub use self::settings::{CONNECTIONS_MAX, MESSAGE_BYTES_MAX, PostgresOriginSettings};
use crate::server::{self, Places};
pub use crate::server::{Origin, OriginStats};

/// Binds and serves. When it returns, clients can connect.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for settings out of range; otherwise the address cannot be bound, or a worker's runtime
/// cannot be built.
pub fn start(settings: PostgresOriginSettings) -> io::Result<Origin> {
    settings.check()?;
    let PostgresOriginSettings { bind, workers, cpus, runtime, .. } = &settings;
    server::start(&Places { bind, workers: *workers, cpus, runtime }, |post| {
        let settings = settings.clone();
        move || async move {
            let _housekeeper = server::count_cpu(post.stats.clone());
            let terms = Rc::new(connection::Terms::new(settings, post.id, post.stats.clone()));
            server::accept(&post.listener, post.inbox, &post.stats, |socket| connection::admit(&terms, socket)).await;
        }
    })
}
