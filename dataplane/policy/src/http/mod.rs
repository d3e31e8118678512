//! What an HTTP listener or route asks of a request before it is forwarded.
//!
//! | file | question | the answer if not |
//! |---|---|---|
//! | `address` | does it come from where it may? Also: whose request is it, behind trusted proxies | 403 |
//! | `cors` | is it a browser that asks first, and which fields do its answers carry (Fetch standard) | 204, without leave |
//!
//! They are asked in this order, and authentication before the rate limit, so that a limit can count by who it is. All are
//! pure: bytes and the time in, an answer out. What a policy is made of is checked when it is built, on the control thread;
//! built, it does not change and is shared by all workers.
//!
//! A [`Refusal`] has a reason that is a word of this crate and never of the client, so it may be a metric label.

mod address;
mod cors;
mod refusal;

pub use address::{AddressError, AddressRules, Effect, ForwardedFor, HOPS_MAX, NETS_MAX, Source};
pub use cors::{Cors, CorsError, CorsSettings, LIST_ENTRIES_MAX, ORIGINS_MAX, OriginRule, Preflight, is_preflight};
pub use refusal::Refusal;
