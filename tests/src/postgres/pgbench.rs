//! A run of pgbench, and its figures.

use std::path::Path;
use std::process::Command;

use crate::postgres::server::{PASSWORD, Postgres, USER};

/// How pgbench sends its statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// One Query message each.
    Simple,
    /// Parse, Bind, Execute each time.
    Extended,
    /// Parse once, then Bind and Execute.
    Prepared,
}

impl Protocol {
    /// All.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Prepared];

    /// As the option `-M` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

/// A run: so many clients, so many transactions each.
#[derive(Clone, Debug)]
pub struct Pgbench {
    /// The option `-M`.
    pub protocol: Protocol,
    /// Clients.
    pub clients: u32,
    /// Transactions of each client.
    pub transactions: u32,
    /// Further options: `-S` for reads alone, `-C` for a connection each, `-f FILE`.
    pub words: Vec<String>,
}

/// Figures that pgbench prints at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct PgbenchFigures {
    /// Transactions that were committed.
    pub transactions: u64,
    /// Transactions that failed with an error that pgbench survives.
    pub failed: u64,
    /// Average latency, milliseconds.
    pub latency_ms: f64,
    /// Transactions a second, without the time of the connections.
    pub rate: f64,
}

/// Makes pgbench's tables in a database of `server`, for the test user.
///
/// # Panics
/// If it cannot.
pub fn prepare(server: &Postgres, database: &str, scale: u32) {
    let mut command = program(server.port(), database);
    command.args(["-i", "-q", "-s", &scale.to_string()]);
    finish(&mut command).unwrap_or_else(|error| panic!("pgbench -i: {error}"));
}

impl Pgbench {
    /// Runs against a port of this machine: a server, or what is in front of one.
    ///
    /// # Errors
    /// The messages of pgbench, if a client breaks off.
    pub fn run(&self, port: u16, database: &str) -> Result<PgbenchFigures, String> {
        let mut command = program(port, database);
        command.args(["-n", "-M", self.protocol.name(), "-c", &self.clients.to_string(), "-j", "2"]);
        command.args(["-t", &self.transactions.to_string()]).args(&self.words);
        let text = finish(&mut command)?;
        figures(&text).ok_or_else(|| format!("no figures in: {text}"))
    }
}

fn program(port: u16, database: &str) -> Command {
    let mut command = Command::new("pgbench");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", USER, database]);
    command.env("PGPASSWORD", PASSWORD).current_dir(Path::new("/tmp"));
    command
}

fn finish(command: &mut Command) -> Result<String, String> {
    let output = command.output().expect("pgbench starts: `cargo xtask setup postgres` installs it");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    // It ends with 0 although a client broke off.
    if output.status.success() && !errors.contains("aborted") {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(errors)
    }
}

fn figures(text: &str) -> Option<PgbenchFigures> {
    let number = |name: &str| -> Option<f64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        let digits: String = rest.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
        digits.parse().ok()
    };
    Some(PgbenchFigures {
        transactions: number("number of transactions actually processed: ")? as u64,
        failed: number("number of failed transactions: ")? as u64,
        latency_ms: number("latency average = ")?,
        rate: number("tps = ")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_are_read() {
        let text = "transaction type: <builtin: select only>\nnumber of transactions actually processed: 400/400\n\
            number of failed transactions: 2 (0.500%)\nlatency average = 0.123 ms\ntps = 8123.456 (without initial connection time)\n";
        let expected = PgbenchFigures { transactions: 400, failed: 2, latency_ms: 0.123, rate: 8123.456 };
        assert_eq!(figures(text), Some(expected));
        assert_eq!(figures("pgbench: error"), None);
    }
}
