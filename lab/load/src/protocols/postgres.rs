//! PostgreSQL: a SELECT of one account of `pgbench` for each request, in the simple or the extended protocol or of a prepared
//! statement. The number of the account comes back in the row, so that a foreign row shows, whatever the balances are.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | `[postgres]` of a scenario |
//! | `plan` | the requests of a shard, and the check of each reply |
//! | `wire` | whole replies out of chunks: everything up to a ReadyForQuery |
//! | `login` | from the startup packet to the first ReadyForQuery |

use super::{Common, Family, OwnKey, Protocol, REMEDY, Seat, Work};
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

    fn mix(&self, scenario: &Scenario) -> String {
        format!("SELECT of one account, {}", scenario.postgres.query.word())
    }

    fn details(&self, scenario: &Scenario) -> String {
        format!(", {} accounts", scenario.postgres.accounts)
    }
}
