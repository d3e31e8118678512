//! How clients prove who they are, and the users that may.

use std::collections::HashMap;

use super::ini::{Entry, Ini};
use super::listen;
use super::userlist::{self, Form, Listed};
use super::variable::Variables;
use crate::Files;
use crate::note::{Mistake, Note, SourceLine};
use crate::toml::{Table, Value};

/// Names that a note repeats.
const NAMES_SHOWN: usize = 8;

/// A user with a password.
struct User {
    name: String,
    form: Form,
    /// The variable that has it for the servers; it is made when it is needed.
    variable: Option<String>,
}

/// The users of `auth_file`.
#[derive(Default)]
pub(super) struct Users {
    list: Vec<User>,
    places: HashMap<String, usize>,
    pub(super) variables: Variables,
}

/// The file of users that clients log in with.
fn file(ini: &Ini) -> Option<&Entry> {
    ini.get("auth_file").filter(|entry| !entry.value.is_empty() && ini.text("auth_type") != "pam")
}

impl Users {
    /// Reads the file of users, if there is one.
    pub(super) fn read(ini: &Ini, files: &dyn Files, notes: &mut Vec<Note>) -> Result<Self, Mistake> {
        let mut users = Self::default();
        let Some(entry) = ini.get("auth_file").filter(|entry| !entry.value.is_empty()) else { return Ok(users) };
        let mut note = |why: String, nearest: &str| notes.push(Note::new(&entry.place, entry.text(), why, nearest));
        if file(ini).is_none() {
            note("PgBouncer ignores the file with auth_type = pam, and so does the import".to_owned(), "");
            return Ok(users);
        }
        let found = match files.matching(&entry.value) {
            Ok(found) => found,
            Err(why) => {
                let why = format!("the file cannot be read here ({why}): Weir reads it when it starts");
                note(why, "[[listener.user]] for each user");
                return Ok(users);
            }
        };
        for (name, text) in &found {
            for listed in userlist::read(name, text)? {
                users.add(listed);
            }
        }
        Ok(users)
    }

    /// Adds a user. A later one of the same name replaces an earlier one.
    fn add(&mut self, listed: Listed) {
        if let Some(place) = self.places.get(&listed.name) {
            self.list[*place].form = listed.form;
            return;
        }
        self.places.insert(listed.name.clone(), self.list.len());
        self.list.push(User { name: listed.name, form: listed.form, variable: None });
    }

    /// The form of a user's password and the variable that has it, for a login at the servers.
    pub(super) fn find(&mut self, name: &str) -> Option<(Form, String)> {
        let user = &mut self.list[*self.places.get(name)?];
        if user.form == Form::Empty {
            return None;
        }
        let variable = user.variable.get_or_insert_with(|| self.variables.unique(name, "_PASSWORD"));
        Some((user.form, variable.clone()))
    }

    /// The key of a listener that names the file.
    pub(super) fn write(&self, ini: &Ini, more: &mut Table) {
        if let Some(entry) = file(ini) {
            more.set("postgres.userlist", Value::text(&entry.value));
        }
    }

    /// Whether a password lets a client in.
    fn has_any(&self) -> bool {
        self.list.iter().any(|user| user.form != Form::Empty)
    }
}

/// The first names of a list, and the number of the others.
fn some<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let others = names.len().saturating_sub(NAMES_SHOWN);
    let shown: Vec<&str> = names.take(NAMES_SHOWN).collect();
    match others {
        0 => shown.join(", "),
        others => format!("{} and {others} more", shown.join(", ")),
    }
}

/// `auth` of a listener at an address.
pub(super) fn auth(ini: &Ini, bind: &str) -> &'static str {
    match ini.text("auth_type") {
        "" | "md5" => "md5",
        "cert" => "cert",
        "trust" | "any" if listen::is_local(bind) => "trust",
        _ => "scram-sha-256",
    }
}

/// Says what differs for clients that log in.
pub(super) fn notes(
    ini: &Ini,
    top: &SourceLine,
    users: &Users,
    binds: &[String],
    notes: &mut Vec<Note>,
) -> Result<(), Mistake> {
    if let Some(entry) = ini.get("auth_type") {
        method(entry, binds, notes)?;
    }
    let (is_scram, needs_password) = (
        binds.iter().any(|bind| auth(ini, bind) == "scram-sha-256"),
        binds.iter().any(|bind| matches!(auth(ini, bind), "scram-sha-256" | "md5")),
    );
    let entry = ini.get("auth_file").or_else(|| ini.get("auth_type"));
    let (place, directive) = entry.map_or((top, "auth_file".to_owned()), |entry| (&entry.place, entry.text()));
    let hashed = || users.list.iter().filter(|user| user.form == Form::Md5).map(|user| user.name.as_str());
    let names: Vec<&str> = hashed().collect();
    if is_scram && !names.is_empty() {
        let why = "users with an MD5 hash cannot log in by SCRAM";
        let why = format!("{why}: {}", some(names.into_iter()));
        notes.push(Note::new(place, directive.clone(), why, "auth = \"md5\", or a SCRAM verifier"));
    }
    if needs_password && file(ini).is_none() {
        let why = "no user is known, so that no client can log in with a password";
        notes.push(Note::new(place, directive, why, "userlist"));
    } else if needs_password && !users.list.is_empty() && !users.has_any() {
        let why = "no user has a password, so that no client can log in with one";
        notes.push(Note::new(place, directive, why, ""));
    }
    Ok(())
}

/// Keys of a listener about users that the server knows.
pub(super) fn lookup(ini: &Ini, more: &mut Table, notes: &mut Vec<Note>) -> Result<(), Mistake> {
    let given = |key: &str| ini.get(key).filter(|entry| !entry.value.is_empty());
    let Some(user) = given("auth_user").filter(|entry| super::amount::is_word(&entry.value)) else {
        for entry in [given("auth_query"), given("auth_dbname")].into_iter().flatten() {
            notes.push(Note::new(&entry.place, &entry.key, "it has no effect without auth_user", "auth_user"));
        }
        return Ok(());
    };
    more.set("postgres.auth_user", Value::text(&user.value));
    if let Some(query) = given("auth_query") {
        if !query.value.contains("$1") {
            return Err(query.wrong("has no $1, the user that is looked for"));
        }
        let why = "the query runs with search_path = pg_catalog: names of other schemas need their schema";
        notes.push(Note::new(&query.place, "auth_query", why, "public.user_lookup($1)"));
        more.set("postgres.auth_query", Value::text(&query.value));
    }
    match given("auth_dbname").filter(|entry| super::amount::is_word(&entry.value)) {
        Some(database) => more.set("postgres.auth_dbname", Value::text(&database.value)),
        None => {
            let why = "PgBouncer looks users up in the database of the client; here one database has the query";
            notes.push(Note::new(&user.place, "auth_user", why, "auth_dbname"));
        }
    }
    Ok(())
}

/// Notes on the methods that Weir does not have.
fn method(entry: &Entry, binds: &[String], notes: &mut Vec<Note>) -> Result<(), Mistake> {
    let mut note = |why: &str, nearest: &str| notes.push(Note::new(&entry.place, entry.text(), why, nearest));
    match &*entry.value {
        "md5" | "scram-sha-256" => {}
        "cert" => note(
            "a client without a certificate is refused at every address, at a Unix socket too",
            "a [[listener]] of its own for the Unix socket",
        ),
        "plain" => note("no password is taken in clear text: clients log in by SCRAM", "auth = \"scram-sha-256\""),
        "trust" => {
            note("every client is trusted, even if its name is not in auth_file", "auth = \"scram-sha-256\"");
        }
        "any" => note(
            "every client is trusted; Weir uses its user name, and only admin_users are admins of the console",
            "auth = \"scram-sha-256\"",
        ),
        "hba" => {}
        "pam" | "ldap" => {
            note("passwords are not checked by other programs: every client logs in by SCRAM", "[[listener.user]]");
        }
        _ => return Err(entry.wrong("is no method: md5, scram-sha-256, cert, plain, trust, any, hba, pam or ldap")),
    }
    let is_open = matches!(&*entry.value, "trust" | "any");
    if is_open && !binds.iter().all(|bind| listen::is_local(bind)) {
        note(
            "at addresses that other machines reach, clients need a password: auth = \"scram-sha-256\" is written",
            "auth = \"trust\" with allow_trust = true",
        );
    }
    Ok(())
}
