//! Relations between the keys of HTTP, and the step to the routes of a listener.

mod domain;
pub(super) mod idle;
mod owners;
mod policy;
mod remedy;
mod route;
pub(super) mod shadow;
mod spelling;

pub(crate) use self::policy::cors_settings;
pub(super) use self::policy::rules;
pub(crate) use self::route::CheckedRoute;
pub use self::route::RouteObject;
pub(super) use self::route::{all as routes, objects, of_listener, valid};
