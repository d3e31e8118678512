//! PostgreSQL: a SELECT of one account of `pgbench`, or its transaction `tpcb-like`, for each request, in the simple or the extended
//! protocol or of prepared statements. The number of a selected account comes back in the row, so that a foreign row shows, whatever
//! the balances are.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | `[postgres]` of a scenario |
//! | `plan` | the SELECTs of a shard, and the check of each reply |
//! | `tpcb` | the transactions of a shard and of a connection, and the sums that they keep equal |
//! | `wire` | whole replies out of chunks: everything up to a ReadyForQuery |
//! | `login` | from the startup packet to the first ReadyForQuery |

use weir_postgres_codec::backend::{DataRow, tag};
use weir_postgres_codec::frame::{HEAD_BYTES, head};

use super::{Audit, Common, Count, Family, OwnKey, Protocol, REMEDY, Seat, Work};
use crate::requests::Planner;
use crate::scenario::table::Table;
use crate::scenario::{Scenario, Script};
use crate::shard::Shard;
use crate::url::Scheme;
use crate::wire::Wire;

mod login;
mod plan;
mod settings;
#[cfg(test)]
mod tests;
mod tpcb;
mod wire;

/// Name of the prepared statement of each connection.
const STATEMENT: &[u8] = b"weir_load";
/// Its text, and that of the extended protocol.
const PREPARED: &[u8] = b"SELECT aid, abalance FROM pgbench_accounts WHERE aid = $1";

/// The login of any user, and the question about the requests of the lab's origin.
const COUNT: &[u8] = b"\0\0\0\x14\0\x03\0\0user\0count\0\0Q\0\0\0\x25SELECT requests FROM weir_origin\0";

/// See the module.
pub(super) struct Postgres;

impl Protocol for Postgres {
    fn word(&self) -> &'static str {
        "postgres"
    }

    fn title(&self) -> &'static str {
        "PostgreSQL"
    }

    fn fixed_reply(&self, _scenario: &Scenario) -> Option<String> {
        Some("one row".to_owned())
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme { name: "postgres", port: Some(5432), has_path: false })
    }

    fn family(&self) -> &'static Family {
        &Family {
            own_keys: &[OwnKey { name: "postgres", why: "is only for protocol = \"postgres\"" }],
            remedy: REMEDY,
            origin: "postgres",
            has_workers: true,
            usual_peers: &["pgbouncer", "pgpool"],
        }
    }

    fn read(&self, root: &Table<'_>, _common: &Common<'_>) -> Option<Work> {
        root.refuse("payload", "has no meaning for PostgreSQL, where a row is that of an account", "remove it");
        let postgres = root.table("postgres").and_then(settings::read)?;
        if postgres.script == Script::TpcbLike {
            root.refuse("pipeline", "has no meaning for transactions, which come one after the other", "remove it");
        }
        Some(Work { postgres, ..Work::default() })
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        match scenario.postgres.script {
            Script::SelectOnly => Box::new(plan::Selects::new(scenario, shard)),
            Script::TpcbLike => Box::new(tpcb::Transactions { query: scenario.postgres.query }),
        }
    }

    fn wire(&self, scenario: &Scenario, seat: Seat) -> Box<dyn Wire> {
        let is_transaction = scenario.postgres.script == Script::TpcbLike;
        Box::new(wire::Replies::new(is_transaction.then(|| tpcb::Course::new(scenario, seat))))
    }

    fn audit(&self, scenario: &Scenario) -> Option<Audit> {
        let audit: Audit = |stream| Box::pin(tpcb::audit(stream));
        (scenario.postgres.script == Script::TpcbLike).then_some(audit)
    }

    fn count(&self) -> Option<Count> {
        Some(Count { question: COUNT, read: requests_served })
    }

    fn mix(&self, scenario: &Scenario) -> String {
        let work = match scenario.postgres.script {
            Script::SelectOnly => "SELECT of one account",
            Script::TpcbLike => "TPC-B",
        };
        format!("{work}, {}", scenario.postgres.query.word())
    }

    fn details(&self, scenario: &Scenario) -> String {
        format!(", {} accounts", scenario.postgres.accounts)
    }
}

/// The number in the only row of a response that is whole.
fn requests_served(response: &[u8]) -> Option<u64> {
    let (mut rest, mut row) = (response, None);
    while let Some(head) = head(rest).ok()? {
        let (message, more) = rest.split_at_checked(head.whole())?;
        if head.tag == tag::DATA_ROW {
            row = DataRow::read(&message[HEAD_BYTES..]).ok()?.iter().next().flatten();
        }
        rest = more;
    }
    std::str::from_utf8(row?).ok()?.parse().ok()
}
