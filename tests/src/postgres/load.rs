//! Load by real drivers, which goes on until it is stopped, and its account (`tests/clients/postgres/python/load.py`).

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

use crate::postgres::{Postgres, USER, url};
use crate::tools;

/// The drivers: each has a process.
const DRIVERS: [&str; 2] = ["psycopg", "asyncpg"];

/// Clients that write. They end when this value is dropped.
pub struct Load {
    processes: Vec<Child>,
    clients: u32,
}

/// One transaction that failed.
#[derive(Clone, Debug, Deserialize)]
pub struct LoadFailure {
    /// The client: driver and number.
    pub client: String,
    /// The statement that failed: `connect`, `setting`, `begin`, `block`, `commit`, or `statement` without a block.
    pub phase: String,
    /// The connection ended with it.
    pub is_over: bool,
    /// Its SQLSTATE; `closed` if the driver has none for the end of its connection.
    pub state: String,
    /// The words of the driver.
    pub text: String,
}

/// The account of a load.
#[derive(Debug, Default, Deserialize)]
pub struct LoadReport {
    /// Transactions that the clients know to be committed.
    pub acknowledged: u64,
    /// Connections.
    pub lives: u64,
    /// Transactions that failed.
    pub failures: Vec<LoadFailure>,
    /// Transactions that were lost, or foreign; settings that are not those of the client.
    pub problems: Vec<String>,
}

impl Load {
    /// `clients` of each driver write through `port` into a table of `server`.
    ///
    /// # Panics
    /// If a program cannot be started.
    #[must_use]
    pub fn start(server: &Postgres, port: u16, clients: u32) -> Self {
        let table = "create table done (client text, number int, at timestamptz default clock_timestamp())";
        server.sql_in(USER, &format!("{table}; grant all on done to {USER}"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/postgres/python/load.py");
        let start = |driver: &str| {
            let mut python = Command::new(tools::python_installed());
            python.arg(&script).args([driver, &url(port, USER), &clients.to_string()]);
            python.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
            python.spawn().expect("Python starts")
        };
        Self { processes: DRIVERS.map(start).into(), clients: clients * DRIVERS.len() as u32 }
    }

    /// Each client has written `times` times from now on, as `server` sees it.
    #[must_use]
    pub fn has_written(&self, server: &Postgres, since: &str, times: u32) -> bool {
        let text = format!("select client from done where at > '{since}' group by 1 having count(*) >= {times}");
        server.try_sql(USER, &format!("select count(*) from ({text}) c")).is_ok_and(|n| n == self.clients.to_string())
    }

    /// Ends the clients between two transactions; the account of all.
    ///
    /// # Panics
    /// If a program fails.
    #[must_use]
    pub fn stop(mut self) -> LoadReport {
        let mut all = LoadReport::default();
        self.processes.iter_mut().for_each(|process| drop(process.stdin.take()));
        for process in std::mem::take(&mut self.processes) {
            let output = process.wait_with_output().expect("its output");
            assert!(output.status.success(), "the load ends with {}", output.status);
            let report: LoadReport = serde_json::from_slice(&output.stdout).expect("the account of a load");
            all.acknowledged += report.acknowledged;
            all.lives += report.lives;
            all.failures.extend(report.failures);
            all.problems.extend(report.problems);
        }
        all
    }
}
