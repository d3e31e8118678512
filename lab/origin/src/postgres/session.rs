//! Messages after the login: simple and extended protocol, transaction blocks.

use std::collections::HashMap;
use std::rc::Rc;

use weir_postgres_codec::TransactionStatus;
use weir_postgres_codec::backend::{self, ErrorReport, Severity};
use weir_postgres_codec::frame::{HEAD_BYTES, head};
use weir_postgres_codec::frontend::{self, tag};
use weir_postgres_codec::sqlstate;

use super::connection::Terms;
use super::extended::Portal;
use super::login::{Login, LoginStep};
use super::parameters::Settings;
use super::statement::{Action, Change, Failure, Statement};
use super::tokens;
use crate::server::add;

/// The state of one client.
pub(super) struct Session {
    pid: u32,
    /// `None`: it is over.
    login: Option<Login>,
    /// `None` before the end of the login.
    settings: Option<Box<Settings>>,
    pub(super) status: TransactionStatus,
    /// A message of the extended protocol failed: all up to the next Sync are skipped.
    is_skipping: bool,
    is_closing: bool,
    pub(super) statements: HashMap<Box<[u8]>, Rc<Statement>>,
    pub(super) portals: HashMap<Box<[u8]>, Portal>,
}

impl Session {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            login: Some(Login::default()),
            settings: None,
            status: TransactionStatus::Idle,
            is_skipping: false,
            is_closing: false,
            statements: HashMap::new(),
            portals: HashMap::new(),
        }
    }

    /// No further message is read; the connection ends once the replies have left.
    pub(super) const fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Responds to every whole message of `input`, and gives their bytes.
    pub(super) fn respond(&mut self, terms: &Terms, input: &[u8], out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while !self.is_closing {
            match self.step(terms, &input[used..], out) {
                Some(bytes) => used += bytes,
                None => break,
            }
        }
        used
    }

    /// Responds to one message; `None`: none is whole.
    fn step(&mut self, terms: &Terms, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        if let Some(login) = &mut self.login {
            match login.respond(self.pid, terms.verifier.as_ref(), input, out) {
                LoginStep::More => return None,
                LoginStep::Again(bytes) => return Some(bytes),
                LoginStep::Done(bytes, settings) => {
                    (self.login, self.settings) = (None, Some(settings));
                    return Some(bytes);
                }
                LoginStep::Close => return self.close(),
            }
        }
        let head = match head(input) {
            Ok(head) => head?,
            Err(_) => return self.close(),
        };
        let Some(bytes_max) = frontend::body_bytes_max(head.tag) else {
            let text = format!("invalid frontend message type {}", head.tag);
            backend::error(out, &ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, &text));
            return self.close();
        };
        if head.body > bytes_max.min(terms.settings.message_bytes_max) {
            return self.close();
        }
        let body = input.get(HEAD_BYTES..head.whole())?;
        self.message(terms, head.tag, body, out);
        Some(head.whole())
    }

    fn close(&mut self) -> Option<usize> {
        self.is_closing = true;
        None
    }

    fn message(&mut self, terms: &Terms, tag: u8, body: &[u8], out: &mut Vec<u8>) {
        match tag {
            tag::TERMINATE => self.is_closing = true,
            tag::SYNC => {
                self.is_skipping = false;
                self.end_of_turn(out);
            }
            _ if self.is_skipping => {}
            tag::QUERY => {
                add(&terms.stats.requests, 1);
                if let Err(failure) = self.query(terms, body, out) {
                    self.fail(&failure, out);
                }
                self.end_of_turn(out);
            }
            tag::FUNCTION_CALL => {
                add(&terms.stats.requests, 1);
                let text = "the lab's origin has no function calls";
                self.fail(&Failure::new(sqlstate::FEATURE_NOT_SUPPORTED, text), out);
                self.end_of_turn(out);
            }
            // Each reply leaves at the end of the turn. Data of COPY outside of one is dropped, as in PostgreSQL.
            tag::FLUSH | tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => {}
            _ => {
                if tag == tag::EXECUTE {
                    add(&terms.stats.requests, 1);
                }
                if let Err(failure) = self.extended(terms, tag, body, out) {
                    self.fail(&failure, out);
                    self.is_skipping = true;
                }
            }
        }
    }

    /// ReadyForQuery, and the end of what lives no longer than a transaction.
    fn end_of_turn(&mut self, out: &mut Vec<u8>) {
        if self.status == TransactionStatus::Idle {
            self.portals.clear();
        }
        if let Some(settings) = &mut self.settings {
            settings.report_changes(out);
        }
        backend::ready_for_query(out, self.status);
    }

    fn fail(&mut self, failure: &Failure, out: &mut Vec<u8>) {
        backend::error(out, &ErrorReport::error(failure.sqlstate, &failure.text));
        if self.status == TransactionStatus::InBlock {
            self.status = TransactionStatus::Failed;
            if let Some(settings) = &mut self.settings {
                settings.fail_block();
            }
        }
    }

    /// The statements of a Query, up to the first that fails.
    fn query(&mut self, terms: &Terms, body: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        self.statements.remove(&b""[..]);
        let text = frontend::Query::read(body)?.text;
        let read: Vec<_> = tokens::statements(text).map(|text| Statement::read(text, &[])).collect();
        // PostgreSQL parses all of them before it runs the first.
        if let Some(Err(failure)) =
            read.iter().find(|one| matches!(one, Err(f) if f.sqlstate == sqlstate::SYNTAX_ERROR))
        {
            return Err(failure.clone());
        }
        if read.is_empty() {
            backend::empty_query(out);
        }
        for statement in read {
            let statement = statement?;
            self.check_block(&statement)?;
            if !statement.types.is_empty() {
                return Err(Failure::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1"));
            }
            let Action::Select(select) = &statement.action else {
                self.perform(&statement.action, out)?;
                continue;
            };
            let row = select.row(&[], terms.of_rows())?;
            backend::row_description(out, select.fields.iter().map(|field| field.column(0)));
            let values: Option<Vec<_>> = row.as_ref().map(|row| row.iter().map(|value| value.write(0)).collect());
            if let Some(values) = &values {
                backend::data_row(out, values.iter().map(Option::as_deref));
            }
            backend::command_complete(out, if values.is_some() { b"SELECT 1" } else { b"SELECT 0" });
        }
        Ok(())
    }

    /// A failed block takes its end alone.
    pub(super) fn check_block(&self, statement: &Statement) -> Result<(), Failure> {
        if self.status != TransactionStatus::Failed || statement.ends_failure() {
            return Ok(());
        }
        let text = "current transaction is aborted, commands ignored until end of transaction block";
        Err(Failure::new(sqlstate::IN_FAILED_SQL_TRANSACTION, text))
    }

    /// Everything but a SELECT: changes the state and confirms.
    pub(super) fn perform(&mut self, action: &Action, out: &mut Vec<u8>) -> Result<(), Failure> {
        use TransactionStatus::{Failed, Idle, InBlock};
        let tag = match action {
            Action::Empty => {
                backend::empty_query(out);
                return Ok(());
            }
            Action::Begin(tag) => {
                if self.status == InBlock {
                    warn(out, sqlstate::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
                }
                if let Some(settings) = self.settings.as_mut().filter(|_| self.status == Idle) {
                    settings.begin_block();
                }
                self.status = InBlock;
                tag
            }
            Action::Commit | Action::Rollback => {
                let is_committed = *action == Action::Commit && self.status != Failed;
                self.end_block(is_committed, out);
                if is_committed { "COMMIT" } else { "ROLLBACK" }
            }
            Action::RollbackTo if self.status == Idle => return Err(outside_of_block("ROLLBACK TO SAVEPOINT")),
            Action::RollbackTo => {
                self.status = InBlock;
                "ROLLBACK"
            }
            Action::InBlock(tag) if self.status == Idle => {
                return Err(outside_of_block(if *tag == "RELEASE" { "RELEASE SAVEPOINT" } else { tag }));
            }
            Action::InBlock(tag) | Action::Confirm(tag) => tag,
            Action::DiscardAll if self.status != Idle => {
                let text = "DISCARD ALL cannot run inside a transaction block";
                return Err(Failure::new(sqlstate::ACTIVE_SQL_TRANSACTION, text));
            }
            Action::Change(change) => {
                self.set(change);
                if matches!(change, Change::Set(..)) { "SET" } else { "RESET" }
            }
            Action::DiscardAll => {
                self.statements.clear();
                self.set(&Change::ResetAll);
                "DISCARD ALL"
            }
            Action::Deallocate(None) => {
                self.statements.clear();
                "DEALLOCATE ALL"
            }
            Action::Deallocate(Some(name)) => {
                self.statements.remove(&name[..]).ok_or_else(|| no_statement(name))?;
                "DEALLOCATE"
            }
            Action::Select(_) => unreachable!("its callers send the rows"),
        };
        backend::command_complete(out, tag.as_bytes());
        Ok(())
    }

    fn end_block(&mut self, is_committed: bool, out: &mut Vec<u8>) {
        if self.status == TransactionStatus::Idle {
            warn(out, sqlstate::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
        }
        self.portals.clear();
        self.status = TransactionStatus::Idle;
        if let Some(settings) = &mut self.settings {
            settings.end_block(is_committed);
        }
    }

    /// SET, RESET of one setting or of all.
    fn set(&mut self, change: &Change) {
        let Some(settings) = &mut self.settings else { return };
        match change {
            Change::Set(name, value) => settings.set(name, value.as_deref()),
            Change::Reset(name) => settings.set(name, None),
            Change::ResetAll => settings.reset(),
        }
    }
}

/// The error about a prepared statement that does not exist.
pub(super) fn no_statement(name: &[u8]) -> Failure {
    let text = match name {
        [] => "unnamed prepared statement does not exist".to_owned(),
        _ => format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name)),
    };
    Failure::new(sqlstate::INVALID_SQL_STATEMENT_NAME, text)
}

fn outside_of_block(what: &str) -> Failure {
    Failure::new(sqlstate::NO_ACTIVE_SQL_TRANSACTION, format!("{what} can only be used in transaction blocks"))
}

fn warn(out: &mut Vec<u8>, sqlstate: &str, text: &str) {
    backend::notice(out, &ErrorReport::new(Severity::Warning, sqlstate, text));
}
