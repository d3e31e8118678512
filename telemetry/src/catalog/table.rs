//! The table. One line per metric, under the heading it is documented in.

use super::{Buckets, Family, Merge};

/// Classes of HTTP responses: five of statuses, `broken` and `aborted`.
pub const RESPONSE_CLASSES: [&str; 7] = ["1xx", "2xx", "3xx", "4xx", "5xx", "broken", "aborted"];

/// Declares the families, their indices and [`ALL`].
macro_rules! catalog {
    ($($section:literal {
        $($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal $(, $option:ident($value:expr))*;)*
    })*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Index { $($($id,)*)* Count }
        $($(
            #[doc = concat!("`", $name, "`: ", $help)]
            pub static $id: Family =
                Family::$kind((Index::$id as usize, $section), $name, &[$($label),*], $help)$(.$option($value))*;
        )*)*
        /// Every family, in the order of the documentation.
        pub static ALL: [&Family; Index::Count as usize] = [$($(&$id,)*)*];
    };
}

catalog! {
    "Client connections" {
        CONNECTIONS_OPEN = gauge "weir_connections_open" ["listener"] "Client connections open now.";
        CONNECTIONS_TOTAL = counter "weir_connections_total" ["listener"] "Client connections admitted.";
        CONNECTIONS_CLOSED = counter "weir_connections_closed_total" ["listener", "reason"] "Client connections that ended, by reason.";
        CONNECTIONS_REFUSED = counter "weir_connections_refused_total" ["listener", "reason"] "Client connections that a limit refused, by limit.";
        CONNECTIONS_MOVED = counter "weir_connections_moved_total" ["listener"] "Open client connections taken over from the previous process at an upgrade. `weir_connections_total` includes them.";
        CONNECTION_DURATION = histogram "weir_connection_duration_seconds" ["listener"] "Lifetime of client connections, recorded when they end.", buckets(Buckets::LIFETIME);
        CONNECTIONS_LIMIT = gauge "weir_connections_limit" [] "Maximum number of client connections of the process.", merged(Merge::Max);
        HANDOFFS = counter "weir_handoffs_total" ["listener"] "Client connections that one worker accepted and passed to a less loaded worker.";
        ACCEPT_ERRORS = counter "weir_accept_errors_total" ["listener", "class"] "Failed accepts of connections, by class: the connection was gone (`connection`), descriptors or memory ran out (`resource`), the socket is unusable (`fatal`).";
        TLS_HANDSHAKES_IN_FLIGHT = gauge "weir_tls_handshakes_in_flight" ["listener"] "Client TLS handshakes in progress.";
        TLS_HANDSHAKES = counter "weir_tls_handshakes_total" ["listener"] "Client TLS handshakes completed.";
        TLS_HANDSHAKE_FAILURES = counter "weir_tls_handshake_failures_total" ["listener", "reason"] "Client TLS handshakes that failed.";
        TLS_HANDSHAKE_DURATION = histogram "weir_tls_handshake_duration_seconds" ["listener"] "Duration of completed client TLS handshakes.";
        TLS_CERTIFICATE_EXPIRY = gauge "weir_tls_certificate_expiry_timestamp_seconds" ["listener", "certificate"] "Unix time at which a certificate of a listener or a certificate in its chain expires, whichever is first. The label `certificate` is the first host name of the certificate, or its subject if it has none.", merged(Merge::Min);
        PROXY_HEADERS = counter "weir_proxy_headers_total" ["listener", "outcome"] "Connections to a listener with PROXY protocol, by outcome of the header: `ok` or the reason for its failure.";
        AUTH_FAILURES = counter "weir_auth_failures_total" ["listener"] "Failed client authentications.";
        REDIS_LOGINS = counter "weir_redis_logins_total" ["listener", "user"] "Logins of users that the configuration of the listener names.";
        REDIS_ACL_DENIED = counter "weir_redis_acl_denied_total" ["listener", "user", "reason"] "Requests and logins that the rules or limits of a user refused, by reason: `command`, `key`, `channel`, `script`, `malformed` (the gateway cannot find the keys in the command), `rate`, `connections`.";
        CLIENT_READ_BYTES = counter "weir_client_read_bytes_total" ["listener"] "Bytes received from clients, without TLS overhead.";
        CLIENT_WRITTEN_BYTES = counter "weir_client_written_bytes_total" ["listener"] "Bytes sent to clients, without TLS overhead.";
    }
    "Requests" {
        REQUESTS_IN_FLIGHT = gauge "weir_requests_in_flight" ["listener"] "Requests in flight, from the complete request head to the end of the response.";
        REQUESTS_TOTAL = counter "weir_requests_total" ["listener", "class"] "Requests received, by class of command or HTTP method. Refused requests are included, invalid requests are not. Commands queued between MULTI and EXEC are part of the EXEC.";
        COMMAND_CALLS = counter "weir_command_calls_total" ["listener", "command"] "Redis requests by command; `unknown` for commands that the gateway does not know.";
        HTTP_RESPONSES = counter "weir_http_responses_total" ["listener", "code"] "HTTP responses to clients, by status; 0 for responses that did not begin or did not complete. The own responses of the gateway to gRPC calls are counted under their status in plain HTTP, and each WebSocket under 101.";
        HTTP_LISTENER_RESPONSES = counter "weir_http_listener_responses_total" ["listener", "class"] "HTTP responses to clients by class, including the own responses of the gateway. The share of errors is (`5xx` + `broken`) / (all classes except `aborted`).", series_each(RESPONSE_CLASSES.len());
        HTTP_ROUTE_RESPONSES = counter "weir_http_route_responses_total" ["listener", "route", "class"] "HTTP responses to clients by route and class, for listeners with at least one `[[route]]`. Requests that match no `[[route]]` have the route `default`. Routes of a listener beyond the first 256, and then also `default`, are counted as `other`.", series_each(RESPONSE_CLASSES.len());
        HTTP_ROUTE_DURATION = histogram "weir_http_route_request_duration_seconds" ["listener", "route"] "Duration of HTTP requests by route, for listeners with at least one `[[route]]`, measured as in `weir_request_duration_seconds`.", buckets(Buckets::REQUEST);
        GRPC_RESPONSES = counter "weir_grpc_responses_total" ["listener", "status"] "gRPC calls that ended, by gRPC status (`0` to `16`, else `other`), including calls that the gateway or the client ended.";
        HTTP_TUNNELS_OPEN = gauge "weir_http_tunnels_open" ["listener"] "WebSockets open now. Each WebSocket is one request in flight.";
        HTTP_TUNNELS_CLOSED = counter "weir_http_tunnels_closed_total" ["listener", "reason"] "WebSockets that ended, by reason.";
        WEBSOCKET_FRAMES = counter "weir_websocket_frames_total" ["listener", "sender"] "WebSocket frames forwarded, by sender: `client` or `origin`.";
        REPLY_ERRORS = counter "weir_reply_errors_total" ["listener", "kind"] "Error replies sent to clients, by the first word of the error.";
        REQUEST_DURATION = histogram "weir_request_duration_seconds" ["listener"] "Time from the complete request head to the last response byte written to the socket. Redis: from the entry into the queue of the upstream connection. PostgreSQL: from the demand for a server connection to its release. HTTP requests without a response are not recorded.", buckets(Buckets::REQUEST);
        REQUEST_UPSTREAM_DURATION = histogram "weir_request_upstream_duration_seconds" ["listener"] "Part of the request duration spent waiting for the upstream.", buckets(Buckets::REQUEST);
        REQUEST_OVERHEAD_DURATION = histogram "weir_request_overhead_duration_seconds" ["listener"] "Part of the request duration spent in the gateway: request minus upstream.", buckets(Buckets::REQUEST);
        REDIS_SLOW_REQUESTS = counter "weir_redis_slow_requests_total" ["listener"] "Redis requests that took, or were lost after, at least `telemetry.slow_log.slower_than`. Blocking and streamed commands are not counted.";
        POSTGRES_LOGINS = counter "weir_postgres_logins_total" ["listener", "database"] "PostgreSQL clients that logged in.";
        POSTGRES_QUERIES = counter "weir_postgres_queries_total" ["listener", "database"] "Query, Execute and FunctionCall messages sent to a server.";
        POSTGRES_TRANSACTIONS = counter "weir_postgres_transactions_total" ["listener", "database"] "Transactions that ended at a server, in every pool mode. A statement outside a transaction block is one transaction.";
        POSTGRES_SERVER_ASSIGNMENTS = counter "weir_postgres_server_assignments_total" ["listener", "database"] "Assignments of a server connection to a client.";
        POSTGRES_PARSES = counter "weir_postgres_parses_total" ["listener", "database", "side"] "Parse messages received from clients (`client`) and sent to servers (`server`).";
        POSTGRES_BINDS = counter "weir_postgres_binds_total" ["listener", "database"] "Bind messages received from clients.";
        POSTGRES_READ_BYTES = counter "weir_postgres_read_bytes_total" ["listener", "database"] "Bytes received from clients after their login.";
        POSTGRES_WRITTEN_BYTES = counter "weir_postgres_written_bytes_total" ["listener", "database"] "Bytes sent to clients while they held a server connection.";
        POSTGRES_TRANSACTION_SECONDS = counter "weir_postgres_transaction_seconds_total" ["listener", "database"] "Total time of transactions, from the assignment of the server connection. If the client keeps its server connection: from the first message of the transaction.";
        POSTGRES_QUERY_SECONDS = counter "weir_postgres_query_seconds_total" ["listener", "database"] "Total time that clients waited for replies, including the wait for a server connection.";
        POSTGRES_WAIT_SECONDS = counter "weir_postgres_wait_seconds_total" ["listener", "database"] "Total time that clients waited for a server connection, without waits that failed.";
        POSTGRES_SESSION_EVENTS = counter "weir_postgres_session_events_total" ["listener", "event"] "Events of PostgreSQL sessions. `replay`: the parameters of a session were set at a server. `eviction`: a prepared statement was closed because the server has too many. `heal`: a statement was prepared again after a change of its tables. `refusal`: the gateway itself sent an error. `pin`: a session was pinned to its server connection.";
        POSTGRES_RULES = counter "weir_postgres_rules_total" ["listener", "rule", "action"] "Statements that match a rule, counted at their Query or Parse message, by action: `deny`, `log`, `count`. The label `rule` is the name of the rule, or `read_only`, `statements_max`, `default`, or for statements that cannot be checked, `not_analysed` or `function_call`.";
        POSTGRES_SLOW = counter "weir_postgres_slow_statements_total" ["listener", "database"] "Statements that took at least `log_min_duration_statement` at their server.";
        POSTGRES_CANCELS = counter "weir_postgres_cancels_total" ["listener", "outcome"] "Cancel requests, by outcome: `forwarded` to the server; dropped because the client holds no server connection (`idle`), its source sends too many (`limited`) or no client has this key (`unknown`); `failed`, because the server could not be reached; `unconfirmed`, because the server did not confirm the request in time.";
        POSTGRES_LISTENERS = gauge "weir_postgres_listening_clients" ["listener"] "Clients that listen to channels through a shared server connection now.";
        POSTGRES_PAUSED = gauge "weir_postgres_paused_databases" ["listener"] "Databases stopped by PAUSE or KILL until RESUME. A command for all databases adds one. Listeners with the same upstream share its pauses.";
        POSTGRES_NOTIFICATIONS = counter "weir_postgres_notifications_total" ["listener"] "Notifications sent to clients that listen through a shared server connection, counted once per client.";
        POSTGRES_LISTEN_GAPS = counter "weir_postgres_listen_gaps_total" ["upstream", "endpoint"] "Losses of a shared server connection on which clients listen. Notifications sent until it is restored are lost. `weir_lanes_open` counts these connections with the kind `subscription`.";
        MONGODB_LOGINS = counter "weir_mongodb_logins_total" ["listener"] "MongoDB clients that logged in.";
        MONGODB_COMMANDS = counter "weir_mongodb_commands_total" ["listener", "database", "class"] "Commands of MongoDB clients for a server, by class: `read`, `write`, `ddl`, `transaction`, `session`, `connection`, `admin`, `dangerous`. The database is `other` beyond 64 names.";
        MONGODB_ERRORS = counter "weir_mongodb_error_replies_total" ["listener", "database", "class"] "Replies of MongoDB servers with `ok: 0`.";
        MONGODB_COMMAND_SECONDS = counter "weir_mongodb_command_seconds_total" ["listener", "database", "class"] "Total time of commands from their arrival to the end of their reply, including the wait for a server connection.";
        MONGODB_WAIT_SECONDS = counter "weir_mongodb_wait_seconds_total" ["listener", "database"] "Total time that MongoDB clients waited for a server connection, without waits that failed.";
        MONGODB_READ_BYTES = counter "weir_mongodb_read_bytes_total" ["listener", "database"] "Bytes of commands for a server.";
        MONGODB_WRITTEN_BYTES = counter "weir_mongodb_written_bytes_total" ["listener", "database"] "Bytes of replies of servers.";
        MONGODB_CURSORS = gauge "weir_mongodb_cursors" ["listener"] "Open cursors that any connection of their user may continue, without those of clients in load-balanced mode. Updated every 5 s.";
        MONGODB_TRANSACTIONS = gauge "weir_mongodb_transactions" ["listener"] "Transactions under way or committed within the last minute, without those of clients in load-balanced mode. Updated every 5 s.";
        MONGODB_CLEANUPS = counter "weir_mongodb_cleanups_total" ["listener", "kind", "outcome"] "Commands that the gateway sent for cursors (`cursor`) and transactions (`transaction`) that lost their client, by outcome: `done`; `server_gone`, `no_server` or `lost` without a reply; `dropped`, because too many waited.";
        MONGODB_INFLATED_BYTES = counter "weir_mongodb_inflated_bytes_total" ["listener", "compressor"] "Bytes of compressed messages of clients after inflating.";
        MONGODB_RULES = counter "weir_mongodb_rules_total" ["listener", "rule", "action"] "Commands that a rule fits, by action: `deny`, `observe`. The label `rule` is the name of the rule, or `dangerous`, `default`, `read_only` or `not_analysed`.";
        AI_REQUESTS = counter "weir_ai_requests_total" ["listener", "model"] "Requests that an AI listener sent to a provider, by the name of the model in the configuration; `any` if the configuration names no models.";
        AI_FLAGGED = counter "weir_ai_flagged_requests_total" ["listener", "model", "flag"] "Requests to AI providers whose tokens the gateway estimated in whole or in part (`estimated`), or whose response did not complete (`partial`). One request can have both flags.";
        AI_TOKENS = counter "weir_ai_tokens_total" ["listener", "model", "kind"] "AI tokens charged: `input`, including `cached_input`, `cache_write` and `audio_input`, and `output`, including `reasoning` and `audio_output`.";
        AI_COST = counter "weir_ai_cost_micros_total" ["listener", "model"] "Cost of AI requests at the configured prices, in millionths of the currency.";
        AI_FIRST_TOKEN = histogram "weir_ai_first_token_seconds" ["listener", "model"] "Time from the request head to the first event of an AI stream, or to the response head if the response is not a stream.", buckets(Buckets::REQUEST);
        AI_PER_OUTPUT_TOKEN = histogram "weir_ai_time_per_output_token_seconds" ["listener", "model"] "Time from the first bytes of an AI stream (a comment included) to its end, divided by the number of output tokens after the first. Only complete streams with at least two output tokens are recorded. The provider reports the tokens; if it does not, the gateway estimates them.", buckets(Buckets::REQUEST);
        AI_AGENT_MESSAGES = counter "weir_ai_agent_messages_total" ["listener", "protocol", "server", "method"] "Requests that an AI listener sent to an MCP server or A2A agent (`protocol`: `mcp`, `a2a`), by the method of their message: a method of the specification, `other`, `notification` or `response`; for a request without a message, `listen`, `end_session` or `card`. A message to a federation is counted for the federation and for each server that receives it.";
        AI_AGENT_CALLS = histogram "weir_ai_agent_call_seconds" ["listener", "protocol", "server"] "Time from the request head of a tool or agent call to the end of its response.", buckets(Buckets::REQUEST);
        AI_FEDERATION_FAILURES = counter "weir_ai_federation_failures_total" ["listener", "server", "reason"] "Requests (handshake, list, notification or end of a session) that a federation of MCP servers (`[[listener.ai.mcp_federation]]`) completed without one of its servers, by server and reason.";
        AI_CACHE_REQUESTS = counter "weir_ai_cache_requests_total" ["listener", "result"] "AI requests with a `cache_ttl` of their key or listener, by result: `hit`, `miss`, or `bypass` for a request that is never cached. The response has the result in `x-weir-cache`.";
        AI_CACHE_SAVED_TOKENS = counter "weir_ai_cache_saved_tokens_total" ["listener"] "Tokens of AI responses served from the cache, as the provider reported them for the original response.";
        AI_CACHE_EVICTIONS = counter "weir_ai_cache_evictions_total" ["reason"] "AI responses removed from the cache: to make room for others (`capacity`), or because a request found that their `cache_ttl` had passed (`expired`).";
        AI_CACHE_BYTES = gauge "weir_ai_cache_bytes" [] "Memory used by cached AI responses, including responses that are still being recorded. The maximum is `ai.cache_bytes_max`.";
        AI_DRAINS = counter "weir_ai_disconnect_drains_total" ["listener", "outcome"] "AI responses that the gateway continued to read after the client disconnected, to learn the token usage (`drain_on_disconnect`), by outcome: read to the end (`complete`) or not (`incomplete`).";
        FLAGS_REQUESTS = counter "weir_flags_requests_total" ["listener", "endpoint", "status"] "Responses of a flags listener, by endpoint (`none` for an unknown path) and class of status: `2xx`, `304`, `403`, `4xx`, `503` or `other`.";
        FLAGS_POLLS = counter "weir_flags_polls_total" ["listener", "result"] "Polls of the Unleash server or of the file of flags, and events of the server's stream, by result: `changed`, `unchanged`, `refused` (the server refuses the token), `failed`, or `garbage` (the response was refused whole). After the last three, the flags before stay.";
        FLAGS_POLL_AGE = gauge "weir_flags_poll_age_seconds" ["listener", "environment"] "Seconds since the last poll that showed the flags of an environment. After a start from a backup, they count from the last poll before the backup, or from the start if the backup does not name it. The environment of an offline listener is empty.", merged(Merge::Max);
        FLAGS_REVISION = gauge "weir_flags_revision" ["listener", "environment"] "Revision of the flags that an environment serves: the newest that the server has named, or one of the process if the server names none.", merged(Merge::Max);
        FLAGS_TOKENS = gauge "weir_flags_tokens" ["listener", "status"] "Tokens that a flags listener knows: `valid`, or `invalid` (remembered for 5 minutes).", merged(Merge::Max);
        FLAGS_STREAMS = gauge "weir_flags_streams" ["listener"] "Open streams of `/api/client/streaming`.", merged(Merge::Max);
        FLAGS_METRICS_BYTES = gauge "weir_flags_metrics_bytes" ["listener"] "Memory used by metrics of clients that wait for the next upload. The maximum is `metrics_bytes_max`.", merged(Merge::Max);
        FLAGS_METRICS_DROPPED = counter "weir_flags_metrics_dropped_total" ["listener", "reason"] "Metrics of clients that were dropped, by reason: `distant` hours and `no_room` for new sums, applications, and impact metrics or their values past `metrics_bytes_max` (or no upstream), `foreign` environment, `too_large` for an upload.";
        FLAGS_USAGE_WITHOUT_SERIES = counter "weir_flags_usage_without_series_total" ["listener"] "Counts of clients for a flag that `feature_toggle_usage_total` has no room for: there they are in the series of the application and flag `other`. The server gets them as they are.";
        REQUEST_STAGE_DURATION = histogram "weir_request_stage_duration_seconds" ["listener", "stage"] "Part of the request duration spent in the gateway, by stage. Only a share of the requests is timed (`telemetry.stage_sample`), so the series do not add up to `weir_request_overhead_duration_seconds`.";
    }
    "Limits and refusals" {
        SHED = counter "weir_shed_total" ["listener", "reason"] "Requests and logins that the gateway refused, by reason, such as a limit, no upstream connection, or a Redis command that is not permitted or cannot be routed.";
        HTTP_MIRRORED = counter "weir_http_mirrored_total" ["listener", "outcome"] "Copies of HTTP requests for a mirror upstream, by outcome: `ok` (complete response), `failed`, `unreachable`; not sent because too many copies were in flight (`in_flight`) or the body was too long (`body_too_long`).";
        HTTP_JWKS_FETCHES = counter "weir_http_jwks_fetches_total" ["listener", "outcome"] "Fetches of a JWKS (the keys that verify JWTs), by outcome: `ok` or `failed`.";
        HTTP_FAULTS = counter "weir_http_faults_total" ["listener", "kind"] "Faults that the `fault` of a route injected: `delay` or `abort`.";
        HTTP_DENIED = counter "weir_http_denied_total" ["listener", "reason"] "HTTP requests that a policy of the listener or route refused, by reason.";
        HTTP_TIMEOUTS = counter "weir_http_timeouts_total" ["listener", "reason"] "HTTP requests that a timeout ended while the gateway waited for the upstream. Before the response: `response_timeout`, `first_byte_timeout` (AI listeners) or `request_timeout`. Within the response: `response_timeout` or `idle_timeout` (AI listeners) after a pause, or `call_expired`.";
        AI_REFUSALS = counter "weir_ai_refusals_total" ["listener", "reason", "treatment"] "AI requests refused because of the key, its policy, a rate, a budget or the form of the body (`refused`), and AI requests that an observing policy would have refused (`observed`).";
        AI_JOURNAL_FAILING = gauge "weir_ai_journal_failing" [] "1 while writes to the journal of AI budgets or to the usage log fail, else 0. While the journal fails, the gateway refuses keys with a budget. While only the usage log fails, it refuses none until the journal is full. Present only with `ai.state`.", merged(Merge::Max);
        AI_STORE_IN_CONTACT = gauge "weir_ai_store_in_contact" [] "1 while the store of shared AI budgets responds, else 0. Also 0 while another process has the identity of this gateway. Present only with `ai.store`.", merged(Merge::Max);
        AI_STORE_CONTACT_AGE = gauge "weir_ai_store_contact_age_seconds" [] "Seconds since the last response of the store of shared AI budgets.", merged(Merge::Max);
        AI_STORE_CLAIMS = counter "weir_ai_store_claims_total" ["outcome"] "Claims on shared AI budgets, by outcome: `granted` by the store, `refused` because nothing was left, `given_back` for another gateway, or `expired` because the store did not respond.";
        AI_STORE_FAILURES = counter "weir_ai_store_failures_total" ["reason"] "Failed calls and connections to the store of shared AI budgets, by reason. `superseded`: another process has the identity of this gateway.";
        AI_STORE_EPOCHS = counter "weir_ai_store_epochs_total" [] "Restarts and data losses of the store of shared AI budgets. After each, this gateway restored its part of the data.";
        VIOLATIONS = counter "weir_violations_total" ["listener", "reason", "culprit"] "Violations of rules and limits, by reason and by the party at fault (`culprit`).";
        DEFENSIVE_CLOSES = counter "weir_defensive_closes_total" ["listener", "reason"] "Client connections that the gateway closed because of a violation of a rule or limit, or because of an internal error of the gateway (`internal_invariant`), by reason.";
        BUFFERED_BYTES = gauge "weir_buffered_bytes" [] "Bytes in buffers that count against the limit `limits.buffered_bytes`.";
        BUFFERED_LEASED_BYTES = gauge "weir_buffered_leased_bytes" [] "Bytes of the limit `limits.buffered_bytes` that workers have reserved, used or not.";
        BUFFERED_LIMIT_BYTES = gauge "weir_buffered_limit_bytes" [] "Maximum number of bytes in buffers of the process (`limits.buffered_bytes`).", merged(Merge::Max);
    }
    "Load and knee" {
        LISTENER_OFFERED = gauge "weir_listener_offered_requests_per_second" ["listener"] "Requests received per second over the last 2 s, including refused requests. Present only for listeners with a `knee`.", merged(Merge::Max);
        LISTENER_KNEE = gauge "weir_listener_knee_requests_per_second" ["listener"] "Requests per second that the listener is known to carry: the clean knee in the file that `knee` names.", merged(Merge::Max);
        LISTENER_KNEE_LOAD = gauge "weir_listener_knee_load_ratio" ["listener"] "Offered load divided by the knee; above 1 if the load exceeds the knee.", merged(Merge::Max);
    }
    "Upstreams" {
        LANES_OPEN = gauge "weir_lanes_open" ["upstream", "endpoint", "kind"] "Upstream connections open now.";
        LANE_CONNECTS = counter "weir_lane_connects_total" ["upstream", "endpoint", "kind"] "Upstream connections established, handshake included.";
        LANE_CONNECT_FAILURES = counter "weir_lane_connect_failures_total" ["upstream", "endpoint", "reason"] "Failed attempts to connect to an endpoint, by reason.";
        LANE_CONNECT_DURATION = histogram "weir_lane_connect_duration_seconds" ["upstream", "endpoint"] "Time to establish an upstream connection, handshake included.";
        LANE_CLOSES = counter "weir_lane_closes_total" ["upstream", "endpoint", "reason"] "Upstream connections that ended, by reason.";
        LANE_MOVES = counter "weir_lane_moves_total" ["upstream", "endpoint"] "Upstream connections moved to another worker because a client there waited for one.";
        LANE_REQUESTS_IN_FLIGHT = gauge "weir_lane_requests_in_flight" ["upstream", "endpoint"] "Requests sent to an upstream for which the response is not complete.";
        LANE_POOL_WAITERS = gauge "gateway_lane_pool_waiters" ["upstream", "endpoint"] "Requests or clients that wait for an upstream connection now.";
        LANE_POOL_ACQUIRE_WAIT = histogram "gateway_lane_pool_acquire_wait_seconds" ["upstream", "endpoint"] "Time that requests or clients waited for an upstream connection.", buckets(Buckets::REQUEST);
        PINS = counter "weir_pins_total" ["upstream", "endpoint", "reason"] "Sessions that were pinned to an upstream connection of their own, by the state that required it.";
        PINNED_SESSIONS = gauge "weir_pinned_sessions" ["upstream", "endpoint"] "Sessions pinned to an upstream connection of their own now.";
        UPSTREAM_REQUESTS = counter "weir_upstream_requests_total" ["upstream", "endpoint"] "Requests sent to an upstream, retries included.";
        UPSTREAM_ERRORS = counter "weir_upstream_errors_total" ["upstream", "endpoint", "reason"] "Requests that failed after the gateway sent them to an upstream, by reason. `violation`: the upstream violated the protocol. `retired`: the gateway closed the connection.";
        HTTP_UPSTREAM_RESPONSES = counter "weir_http_upstream_responses_total" ["upstream", "endpoint", "class"] "HTTP responses of an endpoint, by class. Responses after which the gateway retried the request are included.", series_each(RESPONSE_CLASSES.len());
        HTTP_UPSTREAM_FIRST_BYTE = histogram "weir_http_upstream_first_byte_duration_seconds" ["upstream", "endpoint"] "Time from the end of a request to an HTTP endpoint to the head of the response.", buckets(Buckets::REQUEST);
        UPSTREAM_READ_BYTES = counter "weir_upstream_read_bytes_total" ["upstream", "endpoint"] "Bytes received from upstreams, without TLS overhead.";
        UPSTREAM_WRITTEN_BYTES = counter "weir_upstream_written_bytes_total" ["upstream", "endpoint"] "Bytes sent to upstreams, without TLS overhead.";
        ENDPOINT_UP = gauge "weir_endpoint_up" ["upstream", "endpoint"] "1 if the endpoint is healthy for every worker, else 0.", merged(Merge::Min);
        ENDPOINT_CHANGES = counter "weir_endpoint_health_changes_total" ["upstream", "endpoint", "state"] "Changes of the health of an endpoint, by new state, counted for each worker.";
        HEALTH_CHECKS = counter "weir_health_checks_total" ["upstream", "endpoint", "outcome"] "Active health checks, by outcome: `ok` or `failed`.";
        BREAKER_STATE = gauge "weir_breaker_state" ["upstream", "endpoint"] "State of the circuit breaker: 0 closed, 1 half open, 2 open. The highest state of all workers.", merged(Merge::Max);
        BREAKER_OPENED = counter "weir_breaker_opened_total" ["upstream", "endpoint"] "Number of times that a circuit breaker opened.";
        ENDPOINT_EJECTIONS = counter "weir_endpoint_ejections_total" ["upstream", "endpoint"] "Number of times that a worker ejected an endpoint because of failed requests, including requests with a 502, 503 or 504 response.";
        REDIRECTS = counter "weir_redirects_total" ["upstream", "kind"] "Redis Cluster requests that the gateway sent again because their node did not serve them: to another node (`moved`, `ask`), or after a pause (`later`).";
        RETRIES = counter "weir_retries_total" ["upstream", "endpoint", "outcome"] "Retried requests, by the reason for the retry. `unsent`: the connection was lost before the request was sent.";
    }
    "Publish and subscribe" {
        SUBSCRIBERS = gauge "weir_redis_subscribers" ["listener"] "Redis clients with subscriptions now.";
        SUBSCRIPTIONS = gauge "weir_redis_subscriptions" ["listener"] "Channels and patterns that Redis clients are subscribed to now, counted once per client.";
        MESSAGES_DELIVERED = counter "weir_redis_messages_delivered_total" ["listener"] "Published messages sent to subscribers, counted once per subscriber.";
        UPSTREAM_SUBSCRIPTIONS = gauge "weir_redis_upstream_subscriptions" ["upstream", "endpoint"] "Channels and patterns subscribed at an endpoint, counted once per worker.";
        SUBSCRIPTION_GAPS = counter "weir_redis_subscription_gaps_total" ["upstream", "endpoint"] "Interruptions of the subscriptions at an endpoint. Messages published during an interruption are lost.";
    }
    "Client-side caching" {
        TRACKING_CLIENTS = gauge "weir_redis_tracking_clients" ["listener"] "Clients with CLIENT TRACKING on now.";
        TRACKED_KEYS = gauge "weir_redis_tracked_keys" ["upstream"] "Keys that clients may have cached and that the gateway tracks, counted once per client.";
        INVALIDATIONS = counter "weir_redis_invalidations_total" ["listener"] "Invalidations of keys sent to clients, counted once per client. An invalidation of all keys counts one.";
        TRACKING_GAPS = counter "weir_redis_tracking_gaps_total" ["upstream", "endpoint"] "Number of times that a worker lost track of changed keys at an endpoint. All keys in the reply cache and at tracking clients are then invalidated.";
        CACHE_HITS = counter "weir_redis_cache_hits_total" ["listener"] "Requests served from the reply cache.";
        CACHE_MISSES = counter "weir_redis_cache_misses_total" ["listener"] "Cacheable requests that were sent to the server. Hit rate: hits / (hits + misses).";
        CACHE_INVALIDATED = counter "weir_redis_cache_invalidated_total" ["listener"] "Keys removed from the reply cache because they changed or may have changed.";
        CACHE_EVICTED = counter "weir_redis_cache_evicted_total" ["listener"] "Keys removed from the reply cache because it was full.";
        CACHE_BYTES = gauge "weir_redis_cache_bytes" ["listener"] "Memory used by the reply cache, including keys and bookkeeping.";
    }
    "Workers" {
        WORKER_CPU_SECONDS = counter "weir_worker_cpu_seconds_total" ["worker"] "CPU time of the worker thread.";
        WORKER_BUSY_RATIO = gauge "weir_worker_busy_ratio" ["worker"] "Share of a CPU that the worker used in the last 250 ms.";
        WORKER_LOOP_TURNS = counter "weir_worker_loop_turns_total" ["worker"] "Iterations of the event loop of the worker.";
        WORKER_CONNECTIONS = gauge "weir_worker_connections" ["worker"] "Client connections of the worker.";
        WORKER_MAILBOX_DEPTH = gauge "weir_worker_mailbox_depth" ["worker"] "Messages from other threads that the worker has not processed yet.";
        WORKER_STALLS = counter "weir_worker_stalls_total" ["worker"] "Number of times that one iteration of the event loop took longer than 5 s.";
        WORKER_DRIVER_INFO = gauge "weir_worker_driver_info" ["worker", "driver"] "Always 1. The label `driver` is the I/O driver in use.", merged(Merge::Max);
        WORKER_CONFIG_GENERATION = gauge "weir_worker_config_generation" ["worker"] "Generation of the configuration that the worker uses.", merged(Merge::Max);
    }
    "Configuration and drain" {
        CONFIG_GENERATION = gauge "weir_config_generation" [] "Generation of the published configuration, from 1 at start.", merged(Merge::Max);
        CONFIG_RELOADS = counter "weir_config_reloads_total" ["outcome"] "Requested reloads of the configuration, by outcome.";
        CONFIG_LAST_SUCCESS = gauge "weir_config_last_success_timestamp_seconds" [] "Unix time of the last successful load of the configuration.", merged(Merge::Max);
        CONFIG_RESTART_REQUIRED = gauge "weir_config_restart_required" [] "1 if the file has changes that need a restart, else 0.", merged(Merge::Max);
        DRAIN_STATE = gauge "weir_drain_state" [] "State of the drain: 0 serving, 1 settling, 2 draining, 3 drained.", merged(Merge::Max);
        DRAIN_CUT = counter "weir_drain_cut_total" ["listener", "cut"] "Connections and requests cut because they were open at the end of the drain timeout, or because an upgrade could not move the connection.";
        UPGRADES = counter "weir_upgrades_total" ["result"] "Upgrades of the program. `done` counts the upgrades that led to this process, and the upgrade that replaced it. `failed` and `refused` count upgrades after which this process continued to serve.";
        RESTART_EPOCH = gauge "weir_restart_epoch" [] "Number of upgrades that led to this process.", merged(Merge::Max);
    }
    "Telemetry itself" {
        LOG_DROPPED = counter "weir_log_events_dropped_total" ["worker"] "Log events and access log lines dropped because the log thread was too slow.";
        LABEL_OVERFLOWS = counter "weir_telemetry_label_overflows_total" ["family"] "Label sets counted under `other` because the metric reached its maximum number of label sets.";
        ADMIN_REQUESTS = counter "weir_admin_requests_total" ["route", "code"] "Requests to the admin server, by route and status.";
    }
    "Process" {
        PROCESS_CPU_SECONDS = counter "process_cpu_seconds_total" [] "User and system CPU time of the process.";
        PROCESS_RESIDENT_BYTES = gauge "process_resident_memory_bytes" [] "Resident memory of the process.", merged(Merge::Max);
        PROCESS_OPEN_FDS = gauge "process_open_fds" [] "Open file descriptors.", merged(Merge::Max);
        PROCESS_MAX_FDS = gauge "process_max_fds" [] "Maximum number of open file descriptors of the process.", merged(Merge::Max);
        PROCESS_START_TIME = gauge "process_start_time_seconds" [] "Unix time at which the process started.", merged(Merge::Max);
        BUILD_INFO = gauge "weir_build_info" ["version", "revision"] "Always 1. The labels identify the build.", merged(Merge::Max);
    }
}

/// Values each label can take.
pub const LABELS: &[(&str, &str)] = &[
    ("listener", "names of `[[listener]]` sections"),
    ("upstream", "names of `[[upstream]]` sections"),
    ("user", "names of the users of a listener"),
    (
        "database",
        "names of the databases of a PostgreSQL or MongoDB listener as clients write them; databases beyond the first 64 of a listener are `other`",
    ),
    ("endpoint", "addresses in `endpoints`; for requests for flags the endpoint of the Unleash API, and `none`"),
    ("environment", "environments of the tokens with which a flags listener fetches flags; empty without an upstream"),
    (
        "certificate",
        "first host names of the certificates of a listener; the subject of a certificate without host names",
    ),
    ("worker", "worker number, from 0"),
    ("driver", "`io_uring`, `io_uring_reduced`, `polling`"),
    ("command", "names in the command table, and `unknown`"),
    (
        "class",
        "for requests, the class of a Redis command (`read`, `write`, `local`, …) or of a MongoDB command (`read`, `write`, `ddl`, …), or the HTTP method (`get`, `post`, …, `other`); for accept errors `connection`, `resource`, `fatal`; for HTTP responses `1xx` to `5xx` by status (for a gRPC call, the HTTP status that corresponds to its gRPC status), `broken` if the response did not complete because of the upstream or the gateway, `aborted` if because of the client (it disconnected, did not read or broke a rule)",
    ),
    (
        "stage",
        "`parse`, `policy`, `lane_wait`, `encode`, `write`. HTTP has no `write`, and its `encode` is that of the last piece of a response. TCP has `parse` (the TLS hello) and `lane_wait` (the connection to the upstream). PostgreSQL and MongoDB have only `lane_wait` (the wait for a server connection)",
    ),
    (
        "kind",
        "for upstream connections `shared`, `pinned`, `subscription`, `tracking`, `exclusive`, `pooled`; for error replies the known first words of Redis errors in lower case, and `other`; for tokens `input` and `output` with their parts; for cleanups of MongoDB `cursor`, `transaction`",
    ),
    ("reason", "stable words of the program, never text of a client"),
    ("culprit", "`client`, `upstream`, `gateway`, `config`"),
    ("outcome", "`ok`, or a stable word for the result or failure"),
    (
        "result",
        "for upgrades `done`, `failed`, `refused`; for the AI response cache `hit`, `miss`, `bypass`; for polls of flags `changed`, `unchanged`, `refused`, `failed`, `garbage`",
    ),
    ("protocol", "protocol of agents: `mcp`, `a2a`"),
    ("server", "names of `[[listener.ai.mcp]]`, `[[listener.ai.mcp_federation]]` and `[[listener.ai.a2a]]` sections"),
    ("method", "methods of the MCP and A2A specifications, and a few fixed words; never text of a client"),
    ("state", "`up`, `down`"),
    ("cut", "`connection`, `request`"),
    ("family", "metric names"),
    ("route", "route patterns of the admin API; names of the routes of HTTP listeners, `default`, and `other`"),
    ("side", "`client` or `server`"),
    ("rule", "names of the rules of a PostgreSQL or MongoDB listener, and words for denials without a rule"),
    ("action", "`deny`, `log`, `count`, `observe`"),
    ("compressor", "`zstd`, `snappy`, `zlib`"),
    ("event", "stable words for events of PostgreSQL sessions"),
    ("code", "HTTP status codes"),
    ("sender", "sender of a WebSocket frame: `client`, `origin`"),
    (
        "status",
        "gRPC status of a call: `0` to `16`, else `other`; for requests for flags `2xx`, `304`, `403`, `4xx`, `503`, `other`; for tokens of flags `valid`, `invalid`",
    ),
    ("model", "names of the models of an AI listener in the configuration; `any` if it names no models"),
    ("flag", "`estimated`, `partial`"),
    ("treatment", "`refused`, `observed`"),
    ("version", "version of the build"),
    ("revision", "commit of the build"),
];
