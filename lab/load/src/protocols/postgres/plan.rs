//! The requests of a shard, and the check of each reply.

use weir_base::Rng;
use weir_postgres_codec::TransactionStatus;
use weir_postgres_codec::backend::{self, CommandComplete, DataRow, ReadyForQuery};
use weir_postgres_codec::frame::{HEAD_BYTES, head};
use weir_postgres_codec::frontend::{self, Kind};

use super::{PREPARED, STATEMENT};
use crate::keys::{Distribution, KeyPicker};
use crate::requests::{Expectation, Integrity, PlanPosition, Planner};
use crate::scenario::{QueryForm, Scenario};
use crate::shard::{Purpose, Shard};

/// Draws the accounts of one shard.
pub(super) struct Selects {
    query: QueryForm,
    rng: Rng,
    picker: KeyPicker,
    accounts: Vec<u32>,
}

impl Selects {
    pub(super) fn new(scenario: &Scenario, shard: Shard) -> Self {
        Self {
            query: scenario.postgres.query,
            rng: shard.stream(scenario.seed, Purpose::Requests, 0),
            picker: KeyPicker::new(Distribution::Uniform, u64::from(scenario.postgres.accounts)),
            accounts: Vec::new(),
        }
    }
}

impl Planner for Selects {
    fn plan(&mut self, arena: &mut Vec<u8>) {
        // Accounts are numbered from 1, below 2^31.
        let account = self.picker.pick(&mut self.rng) as u32 + 1;
        self.accounts.push(account);
        let number = account.to_string();
        if self.query == QueryForm::Simple {
            let text = format!("SELECT aid, abalance FROM pgbench_accounts WHERE aid = {number}");
            return frontend::query(arena, text.as_bytes());
        }
        let is_prepared = self.query == QueryForm::Prepared;
        if !is_prepared {
            frontend::parse(arena, b"", PREPARED, &[]);
        }
        frontend::bind(arena, b"", if is_prepared { STATEMENT } else { b"" }, [Some(number.as_bytes())]);
        // Drivers describe each portal, as libpq does.
        frontend::describe(arena, Kind::Portal, b"");
        frontend::execute(arena, b"", 0);
        frontend::sync(arena);
    }

    fn finish(self: Box<Self>) -> Box<dyn Expectation> {
        Box::new(Rows { accounts: self.accounts })
    }
}

#[derive(Debug)]
struct Rows {
    /// By the place in the plan.
    accounts: Vec<u32>,
}

impl Expectation for Rows {
    fn check(&self, place: PlanPosition, reply: &[u8]) -> Option<Integrity> {
        Some(judge(self.accounts[place.at], reply).unwrap_or(Integrity::Mismatch))
    }
}

/// Exactly one row, that of the account, in a session outside of any block; `None`: the reply has another form.
fn judge(account: u32, reply: &[u8]) -> Option<Integrity> {
    let (mut rest, mut rows, mut complete, mut status) = (reply, 0, None, None);
    while let Some(head) = head(rest).ok()? {
        let (message, more) = rest.split_at_checked(head.whole())?;
        let body = &message[HEAD_BYTES..];
        match head.tag {
            backend::tag::DATA_ROW => {
                rows += 1;
                if !is_of(account, &DataRow::read(body).ok()?) {
                    return Some(Integrity::Mismatch);
                }
            }
            backend::tag::COMMAND_COMPLETE => complete = Some(CommandComplete::read(body).ok()?.tag),
            backend::tag::READY_FOR_QUERY => status = Some(ReadyForQuery::read(body).ok()?.0),
            _ => {}
        }
        rest = more;
    }
    let is_whole = rest.is_empty() && status == Some(TransactionStatus::Idle);
    match (is_whole, rows, complete) {
        (true, 1, Some(b"SELECT 1")) => Some(Integrity::Ok),
        (true, 0, Some(b"SELECT 0")) => Some(Integrity::Missing),
        _ => None,
    }
}

/// The number of the account, and a whole number as its balance.
fn is_of(account: u32, row: &DataRow<'_>) -> bool {
    let mut values = row.iter().map(|value| std::str::from_utf8(value?).ok());
    let aid = values.next().flatten().and_then(|aid| aid.parse().ok());
    let balance = values.next().flatten().and_then(|balance| balance.parse::<i32>().ok());
    row.len() == 2 && aid == Some(account) && balance.is_some()
}
