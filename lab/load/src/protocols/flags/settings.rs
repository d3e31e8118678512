//! `[flags]`: the requests, and the flags of the origin.

use weir_flagsets::DataSet;

use crate::protocols::Common;
use crate::scenario::read::or_default;
use crate::scenario::table::Table;
use crate::scenario::{Flags, FlagsEndpoint};

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
    let token = or_default(table.get("token"), known.usual_token(), |node| node.visible_secret("token"));
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
