//! Upstreams: endpoints, the lanes to them, their health and the breaker.
//!
//! The servers of an upstream are one concept ([`Endpoints`]): their addresses, health, breakers and discovery, the primary and its
//! replicas, the place of a key, and the choice of the next one with balance, ejection and slow start. How a server is spoken to
//! is another: shared and pinned lanes ([`Upstream`]), or lanes for one exchange at a time ([`ExclusiveUpstream`]). Both kinds of
//! lanes stand on the same endpoints.
//!
//! A **lane** is one upstream connection and the queue that pairs its replies with the sessions that wait for them.
//! A *shared* lane carries the requests of many clients, pipelined: all that one loop turn appends leaves in one send. A
//! *pinned* lane belongs to one client until its session state is gone. The protocol defines replies, the greeting of a
//! connection and the probe of a server: see [`LaneProtocol`].
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options that an operator may choose, with defaults and reasons |
//! | `protocol` | the traits: a greeting, questions to a server, frames on a lane; what a lane tells a session |
//! | `runs` | exchanges that wait; what one client pipelines is one entry |
//! | `requests` | the bytes of those that wait for a connection |
//! | `lane` | one connection: pairing, loss, back-pressure |
//! | `shared` | one shared lane over its reconnections, and the backlog that waits for it |
//! | `pinned` | the pool of pinned lanes and its waiters |
//! | `subscription` | lanes on which the server speaks unasked, to all clients of a worker |
//! | `exclusive` / `lent` | lanes that serve one exchange at a time; such a lane in the hands of its exchange |
//! | `member` / `idle` | one endpoint of those with its connections and who waits for one; connections that no exchange has |
//! | `room` | the connections that a pool has, and those that wait for one |
//! | `quota` | the connections that the pools of all workers may have to one endpoint |
//! | `bell` | how a worker calls the others |
//! | `pooled` | whole connections for one client at a time, key by key, with one limit for all workers |
//! | `carrier` / `draining` | connections that have room for several such lanes; those of them that end with their last lane |
//! | `balance` / `consistent` | which endpoint is next; which one has what stays together |
//! | `choice` | which endpoints may be next, by what is known of them |
//! | `acquiring` | a lane on its way to an exchange |
//! | `ejection` | endpoints that respond badly, and are left out for a while |
//! | `breaker` | when to stop trying |
//! | `health` | the active probe |
//! | `endpoint` / `endpoints` | one server: how it is reached and what is known of it; all of them, and which is next |
//! | `topology` | which endpoint holds a key; which one is the primary |
//! | `slots` / `discovery` | which node of a cluster has which slot; which servers there are |
//! | `replicas` / `zones` | which server replicates which, and which one is read from; servers in the gateway's zone |
//! | `upstream` | shared and pinned lanes of one named upstream on one worker |
//! | `metrics` | the cells this room writes |

#![forbid(unsafe_code)]

mod acquiring;
mod balance;
mod bell;
mod breaker;
mod carrier;
mod choice;
mod connect;
mod consistent;
mod discovery;
mod draining;
mod ejection;
mod endpoint;
mod endpoints;
mod exclusive;
mod exclusive_lane;
mod health;
mod idle;
mod lane;
mod member;
mod metrics;
mod pinned;
pub mod pooled;
mod protocol;
mod quota;
mod replicas;
mod requests;
mod room;
mod runs;
pub mod settings;
mod shared;
mod slots;
mod subscription;
mod topology;
mod upstream;
mod zones;

pub use acquiring::{Acquired, Acquiring};
pub use balance::{Balance, Latency};
pub use breaker::{Breaker, BreakerState};
pub use carrier::{Carrier, Multiplexer, NoCarrier, NoMultiplexer};
pub use choice::TriedEndpoints;
pub use consistent::affinity_hash;
pub use discovery::{Range, View};
pub use ejection::{ExchangeOutcome, ResponseVerdict};
pub use endpoint::EndpointShare;
pub use endpoints::{Endpoints, Retry, SelectionCriteria};
pub use exclusive::ExclusiveUpstream;
pub use exclusive_lane::{ExclusiveLane, Link};
pub use health::{ConnectionProbe, EndpointState, Health, Probe};
pub use idle::Remains;
pub use lane::Lane;
pub use metrics::UpstreamMetrics;
pub use protocol::{Directory, Frame, Handshake, LaneProtocol, Reply, Timing, Waiter};
pub use quota::Quota;
pub use runs::Exchange;
pub use shared::SharedLane;
pub use slots::SlotMap;
pub use subscription::{SubscriptionLane, SubscriptionSender};
pub use upstream::Upstream;
pub use weir_base::exchange::{FrameKind, LossCause, Refusal, Scan};
pub use weir_placement::{self as placement, NOBODY, Node};
