//! The one table of routes. The router, the OpenAPI document, the index and the rule of who needs a token
//! are all made from it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, patch, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::gateway::Gateway;
use crate::guard::{self, AdminAccess};
use crate::handlers::{self, Shared};
use crate::limits::{KEY_DEADLINE, READ_DEADLINE, RELOAD_DEADLINE, UPGRADE_DEADLINE};
use crate::problem::Problem;
use crate::status::{
    AiKeyChange, AiKeyIssued, AiKeyList, AiKeyRequest, AiKeyRotation, AiKeyStatus, AiRequestList, BigKeyList,
    ConnectionPage, DrainStatus, HotKeyList, ListenerList, ProbeResponse, ReloadOutcome, RouteList, SlowLogList,
    SlowLogReset, UpgradeOutcome, UpstreamList, VersionStatus, WorkerList,
};

/// The request that is matched against a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Reads; `HEAD` works too.
    Get,
    /// Makes or does something.
    Post,
    /// Changes a part of something.
    Patch,
    /// Removes something.
    Delete,
}

impl Verb {
    /// The method as the `Allow` header names it.
    pub(crate) fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            other => other.word(),
        }
    }

    /// The method as the index names it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// One operation of the API.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    pub(crate) path: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) summary: &'static str,
    /// True if it is served without a token even where one is set.
    pub(crate) open: bool,
    pub(crate) deadline: Duration,
    pub(crate) parameters: &'static [Parameter],
    /// The body that it takes; `None`: nothing, or an empty object.
    pub(crate) body: Option<SchemaOf>,
    pub(crate) responses: &'static [RouteResponse],
    handler: fn() -> MethodRouter<Shared>,
}

/// A query parameter.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) schema: SchemaOf,
}

/// One success status of a route and what comes with it. Problems are common to all routes.
pub(crate) struct RouteResponse {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    pub(crate) content: Content,
}

/// Body of a response.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Json(SchemaOf),
    Text,
    /// A problem that is no mistake of the caller in the form of its request.
    Problem,
}

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn json<T: JsonSchema>(status: u16, about: &'static str) -> RouteResponse {
    RouteResponse { status, about, content: Content::Json(schema_of::<T>) }
}

const fn text(about: &'static str) -> RouteResponse {
    RouteResponse { status: 200, about, content: Content::Text }
}

const fn problem(status: u16, about: &'static str) -> RouteResponse {
    RouteResponse { status, about, content: Content::Problem }
}

/// A guarded `GET` without parameters, which most routes are.
const fn read(
    path: &'static str,
    operation: &'static str,
    summary: &'static str,
    responses: &'static [RouteResponse],
    handler: fn() -> MethodRouter<Shared>,
) -> Route {
    Route {
        verb: Verb::Get,
        path,
        operation,
        summary,
        open: false,
        deadline: READ_DEADLINE,
        parameters: &[],
        body: None,
        responses,
        handler,
    }
}

const VERBOSE: &[Parameter] = &[Parameter {
    name: "verbose",
    about: "Adds the observation of each check. Ignored if `[admin]` sets a token and the request lacks it. \
            Any value is accepted.",
    schema: schema_of::<String>,
}];

const PROBE_RESPONSES: &[RouteResponse] =
    &[json::<ProbeResponse>(200, "Every check passes."), json::<ProbeResponse>(503, "At least one check fails.")];

const CONNECTION_PARAMETERS: &[Parameter] = &[
    Parameter { name: "limit", about: "Connections per page, 1 to 1000. Default 100.", schema: schema_of::<u32> },
    Parameter {
        name: "after",
        about: "Only connections with an id above this value: `next_after` of the previous page.",
        schema: schema_of::<u64>,
    },
    Parameter {
        name: "listener",
        about: "Only connections of the listener with this name.",
        schema: schema_of::<String>,
    },
    Parameter { name: "worker", about: "Only connections of the worker with this number.", schema: schema_of::<u32> },
];

const LIST_PARAMETERS: &[Parameter] =
    &[Parameter { name: "limit", about: "Maximum entries, 1 to 1000. Default 100.", schema: schema_of::<u32> }];

const KEY_PARAMETERS: &[Parameter] = &[
    Parameter { name: "limit", about: "Keys per page, 1 to 1000. Default 100.", schema: schema_of::<u32> },
    Parameter {
        name: "after",
        about: "Only keys with a name after this one: `next_after` of the previous page.",
        schema: schema_of::<String>,
    },
];

const REQUEST_PARAMETERS: &[Parameter] = &[
    Parameter { name: "limit", about: "Maximum requests, 1 to 1000. Default 100.", schema: schema_of::<u32> },
    Parameter { name: "key", about: "Only requests with the key of this name.", schema: schema_of::<String> },
    Parameter { name: "user", about: "Only requests of this end user.", schema: schema_of::<String> },
    Parameter { name: "agent", about: "Only requests of this agent.", schema: schema_of::<String> },
    Parameter { name: "conversation", about: "Only requests of this conversation.", schema: schema_of::<String> },
    Parameter { name: "tag", about: "Only requests with this tag.", schema: schema_of::<String> },
    Parameter {
        name: "model",
        about: "Only requests for this model, by the name that clients use or by the name of the provider.",
        schema: schema_of::<String>,
    },
    Parameter {
        name: "server",
        about: "Only messages to this MCP server or to this federation.",
        schema: schema_of::<String>,
    },
    Parameter { name: "tool", about: "Only calls of this tool.", schema: schema_of::<String> },
    Parameter { name: "method", about: "Only messages with this MCP or A2A method.", schema: schema_of::<String> },
    Parameter {
        name: "status",
        about: "Only requests with this status or class of status, such as 429 or 4xx.",
        schema: schema_of::<String>,
    },
    Parameter {
        name: "since",
        about: "Only requests that ended at or after this time: RFC 3339 in UTC, or seconds since 1970.",
        schema: schema_of::<String>,
    },
    Parameter {
        name: "bodies",
        about: "`true` adds the bodies, if the listener has `recent_body_bytes_max`, without known forms of secrets.",
        schema: schema_of::<bool>,
    },
];

const NO_SUCH_KEY: RouteResponse = problem(404, "There is no key with this name.");
const KEY_REFUSED: RouteResponse =
    problem(409, "The key is in the configuration file, `[ai] state` is missing, or another process serves.");
const BAD_KEY: RouteResponse = problem(400, "The body is not a valid key.");

/// Every route of the server.
pub(crate) const ROUTES: &[Route] = &[
    Route { open: true, ..read("/", "index", "This list.", &[text("One line per path.")], || get(handlers::index)) },
    Route {
        open: true,
        parameters: VERBOSE,
        ..read("/livez", "livez", "Liveness of the process. Restart it if this check fails.", PROBE_RESPONSES, || {
            get(handlers::livez)
        })
    },
    Route {
        open: true,
        parameters: VERBOSE,
        ..read("/readyz", "readyz", "Readiness of the process for traffic.", PROBE_RESPONSES, || get(handlers::readyz))
    },
    Route {
        open: true,
        parameters: VERBOSE,
        ..read("/startupz", "startupz", "Completion of the start of the process.", PROBE_RESPONSES, || {
            get(handlers::startupz)
        })
    },
    read(
        "/metrics",
        "metrics",
        "Metrics of the gateway and the process as Prometheus text.",
        &[text("Prometheus text exposition format 0.0.4.")],
        || get(handlers::metrics),
    ),
    read(
        "/api/v1/version",
        "version",
        "Version, build and uptime of the gateway.",
        &[json::<VersionStatus>(200, "The version, the build and the uptime.")],
        || get(handlers::version),
    ),
    read(
        "/api/v1/config",
        "config",
        "The configuration in force, with secrets redacted.",
        &[json::<serde_json::Map<String, serde_json::Value>>(
            200,
            "The configuration, with the schema of the file (`weir check --schema`).",
        )],
        || get(handlers::config),
    ),
    read(
        "/api/v1/listeners",
        "listeners",
        "Listeners with their connections, requests, refusals and latencies.",
        &[json::<ListenerList>(200, "Every listener.")],
        || get(handlers::listeners),
    ),
    read(
        "/api/v1/upstreams",
        "upstreams",
        "Upstreams with health, circuit breaker and connections of each endpoint.",
        &[json::<UpstreamList>(200, "Every upstream.")],
        || get(handlers::upstreams),
    ),
    read(
        "/api/v1/routes",
        "routes",
        "Routes of HTTP listeners with their state and their mistakes.",
        &[json::<RouteList>(200, "Every route.")],
        || get(handlers::routes),
    ),
    read(
        "/api/v1/workers",
        "workers",
        "Workers with their connections, CPU time and driver.",
        &[json::<WorkerList>(200, "Every worker.")],
        || get(handlers::workers),
    ),
    Route {
        parameters: CONNECTION_PARAMETERS,
        ..read(
            "/api/v1/connections",
            "connections",
            "Client connections by id, in pages, with the reason for each pin.",
            &[json::<ConnectionPage>(200, "One page.")],
            || get(handlers::connections),
        )
    },
    Route {
        parameters: LIST_PARAMETERS,
        ..read(
            "/api/v1/hot-keys",
            "hotKeys",
            "Keys with the most requests at the moment, over all workers.",
            &[json::<HotKeyList>(200, "The keys, most requests first.")],
            || get(handlers::hot_keys),
        )
    },
    Route {
        parameters: LIST_PARAMETERS,
        ..read(
            "/api/v1/big-keys",
            "bigKeys",
            "Keys with the largest requests and replies of the last ten minutes.",
            &[json::<BigKeyList>(200, "The keys, largest first.")],
            || get(handlers::big_keys),
        )
    },
    Route {
        parameters: LIST_PARAMETERS,
        ..read(
            "/api/v1/slow-log",
            "slowLog",
            "Slow requests, with their command and the parts of their duration.",
            &[json::<SlowLogList>(200, "The requests, newest first.")],
            || get(handlers::slow_log),
        )
    },
    Route {
        verb: Verb::Post,
        ..read(
            "/api/v1/slow-log/reset",
            "resetSlowLog",
            "Empty the slow logs of all workers.",
            &[json::<SlowLogReset>(200, "The slow logs are empty.")],
            || post(handlers::reset_slow_log),
        )
    },
    Route {
        parameters: KEY_PARAMETERS,
        ..read(
            "/api/v1/ai/keys",
            "aiKeys",
            "Keys of AI clients with their policies, states and budgets, without secrets and hashes.",
            &[json::<AiKeyList>(200, "One page.")],
            || get(handlers::ai::keys),
        )
    },
    Route {
        verb: Verb::Post,
        deadline: KEY_DEADLINE,
        body: Some(schema_of::<AiKeyRequest>),
        ..read(
            "/api/v1/ai/keys",
            "createAiKey",
            "Issue a key. Only this response shows its secret.",
            &[json::<AiKeyIssued>(201, "The key is valid on every worker from now on."), BAD_KEY, KEY_REFUSED],
            || post(handlers::ai::create_key),
        )
    },
    read(
        "/api/v1/ai/keys/{name}",
        "aiKey",
        "The keys with this name.",
        &[json::<AiKeyList>(200, "The keys in the configuration file, and the issued key."), NO_SUCH_KEY],
        || get(handlers::ai::key),
    ),
    Route {
        verb: Verb::Patch,
        deadline: KEY_DEADLINE,
        body: Some(schema_of::<AiKeyChange>),
        ..read(
            "/api/v1/ai/keys/{name}",
            "changeAiKey",
            "Change the policy, the state or the expiry of an issued key.",
            &[json::<AiKeyStatus>(200, "The change applies to the next request."), BAD_KEY, NO_SUCH_KEY, KEY_REFUSED],
            || patch(handlers::ai::change_key),
        )
    },
    Route {
        verb: Verb::Delete,
        deadline: KEY_DEADLINE,
        ..read(
            "/api/v1/ai/keys/{name}",
            "deleteAiKey",
            "Delete an issued key. A later key with the same name continues its budgets.",
            &[json::<AiKeyStatus>(200, "The key before its deletion."), NO_SUCH_KEY, KEY_REFUSED],
            || delete(handlers::ai::delete_key),
        )
    },
    Route {
        verb: Verb::Post,
        deadline: KEY_DEADLINE,
        body: Some(schema_of::<AiKeyRotation>),
        ..read(
            "/api/v1/ai/keys/{name}/rotate",
            "rotateAiKey",
            "Replace the secret of an issued key. The old secret can stay valid for a limited time.",
            &[json::<AiKeyIssued>(200, "Only this response shows the new secret."), BAD_KEY, NO_SUCH_KEY, KEY_REFUSED],
            || post(handlers::ai::rotate_key),
        )
    },
    Route {
        parameters: REQUEST_PARAMETERS,
        ..read(
            "/api/v1/ai/requests",
            "aiRequests",
            "Recent requests to language models, MCP servers and agents, with keys, tokens, cost and latencies.",
            &[json::<AiRequestList>(200, "The requests, newest first.")],
            || get(handlers::ai::requests),
        )
    },
    Route {
        verb: Verb::Post,
        ..read(
            "/api/v1/drain",
            "drain",
            "Begin to drain, or get the progress of the drain.",
            &[json::<DrainStatus>(202, "The process drains.")],
            || post(handlers::drain),
        )
    },
    Route {
        verb: Verb::Post,
        deadline: RELOAD_DEADLINE,
        ..read(
            "/api/v1/reload",
            "reload",
            "Read the configuration file again and apply it if it is valid.",
            &[
                json::<ReloadOutcome>(200, "The configuration was applied, or has no changes."),
                json::<ReloadOutcome>(422, "Rejected, with all mistakes. The last valid configuration stays in force."),
            ],
            || post(handlers::reload),
        )
    },
    Route {
        verb: Verb::Post,
        deadline: UPGRADE_DEADLINE,
        ..read(
            "/api/v1/upgrade",
            "upgrade",
            "Start a new process of the program, pass the sockets to it, and drain when it serves.",
            &[
                json::<UpgradeOutcome>(
                    200,
                    "The new process serves, and will receive the next request to this address.",
                ),
                json::<UpgradeOutcome>(
                    409,
                    "Refused: another upgrade is in progress, or this process cannot be upgraded.",
                ),
                json::<UpgradeOutcome>(422, "The new process failed to serve. This process continues to serve."),
            ],
            || post(handlers::upgrade),
        )
    },
    read(
        "/api/v1/openapi.json",
        "openapi",
        "This API as an OpenAPI 3.1 document.",
        &[json::<serde_json::Map<String, serde_json::Value>>(200, "The document.")],
        || get(handlers::openapi),
    ),
];

impl Route {
    /// True if the path is one of this route: equal segment by segment, where `{name}` stands for any.
    pub(crate) fn takes(&self, path: &str) -> bool {
        let (mut own, mut sent) = (self.path.split('/'), path.split('/'));
        loop {
            match (own.next(), sent.next()) {
                (None, None) => return true,
                (Some(own), Some(sent)) if own == sent || (own.starts_with('{') && !sent.is_empty()) => {}
                _ => return false,
            }
        }
    }
}

/// True if this exact path is served without a token. A path that is not in the table is not open.
pub(crate) fn is_open(path: &str) -> bool {
    ROUTES.iter().any(|route| route.open && route.path == path)
}

/// The router of a server.
pub(crate) fn router(access: AdminAccess, gateway: Arc<dyn Gateway>) -> Router {
    let shared = Shared::new(access, gateway);
    let mut router = Router::new();
    for route in ROUTES {
        let bounded = middleware::from_fn_with_state(route.deadline, bounded);
        router = router.route(route.path, (route.handler)().layer(bounded));
    }
    router
        .fallback(handlers::not_found)
        .method_not_allowed_fallback(handlers::method_not_allowed)
        .layer(middleware::from_fn_with_state(shared.clone(), guard::guard))
        .with_state(shared)
}

/// Middleware: a response within the route's deadline, or 504.
async fn bounded(State(deadline): State<Duration>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(deadline, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "deadline",
            format!("no response within {} s", deadline.as_secs()),
            "send the request again; if it fails again, /livez?verbose and /api/v1/workers show stalled workers",
        )
        .into_response(),
    }
}
