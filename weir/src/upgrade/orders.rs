//! Orders of operators that outlive the process: they go to the new one with the order to serve, in as many messages as they need.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_engine::handover::MESSAGE_BYTES_MAX;

use super::message::Message;

/// Bytes of the orders of one message. The largest order is a command of the console, some 16 KiB.
const PART_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;

/// An order that holds. Names of databases are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub enum Order {
    /// PAUSE of a database; `None`: of all.
    Pause {
        /// The name of the upstream.
        upstream: String,
        /// Its database.
        database: Option<Vec<u8>>,
    },
    /// DISABLE.
    Disable {
        /// The address of the listener.
        bind: String,
        /// Its database.
        database: Vec<u8>,
    },
    /// SET.
    Set {
        /// The address of the listener.
        bind: String,
        /// The name of the setting.
        setting: String,
        /// Its value; `None`: no limit.
        value: Option<Duration>,
    },
}

/// The databases of an upstream that PAUSE stops, as the order to serve has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The name of the upstream.
    pub upstream: String,
    /// All its databases.
    pub is_all: bool,
    /// Names of databases, as bytes.
    pub databases: Vec<Vec<u8>>,
}

impl Pause {
    /// Its orders, one for each database.
    pub fn orders(self) -> impl Iterator<Item = Order> {
        let Self { upstream, is_all, databases } = self;
        let all = is_all.then_some(None);
        let databases = all.into_iter().chain(databases.into_iter().map(Some));
        databases.map(move |database| Order::Pause { upstream: upstream.clone(), database })
    }
}

/// The order to serve, and the messages that follow it with the orders for which it has no room. A program that knows pauses alone gets as
/// many of them as fit into the first message.
pub fn order_to_serve(orders: Vec<Order>) -> (Message, Vec<Message>) {
    let (pauses, others): (Vec<_>, Vec<_>) = orders.into_iter().partition(|order| matches!(order, Order::Pause { .. }));
    let mut pauses = in_parts(pauses).into_iter();
    let first = grouped(pauses.next().unwrap_or_default());
    let rest: Vec<_> = pauses.chain(in_parts(others)).map(|orders| Message::Orders { orders }).collect();
    (Message::Take { pauses: first, more: rest.len() as u32 }, rest)
}

/// Pauses by upstream.
fn grouped(orders: Vec<Order>) -> Vec<Pause> {
    let mut pauses: Vec<Pause> = Vec::new();
    for order in orders {
        let Order::Pause { upstream, database } = order else { continue };
        let at = pauses.iter().position(|pause| pause.upstream == upstream).unwrap_or_else(|| {
            pauses.push(Pause { upstream, is_all: false, databases: Vec::new() });
            pauses.len() - 1
        });
        match database {
            Some(name) => pauses[at].databases.push(name),
            None => pauses[at].is_all = true,
        }
    }
    pauses
}

/// Parts that fit into a message each.
fn in_parts(orders: Vec<Order>) -> Vec<Vec<Order>> {
    let mut parts: Vec<Vec<Order>> = Vec::new();
    let mut room = 0;
    for order in orders {
        // With the comma behind it.
        let bytes = serde_json::to_vec(&order).map_or(PART_BYTES_MAX, |text| text.len() + 1);
        match parts.last_mut() {
            Some(part) if bytes <= room => part.push(order),
            _ => {
                parts.push(vec![order]);
                room = PART_BYTES_MAX;
            }
        }
        room = room.saturating_sub(bytes);
    }
    parts
}

#[cfg(test)]
mod tests {
    use weir_engine::handover::Channel;

    use super::*;

    fn pause(upstream: &str, database: &[u8]) -> Order {
        Order::Pause { upstream: upstream.to_owned(), database: Some(database.to_vec()) }
    }

    #[test]
    fn orders_of_any_number_and_length_fit_into_messages_and_none_is_lost() {
        let name = |number: usize| {
            // The longest command of a console now and then.
            let length = if number % 50 == 7 { 4_000 } else { 60 };
            [vec![0xff; length], number.to_string().into_bytes()].concat()
        };
        for count in [0, 1, 40, 600] {
            let pauses = (0..count).map(|number| pause(["main", "reports"][number % 2], &name(number)));
            let disables = (0..count).map(|number| Order::Disable { bind: "[::]:1".into(), database: name(number) });
            let all = Order::Pause { upstream: "main".into(), database: None };
            let set = Order::Set { bind: "[::]:1".into(), setting: "query_timeout".into(), value: None };
            let orders: Vec<_> = pauses.chain([all, set]).chain(disables).collect();
            let (first, rest) = order_to_serve(orders.clone());
            let (ours, theirs) = Channel::pair().expect("a pair");
            let theirs = Channel::from(theirs);
            let mut came = Vec::new();
            for (at, message) in std::iter::once(&first).chain(&rest).enumerate() {
                message.send(&ours, &[]).expect("it fits");
                let Ok(super::super::message::PeerEvent::Message(received, _)) =
                    super::super::message::receive(&theirs)
                else {
                    panic!("message {at} is lost")
                };
                match received {
                    Message::Take { pauses, more } => {
                        assert_eq!((at, more as usize), (0, rest.len()));
                        came.extend(pauses.into_iter().flat_map(Pause::orders));
                    }
                    Message::Orders { orders } => came.extend(orders),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(came.len(), orders.len());
            assert!(orders.iter().all(|order| came.contains(order)));
        }
    }

    #[test]
    fn few_pauses_come_with_the_order_to_serve_alone() {
        let (first, rest) = order_to_serve(vec![pause("main", b"a"), pause("reports", b"b"), pause("main", b"c")]);
        assert!(rest.is_empty());
        let Message::Take { pauses, more: 0 } = first else { panic!("{first:?}") };
        let names: Vec<_> = pauses.iter().map(|pause| (&*pause.upstream, pause.databases.len())).collect();
        assert_eq!(names, [("main", 2), ("reports", 1)]);
    }
}
