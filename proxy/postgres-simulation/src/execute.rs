//! Effects of the statements of the model server.

use weir_postgres_codec::backend;

use crate::server::{DIVISION, Failure, ModelServer, Prepared, TAKEN};
use crate::sql::{self, Sql};
use crate::state::Block;

const NO_STATEMENT: Failure = ("26000", "prepared statement does not exist");
const NO_CURSOR: Failure = ("34000", "cursor does not exist");
const NO_TABLE: Failure = ("42P01", "relation does not exist");
const NO_BLOCK: Failure = ("25P01", "can only be used in transaction blocks");
const NO_SAVEPOINT: Failure = ("3B001", "savepoint does not exist");

impl ModelServer {
    /// Runs a statement: its rows. `is_single`: it is alone in its Query.
    pub(crate) fn rows_of(
        &mut self,
        sql: &Sql,
        argument: Option<&str>,
        is_single: bool,
    ) -> Result<Vec<String>, Failure> {
        self.state.start();
        Ok(match sql {
            Sql::Text(text, rows) => vec![text.clone(); *rows],
            Sql::Parameter => vec![argument.unwrap_or_default().to_owned()],
            Sql::Fails => return Err(DIVISION),
            Sql::Show(name) => vec![self.state.value(name)],
            Sql::SetConfig(name, value) => {
                self.may_set(name)?;
                self.state.set(name, Some(value), false);
                vec![value.clone()]
            }
            Sql::Execute(name) => return self.execute_prepared(name, is_single),
            Sql::LibraryCall => {
                self.state.load_library();
                vec![String::new()]
            }
            Sql::DropCall => {
                self.statements.retain(|name, _| name.is_empty());
                vec![String::new()]
            }
            Sql::Lock => {
                self.state.locks += 1;
                vec![String::new()]
            }
            Sql::Unlock => {
                let had = self.state.locks > 0;
                self.state.locks = self.state.locks.saturating_sub(1);
                vec![if had { "t" } else { "f" }.to_owned()]
            }
            Sql::UnlockOther => vec!["f".to_owned()],
            Sql::CountLocks => vec![String::new(); self.state.locks as usize],
            Sql::UnlockAll => {
                self.state.locks = 0;
                vec![String::new()]
            }
            Sql::Read(table) => {
                self.has_table(table)?;
                Vec::new()
            }
            Sql::Fetch(cursor) => {
                self.has_cursor(cursor)?;
                vec![cursor.clone()]
            }
            Sql::CopyOut => {
                backend::copy_out(&mut self.out, false, 1);
                backend::copy_data(&mut self.out, b"1\n");
                backend::copy_done(&mut self.out);
                Vec::new()
            }
            _ => {
                self.act(sql, is_single)?;
                Vec::new()
            }
        })
    }

    /// Rights, and libraries that know all names with their prefix.
    fn may_set(&self, name: &str) -> Result<(), Failure> {
        if name == "log_statement" && self.state.user() != "adm" {
            return Err(("42501", "permission denied to set parameter"));
        }
        if name.starts_with("lib.") && self.state.has_library {
            return Err(("42602", "invalid configuration parameter name"));
        }
        Ok(())
    }

    fn has_table(&self, name: &str) -> Result<(), Failure> {
        if self.state.objects.temporary.contains(name) { Ok(()) } else { Err(NO_TABLE) }
    }

    fn has_cursor(&self, name: &str) -> Result<(), Failure> {
        if self.state.objects.cursors.contains(name) { Ok(()) } else { Err(NO_CURSOR) }
    }

    fn execute_prepared(&mut self, name: &str, is_single: bool) -> Result<Vec<String>, Failure> {
        let prepared = self.statements.get(name).ok_or(NO_STATEMENT)?;
        match prepared.sql.clone() {
            Some(sql) => self.rows_of(&sql, None, is_single),
            None => Ok(Vec::new()),
        }
    }

    /// Statements without rows.
    fn act(&mut self, sql: &Sql, is_single: bool) -> Result<(), Failure> {
        match sql {
            Sql::Begin | Sql::Commit | Sql::Rollback | Sql::Savepoint(_) | Sql::RollbackTo(_) | Sql::Release(_) => {
                self.act_on_transaction(sql)
            }
            Sql::Set { name, value, is_local } => {
                self.may_set(name)?;
                if *is_local && is_single && self.state.block == Block::None {
                    self.warn("25P01", "SET LOCAL can only be used in transaction blocks");
                    return Ok(());
                }
                self.state.set(name, value.as_deref(), *is_local);
                Ok(())
            }
            Sql::ResetAll => {
                self.state.reset_all();
                Ok(())
            }
            Sql::DiscardAll => {
                if self.state.block != Block::None || !is_single {
                    return Err(("25001", "DISCARD ALL cannot run inside a transaction block"));
                }
                self.state.discard_all();
                let unnamed = self.statements.remove("");
                self.statements.clear();
                self.statements.extend(unnamed.map(|unnamed| (String::new(), unnamed)));
                self.drop_portals();
                Ok(())
            }
            Sql::Prepare(name, body) => {
                let parsed = sql::parse(body).map_err(|_| ("42601", "syntax error"))?;
                if self.statements.contains_key(name) {
                    return Err(TAKEN);
                }
                let sql = parsed.into_iter().next();
                let prepared = Prepared { version: self.version_for(sql.as_ref()), sql };
                self.statements.insert(name.clone(), prepared);
                Ok(())
            }
            Sql::Deallocate(Some(name)) => self.statements.remove(name).map(drop).ok_or(NO_STATEMENT),
            Sql::Deallocate(None) => {
                self.statements.retain(|name, _| name.is_empty());
                Ok(())
            }
            Sql::Alter(table) => {
                *self.versions.entry(table.clone()).or_default() += 1;
                Ok(())
            }
            // PostgreSQL 15 lets only the owner of a database create tables in `public`.
            Sql::Create(_) if !self.state.value("search_path").starts_with("pg_temp") => {
                Err(("42501", "permission denied for schema public"))
            }
            Sql::Create(name) => self.act_on_objects(&Sql::CreateTemp(name.clone())),
            _ => self.act_on_objects(sql),
        }
    }

    fn act_on_objects(&mut self, sql: &Sql) -> Result<(), Failure> {
        let objects = &mut self.state.objects;
        match sql {
            Sql::CreateTemp(name) if !objects.temporary.insert(name.clone()) => {
                Err(("42P07", "relation already exists"))
            }
            Sql::Drop(name) if !objects.temporary.remove(name) => Err(NO_TABLE),
            Sql::DiscardTemp => {
                objects.temporary.clear();
                Ok(())
            }
            Sql::Declare(name) if !objects.cursors.insert(name.clone()) => Err(("42P03", "cursor already exists")),
            Sql::Close(Some(name)) => {
                let name = name.clone();
                self.has_cursor(&name)?;
                self.state.close_cursor(Some(&name));
                Ok(())
            }
            Sql::Close(None) => {
                self.state.close_cursor(None);
                Ok(())
            }
            Sql::Listen(name) => {
                objects.channels.insert(name.clone());
                Ok(())
            }
            Sql::Unlisten(name) => {
                objects.channels.retain(|known| name.as_ref().is_some_and(|name| name != known));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn act_on_transaction(&mut self, sql: &Sql) -> Result<(), Failure> {
        let in_block = self.state.block != Block::None;
        match sql {
            Sql::Begin if in_block => self.warn("25001", "there is already a transaction in progress"),
            Sql::Begin => self.state.block = Block::Open,
            Sql::Commit | Sql::Rollback => {
                if !in_block {
                    self.warn("25P01", "there is no transaction in progress");
                }
                if *sql == Sql::Commit && self.state.block != Block::Failed {
                    self.state.commit();
                } else {
                    self.was_failed = self.state.block == Block::Failed;
                    self.state.rollback();
                }
                self.drop_portals();
            }
            _ if !in_block => return Err(NO_BLOCK),
            Sql::Savepoint(name) => self.state.savepoint(name),
            Sql::RollbackTo(name) if !self.state.rollback_to(name) => return Err(NO_SAVEPOINT),
            Sql::Release(name) if !self.state.release(name) => return Err(NO_SAVEPOINT),
            _ => {}
        }
        Ok(())
    }

    /// The text of CommandComplete.
    pub(crate) fn command_tag(&mut self, sql: &Sql, rows: usize) -> String {
        let failed_commit = std::mem::take(&mut self.was_failed) && *sql == Sql::Commit;
        let fixed = match sql {
            Sql::Begin => "BEGIN",
            Sql::Commit if failed_commit => "ROLLBACK",
            Sql::Commit => "COMMIT",
            Sql::Rollback | Sql::RollbackTo(_) => "ROLLBACK",
            Sql::Savepoint(_) => "SAVEPOINT",
            Sql::Release(_) => "RELEASE",
            Sql::Set { value: None, is_local: false, .. } | Sql::ResetAll => "RESET",
            Sql::Set { .. } => "SET",
            Sql::Show(_) => "SHOW",
            Sql::DiscardAll => "DISCARD ALL",
            Sql::DiscardTemp => "DISCARD TEMP",
            Sql::DiscardNothing(text) => return text.clone(),
            Sql::Prepare(..) => "PREPARE",
            Sql::Deallocate(Some(_)) => "DEALLOCATE",
            Sql::Deallocate(None) => "DEALLOCATE ALL",
            Sql::CreateTemp(_) | Sql::Create(_) => "CREATE TABLE",
            Sql::Drop(_) => "DROP TABLE",
            Sql::Declare(_) => "DECLARE CURSOR",
            Sql::Close(Some(_)) => "CLOSE CURSOR",
            Sql::Close(None) => "CLOSE CURSOR ALL",
            Sql::Listen(_) => "LISTEN",
            Sql::Unlisten(_) => "UNLISTEN",
            Sql::Alter(_) => "ALTER TABLE",
            Sql::Fetch(_) => return format!("FETCH {rows}"),
            Sql::CopyOut => "COPY 1",
            _ => return format!("SELECT {rows}"),
        };
        fixed.to_owned()
    }
}
