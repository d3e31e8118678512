//! The transaction `tpcb-like` of pgbench: seven statements, each sent after the reply to the one before.
//!
//! The plan of a shard has the BEGIN of each transaction. What follows is drawn and sent by the connection that carries it, so
//! that the reply to a request is the whole conversation.

use weir_base::Rng;
use weir_engine::Stream;
use weir_postgres_codec::TransactionStatus;
use weir_postgres_codec::backend::{self, CommandComplete, DataRow, ReadyForQuery};
use weir_postgres_codec::frame::{HEAD_BYTES, head};
use weir_postgres_codec::frontend::{self, Kind};

use super::login::Messages;
use crate::protocols::Seat;
use crate::requests::{Expectation, Integrity, PlanPosition, Planner};
use crate::scenario::{Postgres, QueryForm, Scenario};
use crate::shard::Purpose;

/// Accounts of a branch, as `pgbench -i` makes them.
pub(super) const ACCOUNTS_PER_BRANCH: u32 = 100_000;
/// Tellers of a branch.
const TELLERS_PER_BRANCH: u64 = 10;
/// A balance changes by at most so much.
const DELTA_MAX: i64 = 5_000;

/// A statement of the transaction.
struct Step {
    text: &'static str,
    /// Its name as a prepared statement.
    name: &'static [u8],
    /// Its values `$1` and so on: fields of a draw.
    values: &'static [Field],
    /// The tag of its completion, and that of a row which is not there.
    tag: &'static [u8],
    missing: &'static [u8],
}

#[derive(Clone, Copy)]
enum Field {
    Account,
    Branch,
    Teller,
    Delta,
}

use Field::{Account, Branch, Delta, Teller};

const STEPS: [Step; 7] = [
    Step { text: "BEGIN", name: b"weir_load_0", values: &[], tag: b"BEGIN", missing: b"" },
    Step {
        text: "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
        name: b"weir_load_1",
        values: &[Delta, Account],
        tag: b"UPDATE 1",
        missing: b"UPDATE 0",
    },
    Step {
        text: "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
        name: b"weir_load_2",
        values: &[Account],
        tag: b"SELECT 1",
        missing: b"SELECT 0",
    },
    Step {
        text: "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
        name: b"weir_load_3",
        values: &[Delta, Teller],
        tag: b"UPDATE 1",
        missing: b"UPDATE 0",
    },
    Step {
        text: "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
        name: b"weir_load_4",
        values: &[Delta, Branch],
        tag: b"UPDATE 1",
        missing: b"UPDATE 0",
    },
    Step {
        text: "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
        name: b"weir_load_5",
        values: &[Teller, Branch, Account, Delta],
        tag: b"INSERT 0 1",
        missing: b"",
    },
    Step { text: "END", name: b"weir_load_6", values: &[], tag: b"COMMIT", missing: b"" },
];

/// Names and texts of the statements that a connection prepares.
pub(super) fn prepared() -> impl Iterator<Item = (&'static [u8], &'static [u8])> {
    STEPS.iter().map(|step| (step.name, step.text.as_bytes()))
}

/// The values of one transaction.
#[derive(Clone, Copy, Debug, Default)]
struct Draw {
    account: i64,
    branch: i64,
    teller: i64,
    delta: i64,
}

impl Draw {
    fn value(self, field: Field) -> i64 {
        match field {
            Account => self.account,
            Branch => self.branch,
            Teller => self.teller,
            Delta => self.delta,
        }
    }
}

/// Appends a statement in the form of the requests.
fn write(query: QueryForm, step: &Step, draw: Draw, out: &mut Vec<u8>) {
    let values: Vec<String> = step.values.iter().map(|field| draw.value(*field).to_string()).collect();
    if query == QueryForm::Simple {
        let values = values.iter().enumerate();
        let text = values.fold(step.text.to_owned(), |text, (at, value)| text.replace(&format!("${}", at + 1), value));
        return frontend::query(out, text.as_bytes());
    }
    let is_prepared = query == QueryForm::Prepared;
    if !is_prepared {
        frontend::parse(out, b"", step.text.as_bytes(), &[]);
    }
    let name = if is_prepared { step.name } else { b"" };
    frontend::bind(out, b"", name, values.iter().map(|value| Some(value.as_bytes())));
    frontend::describe(out, Kind::Portal, b"");
    frontend::execute(out, b"", 0);
    frontend::sync(out);
}

/// The course of the transactions of one connection, which has one at a time.
pub(super) struct Course {
    query: QueryForm,
    rng: Rng,
    branches: u64,
    draw: Draw,
    /// The statement that follows the reply under way.
    next: usize,
}

impl Course {
    pub(super) fn new(scenario: &Scenario, seat: Seat) -> Self {
        let Postgres { query, accounts, .. } = scenario.postgres;
        // Each connection draws by itself.
        let rng = seat.shard.stream(scenario.seed, Purpose::Values, seat.at as u64);
        Self { query, rng, branches: u64::from(accounts / ACCOUNTS_PER_BRANCH).max(1), draw: Draw::default(), next: 1 }
    }

    fn draw(&mut self) {
        let mut below = |count: u64| self.rng.below(count) as i64;
        self.draw = Draw {
            account: below(self.branches * u64::from(ACCOUNTS_PER_BRANCH)) + 1,
            branch: below(self.branches) + 1,
            teller: below(self.branches * TELLERS_PER_BRANCH) + 1,
            delta: below(2 * DELTA_MAX as u64 + 1) - DELTA_MAX,
        };
    }

    /// A reply has ended in `status`. Appends what comes next; false: the transaction is over.
    pub(super) fn go_on(&mut self, status: TransactionStatus, has_failed: bool, out: &mut Vec<u8>) -> bool {
        if has_failed {
            self.next = 1;
            if status == TransactionStatus::Idle {
                return false;
            }
            frontend::query(out, b"ROLLBACK");
            return true;
        }
        if self.next == STEPS.len() {
            self.next = 1;
            return false;
        }
        if self.next == 1 {
            self.draw();
        }
        write(self.query, &STEPS[self.next], self.draw, out);
        self.next += 1;
        true
    }
}

/// Plans the BEGIN of each transaction.
pub(super) struct Transactions {
    pub(super) query: QueryForm,
}

impl Planner for Transactions {
    fn plan(&mut self, arena: &mut Vec<u8>) {
        write(self.query, &STEPS[0], Draw::default(), arena);
    }

    fn finish(self: Box<Self>) -> Box<dyn Expectation> {
        Box::new(Commits)
    }
}

/// Each conversation ends with a COMMIT, outside of any block.
#[derive(Debug)]
struct Commits;

impl Expectation for Commits {
    fn check(&self, _place: PlanPosition, reply: &[u8]) -> Option<Integrity> {
        Some(judge(reply).unwrap_or(Integrity::Mismatch))
    }
}

/// Every statement has done what it had to; `None`: the reply has another form.
fn judge(reply: &[u8]) -> Option<Integrity> {
    let (mut rest, mut rows, mut status, mut found) = (reply, 0, None, Integrity::Ok);
    let mut steps = STEPS.iter();
    while let Some(head) = head(rest).ok()? {
        let (message, more) = rest.split_at_checked(head.whole())?;
        let body = &message[HEAD_BYTES..];
        match head.tag {
            backend::tag::DATA_ROW => {
                let row = DataRow::read(body).ok()?;
                std::str::from_utf8(row.iter().next()??).ok()?.parse::<i32>().ok()?;
                rows += 1;
            }
            backend::tag::COMMAND_COMPLETE => {
                let (step, tag) = (steps.next()?, CommandComplete::read(body).ok()?.tag);
                match tag {
                    _ if tag == step.tag => {}
                    _ if tag == step.missing => found = Integrity::Missing,
                    _ => return None,
                }
            }
            backend::tag::READY_FOR_QUERY => status = Some(ReadyForQuery::read(body).ok()?.0),
            _ => {}
        }
        rest = more;
    }
    let is_whole = rest.is_empty() && steps.next().is_none() && status == Some(TransactionStatus::Idle);
    (is_whole && (rows == 1 || found == Integrity::Missing)).then_some(found)
}

/// The sums that every transaction keeps equal. One statement sees one moment, so it holds while transactions are under way, too.
const SUMS: &[u8] =
    b"SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), \
(SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

/// Balances of accounts, tellers and branches agree with the history.
///
/// # Errors
/// They do not: a transaction was lost, or took effect twice or in part.
pub(super) async fn audit(stream: &mut Stream) -> Result<(), String> {
    let mut messages = Messages::new(stream);
    messages.send(|out| frontend::query(out, SUMS));
    let mut sums: Vec<i64> = Vec::new();
    loop {
        let (tag, body) = messages.next().await?;
        match tag {
            backend::tag::DATA_ROW => {
                let row = DataRow::read(&body).map_err(|_| "the row of its sums is not PostgreSQL's".to_owned())?;
                let number = |value: Option<&[u8]>| std::str::from_utf8(value?).ok()?.parse().ok();
                sums = row.iter().filter_map(number).collect();
            }
            backend::tag::READY_FOR_QUERY => break,
            _ => {}
        }
    }
    let [accounts, tellers, branches, history] = sums[..] else {
        return Err("it has no sums of pgbench's tables; make them with `pgbench -i`".to_owned());
    };
    if accounts == tellers && tellers == branches && branches == history {
        return Ok(());
    }
    Err(format!(
        "the balances do not agree: accounts {accounts}, tellers {tellers}, branches {branches}, history {history}. A \
         transaction was lost or took effect in part; or pgbench without -n has emptied the history, then make the tables \
         again with `pgbench -i`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(tags: &[&[u8]], status: TransactionStatus) -> Vec<u8> {
        let mut out = Vec::new();
        for tag in tags {
            if tag.starts_with(b"SELECT") {
                backend::data_row(&mut out, [Some(&b"-12"[..])]);
            }
            backend::command_complete(&mut out, tag);
            backend::ready_for_query(&mut out, if *tag == b"COMMIT" { status } else { TransactionStatus::InBlock });
        }
        out
    }

    #[test]
    fn a_reply_is_right_only_with_all_its_statements() {
        use TransactionStatus::{Idle, InBlock};
        let tags: Vec<&[u8]> = STEPS.iter().map(|step| step.tag).collect();
        assert_eq!(judge(&reply(&tags, Idle)), Some(Integrity::Ok));
        assert_eq!(judge(&reply(&tags, InBlock)), None);
        for at in 0..tags.len() {
            let mut fewer = tags.clone();
            fewer.remove(at);
            assert_eq!(judge(&reply(&fewer, Idle)), None, "without {at}");
        }
        let mut missing = tags.clone();
        missing[3] = b"UPDATE 0";
        assert_eq!(judge(&reply(&missing, Idle)), Some(Integrity::Missing));
        missing[3] = b"UPDATE 2";
        assert_eq!(judge(&reply(&missing, Idle)), None);
    }

    #[test]
    fn values_take_the_places_of_parameters_and_stay_within_the_tables() {
        let text = "name = \"t\"\nprotocol = \"postgres\"\npostgres = { script = \"tpcb-like\", accounts = 200_000 }\n\
                    [[phase]]\nrate = 1\nduration = \"1s\"\n";
        let scenario = crate::scenario::parse("t.toml", text).expect("right");
        let seat = Seat { shard: crate::shard::Shard::ONLY, at: 0 };
        let mut course = Course::new(&scenario, seat);
        for _ in 0..1_000 {
            course.draw();
            let Draw { account, branch, teller, delta } = course.draw;
            assert!((1..=200_000).contains(&account) && (1..=2).contains(&branch) && (1..=20).contains(&teller));
            assert!((-5_000..=5_000).contains(&delta));
        }
        let draw = Draw { account: 7, branch: 1, teller: 3, delta: -42 };
        let mut out = Vec::new();
        write(QueryForm::Simple, &STEPS[5], draw, &mut out);
        let body = &out[HEAD_BYTES..];
        let text = String::from_utf8_lossy(frontend::Query::read(body).expect("a Query").text).into_owned();
        assert!(text.ends_with("VALUES (3, 1, 7, -42, CURRENT_TIMESTAMP)"), "{text}");
    }

    #[test]
    fn a_failure_is_rolled_back_and_the_next_transaction_begins_afresh() {
        use TransactionStatus::{Failed, Idle, InBlock};
        let text = "name = \"t\"\nprotocol = \"postgres\"\npostgres.script = \"tpcb-like\"\n\
                    [[phase]]\nrate = 1\nduration = \"1s\"\n";
        let scenario = crate::scenario::parse("t.toml", text).expect("right");
        let mut course = Course::new(&scenario, Seat { shard: crate::shard::Shard::ONLY, at: 0 });
        let mut out = Vec::new();
        assert!(course.go_on(InBlock, false, &mut out) && course.go_on(InBlock, false, &mut out));
        out.clear();
        assert!(course.go_on(Failed, true, &mut out));
        assert_eq!(frontend::Query::read(&out[HEAD_BYTES..]).expect("a Query").text, b"ROLLBACK");
        assert!(!course.go_on(Idle, true, &mut out), "it is over");
        for _ in 1..STEPS.len() {
            assert!(course.go_on(InBlock, false, &mut out));
        }
        assert!(!course.go_on(Idle, false, &mut out), "the COMMIT was the last");
    }
}
