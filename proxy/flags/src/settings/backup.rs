//! Settings of backups: where copies of flags and tokens are.

use std::{fmt, path::PathBuf, sync::Arc};

use rusty_s3::{Bucket, UrlStyle};
use weir_base::Secret;
use weir_engine::settings::{Address, TlsClientSettings};

/// Where the copies of flags and tokens are.
#[derive(Clone, Debug, PartialEq)]
pub enum BackupStore {
    /// Two files of a directory.
    Directory(PathBuf),
    /// Two keys of a Redis server.
    Redis(RedisBackup),
    /// Two objects of a bucket.
    S3(S3Backup),
}

/// The most endpoints of a [`RedisBackup`].
pub const BACKUP_ENDPOINTS_MAX: usize = 8;

/// Two keys of a Redis server.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisBackup {
    /// One server, and replicas that may take its place: the first one that responds as it should is used. 1 to [`BACKUP_ENDPOINTS_MAX`].
    pub endpoints: Arc<[Address]>,
    /// `None`: clear text.
    pub tls: Option<TlsClientSettings>,
    /// With a password; `None`: the default user.
    pub username: Option<String>,
    /// `None`: there is no login.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: u32,
    /// The keys begin with it. Empty: they are those of Unleash Edge.
    pub prefix: Box<str>,
}

/// The access to a bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct S3Access {
    /// The id of the key, which is no secret by itself.
    pub key_id: Secret,
    /// The key that signs.
    pub secret_key: Secret,
    /// The token of keys that end. `None`: the keys have none.
    pub session_token: Option<Secret>,
}

/// Two objects of a bucket.
#[derive(Clone, PartialEq)]
pub struct S3Backup {
    /// The name of the upstream that has the bucket.
    pub upstream: Arc<str>,
    /// The bucket, at the Host of its requests.
    pub bucket: Bucket,
    /// The names of the objects begin with it. `/`: they are those of Unleash Edge.
    pub prefix: Box<str>,
    /// The rights.
    pub access: S3Access,
}

impl fmt::Debug for S3Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { upstream, bucket, prefix, access } = self;
        f.debug_struct("S3Backup")
            .field("upstream", upstream)
            .field("bucket", &bucket.base_url().as_str())
            .field("region", &bucket.region())
            .field("prefix", prefix)
            .field("access", access)
            .finish()
    }
}

/// The reason why a bucket has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketFault {
    /// Its name has other characters than those of S3.
    Name,
    /// Its name cannot be a part of the Host.
    Host,
}

/// A bucket at a server. `authority`: the host and the port of its endpoint. `is_path_style`: the name of the bucket is in the path, and not
/// in the Host.
///
/// # Errors
/// The name of the bucket does not fit there.
pub fn bucket(
    name: &str,
    region: &str,
    (authority, is_tls): (&str, bool),
    is_path_style: bool,
) -> Result<Bucket, BucketFault> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if !(3..=255).contains(&name.len()) || !name.bytes().all(is_valid) || name.starts_with('.') {
        return Err(BucketFault::Name);
    }
    let scheme = if is_tls { "https" } else { "http" };
    let style = if is_path_style { UrlStyle::Path } else { UrlStyle::VirtualHost };
    let endpoint = format!("{scheme}://{authority}").parse().map_err(|_| BucketFault::Host)?;
    Bucket::new(endpoint, style, name.to_owned(), region.to_owned()).map_err(|_| BucketFault::Host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_in_the_host_or_in_the_path() {
        let url = |name, authority, is_path_style| {
            bucket(name, "eu-west-1", (authority, true), is_path_style)
                .map(|bucket| bucket.object_url("/a.json").to_string())
        };
        let aws = "s3.eu-west-1.amazonaws.com";
        assert_eq!(url("flags", aws, false).expect("one"), "https://flags.s3.eu-west-1.amazonaws.com//a.json");
        assert_eq!(url("flags", "10.0.0.1:9000", true).expect("one"), "https://10.0.0.1:9000/flags//a.json");
        assert_eq!(url("flags", "10.0.0.1:9000", false), Err(BucketFault::Host));
        assert_eq!(url("a_B", aws, false), Err(BucketFault::Host));
        for name in ["", "ab", "../other", "a/b", "a?b", "ab\u{e9}"] {
            assert_eq!(url(name, aws, true), Err(BucketFault::Name), "{name}");
        }
    }

    #[test]
    fn no_secret_of_a_bucket_is_shown() {
        let access = S3Access {
            key_id: Secret::new(b"the-id".to_vec()),
            secret_key: Secret::new(b"the-key".to_vec()),
            session_token: Some(Secret::new(b"the-token".to_vec())),
        };
        let bucket = bucket("flags", "eu", ("localhost", false), true).expect("a bucket");
        let shown = format!("{:?}", S3Backup { upstream: "s3".into(), bucket, prefix: "/".into(), access });
        assert!(!shown.contains("the-") && shown.contains("http://localhost/flags/"), "{shown}");
    }
}
