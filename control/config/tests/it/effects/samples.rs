//! Values of keys that do not follow from their types, and keys that say nothing alone.

/// Values of keys whose form is narrower than their type, by the end of their path. The longest end counts.
pub const SAMPLES: &[(&str, &str)] = &[
    ("model.sticky_prefix_bytes", "64"),
    ("allow_origin_regexes", r#"["https://[a-z]+\\.example"]"#),
    ("allow_origins", r#"["https://other.example"]"#),
    ("audiences", r#"["other"]"#),
    ("auth_query", r#""SELECT a, b FROM public.users WHERE a = $1""#),
    ("balance", r#""least_request""#),
    ("model.balance", r#""latency""#),
    ("bind", r#""127.0.0.1:6399""#),
    ("ca_file", r#""other.pem""#),
    ("client_ca_file", r#""other.pem""#),
    ("cert_file", r#""other.pem""#),
    ("client_auth", r#""required""#),
    ("codings", r#"["gzip"]"#),
    ("compression.types", r#"["text/html"]"#),
    ("deny", r#"["10.0.0.0/8"]"#),
    ("allow", r#"["10.1.0.0/16"]"#),
    ("distribution", r#""maglev""#),
    ("endpoints", r#"["127.0.0.1:6377"]"#),
    ("ext_auth.upstream", r#""v""#),
    ("hash_tag", r#""{}""#),
    ("health_path", r#""/other""#),
    ("hba.address", r#""10.0.0.0/8""#),
    ("http.basic_auth.users_file", r#""other.htpasswd""#),
    ("jwks_file", r#""other.json""#),
    ("jwks_path", r#""/other""#),
    ("jwks_upstream", r#""v""#),
    ("a2a.path", r#""/other""#),
    ("a2a.upstream", r#""v""#),
    ("mcp.path", r#""/other""#),
    ("mcp.upstream", r#""v""#),
    ("mcp_federation.name", r#""joint""#),
    ("mcp_federation.servers", r#"["one"]"#),
    ("mcp_tools", r#"["other/*"]"#),
    ("ai.api_key", r#"{ env = "ADMIN_TOKEN" }"#),
    ("audio_input", r#""4""#),
    ("audio_output", r#""5""#),
    ("base_path", r#""/other""#),
    ("cache_write", r#""3""#),
    ("cached_input", r#""2""#),
    ("day_money", r#""1.50""#),
    ("expires", r#""2098-12-31T00:00:00Z""#),
    ("input", r#""1""#),
    ("month_money", r#""9""#),
    ("old_sha256", r#""c3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855""#),
    ("old_until", r#""2097-12-31T00:00:00Z""#),
    ("output", r#""7""#),
    ("reasoning", r#""6""#),
    ("sources", r#"["10.0.0.0/8"]"#),
    ("target.upstream", r#""v""#),
    ("algorithms", r#"["EdDSA", "ES256"]"#),
    ("key_file", r#""other.key""#),
    ("knee", r#""knee.json""#),
    ("knee_action", r#""unready""#),
    ("mongodb.auth", r#""passthrough""#),
    ("mongodb.auth_mechanism", r#""x509""#),
    ("mongodb.compressors", r#"["zstd"]"#),
    ("mongodb.mechanisms", r#"["SCRAM-SHA-1"]"#),
    ("names", r#"["other.example"]"#),
    ("ext_auth.path", r#""/other""#),
    ("proxy_trusted", r#"["10.0.0.0/8"]"#),
    ("rate_limit.key", r#""all""#),
    ("retry.on", r#"["reset"]"#),
    ("rule.classes", r#"["ddl"]"#),
    ("rule.verbs", r#"["drop"]"#),
    ("rules", r#""on >secret ~other:* +get""#),
    ("server_name.upstream", r#""v""#),
    ("database.upstream", r#""v""#),
    ("database.pool_mode", r#""session""#),
    ("database.read_upstream", r#""v""#),
    ("target_session_attrs", r#""standby""#),
    ("sha256", r#""e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855""#),
    ("statuses", "[503]"),
    ("topology", r#""cluster""#),
    ("upgrades", r#"["websocket"]"#),
    ("userlist", r#""userlist.txt""#),
    ("users_file", r#""users.acl""#),
    ("weights", "[3]"),
    ("flags.tokens", r#"["env:OTHER_TOKEN"]"#),
    ("flags.pretrusted_tokens", r#"["env:OTHER_TOKEN"]"#),
    ("flags.client_tokens", r#"["env:OTHER_TOKEN"]"#),
    ("flags.frontend_tokens", r#"["env:OTHER_TOKEN"]"#),
    ("flags.backstage", r#"["info"]"#),
    ("backup_redis.tls.handshake_timeout", r#""1s""#),
    ("backup_s3.upstream", r#""v""#),
];

/// Keys of a flags listener without an upstream.
pub const OF_FILE: &[&str] = &[
    "listener.flags.bootstrap_file",
    "listener.flags.client_tokens",
    "listener.flags.frontend_tokens",
    "listener.flags.reload_interval",
];

/// Keys in whose company a key says something, by the beginning of its path. The longest beginning counts.
pub const COMPANY: &[(&str, &str)] = &[
    ("listener.head_timeout", "proxy_protocol = \"v1\""),
    ("listener.proxy_trusted", "proxy_protocol = \"v1\""),
    ("listener.knee_warn", "knee = \"knee.json\""),
    ("listener.knee_action", "knee = \"knee.json\""),
    ("listener.ai.allow_open", "bind = \"203.0.113.1:6380\""),
    ("listener.ai.cache_sampled", "ai.cache_ttl = \"5m\""),
    ("listener.ai.key.cache_sampled", CACHED_KEY),
    ("listener.ai.key", "ai.keys = \"required\""),
    ("listener.ai.key.old_sha256", OLD_KEY),
    ("listener.ai.key.old_until", OLD_KEY),
    ("listener.ai.mcp_federation", "ai.mcp = [{ name = \"one\", upstream = \"u\" }]"),
    ("listener.ai.model", "ai.model = [{ name = \"a\", target = [{ upstream = \"u\" }] }]"),
    (
        "listener.ai.model.balance",
        "ai.model = [{ name = \"a\", target = [{ upstream = \"u\" }, { upstream = \"v\" }] }]",
    ),
    (
        "listener.ai.model.sticky_prefix_bytes",
        "ai.model = [{ name = \"a\", target = [{ upstream = \"u\" }, { upstream = \"v\" }] }]",
    ),
    ("upstream.ai.default_max_tokens", "ai.dialect = \"anthropic\""),
    ("upstream.ai.reasoning_effort", "ai.dialect = \"anthropic\""),
    ("listener.redis.user", "redis.password = { env = \"ADMIN_TOKEN\" }"),
    ("listener.redis.cache_value_bytes_max", "redis.cache_bytes_max = \"1MiB\""),
    ("listener.redis.cache_age_max", "redis.cache_bytes_max = \"1MiB\""),
    ("listener.redis.cache_prefixes", "redis.cache_bytes_max = \"1MiB\""),
    ("listener.postgres.database.upstream", "postgres.database = [{ name = \"a\" }, { name = \"b\" }]"),
    ("listener.postgres.database.replica_lag_max", "postgres.database = [{ name = \"a\", read_upstream = \"v\" }]"),
    ("listener.postgres.database.password", "postgres.database = [{ name = \"a\", user = \"app\" }]"),
    ("listener.postgres.allow_trust", "bind = \"203.0.113.1:6380\"\npostgres.auth = \"trust\""),
    ("listener.postgres.auth_dbname", "postgres.auth_user = \"lookup\""),
    ("listener.postgres.auth_query", "postgres.auth_user = \"lookup\""),
    ("listener.mongodb.allow_none", "bind = \"203.0.113.1:6380\""),
    ("listener.mongodb.auth_source", MONGODB_USER),
    ("listener.mongodb.login_failures_max", MONGODB_USER),
    ("listener.mongodb.mechanisms", MONGODB_USER),
    ("listener.mongodb.subjects", CERTIFICATES),
    ("listener.user", "user = [{ name = \"alice\", rules = \"on >secret ~a* +get\" }]"),
    ("listener.user.upstream_user", LOGIN),
    ("listener.user.upstream_password", LOGIN),
    ("listener.tls.client_auth", CLIENT_AUTH),
    ("listener.tls.client_ca_file", CLIENT_AUTH),
    ("listener.http.trusted_hops", "http.forwarded = \"append\""),
    ("listener.http.api_key", "http.api_key.key = [{ name = \"a\", key = { env = \"ADMIN_TOKEN\" } }]"),
    (
        "listener.http.api_key.scheme",
        "http.api_key = { header = \"a\", key = [{ name = \"a\", key = { env = \"SHORT\" } }] }",
    ),
    ("listener.http.api_key.key.sha256", SHA256),
    ("listener.http.basic_auth", "http.basic_auth.users_file = \"users.htpasswd\""),
    ("listener.http.jwt", "http.jwt.provider = [{ jwks_file = \"jwks.json\", algorithms = [\"EdDSA\"] }]"),
    (
        "listener.http.jwt.provider.algorithms",
        "http.jwt.provider = [{ jwks_file = \"other.json\", algorithms = [\"EdDSA\"] }]",
    ),
    ("listener.http.jwt.provider.jwks_upstream", JWKS),
    ("listener.http.jwt.provider.jwks_path", JWKS),
    ("listener.http.jwt.provider.jwks_host", JWKS),
    ("listener.http.jwt.provider.jwks_refresh", JWKS),
    ("listener.http.ext_auth", "http.ext_auth.upstream = \"u\""),
    ("listener.http.rate_limit", "http.rate_limit = [{ name = \"r\", requests = 10 }]"),
    ("listener.http.rate_limit.header", BY_HEADER),
    ("listener.http.rate_limit.missing", BY_HEADER),
    ("listener.http.ip_filter", "http.ip_filter.allow = [\"192.168.0.0/16\"]"),
    ("listener.http.ip_filter.deny", "http.ip_filter.deny = [\"192.168.0.0/16\"]"),
    ("listener.flags.cors", "flags.cors.allow_origins = [\"https://a.example\"]"),
    ("listener.flags.backup_redis", "flags.backup_redis.endpoints = [\"127.0.0.1:6377\"]"),
    ("listener.flags.backup_redis.endpoints", "flags.backup_redis.endpoints = [\"127.0.0.1:6376\"]"),
    ("listener.flags.backup_redis.user", "flags.backup_redis.password = { env = \"ADMIN_TOKEN\" }"),
    ("listener.flags.backup_redis.tls.cert_file", BACKUP_TLS),
    ("listener.flags.backup_redis.tls.key_file", BACKUP_TLS),
    ("listener.flags.backup_s3", BUCKET),
    ("listener.flags.backup_s3.path_style", BUCKET_IN_HOST),
    ("listener.flags.backup_s3.access_key_id", BUCKET_WITHOUT_ID),
    ("listener.flags.backup_s3.secret_access_key", BUCKET_WITHOUT_KEY),
    ("listener.http.cors", "http.cors.allow_origins = [\"https://a.example\"]"),
    ("upstream.http.affinity", "http = { balance = \"maglev\", affinity = { address = true } }"),
    ("upstream.http.affinity.address", "http.balance = \"maglev\""),
    ("upstream.http.affinity.header", "http = { balance = \"maglev\", affinity = { header = \"a\" } }"),
    ("upstream.http.affinity.cookie", "http = { balance = \"maglev\", affinity = { cookie = \"a\" } }"),
    ("upstream.http.affinity.cookie_max_age", "http = { balance = \"maglev\", affinity = { cookie = \"a\" } }"),
    ("upstream.http.streams_max", "http.version = \"2\""),
    ("upstream.http.stream_window", "http.version = \"2\""),
    ("upstream.http.stream_window_max", "http.version = \"2\""),
    ("upstream.http.health_grpc_service", "http.version = \"2\""),
    ("upstream.http.health_host", "http.health_path = \"/a\""),
    ("upstream.tls.cert_file", "tls = { cert_file = \"server.crt\", key_file = \"server.key\" }"),
    ("upstream.tls.key_file", "tls = { cert_file = \"server.crt\", key_file = \"server.key\" }"),
    ("upstream.mongodb.auth_mechanism", "tls = { cert_file = \"server.crt\", key_file = \"server.key\" }"),
    ("upstream.mongodb.auth_source", "mongodb = { user = \"app\", password = { env = \"ADMIN_TOKEN\" } }"),
    ("upstream.mongodb.password", "mongodb = { user = \"app\", password = { env = \"ADMIN_TOKEN\" } }"),
    ("upstream.mongodb.user", "mongodb.password = { env = \"ADMIN_TOKEN\" }"),
    ("upstream.postgres.password", "postgres.user = \"app\""),
    ("upstream.postgres.channel_binding", "tls = { ca_file = \"other.pem\" }"),
    ("upstream.postgres.role_interval", "postgres = { user = \"app\", target_session_attrs = \"primary\" }"),
    ("upstream.redis.user", "redis.password = { env = \"ADMIN_TOKEN\" }"),
    ("upstream.read_from", "topology = \"cluster\""),
    ("upstream.zone", "topology = \"cluster\"\nread_from = \"any\""),
    ("upstream.sentinel", SENTINEL),
    (
        "upstream.sentinel.user",
        "topology = \"sentinel\"\nsentinel = { service = \"a\", password = { env = \"SHORT\" } }",
    ),
    ("upstream.sharding", "endpoints = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nsharding.distribution = \"modula\""),
];

const BACKUP_TLS: &str = "flags.backup_redis = { endpoints = [\"127.0.0.1:6377\"], \
                          tls = { cert_file = \"server.crt\", key_file = \"server.key\" } }";
const BUCKET: &str = "flags.backup_s3 = { upstream = \"u\", bucket = \"one\", region = \"eu\", path_style = true, \
                      access_key_id = { env = \"ADMIN_TOKEN\" }, secret_access_key = { env = \"ADMIN_TOKEN\" } }";
const BUCKET_IN_HOST: &str = "flags.backup_s3 = { upstream = \"u\", bucket = \"one\", region = \"eu\", \
                              access_key_id = { env = \"ADMIN_TOKEN\" }, secret_access_key = { env = \"ADMIN_TOKEN\" } }";
const BUCKET_WITHOUT_ID: &str = "flags.backup_s3 = { upstream = \"u\", bucket = \"one\", region = \"eu\", \
                                 path_style = true, secret_access_key = { env = \"ADMIN_TOKEN\" } }";
const BUCKET_WITHOUT_KEY: &str = "flags.backup_s3 = { upstream = \"u\", bucket = \"one\", region = \"eu\", \
                                  path_style = true, access_key_id = { env = \"ADMIN_TOKEN\" } }";

const CACHED_KEY: &str = "ai = { keys = \"required\", key = [{ name = \"a\", cache_ttl = \"5m\", \
                       sha256 = \"a3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\" }] }";

const OLD_KEY: &str = "ai = { keys = \"required\", key = [{ name = \"a\", \
                       sha256 = \"a3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\", \
                       old_sha256 = \"b3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\", \
                       old_until = \"2098-12-31T00:00:00Z\" }] }";

/// A user of a PostgreSQL listener.
pub const POSTGRES_USER: &str = "user = [{ name = \"alice\", password = { env = \"ADMIN_TOKEN\" } }]";

/// A user of a MongoDB listener.
pub const MONGODB_USER: &str = "mongodb.auth = \"scram\"\n\
                                user = [{ name = \"alice\", password = { env = \"ADMIN_TOKEN\" } }]";
const CERTIFICATES: &str = "mongodb.auth = \"x509\"\ntls = { cert_file = \"server.crt\", key_file = \"server.key\", \
                            client_auth = \"required\", client_ca_file = \"ca.crt\" }";

const LOGIN: &str = "user = [{ name = \"alice\", rules = \"on >secret ~a* +get\", upstream_user = \"a\", \
                     upstream_password = { env = \"ADMIN_TOKEN\" } }]";
const CLIENT_AUTH: &str = "tls = { cert_file = \"server.crt\", key_file = \"server.key\", client_auth = \"optional\", \
                           client_ca_file = \"ca.crt\" }";
const SHA256: &str = "http.api_key.key = [{ name = \"a\", \
                      sha256 = \"a3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\" }]";
const JWKS: &str = "http.jwt.provider = [{ jwks_upstream = \"u\" }]";
const BY_HEADER: &str = "http.rate_limit = [{ name = \"r\", requests = 10, key = \"header\", header = \"a\" }]";
const SENTINEL: &str = "topology = \"sentinel\"\nsentinel.service = \"a\"";

/// Keys of two kinds besides the one in `jwks.json`; that of ES256 is the example of RFC 7515 A.3.
pub const MORE_KEYS: &str = r#"{"kty":"OKP","kid":"other","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    {"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
