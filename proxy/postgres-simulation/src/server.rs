//! A model of one PostgreSQL session: what goes in and comes out as PostgreSQL 15 does it (see the reference of `tests`).

use std::collections::BTreeMap;

use weir_postgres_codec::{TransactionStatus, backend, frame, frontend, frontend::Kind, frontend::tag};

use crate::sql::{self, Sql};
use crate::state::{Block, REPORTED, State};

/// An error: SQLSTATE and text.
pub(crate) type Failure = (&'static str, &'static str);

/// A prepared statement.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) sql: Option<Sql>,
    /// The version of its table when it was prepared.
    pub(crate) version: u64,
}

/// A portal.
#[derive(Clone, Debug)]
struct Portal {
    sql: Option<Sql>,
    argument: Option<String>,
    /// Rows that were sent.
    sent: usize,
    is_done: bool,
}

/// COPY from the client.
#[derive(Debug)]
struct CopyIn {
    /// The statements that follow in the text of the Query; `None`: the COPY is an Execute.
    rest: Option<Vec<Sql>>,
    rows: usize,
}

/// One session at the model server.
#[derive(Debug, Default)]
pub struct ModelServer {
    pub(crate) state: State,
    pub(crate) statements: BTreeMap<String, Prepared>,
    portals: BTreeMap<String, Portal>,
    input: Vec<u8>,
    pub(crate) out: Vec<u8>,
    copy: Option<CopyIn>,
    skips_to_sync: bool,
    reported: BTreeMap<&'static str, String>,
    /// The next statement is cancelled.
    is_cancelled: bool,
    /// The client has sent Terminate.
    pub has_ended: bool,
    /// The last ROLLBACK, or COMMIT, ended a failed block.
    pub(crate) was_failed: bool,
    /// An error about a statement has a name, which is not the same at two servers.
    pub names_missing: bool,
    /// Versions of tables. Every ALTER TABLE raises one.
    pub versions: BTreeMap<String, u64>,
}

impl ModelServer {
    /// A session after its login.
    pub fn new() -> Self {
        let reported = REPORTED.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { reported, ..Self::default() }
    }

    /// The parameters that a login reports.
    pub fn reports() -> impl Iterator<Item = (&'static [u8], &'static [u8])> {
        REPORTED.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
    }

    /// The session's state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Nothing is under way: every message is whole and has its reply.
    pub fn is_idle(&self) -> bool {
        self.input.is_empty() && self.out.is_empty() && self.copy.is_none() && !self.skips_to_sync
    }

    /// Prepared statements.
    pub fn statements(&self) -> usize {
        self.statements.len()
    }

    /// A cancel request has come.
    pub fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    /// The cancel request came too late.
    pub fn forget_cancel(&mut self) {
        self.is_cancelled = false;
    }

    /// It reads the data of a COPY.
    pub fn is_copying(&self) -> bool {
        self.copy.is_some()
    }

    /// Takes bytes of the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Processes one message, if one is whole.
    pub fn step(&mut self) -> bool {
        let Some(head) = frame::head(&self.input).expect("the gateway sends lengths") else { return false };
        if let Some(max) = frontend::body_bytes_max(head.tag) {
            assert!(head.body <= max, "PostgreSQL ends a session with such a length: {head:?}");
        }
        if self.input.len() < head.whole() {
            return false;
        }
        let message: Vec<u8> = self.input.drain(..head.whole()).collect();
        self.message(head.tag, &message[frame::HEAD_BYTES..]);
        true
    }

    /// Processes everything that is whole.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Replies so far.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn message(&mut self, tag: u8, body: &[u8]) {
        if self.has_ended {
            return;
        }
        if self.copy.is_some() {
            return self.copy_message(tag, body);
        }
        if self.skips_to_sync && !matches!(tag, tag::SYNC | tag::TERMINATE) {
            return;
        }
        let result = match tag {
            tag::QUERY => {
                self.query(body);
                Ok(())
            }
            tag::FUNCTION_CALL => {
                let result = self.function_call(body);
                if let Err(failure) = result {
                    self.fail(failure);
                }
                self.finish_implicit();
                self.ready();
                Ok(())
            }
            tag::PARSE => self.parse(body),
            tag::BIND => self.bind(body),
            tag::DESCRIBE => self.describe(body),
            tag::EXECUTE => self.execute(body),
            tag::CLOSE => self.close(body),
            tag::SYNC => {
                self.skips_to_sync = false;
                self.finish_implicit();
                self.ready();
                Ok(())
            }
            tag::TERMINATE => {
                self.has_ended = true;
                Ok(())
            }
            // Flush; and what belongs to a COPY that is over.
            _ => Ok(()),
        };
        if let Err(failure) = result {
            self.fail(failure);
            self.skips_to_sync = true;
        }
    }

    fn fail(&mut self, (sqlstate, text): Failure) {
        backend::error(&mut self.out, &backend::ErrorReport::error(sqlstate, text));
        if self.state.block == Block::None {
            self.portals.clear();
        }
        self.state.fail();
    }

    pub(crate) fn warn(&mut self, sqlstate: &'static str, text: &'static str) {
        let report = backend::ErrorReport::new(backend::Severity::Warning, sqlstate, text);
        backend::notice(&mut self.out, &report);
    }

    /// The end of an implicit transaction.
    pub(crate) fn finish_implicit(&mut self) {
        if self.state.block == Block::None {
            self.state.commit();
            self.portals.clear();
        }
    }

    /// The end of a block: its portals are gone.
    pub(crate) fn drop_portals(&mut self) {
        self.portals.clear();
    }

    fn ready(&mut self) {
        for (name, default) in REPORTED {
            let value = self.state.value(name);
            if self.reported.get(name).map_or(default, String::as_str) != value {
                backend::parameter_status(&mut self.out, name.as_bytes(), value.as_bytes());
                self.reported.insert(name, value);
            }
        }
        let status = match self.state.block {
            Block::None => TransactionStatus::Idle,
            Block::Open => TransactionStatus::InBlock,
            Block::Failed => TransactionStatus::Failed,
        };
        backend::ready_for_query(&mut self.out, status);
    }

    /// The version of the table that a statement reads.
    pub(crate) fn version_for(&self, sql: Option<&Sql>) -> u64 {
        sql.and_then(Sql::table).and_then(|table| self.versions.get(table)).copied().unwrap_or_default()
    }

    fn check_block(&self, sql: Option<&Sql>) -> Result<(), Failure> {
        if self.state.block == Block::Failed && !sql.is_some_and(Sql::ends_block) {
            return Err(("25P02", "current transaction is aborted, commands ignored until end of transaction block"));
        }
        Ok(())
    }

    fn query(&mut self, body: &[u8]) {
        let Ok(query) = frontend::Query::read(body) else {
            self.fail(("08P01", "invalid string in message"));
            return self.ready();
        };
        self.statements.remove("");
        let Some(text) = self.state.decode(query.text) else {
            self.fail(("22021", "invalid byte sequence for encoding"));
            return self.ready();
        };
        match sql::parse(&text) {
            Err(sql::SyntaxError) => {
                self.fail(SYNTAX);
                self.ready();
            }
            Ok(all) if all.is_empty() => {
                backend::empty_query(&mut self.out);
                self.finish_implicit();
                self.ready();
            }
            Ok(all) => self.run_query(all, true),
        }
    }

    /// The statements of a Query, up to a COPY from the client.
    fn run_query(&mut self, all: Vec<Sql>, is_start: bool) {
        let is_single = is_start && all.len() == 1;
        let mut rest = all.into_iter();
        while let Some(sql) = rest.next() {
            let result = self.check_block(Some(&sql)).and_then(|()| self.interrupt()).and_then(|()| {
                if sql == Sql::CopyIn {
                    self.state.start();
                    backend::copy_in(&mut self.out, false, 1);
                    return Ok(());
                }
                self.run_sql(&sql, None, is_single)
            });
            if let Err(failure) = result {
                self.fail(failure);
                break;
            }
            if sql == Sql::CopyIn {
                self.copy = Some(CopyIn { rest: Some(rest.collect()), rows: 0 });
                return;
            }
        }
        self.finish_implicit();
        self.ready();
    }

    fn interrupt(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_cancelled) {
            return Err(("57014", "canceling statement due to user request"));
        }
        Ok(())
    }

    fn run_sql(&mut self, sql: &Sql, argument: Option<&str>, is_single: bool) -> Result<(), Failure> {
        // A function that fails does so behind the description of its row.
        let is_described = matches!(sql, Sql::SetConfig(..)) && self.check_block(Some(sql)).is_ok();
        if is_described {
            self.row_description(sql);
        }
        let rows = self.rows_of(sql, argument, is_single)?;
        if sql.has_rows() && !is_described {
            self.row_description(sql);
        }
        let count = rows.len();
        for row in rows {
            self.data_row(sql, &row);
        }
        self.complete(sql, count);
        Ok(())
    }

    pub(crate) fn complete(&mut self, sql: &Sql, rows: usize) {
        let tag = self.command_tag(sql, rows);
        backend::command_complete(&mut self.out, tag.as_bytes());
    }

    fn data_row(&mut self, sql: &Sql, row: &str) {
        match sql {
            Sql::CountLocks => backend::data_row(&mut self.out, []),
            _ => backend::data_row(&mut self.out, [Some(&*self.state.encode(row))]),
        }
    }

    fn row_description(&mut self, sql: &Sql) {
        match sql {
            Sql::CopyOut => return,
            Sql::CountLocks => return backend::row_description(&mut self.out, []),
            _ => {}
        }
        let type_oid = 25 + self.version_for(Some(sql)) as u32;
        let column = backend::Column::text(b"?column?", type_oid, -1);
        backend::row_description(&mut self.out, [column]);
    }

    fn copy_message(&mut self, tag: u8, body: &[u8]) {
        let Some(copy) = &mut self.copy else { return };
        let failure = match tag {
            tag::COPY_DATA if body.starts_with(b"bad") => Some(("22P02", "invalid input syntax for type integer")),
            tag::COPY_DATA => {
                copy.rows += 1;
                None
            }
            tag::COPY_DONE => {
                let rows = copy.rows;
                let rest = self.copy.take().and_then(|copy| copy.rest);
                backend::command_complete(&mut self.out, format!("COPY {rows}").as_bytes());
                if let Some(rest) = rest {
                    self.run_query(rest, false);
                }
                return;
            }
            tag::COPY_FAIL => Some(("57014", "COPY from stdin failed")),
            tag::SYNC | tag::FLUSH => None,
            tag::TERMINATE => {
                self.has_ended = true;
                None
            }
            _ => return self.lose_synchronization(tag),
        };
        let Some(failure) = failure else { return };
        let is_query = self.copy.take().is_some_and(|copy| copy.rest.is_some());
        self.fail(failure);
        if is_query {
            self.finish_implicit();
            self.ready();
        } else {
            self.skips_to_sync = true;
        }
    }

    /// Within the data of a COPY, the server cannot tell data from requests any more.
    fn lose_synchronization(&mut self, tag: u8) {
        let text = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
        backend::error(&mut self.out, &backend::ErrorReport::error("08P01", &text));
        let lost = "terminating connection because protocol synchronization was lost";
        backend::error(&mut self.out, &backend::ErrorReport::fatal("08P01", lost));
        self.has_ended = true;
    }

    fn function_call(&mut self, body: &[u8]) -> Result<(), Failure> {
        self.check_block(None)?;
        self.state.start();
        if body.get(..4) == Some(&ADVISORY_LOCK.to_be_bytes()) {
            self.state.locks += 1;
        }
        backend::function_call_response(&mut self.out, Some(b"ok"));
        Ok(())
    }

    fn parse(&mut self, body: &[u8]) -> Result<(), Failure> {
        let parse = frontend::Parse::read(body).map_err(|_| BAD_STRING)?;
        let name = String::from_utf8_lossy(parse.name).into_owned();
        if name.is_empty() {
            self.statements.remove("");
        }
        let all = sql::parse(&String::from_utf8_lossy(parse.text)).map_err(|_| SYNTAX)?;
        if all.len() > 1 {
            return Err(("42601", "cannot insert multiple commands into a prepared statement"));
        }
        let sql = all.into_iter().next();
        self.check_block(sql.as_ref())?;
        if self.statements.contains_key(&name) {
            return Err(TAKEN);
        }
        self.state.start();
        let version = self.version_for(sql.as_ref());
        self.statements.insert(name, Prepared { sql, version });
        backend::parse_complete(&mut self.out);
        Ok(())
    }

    fn bind(&mut self, body: &[u8]) -> Result<(), Failure> {
        let bind = frontend::Bind::read(body).map_err(|_| BAD_STRING)?;
        let statement = self.statement(bind.statement)?.clone();
        let arguments = bind.arguments().map_err(|_| BAD_STRING)?;
        let expected = statement.sql.as_ref().map_or(0, Sql::parameters);
        if arguments.values.len() != expected {
            return Err(("08P01", "bind message supplies another number of parameters"));
        }
        self.check_block(statement.sql.as_ref())?;
        if statement.version != self.version_for(statement.sql.as_ref()) {
            return Err(OUTDATED);
        }
        // The plan of a constant computes it.
        if statement.sql == Some(Sql::Fails) {
            return Err(DIVISION);
        }
        let name = String::from_utf8_lossy(bind.portal).into_owned();
        if !name.is_empty() && self.portals.contains_key(&name) {
            return Err(("42P03", "cursor already exists"));
        }
        self.state.start();
        let argument =
            arguments.values.iter().next().flatten().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        self.portals.insert(name, Portal { sql: statement.sql, argument, sent: 0, is_done: false });
        backend::bind_complete(&mut self.out);
        Ok(())
    }

    fn statement(&self, name: &[u8]) -> Result<&Prepared, Failure> {
        let text = match self.names_missing {
            true => "prepared statement \"weir_1\" does not exist",
            false => "prepared statement does not exist",
        };
        self.statements.get(&*String::from_utf8_lossy(name)).ok_or(("26000", text))
    }

    fn portal(&self, name: &[u8]) -> Result<&Portal, Failure> {
        self.portals.get(&*String::from_utf8_lossy(name)).ok_or(("34000", "portal does not exist"))
    }

    fn describe(&mut self, body: &[u8]) -> Result<(), Failure> {
        let describe = frontend::Describe::read(body).map_err(|_| BAD_STRING)?;
        let (sql, version) = match describe.kind {
            Kind::Statement => {
                let Prepared { sql, version } = self.statement(describe.name)?.clone();
                (sql, version)
            }
            Kind::Portal => {
                let sql = self.portal(describe.name)?.sql.clone();
                let version = self.version_for(sql.as_ref());
                (sql, version)
            }
        };
        if self.state.block == Block::Failed && sql.as_ref().is_some_and(Sql::has_rows) {
            return self.check_block(sql.as_ref());
        }
        self.state.start();
        if describe.kind == Kind::Statement {
            let parameters = sql.as_ref().map_or(0, Sql::parameters);
            backend::parameter_description(&mut self.out, std::iter::repeat_n(25, parameters));
        }
        if version != self.version_for(sql.as_ref()) {
            return Err(OUTDATED);
        }
        match sql {
            Some(sql) if sql.has_rows() => self.row_description(&sql),
            _ => backend::no_data(&mut self.out),
        }
        Ok(())
    }

    fn execute(&mut self, body: &[u8]) -> Result<(), Failure> {
        let execute = frontend::Execute::read(body).map_err(|_| BAD_STRING)?;
        let portal = self.portal(execute.portal)?.clone();
        let Some(sql) = portal.sql else {
            backend::empty_query(&mut self.out);
            return Ok(());
        };
        self.check_block(Some(&sql))?;
        self.interrupt()?;
        if portal.is_done && !sql.has_rows() {
            return Err(("55000", "portal cannot be run"));
        }
        let name = String::from_utf8_lossy(execute.portal).into_owned();
        if portal.is_done {
            self.complete(&sql, 0);
            return Ok(());
        }
        if sql == Sql::CopyIn {
            self.mark_done(&name);
            self.state.start();
            backend::copy_in(&mut self.out, false, 1);
            self.copy = Some(CopyIn { rest: None, rows: 0 });
            return Ok(());
        }
        let rows = self.rows_of(&sql, portal.argument.as_deref(), false)?;
        let max = usize::try_from(execute.rows).unwrap_or(0);
        let left = rows.len().saturating_sub(portal.sent);
        let count = if max > 0 { left.min(max) } else { left };
        for row in &rows[portal.sent.min(rows.len())..][..count] {
            self.data_row(&sql, row);
        }
        if max > 0 && count == max {
            if let Some(portal) = self.portals.get_mut(&name) {
                portal.sent += count;
            }
            backend::portal_suspended(&mut self.out);
        } else {
            self.mark_done(&name);
            self.complete(&sql, count);
        }
        Ok(())
    }

    fn mark_done(&mut self, portal: &str) {
        if let Some(portal) = self.portals.get_mut(portal) {
            portal.is_done = true;
        }
    }

    fn close(&mut self, body: &[u8]) -> Result<(), Failure> {
        let close = frontend::Close::read(body).map_err(|_| BAD_STRING)?;
        let name = String::from_utf8_lossy(close.name).into_owned();
        match close.kind {
            Kind::Statement => drop(self.statements.remove(&name)),
            Kind::Portal => drop(self.portals.remove(&name)),
        }
        backend::close_complete(&mut self.out);
        Ok(())
    }
}

/// The number of `pg_advisory_lock(bigint)`.
pub const ADVISORY_LOCK: u32 = 2880;

pub(crate) const DIVISION: Failure = ("22012", "division by zero");
const SYNTAX: Failure = ("42601", "syntax error");
const OUTDATED: Failure = ("0A000", "cached plan must not change result type");
const BAD_STRING: Failure = ("08P01", "invalid string in message");
pub(crate) const TAKEN: Failure = ("42P05", "prepared statement already exists");
