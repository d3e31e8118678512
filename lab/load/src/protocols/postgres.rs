//! PostgreSQL: a SELECT of one account of `pgbench` for each request, in the simple or the extended protocol or of a prepared
//! statement. The number of the account comes back in the row, so that a foreign row shows, whatever the balances are.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | `[postgres]` of a scenario |
//! | `plan` | the requests of a shard, and the check of each reply |
//! | `wire` | whole replies out of chunks: everything up to a ReadyForQuery |
//! | `login` | from the startup packet to the first ReadyForQuery |

use weir_postgres_codec::backend::{DataRow, tag};
use weir_postgres_codec::frame::{HEAD_BYTES, head};

use super::{Common, Count, Family, OwnKey, Protocol, REMEDY, Seat, Work};
use crate::requests::Planner;
use crate::scenario::Scenario;
use crate::scenario::table::Table;
use crate::shard::Shard;
use crate::url::Scheme;
use crate::wire::Wire;

mod login;
mod plan;
mod settings;
#[cfg(test)]
mod tests;
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

    fn has_payload(&self) -> bool {
        false
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
        Some(Work { postgres, ..Work::default() })
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        Box::new(plan::Selects::new(scenario, shard))
    }

    fn wire(&self, _scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        Box::new(wire::Replies::new())
    }

    fn count(&self) -> Option<Count> {
        Some(Count { question: COUNT, read: requests_answered })
    }

    fn mix(&self, scenario: &Scenario) -> String {
        format!("SELECT of one account, {}", scenario.postgres.query.word())
    }

    fn details(&self, scenario: &Scenario) -> String {
        format!(", {} accounts", scenario.postgres.accounts)
    }
}

/// The number in the only row of an answer that is whole.
fn requests_answered(answer: &[u8]) -> Option<u64> {
    let (mut rest, mut row) = (answer, None);
    while let Some(head) = head(rest).ok()? {
        let (message, more) = rest.split_at_checked(head.whole())?;
        if head.tag == tag::DATA_ROW {
            row = DataRow::read(&message[HEAD_BYTES..]).ok()?.iter().next().flatten();
        }
        rest = more;
    }
    std::str::from_utf8(row?).ok()?.parse().ok()
}
