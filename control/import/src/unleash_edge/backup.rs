//! The store of backups: a directory, a Redis server or a bucket.

use percent_encoding::percent_decode_str;

use super::secrets::Secrets;
use super::words::{Given, Options};
use crate::model::{Config, Upstream};
use crate::note::{Mistake, Note};
use crate::toml::{Table, Value};

/// The upstream with the bucket.
const BUCKET: &str = "s3";

/// The region of a bucket whose command line names none.
const REGION: &str = "us-east-1";

/// Writes the store that Unleash Edge would take: it refuses a command line with several.
pub(super) fn write(
    options: &Options,
    more: &mut Table,
    secrets: &mut Secrets,
    config: &mut Config,
) -> Result<(), Mistake> {
    if let Some(given) = options.last("redis-url").or_else(|| options.last("redis-host")) {
        return redis(options, given, more, secrets, config);
    }
    if let Some(bucket) = options.last("s3-bucket-name") {
        return s3(options, bucket, more, config);
    }
    if let Some(folder) = options.last("backup-folder") {
        more.set("flags.backup_dir", Value::text(&folder.value));
    }
    Ok(())
}

/// The parts of a URL of a Redis server.
struct RedisUrl {
    is_tls: bool,
    endpoint: String,
    user: String,
    has_password: bool,
    database: Option<u64>,
}

fn redis(
    options: &Options,
    given: &Given,
    more: &mut Table,
    secrets: &mut Secrets,
    config: &mut Config,
) -> Result<(), Mistake> {
    let port = options.number("redis-port")?;
    let mut urls = Vec::new();
    for one in options.list("redis-url") {
        urls.push(url(&one, &one.value, port)?);
    }
    if urls.is_empty() {
        let scheme = options.last("redis-scheme").map_or("redis", |scheme| &scheme.value);
        urls.push(url(given, &format!("{scheme}://{}", given.value), port)?);
    }
    let Some(first) = urls.first() else { return Ok(()) };
    let table = more.table("flags").table("backup_redis");
    table.set("endpoints", Value::texts(urls.iter().map(|url| &*url.endpoint)));
    let user = options.last("redis-username").map_or(&first.user, |user| &user.value).clone();
    let password = password(options, first, given, secrets, &mut config.notes);
    let table = more.table("flags").table("backup_redis");
    match password {
        Some(password) => {
            if !user.is_empty() {
                table.set("user", Value::text(user));
            }
            table.set("password", password);
        }
        None if !user.is_empty() => {
            let why = "a user without a password does not log in";
            config.notes.push(Note::new(&given.place, format!("the user {user}"), why, "user and password"));
        }
        None => {}
    }
    if let Some(database) = first.database {
        table.set("database", Value::Number(database));
    }
    if first.is_tls || options.is_set("redis-secure") {
        table.table("tls");
    }
    if let Some(mode) = options.last("redis-mode").filter(|mode| mode.value == "cluster") {
        let why = "backups go to one server, not to a Redis Cluster";
        config.notes.push(Note::new(&mode.place, "--redis-mode", why, "backup_s3, or a server of its own"));
    }
    Ok(())
}

/// A variable with the password, which stands in the URL or in an option of its own.
fn password(
    options: &Options,
    url: &RedisUrl,
    given: &Given,
    secrets: &mut Secrets,
    notes: &mut Vec<Note>,
) -> Option<Value> {
    const VARIABLE: &str = "UNLEASH_REDIS_PASSWORD";
    if options.last("redis-password").is_some() || !url.has_password {
        return secrets.of(options, "redis-password", VARIABLE, notes);
    }
    let name = secrets.name(VARIABLE);
    let why = format!("the password in the URL is a secret: set the variable {name} to it, without percent-encoding");
    notes.push(Note::new(&given.place, name.clone(), why, ""));
    Some(Value::text(format!("env:{name}")))
}

/// Reads `scheme://[user[:password]@]host[:port][/database]`, or a scheme of sockets and a path.
fn url(given: &Given, text: &str, port: Option<u64>) -> Result<RedisUrl, Mistake> {
    let wrong = |why: &str| Mistake::new(&given.place, format!("a URL of Redis {why}"));
    let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("has a scheme"))?;
    let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
    let user = percent_decode_str(user).decode_utf8_lossy().into_owned();
    let has_password = password.is_some();
    let is_tls = match scheme {
        "redis" | "tcp" => false,
        "rediss" | "tls" => true,
        "unix" | "redis+unix" | "redis-unix" => {
            // A query may have secrets.
            let path = rest.split_once('?').map_or(rest, |(path, _)| path);
            let endpoint = format!("unix:{path}");
            return Ok(RedisUrl { is_tls: false, endpoint, user, has_password, database: None });
        }
        _ => return Err(wrong("begins with redis, rediss or unix")),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let has_port =
        authority.rsplit_once(':').is_some_and(|(host, port)| !host.ends_with(':') && port.parse::<u16>().is_ok());
    let endpoint = match (port, has_port) {
        (None, true) => authority.to_owned(),
        (None, false) => format!("{authority}:6379"),
        (Some(port), true) => format!("{}:{port}", authority.rsplit_once(':').map_or(authority, |(host, _)| host)),
        (Some(port), false) => format!("{authority}:{port}"),
    };
    let database = match path {
        "" => None,
        number => Some(number.parse().map_err(|_| wrong("has a number of a database as its path"))?),
    };
    Ok(RedisUrl { is_tls, endpoint, user, has_password, database })
}

fn s3(options: &Options, bucket: &Given, more: &mut Table, config: &mut Config) -> Result<(), Mistake> {
    let region = options.last("aws-region").map_or(REGION, |region| &region.value);
    let mut upstream = Upstream::new(BUCKET.to_owned(), &bucket.place);
    match options.last("aws-endpoint-url") {
        Some(endpoint) => {
            let (scheme, rest) = endpoint.value.split_once("://").unwrap_or(("https", &endpoint.value));
            let authority = rest.trim_end_matches('/');
            let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let port = if scheme == "http" { 80 } else { 443 };
            upstream.endpoints.push(if has_port { authority.to_owned() } else { format!("{authority}:{port}") });
            if scheme != "http" {
                upstream.more.table("tls");
            }
        }
        None => {
            upstream.endpoints.push(format!("s3.{region}.amazonaws.com:443"));
            upstream.more.table("tls");
        }
    }
    config.upstreams.push(upstream);
    let table = more.table("flags").table("backup_s3");
    table.set("upstream", Value::text(BUCKET));
    table.set("bucket", Value::text(&bucket.value));
    table.set("region", Value::text(region));
    if options.is_set("s3-force-path-style") {
        table.set("path_style", Value::Flag(true));
    }
    if options.last("aws-region").is_none() {
        let why = format!("the command line names no region, so {REGION} is written");
        config.notes.push(Note::new(&bucket.place, "--s3-bucket-name", why, "region of [listener.flags.backup_s3]"));
    }
    let why =
        "the access key is read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not from a profile or the machine";
    config.notes.push(Note::new(&bucket.place, "--s3-bucket-name", why, "access_key_id and secret_access_key"));
    Ok(())
}
