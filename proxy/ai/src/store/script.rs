//! The script of the store: its arguments and its replies. The rules are in `script.lua`, and, as a model, in
//! [`weir_spend::shared::model`].

use weir_resp::{Value, encode};
use weir_spend::shared::{ClaimReply, ClaimRequest, Hunger, Item};

/// The text of the script.
pub const SCRIPT: &str = include_str!("script.lua");

/// Items of one call. Default 64: the server runs nothing else meanwhile, for about a millisecond.
pub const ITEMS_MAX: usize = 64;

/// The gateway, its connection, and the data as it has seen them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The gateway, the same after a restart.
    pub gateway: String,
    /// Its connection.
    pub session: String,
    /// The epoch that it knows; empty: none.
    pub epoch: String,
    /// The highest revision that this process has seen in that epoch.
    pub revision: u64,
}

/// A reply that the script does not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The reply of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The connection has begun.
    Open {
        /// The epoch of the data.
        epoch: String,
        /// Their revision.
        revision: u64,
    },
    /// The replies.
    Claim {
        /// The revision.
        revision: u64,
        /// One for each request, in their order.
        replies: Vec<ClaimReply>,
        /// Needs of other gateways, if the call looks for them.
        hungers: Vec<Hunger>,
    },
    /// The data are others than the gateway has seen.
    Stale,
    /// Another connection has begun in the name of the gateway.
    Superseded {
        /// Its session; empty: the server does not know it any more.
        by: String,
    },
}

/// The command that begins a connection, appended to `out`.
pub fn open(out: &mut Vec<u8>, hash: &str, prefix: &str, caller: &Caller, run: &str, has_used: bool, grace_ms: u64) {
    let mut words = head("open", hash, prefix, caller, &[]);
    words.extend([u8::from(has_used).to_string(), run.to_owned(), grace_ms.to_string()]);
    encode::command(out, words.iter().map(String::as_bytes));
}

/// The command with these requests, at most [`ITEMS_MAX`], appended to `out`. `looks`: it asks for the needs of other gateways, too.
pub fn claim(
    out: &mut Vec<u8>,
    hash: &str,
    prefix: &str,
    caller: &Caller,
    (ttl_ms, looks): (u64, bool),
    requests: &[ClaimRequest],
) {
    debug_assert!(requests.len() <= ITEMS_MAX);
    let mut words = head("claim", hash, prefix, caller, requests);
    words.extend([ttl_ms.to_string(), u8::from(looks).to_string()]);
    for request in requests {
        let held = request.held.map_or_else(|| "?".to_owned(), |held| held.to_string());
        let numbers = [request.need, request.comfort, request.is_wanting.into(), request.seconds_left + KEPT];
        words.extend([request.limit.to_string(), request.used.to_string(), held]);
        words.extend(numbers.map(|number| number.to_string()));
    }
    encode::command(out, words.iter().map(String::as_bytes));
}

/// Seconds for which an item is kept behind its window, for gateways whose clock is behind. Two days.
const KEPT: u64 = 2 * 86_400;

/// The words before those of the operation.
fn head(operation: &str, hash: &str, prefix: &str, caller: &Caller, requests: &[ClaimRequest]) -> Vec<String> {
    let Caller { gateway, session, epoch, revision } = caller;
    let keys = [format!("{prefix}store"), format!("{prefix}hungers"), format!("{prefix}session:{gateway}")];
    let items = requests.iter().map(|request| format!("{prefix}{}", request.item.name()));
    let mut words = vec!["EVALSHA".to_owned(), hash.to_owned(), (keys.len() + requests.len()).to_string()];
    words.extend(keys.into_iter().chain(items));
    words.extend([operation, gateway, session, epoch].map(str::to_owned));
    words.push(revision.to_string());
    words
}

/// Reads the reply of a call with so many requests.
///
/// # Errors
/// It is none of the script's.
pub fn read(value: &Value, prefix: &str, requests: usize) -> Result<Reply, Malformed> {
    let parts = value.as_elements().ok_or(Malformed)?;
    let texts = |value: &Value| -> Result<Vec<String>, Malformed> {
        value.as_elements().ok_or(Malformed)?.iter().map(|value| text(value).map(str::to_owned)).collect()
    };
    match (text(parts.first().ok_or(Malformed)?)?, &parts[1..]) {
        ("open", [epoch, revision]) => {
            Ok(Reply::Open { epoch: text(epoch)?.to_owned(), revision: number(text(revision)?)? })
        }
        ("claim", [revision, replies, hungers]) => {
            let replies = texts(replies)?.iter().map(|text| reply(text)).collect::<Result<Vec<_>, _>>()?;
            if replies.len() != requests {
                return Err(Malformed);
            }
            // A key that is no item is that of a newer version.
            let hungers = texts(hungers)?.iter().filter_map(|text| hunger(text, prefix)).collect();
            Ok(Reply::Claim { revision: number(text(revision)?)?, replies, hungers })
        }
        ("stale", []) => Ok(Reply::Stale),
        ("superseded", [by]) => Ok(Reply::Superseded { by: text(by)?.to_owned() }),
        _ => Err(Malformed),
    }
}

fn text(value: &Value) -> Result<&str, Malformed> {
    value.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or(Malformed)
}

fn number(text: &str) -> Result<u64, Malformed> {
    text.parse().map_err(|_| Malformed)
}

fn reply(text: &str) -> Result<ClaimReply, Malformed> {
    let mut numbers = text.split(' ').map(number);
    let mut next = || numbers.next().ok_or(Malformed)?;
    let (allowed, rest, idle_elsewhere, used_elsewhere) = (next()?, next()?, next()?, next()?);
    Ok(ClaimReply { allowed, rest, idle_elsewhere, used_elsewhere })
}

fn hunger(text: &str, prefix: &str) -> Option<Hunger> {
    let (need, key) = text.split_once(' ')?;
    Some(Hunger { item: Item::from_name(key.strip_prefix(prefix)?)?, need: need.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use weir_spend::budget::{AccountId, AccountKind, Measure};

    use super::*;

    fn item() -> Item {
        Item { account: AccountId::new(AccountKind::Key, "a"), measure: Measure::DayTokens, window: 7 }
    }

    #[test]
    fn calls_name_their_keys_and_say_what_is_not_known() {
        let caller = Caller { gateway: "g".to_owned(), session: "s".to_owned(), ..Caller::default() };
        let request = ClaimRequest {
            item: item(),
            limit: 9,
            used: 1,
            held: None,
            need: 2,
            comfort: 3,
            is_wanting: true,
            seconds_left: 5,
        };
        let mut out = Vec::new();
        claim(&mut out, "hash", "p:", &caller, (600, true), &[request]);
        let words: Vec<&str> = std::str::from_utf8(&out).expect("text").split("\r\n").skip(2).step_by(2).collect();
        let key = format!("p:{}", item().name());
        let expected = [
            "EVALSHA",
            "hash",
            "4",
            "p:store",
            "p:hungers",
            "p:session:g",
            &key,
            "claim",
            "g",
            "s",
            "",
            "0",
            "600",
            "1",
            "9",
            "1",
            "?",
            "2",
            "3",
            "1",
            "172805",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn replies_are_those_of_the_script_or_none() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let array = |texts: &[&str]| Value::Array(texts.iter().map(|text| bulk(text)).collect());
        assert_eq!(read(&array(&["stale"]), "p:", 0), Ok(Reply::Stale));
        let superseded = Reply::Superseded { by: "s".to_owned() };
        assert_eq!(read(&array(&["superseded", "s"]), "p:", 0), Ok(superseded));
        assert_eq!(read(&array(&["open", "e", "3"]), "p:", 0), Ok(Reply::Open { epoch: "e".to_owned(), revision: 3 }));
        let hungers = [format!("5 p:{}", item().name()), "5 q:other".to_owned()];
        let hungers: Vec<&str> = hungers.iter().map(String::as_str).collect();
        let claim = |replies: &[&str]| Value::Array(vec![bulk("claim"), bulk("4"), array(replies), array(&hungers)]);
        let claimed = ClaimReply { allowed: 1, rest: 2, idle_elsewhere: 3, used_elsewhere: 4 };
        let reply =
            Reply::Claim { revision: 4, replies: vec![claimed], hungers: vec![Hunger { item: item(), need: 5 }] };
        assert_eq!(read(&claim(&["1 2 3 4"]), "p:", 1), Ok(reply));
        for bad in [claim(&[]), claim(&["1 2 3"]), claim(&["1 2 3 x"]), Value::Null, array(&[]), array(&["open"])] {
            assert_eq!(read(&bad, "p:", 1), Err(Malformed), "{bad:?}");
        }
    }
}
