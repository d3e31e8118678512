//! Feature flags over Unleash's APIs. The lab's origin serves a data set that the load knows, so each response is compared with it: all
//! flags and segments for a backend, and for a frontend the flags that are on for the context, with their variants.
//!
//! | request | right response |
//! |---|---|
//! | GET `/api/client/features` | the flags and segments of the set |
//! | GET or POST `/api/frontend` | the flags of the set that are on for the user and the plan |
//! | the same with the tag of an earlier response | a 304 without a body |
//!
//! Each connection begins with one request whose response is not measured. A gateway that has no flags yet gets it again. So the load
//! begins when the gateway has them, and knows their tag.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | `[flags]` of a scenario |
//! | `plan` | the requests of a shard |
//! | `check`, `same` | the check of each response; two values of JSON that mean the same |
//! | `first` | the first request on a connection |
//! | `wire` | responses, and requests that get the tag |

use super::{Common, Count, Family, OwnKey, Protocol, REMEDY, Seat, Work, http};
use crate::requests::Planner;
use crate::scenario::table::Table;
use crate::scenario::{FlagsEndpoint, Scenario};
use crate::shard::Shard;
use crate::wire::Wire;

mod check;
mod first;
mod plan;
mod same;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

/// See the module.
pub(super) struct Flags;

impl Protocol for Flags {
    fn word(&self) -> &'static str {
        "flags"
    }

    fn title(&self) -> &'static str {
        "Feature flags"
    }

    fn fixed_reply(&self, scenario: &Scenario) -> Option<String> {
        Some(format!("{} flags", scenario.flags.data.flags()))
    }

    fn family(&self) -> &'static Family {
        &Family {
            own_keys: &[OwnKey { name: "flags", why: "is only for protocol = \"flags\"" }],
            remedy: REMEDY,
            origin: "flags",
            has_workers: true,
            usual_peers: &["unleash-edge"],
        }
    }

    fn origin_words(&self, scenario: &Scenario) -> Vec<String> {
        vec!["--data".to_owned(), scenario.flags.data.word().to_owned()]
    }

    fn read(&self, root: &Table<'_>, common: &Common<'_>) -> Option<Work> {
        let flags = root.table("flags").and_then(|table| settings::read(table, common))?;
        root.refuse("payload", "has no meaning for feature flags", "remove it; `flags.data` names the flags");
        if flags.is_conditional && root.get("churn").is_some_and(|node| node.value.as_bool() == Some(true)) {
            root.refuse("churn", "has no connection that knows a tag", "leave out `churn`, or `flags.conditional`");
        }
        Some(Work { flags, ..Work::default() })
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        Box::new(plan::Requests::new(scenario, shard))
    }

    fn wire(&self, scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        Box::new(wire::Responses::new(&scenario.flags))
    }

    fn count(&self) -> Option<Count> {
        Some(http::COUNT)
    }

    fn mix(&self, scenario: &Scenario) -> String {
        let flags = &scenario.flags;
        let path = match flags.endpoint {
            FlagsEndpoint::Client => "GET of all flags",
            FlagsEndpoint::Frontend if flags.is_posted => "POST of a context",
            FlagsEndpoint::Frontend => "GET for a context",
        };
        path.to_owned()
    }

    fn details(&self, scenario: &Scenario) -> String {
        let flags = &scenario.flags;
        let mut words = String::new();
        if flags.endpoint == FlagsEndpoint::Frontend && !flags.has_users {
            words.push_str(", no user");
        }
        if flags.is_conditional {
            words.push_str(", 304");
        }
        if flags.is_gzip {
            words.push_str(", gzip");
        }
        words
    }
}
