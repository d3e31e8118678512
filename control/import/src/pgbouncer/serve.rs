//! Which upstream serves which database: those that need the same servers share one.

use std::collections::HashMap;

use super::database::{self, Database};
use super::ini::{Entry, Ini};
use super::login::Users;
use super::{limits, tls};
use crate::model::{Config, Names, Upstream};
use crate::note::{Mistake, Note, SourceLine};
use crate::toml::{Table, Value};

/// Different servers of one file. Default 1,024: more than a reader of the result could check.
const UPSTREAMS_MAX: usize = 1_024;

/// The common parts of all listeners.
pub(super) struct Served {
    /// Their upstream. Empty: no database has one.
    pub(super) name: String,
    pub(super) pool_mode: &'static str,
    /// Their tables of databases. None: every name is served by the upstream, as with `*` alone.
    pub(super) databases: Vec<Table>,
}

/// Databases that share an upstream.
struct Group<'i> {
    first: Database<'i>,
    others: Vec<Database<'i>>,
}

impl<'i> Group<'i> {
    fn all(&self) -> impl Iterator<Item = &Database<'i>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn has_fallback(&self) -> bool {
        self.all().any(Database::is_fallback)
    }

    /// The entry that names the upstream.
    fn entry(&self) -> &'i Entry {
        self.all().find(|one| one.is_fallback()).unwrap_or(&self.first).entry
    }

    /// All of them log in at the servers alike: the upstream has the login.
    fn lift_login(&mut self) {
        for key in ["user", "password"] {
            let Some(value) = self.first.own.get(key).cloned() else { continue };
            if self
                .all()
                .all(|one| one.own.get("user") == self.first.own.get("user") && one.own.get(key) == Some(&value))
            {
                self.first.more.set(&format!("postgres.{key}"), value);
            }
        }
        let Some(user) = self.first.more.get("postgres.user").cloned() else { return };
        for one in std::iter::once(&mut self.first).chain(&mut self.others) {
            if one.own.get("user") == Some(&user) {
                one.own.remove_key("user");
                one.own.remove_key("password");
            }
        }
    }
}

/// Adds the upstreams of all databases.
pub(super) fn upstreams(
    ini: &Ini,
    top: &SourceLine,
    users: &mut Users,
    config: &mut Config,
) -> Result<Served, Mistake> {
    let mut base = Table::default();
    limits::upstream(ini, &mut base, &mut config.notes)?;
    let mut databases = read_all(ini, &base, users)?;
    let far = databases.iter().find(|one| one.is_far()).map(|one| one.entry);
    let mut secured = Table::default();
    tls::upstream(ini, far, &mut secured, &mut config.notes)?;
    for database in &mut databases {
        config.notes.append(&mut database.notes);
        let is_by_socket = database.endpoints.iter().all(|endpoint| endpoint.starts_with("unix:"));
        // PgBouncer has no TLS on a Unix socket.
        if !is_by_socket && let Some(table) = secured.get_table("tls") {
            *database.more.table("tls") = table.clone();
        }
    }
    databases.retain(|one| !one.endpoints.is_empty());
    let mut groups = grouped(databases)?;
    groups.iter_mut().for_each(Group::lift_login);
    let chosen = groups.iter().position(Group::has_fallback).unwrap_or(0);
    let pool_mode = limits::default_pool_mode(ini)?;
    let mut served = Served { name: String::new(), pool_mode, databases: Vec::new() };
    if groups.is_empty() {
        let why = "no database has a server that Weir could connect to: listeners have the upstream `nowhere`, \
                   at which no server listens";
        config.notes.push(Note::new(top, "[databases]", why, "endpoints of the [[upstream]]"));
        return Ok(served);
    }
    // The one that listeners name gets its name first.
    groups.swap(0, chosen);
    let mut names = Names::default();
    for group in &groups {
        let upstream = upstream(group, names.unique(database::label(group.entry())));
        if served.name.is_empty() {
            served.name.clone_from(&upstream.name);
        }
        let tables: Vec<Table> = group.all().map(|one| table(one, &upstream.name, &served)).collect();
        served.databases.extend(tables);
        config.upstreams.push(upstream);
    }
    if served.databases == [named("*")] {
        served.databases.clear();
    }
    Ok(served)
}

fn named(name: &str) -> Table {
    let mut table = Table::default();
    table.set("name", Value::text(name));
    table
}

/// The table of a database at the listeners.
fn table(database: &Database<'_>, upstream: &str, served: &Served) -> Table {
    let mut table = named(&database.entry.key);
    if upstream != served.name {
        table.set("upstream", Value::text(upstream));
    }
    if database.pool_mode != served.pool_mode {
        table.set("pool_mode", Value::text(database.pool_mode));
    }
    for key in ["database", "user", "password"] {
        if let Some(value) = database.own.get(key) {
            table.set(key, value.clone());
        }
    }
    table
}

/// The databases. A later one of the same name replaces an earlier one.
fn read_all<'i>(ini: &'i Ini, base: &Table, users: &mut Users) -> Result<Vec<Database<'i>>, Mistake> {
    let last: HashMap<&str, usize> =
        ini.databases.iter().enumerate().map(|(index, entry)| (entry.key.as_str(), index)).collect();
    let entries = ini.databases.iter().enumerate().filter(|(index, entry)| last[entry.key.as_str()] == *index);
    entries.map(|(_, entry)| database::read(entry, ini, base, users)).collect()
}

/// Databases whose clients need the same.
fn grouped(databases: Vec<Database<'_>>) -> Result<Vec<Group<'_>>, Mistake> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for database in databases {
        let next = groups.len();
        let place = *places.entry(database.form()).or_insert(next);
        match groups.get_mut(place) {
            Some(group) => group.others.push(database),
            None if next == UPSTREAMS_MAX => {
                let why = format!("there are more than {UPSTREAMS_MAX} different servers");
                return Err(Mistake::new(&database.entry.place, why));
            }
            None => groups.push(Group { first: database, others: Vec::new() }),
        }
    }
    Ok(groups)
}

/// The upstream of a group.
fn upstream(group: &Group<'_>, name: String) -> Upstream {
    let mut upstream = Upstream::new(name, &group.entry().place);
    upstream.endpoints.clone_from(&group.first.endpoints);
    upstream.more = group.first.more.clone();
    upstream
}
