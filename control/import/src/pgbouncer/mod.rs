//! PgBouncer: `pgbouncer.ini` becomes a listener for each of its addresses, and an upstream for each server of `[databases]`.
//!
//! | file | concept |
//! |---|---|
//! | `ini` | sections, entries, included files |
//! | `connect` | connection strings |
//! | `amount` | numbers, times, switches |
//! | `listen` | addresses of listeners |
//! | `limits` | limits and times of listeners and upstreams |
//! | `login` | `auth_type` and the users |
//! | `hba` | rules by address, database and user |
//! | `userlist` | the file of users |
//! | `variable` | names of environment variables |
//! | `tls` | TLS of both sides |
//! | `database` | an entry of `[databases]` |
//! | `serve` | which upstream serves which database |
//! | `unknown` | keys without a counterpart |

mod amount;
mod connect;
mod database;
mod hba;
mod ini;
mod limits;
mod listen;
mod login;
mod serve;
mod tls;
mod unknown;
mod userlist;
mod variable;

use crate::Files;
use crate::model::{Config, Listener, Names, Protocol};
use crate::note::{Mistake, SourceLine};
use crate::toml::{Table, Value};
use ini::Ini;
use login::Users;

/// Reads a configuration.
pub(crate) fn read(name: &str, text: &str, files: &dyn Files) -> Result<Config, Mistake> {
    let ini = ini::read(name, text, files)?;
    let top = SourceLine { file: name.into(), line: 1 };
    if ini.pgbouncer.is_empty() {
        return Err(Mistake::new(&top, "there is no section [pgbouncer] with entries"));
    }
    let mut config = Config::default();
    unknown::notes(&ini, &mut config.notes)?;
    let clients = Value::Number(amount::count(&ini, "max_client_conn", 100)?.max(1));
    config.process.set("limits.connections", clients.clone());
    // PgBouncer has no limit of its own for a source.
    config.process.set("limits.connections_per_source", clients);
    let mut users = Users::read(&ini, files, &mut config.notes)?;
    let served = serve::upstreams(&ini, &top, &mut users, &mut config)?;
    let rules = hba::read(&ini, files, &mut config.notes)?;
    listeners(&ini, &top, (&users, &rules), &served, &mut config)?;
    Ok(config)
}

/// One listener for each address; all of them have the same databases.
fn listeners(
    ini: &Ini,
    top: &SourceLine,
    (users, rules): (&Users, &[hba::Rule]),
    served: &serve::Served,
    config: &mut Config,
) -> Result<(), Mistake> {
    let binds = listen::binds(ini, top, &mut config.notes)?;
    if binds.is_empty() {
        return Err(Mistake::new(top, "there is no address: listen_addr or unix_socket_dir with an address to bind"));
    }
    let mut more = Table::default();
    login::notes(ini, top, users, &binds, &mut config.notes)?;
    limits::listener(ini, served.pool_mode, &mut more, &mut config.notes)?;
    tls::listener(ini, &mut more)?;
    users.write(ini, &mut more);
    login::lookup(ini, &mut more, &mut config.notes)?;
    for database in &served.databases {
        more.table("postgres").push("database", database.clone());
    }
    let mut names = Names::default();
    for bind in binds {
        let is_socket = bind.starts_with("unix:");
        let mut own = more.clone();
        own.set("postgres.auth", Value::text(login::auth(ini, &bind)));
        if is_socket {
            // Neither program offers TLS on a Unix socket.
            own.remove("tls");
        }
        // A rule for TLS alone refuses clients without it.
        let demands_tls = !is_socket && tls::is_demanded(ini)?;
        match rules.is_empty() {
            true if demands_tls => hba::demand_tls(&mut own),
            true => {}
            false => hba::write(rules, &bind, demands_tls, &mut own, &mut config.notes),
        }
        config.listeners.push(Listener {
            name: names.unique(if is_socket { "pgbouncer-unix" } else { "pgbouncer" }),
            bind,
            protocol: Protocol::Postgres,
            upstream: served.name.clone(),
            more: own,
            notes: Vec::new(),
        });
    }
    Ok(())
}
