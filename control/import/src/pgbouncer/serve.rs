//! Which upstream the listeners have: that of `*`, or else of the first database. A listener has one.

use std::collections::HashMap;

use super::database::{self, Database};
use super::ini::{Entry, Ini};
use super::login::Users;
use super::{limits, tls};
use crate::model::{Config, Names, Upstream};
use crate::note::{Mistake, Note, SourceLine};
use crate::toml::Table;

/// Different servers of one file. Default 1,024: more have no listener that a reader of the result could add.
const UPSTREAMS_MAX: usize = 1_024;

/// The upstream of the listeners.
pub(super) struct Served {
    /// Empty: no database has one.
    pub(super) name: String,
    pub(super) pool_mode: &'static str,
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
    let groups = grouped(databases)?;
    let served = groups.iter().position(Group::has_fallback).unwrap_or(0);
    let mut names = Names::default();
    let mut found = Served { name: String::new(), pool_mode: limits::default_pool_mode(ini)? };
    let Some(chosen) = groups.get(served) else {
        let why = "no database has a server that Weir could connect to: listeners have an upstream where nothing is";
        config.notes.push(Note::new(top, "[databases]", why, "endpoints of the [[upstream]]"));
        return Ok(found);
    };
    let to = names.unique(database::label(chosen.entry()));
    found = Served { name: to.clone(), pool_mode: chosen.first.pool_mode };
    reach(chosen, groups.len() == 1, &mut config.notes);
    for (index, group) in groups.iter().enumerate() {
        let name = if index == served { to.clone() } else { names.unique(database::label(group.entry())) };
        let upstream = upstream(group, name, (index != served).then_some((chosen, &*to)), &mut config.notes);
        config.upstreams.push(upstream);
    }
    Ok(found)
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

/// Says which databases clients reach that PgBouncer does not let them reach.
fn reach(chosen: &Group<'_>, is_alone: bool, notes: &mut Vec<Note>) {
    if chosen.has_fallback() {
        return;
    }
    let entry = chosen.first.entry;
    let (why, nearest) = match chosen.first.more.get("postgres.database") {
        Some(_) => ("PgBouncer refuses databases that are not listed; here every client reaches this one", ""),
        None if is_alone && chosen.others.is_empty() => (
            "PgBouncer refuses databases that are not listed; here clients reach every database of the server that lets them in",
            "database of [upstream.postgres], which all clients reach then",
        ),
        None => (
            "PgBouncer refuses databases that are not listed; here clients reach every database of the server that lets them in",
            "rights at the server",
        ),
    };
    notes.push(Note::new(&entry.place, format!("{} = ...", entry.key), why, nearest));
}

/// The upstream of a group. One that has no listener, because another one has it, says so for each of its databases.
fn upstream(
    group: &Group<'_>,
    name: String,
    instead_of: Option<(&Group<'_>, &str)>,
    notes: &mut Vec<Note>,
) -> Upstream {
    let mut upstream = Upstream::new(name, &group.entry().place);
    upstream.endpoints.clone_from(&group.first.endpoints);
    upstream.more = group.first.more.clone();
    let Some((chosen, to)) = instead_of else { return upstream };
    upstream.is_spare = true;
    for database in group.all() {
        let instead = match database.is_like(&chosen.first) {
            true => format!("clients of this database reach the same server with the settings of `{to}`"),
            false => format!("clients of this database reach `{to}` instead"),
        };
        let key = &chosen.entry().key;
        let mut why =
            format!("a listener has one upstream, here that of `{key}`: {instead}; its own upstream has no listener");
        if upstream.endpoints.len() > 1 {
            why.push_str(", and only the first of its servers");
        }
        let nearest = format!("a [[listener]] with upstream = \"{}\"", upstream.name);
        notes.push(Note::new(&database.entry.place, format!("{} = ...", database.entry.key), why, &nearest));
    }
    // `weir check` takes the servers of an upstream without a listener for shards.
    upstream.endpoints.truncate(1);
    upstream
}
