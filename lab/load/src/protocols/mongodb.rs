//! MongoDB: the find or the insert of one document for each request, in OP_MSG. Each command has a comment of its own, which the lab's
//! origin repeats, and each reply names its request: a foreign reply shows.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | `[mongodb]` of a scenario |
//! | `plan` | the commands of a shard, and the check of each reply |
//! | `wire` | whole replies out of chunks |
//! | `login` | hello, and SCRAM |

use weir_base::ByteSize;
use weir_mongodb_codec::Header;
use weir_mongodb_codec::bson::Value;
use weir_mongodb_codec::message::Message;

use super::{Common, Count, Family, OwnKey, Protocol, REMEDY, Seat, Work};
use crate::requests::Planner;
use crate::scenario::table::Table;
use crate::scenario::{Operation, Scenario};
use crate::shard::Shard;
use crate::url::Scheme;
use crate::wire::Wire;

mod login;
mod plan;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

/// The question about the requests of the lab's origin: `{weirOrigin: 1, $db: "admin"}`.
const COUNT: &[u8] = b"\x39\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\x24\0\0\0\x10weirOrigin\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0";

/// See the module.
pub(super) struct Mongodb;

impl Protocol for Mongodb {
    fn word(&self) -> &'static str {
        "mongodb"
    }

    fn title(&self) -> &'static str {
        "MongoDB"
    }

    fn fixed_reply(&self, scenario: &Scenario) -> Option<String> {
        Some(format!("documents of {}", ByteSize::new(scenario.mongodb.document_bytes as u64)))
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme { name: "mongodb", port: Some(27017), has_path: false })
    }

    fn family(&self) -> &'static Family {
        &Family {
            own_keys: &[OwnKey { name: "mongodb", why: "is only for protocol = \"mongodb\"" }],
            remedy: REMEDY,
            origin: "mongodb",
            has_workers: true,
            usual_peers: &["envoy", "haproxy"],
        }
    }

    fn origin_words(&self, scenario: &Scenario) -> Vec<String> {
        let mongodb = &scenario.mongodb;
        let pairs = [("--documents", mongodb.documents), ("--payload", mongodb.document_bytes as u64)];
        pairs.iter().flat_map(|(option, number)| [(*option).to_owned(), number.to_string()]).collect()
    }

    fn read(&self, root: &Table<'_>, common: &Common<'_>) -> Option<Work> {
        if common.has_sizes() {
            root.refuse("payload", "has several sizes, and documents of MongoDB have one", "name one size");
        }
        // The default of other protocols is no document that anybody measures.
        let bytes = root.get("payload").and(common.payload).map(|payload| payload.bytes_max());
        let mongodb = root.table("mongodb").and_then(|table| settings::read(table, bytes))?;
        Some(Work { mongodb, ..Work::default() })
    }

    fn planner<'a>(&self, scenario: &'a Scenario, shard: Shard) -> Box<dyn Planner + 'a> {
        Box::new(plan::Commands::new(scenario, shard))
    }

    fn wire(&self, scenario: &Scenario, _seat: Seat) -> Box<dyn Wire> {
        Box::new(wire::Replies::new(&scenario.mongodb))
    }

    fn count(&self) -> Option<Count> {
        Some(Count { question: COUNT, read: requests_served })
    }

    fn mix(&self, scenario: &Scenario) -> String {
        match scenario.mongodb.operation {
            Operation::Find => "find of one document".to_owned(),
            Operation::Insert => "insert of one document".to_owned(),
            Operation::Mixed => format!("find of one document, {} % inserts", scenario.mongodb.insert_percent),
        }
    }

    fn details(&self, scenario: &Scenario) -> String {
        let compressor = scenario.mongodb.compressor.map(|compressor| format!(", {}", compressor.name()));
        format!(", {} documents{}", scenario.mongodb.documents, compressor.unwrap_or_default())
    }
}

/// The number in a response that is whole.
fn requests_served(response: &[u8]) -> Option<u64> {
    let header = Header::read(response).ok()??;
    let message = Message::read(response.get(..header.bytes)?).ok()?;
    let requests = message.body.get(b"requests").ok()?.and_then(Value::as_integer);
    requests.and_then(|requests| u64::try_from(requests).ok())
}
