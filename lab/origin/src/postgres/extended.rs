//! Prepared statements and portals.

use std::rc::Rc;

use weir_postgres_codec::MessageError;
use weir_postgres_codec::backend;
use weir_postgres_codec::frontend::{Bind, Close, Describe, Execute, Formats, Kind, Parse, tag};
use weir_postgres_codec::sqlstate;

use super::connection::Terms;
use super::session::{Session, no_statement};
use super::statement::{Action, Failure, Statement};
use super::tokens;
use super::value::Value;

/// Prepared statements, and portals, of one client. Default 10,000, as many as a client of the gateway may have.
const NAMES_MAX: usize = 10_000;

/// A statement with its parameters.
pub(super) struct Portal {
    statement: Rc<Statement>,
    parameters: Vec<Value>,
    /// One for each column.
    formats: Vec<i16>,
    /// Its row was sent, or its command was done.
    is_used: bool,
}

impl From<MessageError> for Failure {
    fn from(error: MessageError) -> Self {
        Self::new(error.sqlstate(), error.text())
    }
}

impl Session {
    /// Responds to Parse, Bind, Describe, Execute or Close.
    pub(super) fn extended(&mut self, terms: &Terms, tag: u8, body: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        match tag {
            tag::PARSE => self.parse(&Parse::read(body)?, out),
            tag::BIND => self.bind(&Bind::read(body)?, out),
            tag::DESCRIBE => self.describe(&Describe::read(body)?, out),
            tag::EXECUTE => self.execute(terms, &Execute::read(body)?, out),
            _ => {
                let Close { kind, name } = Close::read(body)?;
                match kind {
                    Kind::Statement => drop(self.statements.remove(name)),
                    Kind::Portal => drop(self.portals.remove(name)),
                }
                backend::close_complete(out);
                Ok(())
            }
        }
    }

    fn parse(&mut self, parse: &Parse<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut texts = tokens::statements(parse.text);
        let text = texts.next().unwrap_or_default();
        if texts.next().is_some() {
            let text = "cannot insert multiple commands into a prepared statement";
            return Err(Failure::new(sqlstate::SYNTAX_ERROR, text));
        }
        let types: Vec<u32> = parse.types.iter().collect();
        let statement = Statement::read(text, &types)?;
        self.check_block(&statement)?;
        if !parse.name.is_empty() {
            if self.statements.contains_key(parse.name) {
                let text = format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(parse.name));
                return Err(Failure::new(sqlstate::DUPLICATE_PREPARED_STATEMENT, text));
            }
            check_room(self.statements.len())?;
        }
        self.statements.insert(parse.name.into(), Rc::new(statement));
        backend::parse_complete(out);
        Ok(())
    }

    fn bind(&mut self, bind: &Bind<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
        let statement = self.statements.get(bind.statement).ok_or_else(|| no_statement(bind.statement))?.clone();
        let arguments = bind.arguments()?;
        let (count, formats) = (arguments.values.len(), arguments.formats);
        if formats.len() > 1 && formats.len() != count {
            return Err(violation(format!(
                "bind message has {} parameter formats but {count} parameters",
                formats.len()
            )));
        }
        if count != statement.types.len() {
            let (name, needed) = (String::from_utf8_lossy(bind.statement), statement.types.len());
            return Err(violation(format!(
                "bind message supplies {count} parameters, but prepared statement \"{name}\" requires {needed}"
            )));
        }
        self.check_block(&statement)?;
        if !bind.portal.is_empty() {
            if self.portals.contains_key(bind.portal) {
                let text = format!("cursor \"{}\" already exists", String::from_utf8_lossy(bind.portal));
                return Err(Failure::new(sqlstate::DUPLICATE_CURSOR, text));
            }
            check_room(self.portals.len())?;
        }
        let values = arguments.values.iter().zip(&statement.types).enumerate();
        let read =
            |(at, (value, type_oid)): (usize, (Option<&[u8]>, &u32))| Value::read(value, *type_oid, formats.of(at));
        let parameters = values.map(read).collect::<Result<_, _>>()?;
        if let Action::Select(select) = &statement.action {
            select.plan()?;
        }
        let formats = result_formats(&statement, arguments.results)?;
        self.portals.insert(bind.portal.into(), Portal { statement, parameters, formats, is_used: false });
        backend::bind_complete(out);
        Ok(())
    }

    fn describe(&mut self, describe: &Describe<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
        let (statement, formats) = match describe.kind {
            Kind::Statement => {
                let statement = self.statements.get(describe.name).ok_or_else(|| no_statement(describe.name))?;
                backend::parameter_description(out, statement.types.iter().copied());
                (statement, &[][..])
            }
            Kind::Portal => {
                let portal = self.portals.get(describe.name).ok_or_else(|| no_portal(describe.name))?;
                (&portal.statement, &portal.formats[..])
            }
        };
        match &statement.action {
            Action::Select(select) => {
                let formats = formats.iter().copied().chain(std::iter::repeat(0));
                let columns = select.fields.iter().zip(formats).map(|(field, format)| field.column(format));
                backend::row_description(out, columns);
            }
            _ => backend::no_data(out),
        }
        Ok(())
    }

    fn execute(&mut self, terms: &Terms, execute: &Execute<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
        let portal = self.portals.get(execute.portal).ok_or_else(|| no_portal(execute.portal))?;
        self.check_block(&portal.statement)?;
        let statement = portal.statement.clone();
        let portal = self.portals.get_mut(execute.portal).ok_or_else(|| no_portal(execute.portal))?;
        let is_used = std::mem::replace(&mut portal.is_used, true);
        let Action::Select(select) = &statement.action else {
            if is_used {
                let text = format!("portal \"{}\" cannot be run", String::from_utf8_lossy(execute.portal));
                return Err(Failure::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, text));
            }
            return self.perform(&statement.action, out);
        };
        let row = if is_used { None } else { select.row(&portal.parameters, terms.of_rows())? };
        let Some(row) = row else {
            backend::command_complete(out, b"SELECT 0");
            return Ok(());
        };
        let values: Vec<_> = row.iter().zip(&portal.formats).map(|(value, format)| value.write(*format)).collect();
        backend::data_row(out, values.iter().map(Option::as_deref));
        // PostgreSQL stops at the limit and does not look whether another row would come.
        match execute.rows {
            1 => backend::portal_suspended(out),
            _ => backend::command_complete(out, b"SELECT 1"),
        }
        Ok(())
    }
}

/// The format of each column: none given means text for all, one means the same for all.
fn result_formats(statement: &Statement, given: Formats<'_>) -> Result<Vec<i16>, Failure> {
    let columns = if let Action::Select(select) = &statement.action { select.fields.len() } else { 0 };
    if given.len() > 1 && given.len() != columns {
        let text = format!("bind message has {} result formats but query has {columns} columns", given.len());
        return Err(violation(text));
    }
    Ok((0..columns).map(|at| given.of(at)).collect())
}

fn no_portal(name: &[u8]) -> Failure {
    let text = format!("portal \"{}\" does not exist", String::from_utf8_lossy(name));
    Failure::new(sqlstate::INVALID_CURSOR_NAME, text)
}

fn check_room(names: usize) -> Result<(), Failure> {
    let text = format!("the lab's origin keeps at most {NAMES_MAX} names of a client; close some");
    if names < NAMES_MAX { Ok(()) } else { Err(Failure::new(sqlstate::CONFIGURATION_LIMIT_EXCEEDED, text)) }
}

fn violation(text: String) -> Failure {
    Failure::new(sqlstate::PROTOCOL_VIOLATION, text)
}
