//! Commands by the extended protocol, without parameters: some drivers know no other way. An error skips to the Sync.

use std::collections::HashMap;

use weir_engine::Stream;
use weir_postgres_codec::{
    TransactionStatus, backend,
    frontend::{self, Kind, tag},
    sqlstate,
};

use super::{
    Console, Failure,
    command::{Command, Show},
    error, read,
    table::Forms,
};

/// Statements and portals of one session, each. Default 64: drivers keep one of each command. A further one is refused.
const NAMES_MAX: usize = 64;

/// The names of a session.
#[derive(Default)]
pub(super) struct Prepared {
    statements: HashMap<Vec<u8>, Command>,
    portals: HashMap<Vec<u8>, (Command, Forms)>,
    /// An error has come: nothing counts up to the Sync.
    is_skipping: bool,
}

impl Console<'_> {
    /// A message of the extended protocol.
    pub(super) async fn on_extended(&mut self, stream: &Stream, tag: u8, body: &[u8]) {
        if tag == tag::SYNC {
            self.prepared.is_skipping = false;
            // A transaction ends here, and portals end with it.
            self.prepared.portals.clear();
            stream.output.with(|out| backend::ready_for_query(out, TransactionStatus::Idle));
            return;
        }
        if self.prepared.is_skipping {
            return;
        }
        let ended = match tag {
            tag::PARSE => self.on_parse(stream, body),
            tag::BIND => self.on_bind(stream, body),
            tag::DESCRIBE => self.on_describe(stream, body).await,
            tag::EXECUTE => self.on_execute(stream, body).await,
            tag::CLOSE => self.on_close(stream, body),
            tag::FUNCTION_CALL => {
                Err(Failure::new(sqlstate::FEATURE_NOT_SUPPORTED, "the admin console has no functions"))
            }
            // Flush, and what belongs to a COPY.
            _ => Ok(()),
        };
        if let Err(failure) = ended {
            error(stream, &failure);
            // As PostgreSQL after a call of a function, which is no part of a batch.
            self.prepared.is_skipping = tag != tag::FUNCTION_CALL;
            if tag == tag::FUNCTION_CALL {
                stream.output.with(|out| backend::ready_for_query(out, TransactionStatus::Idle));
            }
        }
    }

    fn on_parse(&mut self, stream: &Stream, body: &[u8]) -> Result<(), Failure> {
        let parse = frontend::Parse::read(body)?;
        let command = read(parse.text)?;
        enter(&mut self.prepared.statements, parse.name, command)?;
        stream.output.with(backend::parse_complete);
        Ok(())
    }

    fn on_bind(&mut self, stream: &Stream, body: &[u8]) -> Result<(), Failure> {
        let bind = frontend::Bind::read(body)?;
        let arguments = bind.arguments()?;
        let command = self.statement(bind.statement)?.clone();
        if !arguments.values.is_empty() {
            let text = "commands of the admin console have no parameters";
            return Err(Failure::new(sqlstate::PROTOCOL_VIOLATION, text));
        }
        if arguments.results.iter().any(|code| !matches!(code, 0 | 1)) {
            return Err(Failure::new(sqlstate::INVALID_PARAMETER_VALUE, "unsupported format code"));
        }
        let forms = Forms::new(arguments.results.iter());
        enter(&mut self.prepared.portals, bind.portal, (command, forms))?;
        stream.output.with(backend::bind_complete);
        Ok(())
    }

    async fn on_describe(&self, stream: &Stream, body: &[u8]) -> Result<(), Failure> {
        let describe = frontend::Describe::read(body)?;
        let (command, forms) = match describe.kind {
            Kind::Statement => {
                let command = self.statement(describe.name)?;
                stream.output.with(|out| backend::parameter_description(out, []));
                (command, Forms::default())
            }
            Kind::Portal => {
                let (command, forms) = self.portal(describe.name)?;
                (command, forms.clone())
            }
        };
        let table = match command {
            Command::Show(show) if *show != Show::Help => self.table(*show).await,
            _ => None,
        };
        stream.output.with(|out| match table {
            Some(table) => table.describe(&forms, out),
            None => backend::no_data(out),
        });
        Ok(())
    }

    async fn on_execute(&self, stream: &Stream, body: &[u8]) -> Result<(), Failure> {
        let execute = frontend::Execute::read(body)?;
        let (command, forms) = self.portal(execute.portal)?;
        self.execute(stream, command, Some(forms)).await
    }

    fn on_close(&mut self, stream: &Stream, body: &[u8]) -> Result<(), Failure> {
        let close = frontend::Close::read(body)?;
        match close.kind {
            Kind::Statement => drop(self.prepared.statements.remove(close.name)),
            Kind::Portal => drop(self.prepared.portals.remove(close.name)),
        }
        stream.output.with(backend::close_complete);
        Ok(())
    }

    fn statement(&self, name: &[u8]) -> Result<&Command, Failure> {
        self.prepared
            .statements
            .get(name)
            .ok_or_else(|| unknown(sqlstate::INVALID_SQL_STATEMENT_NAME, "statement", name))
    }

    fn portal(&self, name: &[u8]) -> Result<&(Command, Forms), Failure> {
        self.prepared.portals.get(name).ok_or_else(|| unknown(sqlstate::INVALID_CURSOR_NAME, "portal", name))
    }
}

fn unknown(code: &'static str, kind: &str, name: &[u8]) -> Failure {
    Failure::new(code, format!("{kind} \"{}\" does not exist", String::from_utf8_lossy(name)))
}

/// Keeps `value` under `name`. The unnamed one is replaced.
fn enter<T>(names: &mut HashMap<Vec<u8>, T>, name: &[u8], value: T) -> Result<(), Failure> {
    if !name.is_empty() && names.contains_key(name) {
        let text = format!("\"{}\" already exists", String::from_utf8_lossy(name));
        return Err(Failure::new(sqlstate::DUPLICATE_PREPARED_STATEMENT, text));
    }
    if names.len() >= NAMES_MAX && !names.contains_key(name) {
        let text = format!("the admin console keeps {NAMES_MAX} statements: close some");
        return Err(Failure::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
    }
    names.insert(name.to_vec(), value);
    Ok(())
}
