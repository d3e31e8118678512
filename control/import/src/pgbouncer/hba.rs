//! `auth_hba_file`: a line for each rule, as in PostgreSQL's `pg_hba.conf`.

use std::net::IpAddr;
use std::rc::Rc;

use super::ini::Ini;
use super::listen;
use crate::Files;
use crate::note::{Mistake, Note, SourceLine};
use crate::toml::{Table, Value};

/// Rules of a file. Default 1,024: the list of `weir.toml`.
const RULES_MAX: usize = 1_024;

/// Files of names within one another. Default 4: one is usual.
const NESTED_FILES_MAX: usize = 4;

/// The methods that Weir has.
const METHODS: [&str; 6] = ["scram-sha-256", "md5", "password", "cert", "trust", "reject"];

/// A line of the file.
pub(super) struct Rule {
    place: SourceLine,
    text: String,
    kind: &'static str,
    database: String,
    user: String,
    /// `None`: every address.
    address: Option<String>,
    method: String,
}

/// The rules of the file, if `auth_type` wants them. Nothing: there are none that could be read, which is noted.
///
/// # Errors
/// A file of names cannot be read. Without them its line would let in what it refuses, or a later one would decide in its place.
pub(super) fn read(ini: &Ini, files: &dyn Files, notes: &mut Vec<Note>) -> Result<Vec<Rule>, Mistake> {
    if ini.text("auth_type") != "hba" {
        return Ok(Vec::new());
    }
    let Some(entry) = ini.get("auth_hba_file").filter(|entry| !entry.value.is_empty()) else {
        if let Some(entry) = ini.get("auth_type") {
            let why = "there is no auth_hba_file: every client logs in by SCRAM";
            notes.push(Note::new(&entry.place, entry.text(), why, "[[listener.postgres.hba]]"));
        }
        return Ok(Vec::new());
    };
    let found = match files.matching(&entry.value) {
        Ok(found) => found,
        Err(why) => {
            let why = format!("the file cannot be read ({why}): every client logs in by SCRAM");
            notes.push(Note::new(&entry.place, entry.text(), why, "[[listener.postgres.hba]]"));
            return Ok(Vec::new());
        }
    };
    let mut rules = Vec::new();
    for (name, text) in &found {
        let file: Rc<str> = name.as_str().into();
        for (index, line) in text.lines().enumerate() {
            let mut words = words(line);
            if words.is_empty() {
                continue;
            }
            let place = SourceLine { file: file.clone(), line: index + 1 };
            for list in words.iter_mut().skip(1).take(2) {
                *list = with_files(list, name, files, 0).map_err(|why| Mistake::new(&place, why))?;
            }
            match rule(&words, line, &place) {
                _ if rules.len() == RULES_MAX => {
                    let why = format!("there are more than {RULES_MAX} rules; this one and the others are left out");
                    notes.push(Note::new(&place, line.trim(), why, "fewer rules"));
                    return Ok(rules);
                }
                Ok(rule) => rules.push(rule),
                Err(why) => {
                    let why = format!("{why}; the line is left out, and PgBouncer passes over it too");
                    notes.push(Note::new(&place, line.trim(), why, ""));
                }
            }
        }
    }
    Ok(rules)
}

/// A list of names, those of its files (`@name`) in their places. `file`: where the list stands, from which other names start.
fn with_files(list: &str, file: &str, files: &dyn Files, depth: usize) -> Result<String, String> {
    if !list.split(',').any(|name| name.starts_with('@')) {
        return Ok(list.to_owned());
    }
    if depth == NESTED_FILES_MAX {
        return Err(format!("files of names are nested more than {NESTED_FILES_MAX} times"));
    }
    let mut names = Vec::new();
    for part in list.split(',') {
        let Some(named) = part.strip_prefix('@') else {
            names.push(part.to_owned());
            continue;
        };
        let folder = file.rsplit_once('/').filter(|_| !named.starts_with('/'));
        let named = folder.map_or_else(|| named.to_owned(), |(folder, _)| format!("{folder}/{named}"));
        let found = files.matching(&named).map_err(|why| format!("the names of `@{named}` cannot be read: {why}"))?;
        for (name, text) in &found {
            for word in text.lines().flat_map(words) {
                names.push(with_files(&word, name, files, depth + 1)?);
            }
        }
    }
    Ok(names.join(","))
}

/// The words of a line without its comment; a name in double quotes keeps them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '#' if !is_quoted => break,
            c if c.is_whitespace() && !is_quoted => {
                // A comma binds the next word to a list.
                if !word.is_empty() && !word.ends_with(',') {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                is_quoted ^= c == '"';
                if c == ',' && word.is_empty() && !is_quoted {
                    word = words.pop().unwrap_or_default();
                }
                word.push(c);
            }
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

fn rule(words: &[String], line: &str, place: &SourceLine) -> Result<Rule, String> {
    const KINDS: [&str; 4] = ["local", "host", "hostssl", "hostnossl"];
    let [kind, database, user, rest @ ..] = words else { return Err("the line is no rule".to_owned()) };
    let Some(kind) = KINDS.into_iter().find(|known| known == kind) else {
        return Err(format!("`{kind}` is none of {}", KINDS.join(", ")));
    };
    for name in [database, user] {
        if name.is_empty() {
            return Err("its files name nothing".to_owned());
        }
        if name.split(',').any(|name| name.starts_with(['+', '/']) || name.starts_with("same") && name != "sameuser") {
            return Err("roles and regular expressions are no names here".to_owned());
        }
    }
    let (address, rest) = match (kind, rest) {
        ("local", rest) => (None, rest),
        (_, [address, mask, rest @ ..]) if mask.parse::<IpAddr>().is_ok() => (network(address, Some(mask))?, rest),
        (_, [address, rest @ ..]) => (network(address, None)?, rest),
        _ => return Err("the line is no rule".to_owned()),
    };
    let [method, ..] = rest else { return Err("the line is no rule".to_owned()) };
    let (database, user, method) = (database.clone(), user.clone(), method.clone());
    Ok(Rule { place: place.clone(), text: line.trim().to_owned(), kind, database, user, address, method })
}

/// An address and its mask as a network without bits behind its prefix. `None`: every address.
fn network(address: &str, mask: Option<&String>) -> Result<Option<String>, String> {
    if address == "all" && mask.is_none() {
        return Ok(None);
    }
    let wrong = || format!("`{address}` is no network: names of hosts, samehost and samenet have no counterpart");
    let (base, prefix) = match address.split_once('/') {
        Some((base, prefix)) => (base, Some(prefix.parse::<u32>().map_err(|_| wrong())?)),
        None => (address, None),
    };
    let base: IpAddr = base.parse().map_err(|_| wrong())?;
    let prefix = match (prefix, mask.and_then(|mask| mask.parse().ok())) {
        (Some(prefix), _) => prefix,
        (None, Some(IpAddr::V4(mask))) => u32::from(mask).leading_ones(),
        (None, Some(IpAddr::V6(mask))) => u128::from(mask).leading_ones(),
        (None, None) => return Err(wrong()),
    };
    let base: IpAddr = match base {
        IpAddr::V4(base) if prefix <= 32 => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            std::net::Ipv4Addr::from(u32::from(base) & mask).into()
        }
        IpAddr::V6(base) if prefix <= 128 => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            std::net::Ipv6Addr::from(u128::from(base) & mask).into()
        }
        _ => return Err(wrong()),
    };
    Ok(Some(format!("{base}/{prefix}")))
}

impl Rule {
    /// Whether its clients are on this machine.
    fn is_near(&self) -> bool {
        let address = self.address.as_deref().and_then(|net| net.split_once('/'));
        let is_loopback = address.is_some_and(|(base, prefix)| match base.parse() {
            Ok(IpAddr::V4(base)) => base.is_loopback() && prefix.parse().is_ok_and(|bits: u8| bits >= 8),
            Ok(IpAddr::V6(base)) => base.is_loopback() && prefix == "128",
            Err(_) => false,
        });
        self.kind == "local" || is_loopback
    }

    /// The method here, and why it is another one.
    fn method(&self, is_local: bool, has_certificates: bool) -> (&str, Option<(&'static str, &'static str)>) {
        match &*self.method {
            "trust" if !is_local && !self.is_near() => {
                let why = "clients of other machines need a password: scram-sha-256 is written";
                ("scram-sha-256", Some((why, "allow_trust = true")))
            }
            "cert" if !has_certificates => (
                "reject",
                Some((
                    "the listener requests no certificate: the rule lets no client in",
                    "client_auth = \"optional\"",
                )),
            ),
            known if METHODS.contains(&known) => (known, None),
            _ => ("reject", Some(("the method has no counterpart: the rule lets no client in", "scram-sha-256"))),
        }
    }
}

/// One rule in place of `auth`: the same method, for clients with TLS alone. The method `cert` demands TLS by itself.
pub(super) fn demand_tls(listener: &mut Table) {
    let table = listener.table("postgres");
    let Some(method) = table.get("auth").filter(|method| **method != Value::text("cert")).cloned() else { return };
    table.remove_key("auth");
    let mut own = Table::default();
    own.set("type", Value::text("hostssl"));
    own.set("database", Value::text("all"));
    own.set("user", Value::text("all"));
    own.set("method", method);
    table.push("hba", own);
}

/// Writes the rules into the keys of a listener at `bind`, in place of `auth`. `demands_tls`: no client without TLS comes in.
pub(super) fn write(rules: &[Rule], bind: &str, demands_tls: bool, listener: &mut Table, notes: &mut Vec<Note>) {
    let has_certificates = listener.get("tls.client_auth").is_some();
    let table = listener.table("postgres");
    table.remove_key("auth");
    for rule in rules {
        let kind = match rule.kind {
            // PgBouncer refuses its clients before it looks at the rules.
            "hostnossl" if demands_tls => continue,
            "host" if demands_tls => "hostssl",
            kind => kind,
        };
        let (method, differs) = rule.method(listen::is_local(bind), has_certificates);
        if let Some((why, nearest)) = differs {
            let note = Note::new(&rule.place, &rule.text, why, nearest);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let mut own = Table::default();
        own.set("type", Value::text(kind));
        own.set("database", Value::text(&rule.database));
        own.set("user", Value::text(&rule.user));
        if let Some(address) = &rule.address {
            own.set("address", Value::text(address));
        }
        own.set("method", Value::text(method));
        table.push("hba", own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Result<Rule, String> {
        rule(&words(line), line, &SourceLine { file: "f".into(), line: 1 })
    }

    #[test]
    fn lines_are_read_as_pgbouncer_reads_them() {
        let line = "hostssl\tshop, \"all, too\" ,x  app 10.1.2.3 255.0.0.0 md5 # comment";
        let rule = read_line(line).expect("a rule");
        assert_eq!((&*rule.database, &*rule.user), ("shop,\"all, too\",x", "app"));
        assert_eq!((rule.kind, rule.address.as_deref(), &*rule.method), ("hostssl", Some("10.0.0.0/8"), "md5"));
        let cases = [
            ("host all all 10.1.2.3/9 trust", Some("10.0.0.0/9")),
            ("host all all fd00::1/8 trust", Some("fd00::/8")),
            ("host all all ::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff trust", Some("::1/128")),
            ("host all all 0.0.0.0/0 trust", Some("0.0.0.0/0")),
            ("host all all all trust", None),
            ("local all all trust", None),
        ];
        for (line, address) in cases {
            assert_eq!(read_line(line).expect(line).address.as_deref(), address, "{line}");
        }
        for line in [
            "host all all",
            "hostgss all all all trust",
            "host all +r all md5",
            "host all all db.internal md5",
            "host all all samenet md5",
            "host all all 10.0.0.0/99 md5",
            "local samerole all md5",
            "host all all 10.0.0.1 md5",
        ] {
            assert!(read_line(line).is_err(), "{line}");
        }
        assert!(words("  # nothing").is_empty());
    }
}
