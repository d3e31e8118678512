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
    variable: String,
}

/// The users of `auth_file`.
pub(super) struct Users {
    list: Vec<User>,
    places: HashMap<String, usize>,
    pub(super) variables: Variables,
}

impl Users {
    /// Reads the file of users, if there is one.
    pub(super) fn read(ini: &Ini, files: &dyn Files, notes: &mut Vec<Note>) -> Result<Self, Mistake> {
        let mut users = Self { list: Vec::new(), places: HashMap::new(), variables: Variables::default() };
        let Some(entry) = ini.get("auth_file").filter(|entry| !entry.value.is_empty()) else { return Ok(users) };
        let mut note = |why: String, nearest: &str| notes.push(Note::new(&entry.place, entry.text(), why, nearest));
        if ini.text("auth_type") == "pam" {
            note("PgBouncer ignores the file with auth_type = pam, and so does the import".to_owned(), "");
            return Ok(users);
        }
        let found = match files.matching(&entry.value) {
            Ok(found) => found,
            Err(why) => {
                note(
                    format!("the file cannot be read ({why}): no user is imported"),
                    "[[listener.user]] for each user",
                );
                return Ok(users);
            }
        };
        let mut left_out = Vec::new();
        for (name, text) in &found {
            for listed in userlist::read(name, text)? {
                users.add(listed, &mut left_out);
            }
        }
        if !left_out.is_empty() {
            let why = "have no password, or a name beyond printable ASCII without spaces; they are left out";
            note(format!("{} {why}", some(left_out.iter().map(String::as_str))), "");
        }
        if !users.list.is_empty() {
            let names = some(users.list.iter().map(|user| user.variable.as_str()));
            let why = "passwords stand outside of the file: set them, in the form that they have now, in the environment of Weir";
            note(format!("{why}: {names}"), "password = { file = \"/path\" }");
        }
        Ok(users)
    }

    /// Adds a user. A later one of the same name replaces an earlier one.
    fn add(&mut self, listed: Listed, left_out: &mut Vec<String>) {
        if listed.form == Form::Empty || !super::amount::is_word(&listed.name) {
            left_out.push(listed.name);
            return;
        }
        if let Some(place) = self.places.get(&listed.name) {
            self.list[*place].form = listed.form;
            return;
        }
        let variable = self.variables.unique(&listed.name, "_PASSWORD");
        self.places.insert(listed.name.clone(), self.list.len());
        self.list.push(User { name: listed.name, form: listed.form, variable });
    }

    /// The form of a user's password and the variable that has it.
    pub(super) fn find(&self, name: &str) -> Option<(Form, &str)> {
        let user = &self.list[*self.places.get(name)?];
        Some((user.form, &user.variable))
    }

    /// Tables of a listener.
    pub(super) fn write(&self, more: &mut Table) {
        for user in &self.list {
            let mut table = Table::default();
            table.set("name", Value::text(&user.name));
            table.set("password", Value::secret(&user.variable));
            more.push("user", table);
        }
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
    if needs_password && users.list.is_empty() {
        let why = "no user is known, so that no client can log in with a password";
        notes.push(Note::new(place, directive, why, "[[listener.user]] for each user"));
    }
    for key in ["auth_user", "auth_query", "auth_dbname"] {
        if let Some(entry) = ini.get(key).filter(|entry| !entry.value.is_empty()) {
            let why = "users are not looked up at the server: those that are not in auth_file cannot log in";
            notes.push(Note::new(&entry.place, key, why, "[[listener.user]]"));
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
            note("every client is believed, also one whose name is not in auth_file", "auth = \"scram-sha-256\"");
        }
        "any" => note(
            "every client is believed; its name counts, and admin_users alone may use the console as admins",
            "auth = \"scram-sha-256\"",
        ),
        "hba" => note(
            "there are no rules by address, database and user: every client logs in by SCRAM, those too that the rules refuse",
            "a [[listener]] for each address, and pg_hba.conf of the server",
        ),
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
