//! `[postgres]`: the login, and the form of the requests.

use weir_base::secret::Secret;

use crate::scenario::read::or_default;
use crate::scenario::table::{Node, Table};
use crate::scenario::{Postgres, QueryForm};

/// Bytes of a name. Default 63: PostgreSQL cuts longer ones.
const NAME_BYTES_MAX: usize = 63;
/// In front of the name of an environment variable.
const FROM_ENVIRONMENT: &str = "env:";

/// The section, or its defaults.
pub(super) fn read(table: Table<'_>) -> Option<Postgres> {
    let default = Postgres::default();
    let forms = QueryForm::ALL.map(|form| (form.word(), form));
    let query = or_default(table.get("query"), default.query, |node| node.choice(&forms));
    let user = or_default(table.get("user"), default.user, name);
    let database = or_default(table.get("database"), user.clone().unwrap_or_default(), name);
    let password = or_default(table.get("password"), None, |node| password(node).map(Some));
    let accounts = or_default(table.get("accounts"), default.accounts, |node| node.whole(1..=i32::MAX as u32));
    table.finish();
    Some(Postgres { query: query?, user: user?, database: database?, password: password?, accounts: accounts? })
}

fn name(node: &Node<'_>) -> Option<String> {
    let text = node.text()?;
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains('\0') {
        node.wrong(format!("is \"{text}\""), format!("write a name of 1 to {NAME_BYTES_MAX} bytes"));
        return None;
    }
    Some(text.to_owned())
}

fn password(node: &Node<'_>) -> Option<Secret> {
    let text = node.text()?;
    let Some(variable) = text.strip_prefix(FROM_ENVIRONMENT) else { return Some(Secret::from(text)) };
    match std::env::var(variable) {
        Ok(password) => Some(Secret::from(password)),
        Err(_) => {
            node.wrong(format!("is \"{text}\", and ${variable} is not set"), "set it, or write the password");
            None
        }
    }
}
