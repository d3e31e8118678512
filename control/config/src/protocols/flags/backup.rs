//! The store of the copies of flags and tokens: a directory, a Redis server or a bucket.

use weir_base::Secret;
use weir_flags::settings::{
    BACKUP_ENDPOINTS_MAX, BACKUP_OPEN_TIMEOUT, BackupStore, BucketFault, RedisBackup, S3Access, S3Backup, bucket,
};

use super::keys::{ListenerFlagsSection, RedisBackupSection, S3BackupSection};
use crate::checks::store::{Login, is_far};
use crate::checks::{authority, endpoints, error_at, find_upstream, table_header, tls, warn_at};
use crate::document::At;
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::secret::SecretRef;

/// Variables of the environment that all programs with access to S3 know: the id of the key, the key, and the token of keys that end.
const VARIABLES: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// The store; `None`: there is none, or something of it is wrong, and was reported.
pub(super) fn store(
    of: &ListenerContext<'_>,
    section: &ListenerFlagsSection,
    path: &str,
    reader: &mut Reader<'_>,
) -> Option<BackupStore> {
    let folder = section.backup_dir.as_ref().map(|folder| reader.directory.join(&folder.value.0));
    let redis = section.backup_redis.as_ref();
    let tables = [
        ("backup_redis", redis.map(|own| &own.place.0)),
        ("backup_s3", section.backup_s3.as_ref().map(|own| &own.place.0)),
    ];
    let mut first = folder.as_ref().map(|_| "backup_dir");
    for (key, place) in tables {
        let Some(place) = place else { continue };
        if let Some(other) = first {
            let key = format!("{path}.{key}");
            let message = format!("`{key}` conflicts with {other}: the copies are in one store");
            reader.problems.error(place, &key, message, format!("remove {other} or this table"));
        }
        first = first.or(Some(key));
    }
    let redis = redis.and_then(|own| self::redis(own, &format!("{path}.backup_redis"), reader));
    let s3 = section.backup_s3.as_ref().and_then(|own| s3(of, own, &format!("{path}.backup_s3"), reader));
    folder.map(BackupStore::Directory).or(redis.map(BackupStore::Redis)).or(s3.map(BackupStore::S3))
}

fn redis(section: &RedisBackupSection, path: &str, reader: &mut Reader<'_>) -> Option<RedisBackup> {
    let login = Login {
        user: section.user.as_ref(),
        password: section.password.as_ref(),
        endpoints: section.endpoints.as_ref(),
        tls: section.tls.as_ref(),
    };
    login.check(BACKUP_OPEN_TIMEOUT, path, reader);
    let list = section.endpoints.as_ref()?;
    endpoints(list, BACKUP_ENDPOINTS_MAX, "name one server and its replicas", path, reader);
    let tls = section.tls.as_ref().map(|own| tls::client(own, &list.value, &format!("{path}.tls"), reader));
    Some(RedisBackup {
        endpoints: list.value.iter().map(|endpoint| endpoint.value.0.clone()).collect(),
        tls,
        username: section.user.as_ref().map(|user| user.value.0.clone()),
        password: section.password.as_ref().map(|password| password.value.secret.clone()),
        database: section.database.value,
        prefix: section.prefix.as_ref().map_or_else(Box::default, |prefix| prefix.value.0.as_str().into()),
    })
}

fn s3(of: &ListenerContext<'_>, section: &S3BackupSection, path: &str, reader: &mut Reader<'_>) -> Option<S3Backup> {
    let access = access(section, path, reader);
    check_prefix(section, path, reader);
    let (name, wanted, region) = (section.upstream.as_ref()?, section.bucket.as_ref()?, section.region.as_ref()?);
    let upstream = find_upstream(of.file, name, path, "upstream", reader)?;
    let endpoint = &upstream.endpoints.as_ref()?.value.first()?.value.0;
    if upstream.tls.is_none() && is_far(endpoint) {
        let what = format!("leads to {endpoint} in clear text, and the copies have tokens");
        warn_at(name, path, "upstream", &what, "add [upstream.tls]", reader);
    }
    let authority = authority(endpoint, upstream.tls.is_some());
    let made = bucket(&wanted.value.0, &region.value.0, (&authority, upstream.tls.is_some()), section.path_style.value);
    let fault = match made {
        Ok(bucket) => {
            let (upstream, prefix) = (name.value.0.clone(), section.prefix.value.0.as_str().into());
            return Some(S3Backup { upstream, bucket, prefix, access: access? });
        }
        Err(fault) => fault,
    };
    let (what, help) = match fault {
        BucketFault::Name => ("is not the name of a bucket", "use letters, digits, dots and hyphens".to_owned()),
        BucketFault::Host => {
            let what = "cannot be in the host of a request to this upstream";
            (what, format!("add path_style = true to {}", table_header(path)))
        }
    };
    error_at(wanted, path, "bucket", what, help, reader);
    None
}

/// A name of an object that would be another one in a path.
fn check_prefix(section: &S3BackupSection, path: &str, reader: &mut Reader<'_>) {
    let prefix = &section.prefix;
    if prefix.value.0.split('/').any(|part| matches!(part, "." | "..")) {
        let what = "has a part that is another directory in a path";
        error_at(prefix, path, "prefix", what, "write it without \".\" and \"..\" between slashes", reader);
    }
}

/// The keys of the file, or else those of the environment.
fn access(section: &S3BackupSection, path: &str, reader: &mut Reader<'_>) -> Option<S3Access> {
    let secret = |own: &At<SecretRef>| own.value.secret.clone();
    let names = ["access_key_id", "secret_access_key"];
    let given = [section.access_key_id.as_ref(), section.secret_access_key.as_ref()];
    let lacking: Vec<bool> = names.iter().zip(given).map(|(key, own)| reader.lacks(own, path, key)).collect();
    match (lacking[0], lacking[1]) {
        (false, false) => {
            let session_token = section.session_token.as_ref().map(secret);
            return Some(S3Access { key_id: secret(given[0]?), secret_key: secret(given[1]?), session_token });
        }
        (true, true) => {}
        (lacks_id, _) => {
            let (missing, there) = if lacks_id { (names[0], names[1]) } else { (names[1], names[0]) };
            let message = format!("`{path}.{missing}` is missing: a request needs it beside {there}");
            reader.problems.error(&section.place.0, path, message, format!("add {missing} = \"env:NAME\""));
            return None;
        }
    }
    if let Some(token) = &section.session_token {
        let what = "has no effect: it belongs to an access key";
        error_at(token, path, "session_token", what, "add access_key_id and secret_access_key", reader);
        return None;
    }
    let mut of_environment = VARIABLES.map(|name| {
        let text = reader.surroundings.variable(name).filter(|text| !text.trim().is_empty());
        text.map(|text| Secret::new(text.into_bytes()))
    });
    let [key_id, secret_key, session_token] = of_environment.each_mut().map(Option::take);
    match (key_id, secret_key) {
        (Some(key_id), Some(secret_key)) => Some(S3Access { key_id, secret_key, session_token }),
        // The environment of this machine says nothing about that of the gateway.
        _ if reader.surroundings.is_offline() => None,
        _ => {
            let message = format!("`{path}` has no access key, and the environment has none either");
            let help = format!("add access_key_id and secret_access_key, or set {} and {}", VARIABLES[0], VARIABLES[1]);
            reader.problems.error(&section.place.0, path, message, help);
            None
        }
    }
}
