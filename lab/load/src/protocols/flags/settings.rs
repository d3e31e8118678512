//! `[flags]`: the requests, and the flags of the origin.

use weir_base::secret::Secret;
use weir_flagsets::DataSet;

use crate::protocols::Common;
use crate::scenario::read::or_default;
use crate::scenario::table::{Node, Table};
use crate::scenario::{Flags, FlagsEndpoint};

/// In front of the name of an environment variable.
const FROM_ENVIRONMENT: &str = "env:";

/// The section, or its defaults.
pub(super) fn read(table: Table<'_>, common: &Common<'_>) -> Option<Flags> {
    let default = Flags::default();
    let endpoints = [FlagsEndpoint::Client, FlagsEndpoint::Frontend].map(|one| (one.word(), one));
    let endpoint = or_default(table.get("endpoint"), default.endpoint, |node| node.choice(&endpoints));
    let known = endpoint.unwrap_or_default();
    if known == FlagsEndpoint::Client {
        for key in ["method", "context"] {
            table.refuse(key, "is only for endpoint = \"frontend\"", "remove it, or change the endpoint");
        }
    }
    let sets = DataSet::ALL.map(|set| (set.word(), set));
    let data = or_default(table.get("data"), default.data, |node| node.choice(&sets));
    let methods = [("get", false), ("post", true)];
    let is_posted = or_default(table.get("method"), default.is_posted, |node| node.choice(&methods));
    let contexts = [("user", true), ("none", false)];
    let has_users = or_default(table.get("context"), default.has_users, |node| node.choice(&contexts));
    let is_conditional = or_default(table.get("conditional"), default.is_conditional, |node| node.boolean());
    let is_gzip = or_default(table.get("gzip"), default.is_gzip, |node| node.boolean());
    let token = or_default(table.get("token"), known.usual_token(), token);
    if is_conditional == Some(true) {
        if is_posted == Some(true) {
            table.refuse("conditional", "is only for method = \"get\"", "remove it, or change the method");
        }
        if common.integrity == Some(false) {
            let why = "needs the check of responses: a 304 is right here, and a whole response wrong";
            table.refuse("conditional", why, "remove it, or write integrity = true");
        }
    }
    table.finish();
    Some(Flags {
        endpoint: endpoint?,
        data: data?,
        is_posted: is_posted?,
        has_users: has_users?,
        is_conditional: is_conditional?,
        is_gzip: is_gzip?,
        token: token?,
    })
}

/// Visible ASCII: it goes into the request as it stands.
fn token(node: &Node<'_>) -> Option<Secret> {
    let text = node.text()?;
    let value = match text.strip_prefix(FROM_ENVIRONMENT) {
        None => text.to_owned(),
        Some(variable) => match std::env::var(variable) {
            Ok(value) => value,
            Err(_) => {
                node.wrong(format!("is \"{text}\", and ${variable} is not set"), "set it, or write the token");
                return None;
            }
        },
    };
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        node.wrong("has characters that no token has", "write visible characters without blanks");
        return None;
    }
    Some(Secret::from(value))
}
