//! `[postgres]`: the login, and the form of the requests.

use super::tpcb::ACCOUNTS_PER_BRANCH;
use crate::scenario::read::or_default;
use crate::scenario::table::{Node, Table};
use crate::scenario::{Postgres, QueryForm, Script};

/// Bytes of a name. Default 63: PostgreSQL cuts longer ones.
const NAME_BYTES_MAX: usize = 63;

/// The section, or its defaults.
pub(super) fn read(table: Table<'_>) -> Option<Postgres> {
    let default = Postgres::default();
    let forms = QueryForm::ALL.map(|form| (form.word(), form));
    let query = or_default(table.get("query"), default.query, |node| node.choice(&forms));
    let scripts = Script::ALL.map(|script| (script.word(), script));
    let script = or_default(table.get("script"), default.script, |node| node.choice(&scripts));
    let user = or_default(table.get("user"), default.user, name);
    let database = or_default(table.get("database"), user.clone().unwrap_or_default(), name);
    let password = or_default(table.get("password"), None, |node| node.secret("password").map(Some));
    let accounts = or_default(table.get("accounts"), default.accounts, |node| {
        let accounts = node.whole(1..=i32::MAX as u32)?;
        if script == Some(Script::TpcbLike) && !accounts.is_multiple_of(ACCOUNTS_PER_BRANCH) {
            let remedy = format!("a branch has {ACCOUNTS_PER_BRANCH} accounts: write a multiple of it");
            node.wrong(format!("is {accounts}"), remedy);
            return None;
        }
        Some(accounts)
    });
    table.finish();
    Some(Postgres {
        query: query?,
        script: script?,
        user: user?,
        database: database?,
        password: password?,
        accounts: accounts?,
    })
}

fn name(node: &Node<'_>) -> Option<String> {
    let text = node.text()?;
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains('\0') {
        node.wrong(format!("is \"{text}\""), format!("write a name of 1 to {NAME_BYTES_MAX} bytes"));
        return None;
    }
    Some(text.to_owned())
}
