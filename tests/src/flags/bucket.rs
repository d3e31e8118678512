//! A server with the API of S3 that verifies signatures: versitygw, whose objects are files.

use std::path::PathBuf;

use crate::certificate::Certificates;
use crate::port;
use crate::process::Process;
use crate::stream::{Address, Stream};
use crate::tools;

/// Its region.
pub const REGION: &str = "eu-test-1";

/// Its access key: id and secret.
pub const ACCESS_KEY: (&str, &str) = ("bucket-key-id", "bucket-secret-key-0123456789");

/// A server with the bucket `flags`. A host in front of `localhost` is a bucket, too.
pub struct BucketServer {
    /// Its address.
    pub address: Address,
    /// With TLS.
    pub certificates: Option<Certificates>,
    process: Process,
    words: Vec<String>,
    folder: tempfile::TempDir,
}

impl BucketServer {
    /// Starts it.
    ///
    /// # Panics
    /// If the program is missing or does not come up.
    #[must_use]
    pub fn start(tls: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("weir-bucket-").tempdir().expect("a temporary folder");
        let (buckets, about) = (folder.path().join("buckets"), folder.path().join("about"));
        std::fs::create_dir_all(buckets.join("flags")).expect("a bucket");
        std::fs::create_dir_all(&about).expect("a folder");
        let (port, certificates) = (port::free(), tls.then(|| Certificates::create(folder.path())));
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let mut words = vec![path(&tools::s3()), "--port".to_owned(), format!("127.0.0.1:{port}")];
        words.extend(["--virtual-domain".to_owned(), format!("localhost:{port}"), "--quiet".to_owned()]);
        if let Some(files) = &certificates {
            words.extend(["--cert".to_owned(), path(&files.server), "--key".to_owned(), path(&files.server_key)]);
        }
        words.extend(["posix".to_owned(), "--sidecar".to_owned(), path(&about), path(&buckets)]);
        let process = Self::process(&words, &folder);
        let mut server = Self { address: Address::port(port), certificates, process, words, folder };
        server.wait_ready();
        server
    }

    fn process(words: &[String], folder: &tempfile::TempDir) -> Process {
        let variables =
            [("VGW_REGION", REGION), ("ROOT_ACCESS_KEY_ID", ACCESS_KEY.0), ("ROOT_SECRET_ACCESS_KEY", ACCESS_KEY.1)];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Process::start("versitygw", words, &folder.path().join("server.log"), &variables)
    }

    fn wait_ready(&mut self) {
        let address = self.address.clone();
        self.process.wait_ready(|| Stream::connect(&address).is_ok());
    }

    /// The file of an object of the bucket.
    #[must_use]
    pub fn object(&self, name: &str) -> PathBuf {
        self.folder.path().join("buckets/flags").join(name)
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again at the same address with the same objects.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = Self::process(&self.words, &self.folder);
        self.wait_ready();
    }
}
