//! Commands of the admin console, as PgBouncer has them.

/// A table of SHOW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Help,
    Version,
    Pools,
    Databases,
    Stats,
    StatsTotals,
    StatsAverages,
    Clients,
    Lists,
    Users,
    Config,
    State,
    Mem,
    Pins,
    Listeners,
}

/// Its words.
const SHOWS: [(&str, Show); 15] = [
    ("HELP", Show::Help),
    ("VERSION", Show::Version),
    ("POOLS", Show::Pools),
    ("DATABASES", Show::Databases),
    ("STATS", Show::Stats),
    ("STATS_TOTALS", Show::StatsTotals),
    ("STATS_AVERAGES", Show::StatsAverages),
    ("CLIENTS", Show::Clients),
    ("LISTS", Show::Lists),
    ("USERS", Show::Users),
    ("CONFIG", Show::Config),
    ("STATE", Show::State),
    ("MEM", Show::Mem),
    ("PINS", Show::Pins),
    ("LISTENERS", Show::Listeners),
];

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Show(Show),
    /// Databases: all, or one.
    Pause(Option<String>),
    Resume(Option<String>),
    Reconnect(Option<String>),
    /// The number of a client of `SHOW CLIENTS`.
    KillClient(u64),
    /// Nothing stands between two semicolons.
    Empty,
    /// `SET` of a client library.
    Set,
}

impl Command {
    /// Reads one command. A semicolon may end it.
    ///
    /// # Errors
    /// The text for the client.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "invalid command".to_owned())?;
        let text = text.trim().trim_end_matches(';').trim();
        let mut words = text.split_whitespace();
        let Some(first) = words.next() else { return Ok(Self::Empty) };
        let rest = words.next();
        if words.next().is_some() && !first.eq_ignore_ascii_case("SET") {
            return Err(format!("invalid command '{text}', use SHOW HELP;"));
        }
        let name = || rest.map(|name| name.trim_matches('"').to_owned());
        match (first.to_ascii_uppercase().as_str(), rest) {
            ("SHOW", Some(word)) => {
                let found = SHOWS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known));
                found
                    .map(|(_, show)| Self::Show(*show))
                    .ok_or_else(|| format!("unsupported SHOW '{word}', use SHOW HELP;"))
            }
            ("SHOW", None) => Ok(Self::Show(Show::Help)),
            ("PAUSE", _) => Ok(Self::Pause(name())),
            ("RESUME", _) => Ok(Self::Resume(name())),
            ("RECONNECT", _) => Ok(Self::Reconnect(name())),
            ("KILL_CLIENT", Some(id)) => {
                id.parse().map(Self::KillClient).map_err(|_| format!("invalid client '{id}': see id in SHOW CLIENTS"))
            }
            ("SET", Some(_)) => Ok(Self::Set),
            _ => Err(format!("invalid command '{text}', use SHOW HELP;")),
        }
    }

    /// It changes nothing, so that a user of statistics may give it.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self, Self::Show(_) | Self::Empty | Self::Set)
    }

    /// Its command tag.
    pub(crate) fn tag(&self) -> &'static [u8] {
        match self {
            Self::Show(_) => b"SHOW",
            Self::Pause(_) => b"PAUSE",
            Self::Resume(_) => b"RESUME",
            Self::Reconnect(_) => b"RECONNECT",
            Self::KillClient(_) => b"KILL_CLIENT",
            Self::Set | Self::Empty => b"SET",
        }
    }
}

/// The words for `SHOW HELP`.
pub(crate) fn help() -> String {
    let shows: Vec<&str> = SHOWS.iter().map(|(word, _)| *word).collect();
    format!(
        "Console usage\n\tSHOW {}\n\tPAUSE [<db>]\n\tRESUME [<db>]\n\tRECONNECT [<db>]\n\tKILL_CLIENT <client_id>",
        shows.join("|")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_pgbouncer_reads_them() {
        let read = |text: &str| Command::read(text.as_bytes());
        assert_eq!(read(" show pools; "), Ok(Command::Show(Show::Pools)));
        assert_eq!(read("SHOW stats_totals"), Ok(Command::Show(Show::StatsTotals)));
        assert_eq!(read("PAUSE"), Ok(Command::Pause(None)));
        assert_eq!(read("resume \"Shop\";"), Ok(Command::Resume(Some("Shop".to_owned()))));
        assert_eq!(read("KILL_CLIENT 17"), Ok(Command::KillClient(17)));
        assert_eq!(read(" ; "), Ok(Command::Empty));
        assert_eq!(read("SET application_name = 'x'"), Ok(Command::Set));
        for wrong in ["SHOW NOTHING", "KILL_CLIENT x", "PAUSE a b", "SELECT 1", "DROP"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read("SHOW CLIENTS").is_ok_and(|command| command.only_looks()));
        assert!(!read("KILL_CLIENT 1").expect("a command").only_looks(), "CVE-2026-6667");
    }
}
