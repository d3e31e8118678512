//! Commands of the admin console, as PgBouncer has them.

use super::words::{self, Words};

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
    Totals,
    Clients,
    Servers,
    Sockets,
    ActiveSockets,
    Lists,
    Users,
    Config,
    State,
    Mem,
    DnsHosts,
    DnsZones,
    Peers,
    PeerPools,
    Pins,
    Listeners,
    /// A parameter that client libraries look at, by its place in [`PARAMETERS`].
    Parameter(usize),
}

/// Its words.
const SHOWS: [(&str, Show); 23] = [
    ("HELP", Show::Help),
    ("CONFIG", Show::Config),
    ("DATABASES", Show::Databases),
    ("POOLS", Show::Pools),
    ("CLIENTS", Show::Clients),
    ("SERVERS", Show::Servers),
    ("USERS", Show::Users),
    ("VERSION", Show::Version),
    ("PEERS", Show::Peers),
    ("PEER_POOLS", Show::PeerPools),
    ("SOCKETS", Show::Sockets),
    ("ACTIVE_SOCKETS", Show::ActiveSockets),
    ("LISTS", Show::Lists),
    ("MEM", Show::Mem),
    ("STATE", Show::State),
    ("DNS_HOSTS", Show::DnsHosts),
    ("DNS_ZONES", Show::DnsZones),
    ("STATS", Show::Stats),
    ("STATS_TOTALS", Show::StatsTotals),
    ("STATS_AVERAGES", Show::StatsAverages),
    ("TOTALS", Show::Totals),
    ("PINS", Show::Pins),
    ("LISTENERS", Show::Listeners),
];

/// Parameters of a session that client libraries look at or set without a need, and their values here. SET of one changes nothing.
pub(crate) const PARAMETERS: [(&str, &str); 11] = [
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
    ("intervalstyle", "postgres"),
    ("extra_float_digits", "1"),
    ("application_name", ""),
    ("client_min_messages", "notice"),
    ("statement_timeout", "0"),
];

/// The time that a SHUTDOWN gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// Transactions end, within the drain's limit.
    Servers,
    /// No client comes any more, and those that are there leave by themselves.
    Clients,
}

/// A command. A database is a name; `None`: all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Show(Show),
    Pause(Option<String>),
    Resume(Option<String>),
    Reconnect(Option<String>),
    WaitClose(Option<String>),
    Kill(Option<String>),
    Disable(String),
    Enable(String),
    /// The number of a client of `SHOW CLIENTS`.
    KillClient(u64),
    Reload,
    Shutdown(Shutdown),
    Suspend,
    /// Key and value.
    Set(String, String),
    /// Nothing stands before the semicolon.
    Empty,
}

impl Command {
    /// Reads one command. A semicolon may end it; words are of any case, names may be quoted.
    ///
    /// # Errors
    /// The text for the client.
    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "invalid command".to_owned())?;
        let invalid = || format!("invalid command '{}', use SHOW HELP;", text.trim());
        let words = words::split(text).ok_or_else(invalid)?;
        match words {
            Words::None => Ok(Self::Empty),
            Words::Set { key, value } => Ok(Self::Set(key, value)),
            Words::Command { verb, argument } => Self::of(&verb, argument)?.ok_or_else(invalid),
        }
    }

    /// The command of a verb. `None`: there is none, or its argument is missing or too much.
    fn of(verb: &str, argument: Option<String>) -> Result<Option<Self>, String> {
        let needed = |make: fn(String) -> Self| match argument.clone() {
            Some(name) => Ok(Some(make(name))),
            None => Err("a database is required".to_owned()),
        };
        let alone = |command: Self| Ok(argument.is_none().then_some(command));
        match verb.to_ascii_lowercase().as_str() {
            "show" | "select" => match &argument {
                Some(word) => show(word).map(|show| Some(Self::Show(show))),
                None => Ok(Some(Self::Show(Show::Help))),
            },
            "pause" => Ok(Some(Self::Pause(argument))),
            "resume" => Ok(Some(Self::Resume(argument))),
            "reconnect" => Ok(Some(Self::Reconnect(argument))),
            "wait_close" => Ok(Some(Self::WaitClose(argument))),
            "kill" => Ok(Some(Self::Kill(argument))),
            "disable" => needed(Self::Disable),
            "enable" => needed(Self::Enable),
            "kill_client" => {
                let id = argument.unwrap_or_default();
                let id = id.parse().map_err(|_| format!("invalid client '{id}': see id in SHOW CLIENTS"))?;
                Ok(Some(Self::KillClient(id)))
            }
            "reload" => alone(Self::Reload),
            "suspend" => alone(Self::Suspend),
            "shutdown" => Ok(match argument.as_deref().map(str::to_ascii_lowercase).as_deref() {
                None | Some("wait_for_servers") => Some(Self::Shutdown(Shutdown::Servers)),
                Some("wait_for_clients") => Some(Self::Shutdown(Shutdown::Clients)),
                Some(_) => None,
            }),
            _ => Ok(None),
        }
    }

    /// It changes nothing, so that a user of statistics may give it.
    pub(crate) fn only_looks(&self) -> bool {
        match self {
            Self::Show(_) | Self::Empty => true,
            Self::Set(key, _) => parameter(key).is_some(),
            _ => false,
        }
    }

    /// Its command tag.
    pub(crate) fn tag(&self) -> &'static [u8] {
        match self {
            Self::Show(_) => b"SHOW",
            Self::Pause(_) => b"PAUSE",
            Self::Resume(_) => b"RESUME",
            Self::Reconnect(_) => b"RECONNECT",
            Self::WaitClose(_) => b"WAIT_CLOSE",
            Self::Kill(_) => b"KILL",
            Self::Disable(_) => b"DISABLE",
            Self::Enable(_) => b"ENABLE",
            Self::KillClient(_) => b"KILL_CLIENT",
            Self::Reload => b"RELOAD",
            Self::Shutdown(_) => b"SHUTDOWN",
            Self::Suspend => b"SUSPEND",
            Self::Set(..) | Self::Empty => b"SET",
        }
    }
}

/// The place of a parameter in [`PARAMETERS`].
pub(crate) fn parameter(name: &str) -> Option<usize> {
    PARAMETERS.iter().position(|(known, _)| name.eq_ignore_ascii_case(known))
}

fn show(word: &str) -> Result<Show, String> {
    if word.eq_ignore_ascii_case("FDS") {
        // It passes sockets to another PgBouncer.
        return Err("SHOW FDS is not supported: use `weir upgrade`".to_owned());
    }
    let found = SHOWS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known)).map(|(_, show)| *show);
    let found = found.or_else(|| parameter(word).map(Show::Parameter));
    found.ok_or_else(|| format!("unsupported SHOW '{word}', use SHOW HELP;"))
}

/// The words for `SHOW HELP`.
pub(crate) fn help() -> String {
    let shows: Vec<&str> = SHOWS.iter().map(|(word, _)| *word).collect();
    format!(
        "\n\tSHOW {}\n\tSET key = value\n\tRELOAD\n\tPAUSE [<db>]\n\tRESUME [<db>]\n\tDISABLE <db>\n\tENABLE <db>\n\
         \tRECONNECT [<db>]\n\tWAIT_CLOSE [<db>]\n\tKILL [<db>]\n\tKILL_CLIENT <client_id>\n\
         \tSHUTDOWN [WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS]",
        shows.join("|")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Command, String> {
        Command::read(text.as_bytes())
    }

    #[test]
    fn commands_are_read_as_pgbouncer_reads_them() {
        let set = |key: &str, value: &str| Ok(Command::Set(key.to_owned(), value.to_owned()));
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(read(" show pools; "), Ok(Command::Show(Show::Pools)));
        assert_eq!(read("SHOW\n\tstats_totals ;"), Ok(Command::Show(Show::StatsTotals)));
        assert_eq!(read("Select Version"), Ok(Command::Show(Show::Version)));
        assert_eq!(read("show timezone"), Ok(Command::Show(Show::Parameter(5))));
        assert_eq!(read("PAUSE"), Ok(Command::Pause(None)));
        assert_eq!(read("resume \"Shop\";"), Ok(Command::Resume(some("Shop"))));
        assert_eq!(read("kill \"a \"\"b\"\" c\""), Ok(Command::Kill(some("a \"b\" c"))));
        assert_eq!(read("Wait_Close shop"), Ok(Command::WaitClose(some("shop"))));
        assert_eq!(read("disable SHOP"), Ok(Command::Disable("SHOP".to_owned())), "names keep their case");
        assert_eq!(read("KILL_CLIENT 17"), Ok(Command::KillClient(17)));
        assert_eq!(read("shutdown wait_for_clients"), Ok(Command::Shutdown(Shutdown::Clients)));
        assert_eq!(read("SHUTDOWN;"), Ok(Command::Shutdown(Shutdown::Servers)));
        assert_eq!(read(" ; "), Ok(Command::Empty));
        assert_eq!(read("-- ping"), Ok(Command::Empty));
        assert_eq!(read("-- why\nRELOAD -- now"), Ok(Command::Reload));
        assert_eq!(read("SET application_name = 'x''y'"), set("application_name", "x'y"));
        assert_eq!(read("set query_timeout to 5;"), set("query_timeout", "5"));
        assert_eq!(read("set query_timeout=5"), set("query_timeout", "5"));
    }

    #[test]
    fn what_pgbouncer_does_not_have_is_an_error() {
        for wrong in [
            "SHOW NOTHING",
            "SHOW FDS",
            "KILL_CLIENT x",
            "KILL_CLIENT",
            "PAUSE a b",
            "SELECT 1",
            "DROP",
            "DISABLE",
            "RELOAD now",
            "SHUTDOWN soon",
            "SHOW POOLS; SHOW POOLS",
            "PAUSE \"open",
            "SET a",
            "SET a =",
            "SET = 5",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn users_of_statistics_only_look() {
        assert!(read("SHOW CLIENTS").is_ok_and(|command| command.only_looks()));
        assert!(read("SET DateStyle = 'ISO'").is_ok_and(|command| command.only_looks()));
        for other in ["KILL_CLIENT 1", "RELOAD", "SET query_timeout = 1", "PAUSE"] {
            assert!(!read(other).expect("a command").only_looks(), "{other}: CVE-2026-6667");
        }
    }
}
