//! An entry of `[databases]`: the upstream that it needs, and its table at the listeners.

use super::ini::{Entry, Ini};
use super::limits;
use super::login::Users;
use super::userlist::Form;
use super::{amount, connect};
use crate::address;
use crate::note::{Mistake, Note};
use crate::toml::{Table, Value};

/// PostgreSQL's port.
const PORT: u16 = 5432;

/// The name of what belongs to an entry.
pub(super) fn label(entry: &Entry) -> &str {
    if entry.key == "*" { "default" } else { &entry.key }
}

/// Needs of the clients of a database.
pub(super) struct Database<'i> {
    pub(super) entry: &'i Entry,
    pub(super) endpoints: Vec<String>,
    /// Keys of its upstream.
    pub(super) more: Table,
    /// Keys of its own: `database`, `user`, `password`.
    pub(super) own: Table,
    pub(super) pool_mode: &'static str,
    pub(super) notes: Vec<Note>,
}

impl Database<'_> {
    /// Whether it stands for all databases that are not named.
    pub(super) fn is_fallback(&self) -> bool {
        self.entry.key == "*"
    }

    /// Whether a server is on another machine.
    pub(super) fn is_far(&self) -> bool {
        let is_near =
            |one: &String| one.starts_with("unix:") || one.starts_with("localhost:") || super::listen::is_local(one);
        !self.endpoints.iter().all(is_near)
    }

    /// Equal for databases that can share an upstream.
    pub(super) fn form(&self) -> String {
        let mut form = format!("{:?}\n", self.endpoints);
        self.more.print("", &mut form);
        form
    }
}

/// Where its servers are.
#[derive(Default)]
struct Place {
    hosts: Vec<String>,
    port: Option<u16>,
    user: Option<String>,
    password: Option<String>,
}

/// Reads an entry. `base` has the keys of all upstreams.
///
/// # Errors
/// A mistake in the connection string; no value of it is repeated.
pub(super) fn read<'i>(entry: &'i Entry, ini: &Ini, base: &Table, users: &mut Users) -> Result<Database<'i>, Mistake> {
    let pairs = connect::pairs(&entry.value);
    let pairs =
        pairs.map_err(|why| Mistake::new(&entry.place, format!("the connection string of `{}`: {why}", entry.key)))?;
    let pool_mode = limits::default_pool_mode(ini)?;
    let mut database = Database {
        entry,
        endpoints: Vec::new(),
        more: base.clone(),
        own: Table::default(),
        pool_mode,
        notes: Vec::new(),
    };
    let mut place = Place::default();
    for (key, value) in &pairs {
        parameter(key, value, &mut place, &mut database)?;
    }
    limits::settle(database.more.table("postgres"));
    database.endpoints = endpoints(&place, entry, ini, &mut database.notes)?;
    login(place, users, &mut database);
    Ok(database)
}

fn parameter(key: &str, value: &str, place: &mut Place, database: &mut Database<'_>) -> Result<(), Mistake> {
    let entry = database.entry;
    let mistake = |what: &str| Mistake::new(&entry.place, format!("{key} of `{}` {what}", entry.key));
    let directive = || format!("{} = ... {key}=...", entry.key);
    match key {
        "host" => place.hosts = amount::list(value).map(str::to_owned).collect(),
        "port" => {
            let port = value.parse().ok().filter(|port| *port != 0);
            place.port = Some(port.ok_or_else(|| mistake("is no port"))?);
        }
        "user" => place.user = Some(value.to_owned()),
        "password" => place.password = Some(value.to_owned()),
        "dbname" if value == entry.key => {}
        "dbname" => database.own.set("database", Value::text(value)),
        "pool_mode" => {
            database.pool_mode =
                limits::pool_mode(value).ok_or_else(|| mistake("is no mode: session, transaction or statement"))?;
        }
        "pool_size" | "min_pool_size" | "max_db_connections" => {
            let count = limits::own_count(entry, key, value)?;
            let least = u64::from(key == "pool_size");
            database.more.set(&format!("postgres.{key}"), Value::Number(count.max(least)));
        }
        "reserve_pool" | "reserve_pool_size" => {
            let count = limits::own_count(entry, key, value)?;
            database.more.set("postgres.reserve_pool_size", Value::Number(count));
        }
        _ => {
            let (why, nearest) = without_counterpart(key).ok_or_else(|| {
                // The key may be a part of a password that was not quoted.
                let why =
                    format!("the connection string of `{}` has a parameter that PgBouncer does not know", entry.key);
                Mistake::new(&entry.place, why)
            })?;
            database.notes.push(Note::new(&entry.place, directive(), why, nearest));
        }
    }
    Ok(())
}

/// Why a parameter of a connection string is left out, and the nearest thing.
fn without_counterpart(key: &str) -> Option<(&'static str, &'static str)> {
    const AT_ROLE: &str = "ALTER ROLE ... SET at the server";
    Some(match key {
        "auth_user" | "auth_query" | "auth_dbname" => {
            ("the value of [pgbouncer] applies to all databases", "a [[listener]] of its own")
        }
        "client_encoding" | "datestyle" | "timezone" | "application_name" => {
            ("each client has the values that it or the server chooses", AT_ROLE)
        }
        "connect_query" => ("no statement is sent to a new connection", AT_ROLE),
        "max_db_client_connections" => ("clients are counted per listener, not per database", "connections_max"),
        "load_balance_hosts" => ("several servers are used in turn", ""),
        "server_lifetime" | "query_timeout" | "idle_transaction_timeout" | "transaction_timeout" => {
            ("the value of [pgbouncer] applies to all databases", "a [[listener]] and an [[upstream]] of its own")
        }
        _ => return None,
    })
}

/// The servers of a connection string. None, with a note: Weir cannot connect to them.
fn endpoints(place: &Place, entry: &Entry, ini: &Ini, notes: &mut Vec<Note>) -> Result<Vec<String>, Mistake> {
    let port = place.port.unwrap_or(PORT);
    let folder = ini.get("unix_socket_dir").map_or("/tmp", |entry| &*entry.value).to_owned();
    let hosts = if place.hosts.is_empty() { vec![folder] } else { place.hosts.clone() };
    let mut endpoints = Vec::new();
    for host in &hosts {
        if host.is_empty() || host.starts_with('@') {
            let why = "the socket has no path that Weir could connect to; the database is left out";
            notes.push(Note::new(&entry.place, format!("{} = ...", entry.key), why, "host=/path"));
            return Ok(Vec::new());
        }
        let text = match host.strip_prefix('/') {
            Some(path) => format!("unix:/{}/.s.PGSQL.{port}", path.trim_end_matches('/')),
            None if host.contains(':') => format!("[{host}]:{port}"),
            None => format!("{host}:{port}"),
        };
        let text = text.replace("unix://.s", "unix:/.s");
        let known = address::endpoint(&text, &entry.place).map_err(|_| {
            Mistake::new(&entry.place, format!("host of `{}` is neither an address nor a name nor a path", entry.key))
        })?;
        if known.starts_with("0.0.0.0:") || known.starts_with("[::]:") {
            return Err(Mistake::new(&entry.place, format!("host of `{}` means every interface: name one", entry.key)));
        }
        if !endpoints.contains(&known) {
            endpoints.push(known);
        }
    }
    Ok(endpoints)
}

/// The user that logs in at the servers.
fn login(place: Place, users: &mut Users, database: &mut Database<'_>) {
    let entry = database.entry;
    let mut note = |what: &str, why: String, nearest: &str| {
        database.notes.push(Note::new(&entry.place, format!("{} = ... {what}=...", entry.key), why, nearest));
    };
    let Some(user) = place.user else {
        if place.password.is_some() {
            let why = "a password needs a user here; without a user, clients log in at the server as themselves";
            note("password", why.to_owned(), "user and password of [upstream.postgres]");
        }
        return;
    };
    if !amount::is_word(&user) {
        let why = "a user is printable ASCII without spaces; clients log in at the server as themselves";
        note("user", why.to_owned(), "user of [upstream.postgres]");
        return;
    }
    let variable = match place.password {
        Some(password) => {
            let variable = users.variables.of_server(&user, &password, label(entry));
            note(
                "password",
                format!("passwords are not written to the file: set {variable} in the environment of Weir"),
                "password = { file = \"/path\" }",
            );
            Some(variable)
        }
        None => users.find(&user).map(|(form, variable)| {
            let why = match form {
                Form::Plain => {
                    format!("its password in auth_file is for clients: set {variable} to it for the servers")
                }
                _ => format!("auth_file has no plain password of this user, which Weir needs: set {variable} to it"),
            };
            note("user", why, "password = { file = \"/path\" }");
            variable
        }),
    };
    database.own.set("user", Value::text(&user));
    if let Some(variable) = variable {
        database.own.set("password", Value::secret(&variable));
    }
}
