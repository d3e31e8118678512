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
        CONNECTIONS_CLOSED = counter "weir_connections_closed_total" ["listener", "reason"] "Client connections that ended, by why.";
        CONNECTIONS_REFUSED = counter "weir_connections_refused_total" ["listener", "reason"] "Client connections not admitted, by the limit that said no.";
        CONNECTIONS_MOVED = counter "weir_connections_moved_total" ["listener"] "Client connections that came open from the process before, at an upgrade; they count as admitted too.";
        CONNECTION_DURATION = histogram "weir_connection_duration_seconds" ["listener"] "Life of client connections, recorded when they end.", buckets(Buckets::LIFETIME);
        CONNECTIONS_LIMIT = gauge "weir_connections_limit" [] "Client connections the process may hold.", merged(Merge::Max);
        HANDOFFS = counter "weir_handoffs_total" ["listener"] "Connections accepted on one worker and handed to a less loaded one.";
        ACCEPT_ERRORS = counter "weir_accept_errors_total" ["listener", "class"] "Failed accepts, by what is to be done about them.";
        TLS_HANDSHAKES_IN_FLIGHT = gauge "weir_tls_handshakes_in_flight" ["listener"] "Client TLS handshakes under way.";
        TLS_HANDSHAKES = counter "weir_tls_handshakes_total" ["listener"] "Client TLS handshakes completed.";
        TLS_HANDSHAKE_FAILURES = counter "weir_tls_handshake_failures_total" ["listener", "reason"] "Client TLS handshakes that failed.";
        TLS_HANDSHAKE_DURATION = histogram "weir_tls_handshake_duration_seconds" ["listener"] "Duration of completed client TLS handshakes.";
        TLS_CERTIFICATE_EXPIRY = gauge "weir_tls_certificate_expiry_timestamp_seconds" ["listener", "certificate"] "Unix time at which a certificate that a listener shows, or one of its chain, expires; by its first host name.", merged(Merge::Min);
        PROXY_HEADERS = counter "weir_proxy_headers_total" ["listener", "outcome"] "PROXY protocol headers, by whether they were understood.";
        AUTH_FAILURES = counter "weir_auth_failures_total" ["listener"] "Failed client authentications.";
        REDIS_LOGINS = counter "weir_redis_logins_total" ["listener", "user"] "Logins of the users that the listener's configuration names.";
        REDIS_ACL_DENIED = counter "weir_redis_acl_denied_total" ["listener", "user", "reason"] "What a user's rules or limits refused: `command`, `key`, `channel`, `script`, `malformed` (keys that cannot be found), `rate`, `connections`.";
        CLIENT_READ_BYTES = counter "weir_client_read_bytes_total" ["listener"] "Bytes received from clients, above TLS.";
        CLIENT_WRITTEN_BYTES = counter "weir_client_written_bytes_total" ["listener"] "Bytes sent to clients, above TLS.";
    }
    "Requests" {
        REQUESTS_IN_FLIGHT = gauge "weir_requests_in_flight" ["listener"] "Exchanges between head complete and end of reply.";
        REQUESTS_TOTAL = counter "weir_requests_total" ["listener", "class"] "Requests received, by class of command, refused ones too but those that are wrong in themselves; what is queued between MULTI and EXEC is a part of its EXEC.";
        COMMAND_CALLS = counter "weir_command_calls_total" ["listener", "command"] "Requests by command; unknown commands are `unknown`.";
        HTTP_RESPONSES = counter "weir_http_responses_total" ["listener", "code"] "Responses to clients by the status that they were sent with; 0 for those that did not come to their end, or did not begin. The gateway's own to gRPC calls count by the status that they have over plain HTTP, and each WebSocket as 101.";
        HTTP_LISTENER_RESPONSES = counter "weir_http_listener_responses_total" ["listener", "class"] "Responses to clients by class, the gateway's own too. The share of errors is `5xx` and `broken` of all but `aborted`.", series_each(RESPONSE_CLASSES.len());
        HTTP_ROUTE_RESPONSES = counter "weir_http_route_responses_total" ["listener", "route", "class"] "As weir_http_listener_responses_total, by route, of listeners with routes; past 256 routes of a listener the rest is `other`.", series_each(RESPONSE_CLASSES.len());
        HTTP_ROUTE_DURATION = histogram "weir_http_route_request_duration_seconds" ["listener", "route"] "As weir_request_duration_seconds, by route.", buckets(Buckets::REQUEST);
        GRPC_RESPONSES = counter "weir_grpc_responses_total" ["listener", "status"] "Ends of gRPC calls by their status (`0` to `16`, else `other`), the gateway's own too.";
        HTTP_TUNNELS_OPEN = gauge "weir_http_tunnels_open" ["listener"] "WebSockets open now; each is one request in flight.";
        HTTP_TUNNELS_CLOSED = counter "weir_http_tunnels_closed_total" ["listener", "reason"] "WebSockets that have ended, by why.";
        WEBSOCKET_FRAMES = counter "weir_websocket_frames_total" ["listener", "sender"] "WebSocket frames passed on, by who sent them: `client` or `origin`.";
        REPLY_ERRORS = counter "weir_reply_errors_total" ["listener", "kind"] "Error replies sent to clients, by the first word of the error.";
        REQUEST_DURATION = histogram "weir_request_duration_seconds" ["listener"] "From the last byte of a request's head to its last reply byte handed to the socket; for Redis, from the queue of the request's connection. An HTTP request that gets no response is not in it.", buckets(Buckets::REQUEST);
        REQUEST_UPSTREAM_DURATION = histogram "weir_request_upstream_duration_seconds" ["listener"] "The part of a request spent waiting for the upstream.", buckets(Buckets::REQUEST);
        REQUEST_OVERHEAD_DURATION = histogram "weir_request_overhead_duration_seconds" ["listener"] "The part of a request spent in the gateway: request minus upstream.", buckets(Buckets::REQUEST);
        REDIS_SLOW_REQUESTS = counter "weir_redis_slow_requests_total" ["listener"] "Requests that took `telemetry.slow_log.slower_than` or longer, or were lost after so long; blocking commands and streamed ones do not count.";
        POSTGRES_LOGINS = counter "weir_postgres_logins_total" ["listener", "database"] "PostgreSQL clients that logged in.";
        POSTGRES_QUERIES = counter "weir_postgres_queries_total" ["listener", "database"] "Query, Execute and FunctionCall messages that went to a server.";
        POSTGRES_TRANSACTIONS = counter "weir_postgres_transactions_total" ["listener", "database"] "Transactions that ended at a server, in each pool mode; a statement outside of a block is one.";
        POSTGRES_SERVER_ASSIGNMENTS = counter "weir_postgres_server_assignments_total" ["listener", "database"] "Times that a client got a server.";
        POSTGRES_PARSES = counter "weir_postgres_parses_total" ["listener", "database", "side"] "Parse messages: of clients (`client`), and those that went to servers (`server`).";
        POSTGRES_BINDS = counter "weir_postgres_binds_total" ["listener", "database"] "Bind messages of clients.";
        POSTGRES_READ_BYTES = counter "weir_postgres_read_bytes_total" ["listener", "database"] "Bytes received from clients after their login.";
        POSTGRES_WRITTEN_BYTES = counter "weir_postgres_written_bytes_total" ["listener", "database"] "Bytes sent to clients while they had a server.";
        POSTGRES_TRANSACTION_SECONDS = counter "weir_postgres_transaction_seconds_total" ["listener", "database"] "Time of transactions, from their server or, for a client that keeps its server, from their first message on.";
        POSTGRES_QUERY_SECONDS = counter "weir_postgres_query_seconds_total" ["listener", "database"] "Time for which clients waited for replies, the wait for a server included.";
        POSTGRES_WAIT_SECONDS = counter "weir_postgres_wait_seconds_total" ["listener", "database"] "Time for which clients waited for a server that they got.";
        POSTGRES_SESSION_EVENTS = counter "weir_postgres_session_events_total" ["listener", "event"] "Sessions whose parameters were set at a server (`replay`), prepared statements closed because a server has too many (`eviction`), statements prepared again after a change of their tables (`heal`), errors of the gateway's own (`refusal`), sessions that began to keep their server (`pin`).";
        POSTGRES_RULES = counter "weir_postgres_rules_total" ["listener", "rule", "action"] "Statements that a rule fits, counted at their Query or Parse: `deny`, `log`, `count`. Besides the names of rules: `read_only`, `statements_max`, `default`, and what cannot be checked (`not_analysed`, `function_call`).";
        POSTGRES_SLOW = counter "weir_postgres_slow_statements_total" ["listener", "database"] "Statements that took `log_min_duration_statement` or longer at their server.";
        POSTGRES_CANCELS = counter "weir_postgres_cancels_total" ["listener", "outcome"] "Cancel requests: `forwarded` to the server; dropped, as the client holds none (`idle`), its source sends too many (`limited`) or its key is none of a client (`unknown`); `failed`, as the server could not be reached; `unconfirmed`, as it did not say in time that it has the request.";
        POSTGRES_LISTENERS = gauge "weir_postgres_listening_clients" ["listener"] "Clients that listen to channels through the connection of all clients now.";
        POSTGRES_PAUSED = gauge "weir_postgres_paused_databases" ["listener"] "Databases that PAUSE or KILL stops now, until RESUME; an order for all databases counts as one more. Listeners with one upstream have its pauses in common.";
        POSTGRES_NOTIFICATIONS = counter "weir_postgres_notifications_total" ["listener"] "Notifications given to such clients, counted for each of them.";
        POSTGRES_LISTEN_GAPS = counter "weir_postgres_listen_gaps_total" ["upstream", "endpoint"] "Times that the connection which listens for all clients was lost: notifications of that moment are lost. The connections themselves are in `weir_lanes_open` as `subscription`.";
        AI_REQUESTS = counter "weir_ai_requests_total" ["listener", "model"] "Requests that an AI listener sent to a provider, by the model as the configuration names it; `any` without models there.";
        AI_FLAGGED = counter "weir_ai_flagged_requests_total" ["listener", "model", "flag"] "Of these, requests whose tokens are not all reported by their provider: counted here (`estimated`), or of a response that did not come to its end (`partial`).";
        AI_TOKENS = counter "weir_ai_tokens_total" ["listener", "model", "kind"] "Tokens as they were charged: `input` with its parts `cached_input`, `cache_write` and `audio_input`; `output` with `reasoning` and `audio_output`.";
        AI_COST = counter "weir_ai_cost_micros_total" ["listener", "model"] "Cost by the prices of the configuration, in millionths of their currency.";
        AI_FIRST_TOKEN = histogram "weir_ai_first_token_seconds" ["listener", "model"] "From the head of a request to the first event of its stream, or to the head of a response that is no stream.", buckets(Buckets::REQUEST);
        AI_PER_OUTPUT_TOKEN = histogram "weir_ai_time_per_output_token_seconds" ["listener", "model"] "From the first bytes of a stream, a comment included, to its end, for each output token behind the first. Streams that came to their end with two output tokens or more count, by the report of the provider, or by estimate without one.", buckets(Buckets::REQUEST);
        AI_AGENT_MESSAGES = counter "weir_ai_agent_messages_total" ["listener", "protocol", "server", "method"] "Requests that an AI listener sent to a server of MCP or an agent of A2A (`protocol`: mcp, a2a), by the method of their message: those of the specifications, `other`, `notification`, `response`; without a message `listen`, `end_session` or `card`. A message to several servers under one name counts for that name, and for each server that gets it.";
        AI_AGENT_CALLS = histogram "weir_ai_agent_call_seconds" ["listener", "protocol", "server"] "From the head of a call of a tool or an agent to the end of its response.", buckets(Buckets::REQUEST);
        AI_FEDERATION_FAILURES = counter "weir_ai_federation_failures_total" ["listener", "server", "reason"] "Requests for which a federation of MCP servers (`[[listener.ai.mcp_federation]]`) did without one of its servers: a handshake, a list, a notification or the end of a session.";
        AI_CACHE_REQUESTS = counter "weir_ai_cache_requests_total" ["listener", "result"] "Requests of keys and listeners with `cache_ttl`, by `x-weir-cache`: `hit`, `miss`, or `bypass` for a request that is never cached.";
        AI_CACHE_SAVED_TOKENS = counter "weir_ai_cache_saved_tokens_total" ["listener"] "Tokens that providers reported for responses when they were stored, once for each request that the cache then served.";
        AI_CACHE_EVICTIONS = counter "weir_ai_cache_evictions_total" ["reason"] "Responses that left the cache: for others (`capacity`), or since their `cache_ttl` had passed when a request looked for them (`expired`).";
        AI_CACHE_BYTES = gauge "weir_ai_cache_bytes" [] "Memory of stored responses and of those that are being recorded. At most `ai.cache_bytes_max`.";
        AI_DRAINS = counter "weir_ai_disconnect_drains_total" ["listener", "outcome"] "Responses that were read on after their client had left, for their usage (`drain_on_disconnect`): to their end (`complete`), or not (`incomplete`).";
        REQUEST_STAGE_DURATION = histogram "weir_request_stage_duration_seconds" ["listener", "stage"] "The overhead by stage.";
    }
    "Limits and refusals" {
        SHED = counter "weir_shed_total" ["listener", "reason"] "Requests refused before any work was done, by the limit that said no.";
        HTTP_MIRRORED = counter "weir_http_mirrored_total" ["listener", "outcome"] "Copies of HTTP requests for a second upstream: answered (ok), failed, unreachable, or not made: in_flight, body_too_long.";
        HTTP_JWKS_FETCHES = counter "weir_http_jwks_fetches_total" ["listener", "outcome"] "Fetches of the keys of tokens: ok, failed.";
        HTTP_FAULTS = counter "weir_http_faults_total" ["listener", "kind"] "Failures made on purpose by the `fault` of a route: delay, abort.";
        HTTP_DENIED = counter "weir_http_denied_total" ["listener", "reason"] "HTTP requests that a policy of their listener or route refused, by the reason of the refusal.";
        HTTP_TIMEOUTS = counter "weir_http_timeouts_total" ["listener", "reason"] "HTTP exchanges that a deadline ended while their origin was waited for: response_timeout, first_byte_timeout, request_timeout; idle_timeout and call_expired within a response.";
        AI_REFUSALS = counter "weir_ai_refusals_total" ["listener", "reason", "treatment"] "Requests of AI listeners that a key, its policy, a rate, a budget or the form of the body refused (`refused`), or would have if the policy did not only observe (`observed`).";
        AI_JOURNAL_FAILING = gauge "weir_ai_journal_failing" [] "1 while the journal of budgets or the usage log takes no records: keys with a budget are refused then. Only with `ai.state`.", merged(Merge::Max);
        AI_STORE_IN_CONTACT = gauge "weir_ai_store_in_contact" [] "1 while the store of shared budgets answers; 0 also in a process that gives way to another one of its name. Only with `ai.store`.", merged(Merge::Max);
        AI_STORE_CONTACT_AGE = gauge "weir_ai_store_contact_age_seconds" [] "Seconds since the store of shared budgets last answered.", merged(Merge::Max);
        AI_STORE_CLAIMS = counter "weir_ai_store_claims_total" ["outcome"] "Claims on shared budgets: granted by the store, refused since nothing was left for them, given back for another gateway, or expired without an answer of the store.";
        AI_STORE_FAILURES = counter "weir_ai_store_failures_total" ["reason"] "Calls of the store of shared budgets that failed, connections included; `superseded`: another process has the identity of this gateway.";
        AI_STORE_EPOCHS = counter "weir_ai_store_epochs_total" [] "Restarts and losses of data of the store of shared budgets, behind each of which this gateway has put its part back.";
        VIOLATIONS = counter "weir_violations_total" ["listener", "reason", "culprit"] "Rules and limits broken by a peer.";
        DEFENSIVE_CLOSES = counter "weir_defensive_closes_total" ["listener", "reason"] "Connections the gateway closed to defend itself.";
        BUFFERED_BYTES = gauge "weir_buffered_bytes" [] "Bytes buffered under the aggregate budget.";
        BUFFERED_LEASED_BYTES = gauge "weir_buffered_leased_bytes" [] "Bytes of the aggregate budget that workers hold, used or not.";
        BUFFERED_LIMIT_BYTES = gauge "weir_buffered_limit_bytes" [] "The aggregate budget.", merged(Merge::Max);
    }
    "Load and knee" {
        LISTENER_OFFERED = gauge "weir_listener_offered_requests_per_second" ["listener"] "Requests that arrived per second, refused ones too, over the last 2 s; only of listeners with a `knee`.", merged(Merge::Max);
        LISTENER_KNEE = gauge "weir_listener_knee_requests_per_second" ["listener"] "The clean knee in the file that `knee` names.", merged(Merge::Max);
        LISTENER_KNEE_LOAD = gauge "weir_listener_knee_load_ratio" ["listener"] "Offered load as a share of the knee; above 1 past it.", merged(Merge::Max);
    }
    "Upstreams" {
        LANES_OPEN = gauge "weir_lanes_open" ["upstream", "endpoint", "kind"] "Upstream connections open now.";
        LANE_CONNECTS = counter "weir_lane_connects_total" ["upstream", "endpoint", "kind"] "Upstream connections made, handshake included.";
        LANE_CONNECT_FAILURES = counter "weir_lane_connect_failures_total" ["upstream", "endpoint", "reason"] "Upstream connections that could not be made.";
        LANE_CONNECT_DURATION = histogram "weir_lane_connect_duration_seconds" ["upstream", "endpoint"] "Time to make an upstream connection, handshake included.";
        LANE_CLOSES = counter "weir_lane_closes_total" ["upstream", "endpoint", "reason"] "Upstream connections that ended, by why.";
        LANE_MOVES = counter "weir_lane_moves_total" ["upstream", "endpoint"] "Upstream connections that went from one worker to another, where somebody waited for one.";
        LANE_REQUESTS_IN_FLIGHT = gauge "weir_lane_requests_in_flight" ["upstream", "endpoint"] "Requests written to an upstream whose reply is not complete.";
        LANE_POOL_WAITERS = gauge "gateway_lane_pool_waiters" ["upstream", "endpoint"] "Exchanges waiting for a lane now.";
        LANE_POOL_ACQUIRE_WAIT = histogram "gateway_lane_pool_acquire_wait_seconds" ["upstream", "endpoint"] "Time an exchange waited for a lane.", buckets(Buckets::REQUEST);
        PINS = counter "weir_pins_total" ["upstream", "endpoint", "reason"] "Sessions bound to an upstream connection of their own, by the state that required it.";
        PINNED_SESSIONS = gauge "weir_pinned_sessions" ["upstream", "endpoint"] "Sessions bound to an upstream connection of their own now.";
        UPSTREAM_REQUESTS = counter "weir_upstream_requests_total" ["upstream", "endpoint"] "Requests written to an upstream, retries included.";
        UPSTREAM_ERRORS = counter "weir_upstream_errors_total" ["upstream", "endpoint", "reason"] "Requests that failed for a fault of the upstream.";
        HTTP_UPSTREAM_RESPONSES = counter "weir_http_upstream_responses_total" ["upstream", "endpoint", "class"] "Responses of HTTP origins by class, those too after which the request was sent again elsewhere.", series_each(RESPONSE_CLASSES.len());
        HTTP_UPSTREAM_FIRST_BYTE = histogram "weir_http_upstream_first_byte_duration_seconds" ["upstream", "endpoint"] "From the end of a request to an HTTP origin to the head of its answer.", buckets(Buckets::REQUEST);
        UPSTREAM_READ_BYTES = counter "weir_upstream_read_bytes_total" ["upstream", "endpoint"] "Bytes received from upstreams, above TLS.";
        UPSTREAM_WRITTEN_BYTES = counter "weir_upstream_written_bytes_total" ["upstream", "endpoint"] "Bytes sent to upstreams, above TLS.";
        ENDPOINT_UP = gauge "weir_endpoint_up" ["upstream", "endpoint"] "1 if every worker holds the endpoint for healthy, else 0.", merged(Merge::Min);
        ENDPOINT_CHANGES = counter "weir_endpoint_health_changes_total" ["upstream", "endpoint", "state"] "Changes of health, by the new state, per worker.";
        HEALTH_CHECKS = counter "weir_health_checks_total" ["upstream", "endpoint", "outcome"] "Active health checks.";
        BREAKER_STATE = gauge "weir_breaker_state" ["upstream", "endpoint"] "0 closed, 1 half open, 2 open; the worst of the workers.", merged(Merge::Max);
        BREAKER_OPENED = counter "weir_breaker_opened_total" ["upstream", "endpoint"] "Times a breaker opened.";
        ENDPOINT_EJECTIONS = counter "weir_endpoint_ejections_total" ["upstream", "endpoint"] "Times a worker left out an endpoint that answered badly.";
        REDIRECTS = counter "weir_redirects_total" ["upstream", "kind"] "Requests that a node of a cluster did not answer and that were sent again: moved, ask, later.";
        RETRIES = counter "weir_retries_total" ["upstream", "endpoint", "outcome"] "Requests sent again, by what had happened to them; `unsent`: to a connection that was lost before they were sent.";
    }
    "Publish and subscribe" {
        SUBSCRIBERS = gauge "weir_redis_subscribers" ["listener"] "Clients with subscriptions now.";
        SUBSCRIPTIONS = gauge "weir_redis_subscriptions" ["listener"] "Channels and patterns that clients are subscribed to now, counted for each client.";
        MESSAGES_DELIVERED = counter "weir_redis_messages_delivered_total" ["listener"] "Messages given to subscribers, counted for each of them.";
        UPSTREAM_SUBSCRIPTIONS = gauge "weir_redis_upstream_subscriptions" ["upstream", "endpoint"] "Channels and patterns subscribed at an endpoint, one for all clients of a worker.";
        SUBSCRIPTION_GAPS = counter "weir_redis_subscription_gaps_total" ["upstream", "endpoint"] "Times that subscriptions were without their server: messages of that moment are lost.";
    }
    "Client-side caching" {
        TRACKING_CLIENTS = gauge "weir_redis_tracking_clients" ["listener"] "Clients that have CLIENT TRACKING on now.";
        TRACKED_KEYS = gauge "weir_redis_tracked_keys" ["upstream"] "Keys remembered because clients may have kept their values, counted for each of these clients.";
        INVALIDATIONS = counter "weir_redis_invalidations_total" ["listener"] "Keys whose invalidation was sent, counted for each client; one for all keys at once.";
        TRACKING_GAPS = counter "weir_redis_tracking_gaps_total" ["upstream", "endpoint"] "Times that a worker did not hear which keys change at an endpoint: clients and the reply cache forgot everything.";
        CACHE_HITS = counter "weir_redis_cache_hits_total" ["listener"] "Requests answered from the reply cache.";
        CACHE_MISSES = counter "weir_redis_cache_misses_total" ["listener"] "Requests that could have been, and were sent to the server. Hit rate: hits / (hits + misses).";
        CACHE_INVALIDATED = counter "weir_redis_cache_invalidated_total" ["listener"] "Keys that left the reply cache because they changed, or may have.";
        CACHE_EVICTED = counter "weir_redis_cache_evicted_total" ["listener"] "Keys that left the reply cache for want of room.";
        CACHE_BYTES = gauge "weir_redis_cache_bytes" ["listener"] "Bytes held by the reply cache, keys and bookkeeping included.";
    }
    "Workers" {
        WORKER_CPU_SECONDS = counter "weir_worker_cpu_seconds_total" ["worker"] "CPU time of the worker thread.";
        WORKER_BUSY_RATIO = gauge "weir_worker_busy_ratio" ["worker"] "Share of a CPU that the worker used in the last 250 ms.";
        WORKER_LOOP_TURNS = counter "weir_worker_loop_turns_total" ["worker"] "Turns of the event loop.";
        WORKER_CONNECTIONS = gauge "weir_worker_connections" ["worker"] "Client connections the worker owns.";
        WORKER_MAILBOX_DEPTH = gauge "weir_worker_mailbox_depth" ["worker"] "Messages from other threads not yet taken.";
        WORKER_STALLS = counter "weir_worker_stalls_total" ["worker"] "Times the watchdog saw a turn take too long.";
        WORKER_DRIVER_INFO = gauge "weir_worker_driver_info" ["worker", "driver"] "1 for the I/O driver in use.", merged(Merge::Max);
        WORKER_CONFIG_GENERATION = gauge "weir_worker_config_generation" ["worker"] "Generation of the configuration the worker runs.", merged(Merge::Max);
    }
    "Configuration and drain" {
        CONFIG_GENERATION = gauge "weir_config_generation" [] "Generation of the published configuration; 1 at start.", merged(Merge::Max);
        CONFIG_RELOADS = counter "weir_config_reloads_total" ["outcome"] "Reloads that were requested.";
        CONFIG_LAST_SUCCESS = gauge "weir_config_last_success_timestamp_seconds" [] "Unix time of the last configuration that was accepted.", merged(Merge::Max);
        CONFIG_RESTART_REQUIRED = gauge "weir_config_restart_required" [] "1 if the file asks for changes that only a restart can make.", merged(Merge::Max);
        DRAIN_STATE = gauge "weir_drain_state" [] "0 serving, 1 settling, 2 draining, 3 drained.", merged(Merge::Max);
        DRAIN_CUT = counter "weir_drain_cut_total" ["listener", "cut"] "What was still open when the drain limit passed and was cut.";
        UPGRADES = counter "weir_upgrades_total" ["result"] "Upgrades of the program: `done` counts those that led to this process, and one of its own; `failed` and `refused` those after which this process went on.";
        RESTART_EPOCH = gauge "weir_restart_epoch" [] "How many upgrades led to this process.", merged(Merge::Max);
    }
    "Telemetry itself" {
        LOG_DROPPED = counter "weir_log_events_dropped_total" ["worker"] "Log events, and lines of the access log, dropped because the log's thread was too slow.";
        LABEL_OVERFLOWS = counter "weir_telemetry_label_overflows_total" ["family"] "Label sets counted under `other` because a family was full.";
        ADMIN_REQUESTS = counter "weir_admin_requests_total" ["route", "code"] "Requests to the admin address.";
    }
    "Process" {
        PROCESS_CPU_SECONDS = counter "process_cpu_seconds_total" [] "CPU time of the process.";
        PROCESS_RESIDENT_BYTES = gauge "process_resident_memory_bytes" [] "Resident memory.", merged(Merge::Max);
        PROCESS_OPEN_FDS = gauge "process_open_fds" [] "Open file descriptors.", merged(Merge::Max);
        PROCESS_MAX_FDS = gauge "process_max_fds" [] "File descriptors the process may open.", merged(Merge::Max);
        PROCESS_START_TIME = gauge "process_start_time_seconds" [] "Unix time of process start.", merged(Merge::Max);
        BUILD_INFO = gauge "weir_build_info" ["version", "revision"] "1; the labels tell the build.", merged(Merge::Max);
    }
}

/// Values each label can take.
pub const LABELS: &[(&str, &str)] = &[
    ("listener", "names of `[[listener]]` sections"),
    ("upstream", "names of `[[upstream]]` sections"),
    ("user", "names of the users of a listener"),
    (
        "database",
        "names of the databases of a PostgreSQL listener as clients have them; past 64 of a listener the rest is `other`",
    ),
    ("endpoint", "addresses in `endpoints`"),
    ("certificate", "first host names of the certificates of a listener"),
    ("worker", "worker number, from 0"),
    ("driver", "`io_uring`, `io_uring_reduced`, `polling`"),
    ("command", "names in the command table, and `unknown`"),
    (
        "class",
        "class of a command (`read`, `write`, `local`, …); of HTTP the method (`get`, `post`, …, `other`); for accept errors `connection`, `resource`, `fatal`; of HTTP responses `1xx` to `5xx` by status, a gRPC call by the status of HTTP that means the same, `broken` if the origin or the gateway broke it off, `aborted` if the client did not take it to its end",
    ),
    (
        "stage",
        "`parse`, `policy`, `lane_wait`, `encode`, `write`; of HTTP without `write`, and `encode` of the last piece of a response; of TCP the hello (`parse`) and the connection to the origin (`lane_wait`); of PostgreSQL the wait for a server (`lane_wait`) alone",
    ),
    (
        "kind",
        "for lanes `shared`, `pinned`, `subscription`, `tracking`, `exclusive`, `pooled`; for error replies the known first words of Redis errors in lower case, and `other`; of tokens `input` and `output` with their parts",
    ),
    ("reason", "stable words from the code, never from input"),
    ("culprit", "`client`, `upstream`, `gateway`, `config`"),
    ("outcome", "`ok` or a stable word for what went wrong"),
    ("result", "of an upgrade: `done`, `failed`, `refused`; of the exact cache `hit`, `miss`, `bypass`"),
    ("protocol", "of agents: `mcp`, `a2a`"),
    ("server", "names of `[[listener.ai.mcp]]`, `[[listener.ai.mcp_federation]]` and `[[listener.ai.a2a]]` sections"),
    ("method", "methods of MCP and A2A in their specifications, and a few words more, never from input"),
    ("state", "`up`, `down`"),
    ("cut", "`connection`, `request`"),
    ("family", "metric names"),
    ("route", "route patterns of the admin API; names of the routes of HTTP listeners, and `other`"),
    ("side", "`client` or `server`"),
    ("rule", "names of the rules of a PostgreSQL listener, and words for what denies without one"),
    ("action", "`deny`, `log`, `count`"),
    ("event", "stable words for what happened in a PostgreSQL session"),
    ("code", "HTTP status codes"),
    ("sender", "who sent a WebSocket frame: `client`, `origin`"),
    ("status", "what a gRPC call ended with: `0` to `16`, else `other`"),
    ("model", "names of the models of an AI listener as the configuration has them; `any` without models there"),
    ("flag", "`estimated`, `partial`"),
    ("treatment", "`refused`, `observed`"),
    ("version", "version of the build"),
    ("revision", "commit of the build"),
];
