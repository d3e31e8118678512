//! Copies of flags and tokens in a Redis server and in a bucket.

use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::deadline::{WAIT, until, until_true};
use weir_tests::flags::{ACCESS_KEY, BACKEND, BucketServer, FlagOrigin, REGION, before, before_with, environment, get};
use weir_tests::gateway::Gateway;
use weir_tests::server::{Kind, Options, Server};
use weir_tests::stream::Address;
use weir_tests::wire::bulk;

const FEATURES: &str = "/api/client/features";

/// A token that the gateway has from a backup alone.
const SAVED: &str = "*:development.saved-secret";

/// The documents as Unleash Edge 19 writes them: a list of pairs, and a list of tokens.
const EDGE_FEATURES: &str = r#"[["development",{"version":2,"features":[{"name":"of-edge","type":"release","enabled":true,"strategies":[]}],"segments":null,"query":null}]]"#;
const EDGE_TOKENS: &str = r#"[{"token":"*:development.lab-backend","type":"client","environment":"development","projects":["*"],"status":"Validated"},{"token":"*:development.saved-secret","type":"client","environment":"development","projects":["*"],"status":"Validated"}]"#;

fn names(gateway: &Gateway) -> Vec<String> {
    let reply = get(&gateway.address, FEATURES, BACKEND);
    if reply.status == 200 { reply.names() } else { Vec::new() }
}

/// Ends a gateway, and gives its log with that of its end.
fn ended(mut gateway: Gateway) -> String {
    gateway.process().signal("TERM");
    let status = gateway.process().wait(WAIT);
    let log = gateway.log();
    assert!(status.success(), "{status}\n{log}");
    gateway.ended();
    log
}

/// Waits for a start that says why it has no backup, and serves nothing of it.
fn assert_refused(gateway: Gateway, words: &str) {
    gateway.wait_log("the backup of flags cannot be used");
    gateway.wait_log(words);
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 503, "nothing of a damaged backup is served");
    gateway.finish();
}

/// A document that is damaged, with the words of the log.
fn damages(whole: &str) -> [(String, &'static str); 3] {
    [
        (whole[..whole.len() - 10].to_owned(), "truncated or damaged"),
        (whole.replacen("\"weirBackup\":1", "\"weirBackup\":9", 1), "version 9"),
        ("garbage".to_owned(), "no map of environments"),
    ]
}

mod redis {
    use super::*;

    const PASSWORD: &str = "backup-password-0123456789";

    fn variables() -> Vec<(String, String)> {
        let mut all = environment();
        all.push(("BACKUP_PASSWORD".to_owned(), PASSWORD.to_owned()));
        all
    }

    fn table(address: &Address, more: &str) -> String {
        format!(
            "validation_timeout = \"0s\"\n[listener.flags.backup_redis]\nendpoints = [\"{}\"]\n{more}",
            address.text()
        )
    }

    fn gateway(origin: &Address, more: &str) -> Gateway {
        before_with(origin, more, "", &variables())
    }

    fn text(client: &mut Client, key: &str) -> String {
        String::from_utf8(bulk(&client.call(&["GET", key]))).expect("text")
    }

    /// Saves with a gateway that ends, and starts another one from that while the server is down.
    fn check_start(server: &Server, more: &str, prefix: &str) {
        let mut origin = FlagOrigin::start();
        let first = gateway(&origin.address, more);
        until_true("flags", || names(&first).len() == 5);
        let served = names(&first);
        first.finish();
        let mut client = server.connect();
        if more.contains("database = 3") {
            client.expect(&["SELECT", "3"], b"+OK\r\n");
        }
        for key in ["unleash-features", "unleash-tokens"] {
            let saved = text(&mut client, &format!("{prefix}{key}"));
            assert!(saved.starts_with("{\"weirBackup\":1,"), "{saved}");
        }
        origin.kill();
        let restored = gateway(&origin.address, more);
        until_true("the flags of the backup", || names(&restored) == served);
        restored.wait_log("flags are those of the backup");
        restored.finish();
    }

    #[test]
    fn a_start_without_the_server_serves_the_flags_of_redis() {
        for kind in Kind::ALL {
            let server = Server::start(kind);
            check_start(&server, &table(&server.address, ""), "");
            check_start(&server, &table(&server.address, "database = 3\nprefix = \"eu:\""), "eu:");
        }
    }

    #[test]
    fn a_backup_goes_to_redis_with_a_password_a_user_a_unix_socket_and_tls() {
        let password = || Some(PASSWORD.to_owned());
        let server = Server::start_with(Kind::Redis, Options { password: password(), ..Options::default() });
        check_start(&server, &table(&server.address, "password = \"env:BACKUP_PASSWORD\""), "");
        let user = Some(("keeper".to_owned(), PASSWORD.to_owned()));
        let options = Options { user, unix: true, password: Some("other".to_owned()), ..Options::default() };
        let server = Server::start_with(Kind::Redis, options);
        check_start(&server, &table(&server.address, "user = \"keeper\"\npassword = \"env:BACKUP_PASSWORD\""), "");
        let server = Server::start_with(Kind::Redis, Options { tls: true, password: password(), ..Options::default() });
        let address = server.tls_address.as_ref().expect("TLS");
        let authority = server.certificates.as_ref().expect("TLS").authority.display().to_string();
        let more =
            format!("password = \"env:BACKUP_PASSWORD\"\n[listener.flags.backup_redis.tls]\nca_file = \"{authority}\"");
        check_start(&server, &table(address, &more), "");
    }

    #[test]
    fn a_wrong_password_is_named_and_serving_goes_on() {
        let options = Options { password: Some("another-password".to_owned()), ..Options::default() };
        let (server, origin) = (Server::start_with(Kind::Redis, options), FlagOrigin::start());
        let gateway = gateway(&origin.address, &table(&server.address, "password = \"env:BACKUP_PASSWORD\""));
        gateway.wait_log("the backup of flags cannot be used");
        gateway.wait_log("WRONGPASS");
        until_true("flags", || names(&gateway).len() == 5);
        let log = ended(gateway);
        assert!(log.contains("the backup of flags cannot be written") && !log.contains(PASSWORD), "{log}");
    }

    #[test]
    fn a_redis_server_that_is_down_is_named_and_serves_as_soon_as_it_is_back() {
        let (mut server, mut origin) = (Server::start(Kind::Redis), FlagOrigin::start());
        let more = table(&server.address, "");
        server.kill();
        let without = gateway(&origin.address, &more);
        without.wait_log("the backup of flags cannot be used");
        until_true("flags", || names(&without).len() == 5);
        assert!(ended(without).contains("the backup of flags cannot be written"));
        origin.kill();
        let waiting = gateway(&origin.address, &more);
        waiting.wait_log("the backup of flags cannot be used");
        assert_eq!(get(&waiting.address, FEATURES, BACKEND).status, 503);
        server.restart();
        fill(&server);
        until("the flags of the backup", Duration::from_secs(40), || {
            (get(&waiting.address, FEATURES, SAVED).status == 200).then_some(())
        });
        waiting.finish();
    }

    #[test]
    fn a_redis_server_that_hangs_delays_a_start_for_a_while_only() {
        let (server, origin) = (Server::start(Kind::Redis), FlagOrigin::start());
        let frozen = server.freeze();
        let gateway = gateway(&origin.address, &table(&server.address, ""));
        until_true("flags", || names(&gateway).len() == 5);
        drop(frozen);
        gateway.finish();
    }

    /// Writes the copies of Unleash Edge. Both keys at once, so that no attempt comes between them.
    fn fill(server: &Server) {
        let copies = ["MSET", "unleash-features", EDGE_FEATURES, "unleash-tokens", EDGE_TOKENS];
        server.connect().expect(&copies, b"+OK\r\n");
    }

    /// A pause that a start does not wait for, and a request to the store does.
    const PAUSE: Duration = Duration::from_secs(5);

    #[test]
    fn copies_that_come_late_are_served_while_the_server_is_down() {
        let (server, mut origin) = (Server::start(Kind::Redis), FlagOrigin::start());
        origin.kill();
        fill(&server);
        let frozen = server.freeze();
        let gateway = gateway(&origin.address, &table(&server.address, ""));
        std::thread::sleep(PAUSE);
        assert_eq!(get(&gateway.address, FEATURES, SAVED).status, 503, "nothing has come");
        drop(frozen);
        until_true("the late copies", || get(&gateway.address, FEATURES, SAVED).status == 200);
        let log = ended(gateway);
        assert!(!log.contains("the backup of flags cannot be used"), "it came late, and it came: {log}");
    }

    #[test]
    fn copies_that_come_late_replace_no_flags_of_the_server() {
        let (server, origin) = (Server::start(Kind::Redis), FlagOrigin::start());
        fill(&server);
        let frozen = server.freeze();
        let gateway = gateway(&origin.address, &table(&server.address, ""));
        until_true("flags of the server", || names(&gateway).len() == 5);
        drop(frozen);
        // The copies are read, and compared with the flags that are there.
        gateway.wait_log("the backup of flags came late; the flags of the server stay");
        assert_eq!(names(&gateway).len(), 5);
        assert!(get(&gateway.address, FEATURES, SAVED).status != 200, "the server does not know the token");
        let log = ended(gateway);
        assert!(!log.contains("flags are those of the backup"), "{log}");
    }

    #[test]
    fn f7_a_damaged_key_is_named_and_ignored() {
        let (server, mut origin) = (Server::start(Kind::Redis), FlagOrigin::start());
        let more = table(&server.address, "");
        let first = gateway(&origin.address, &more);
        until_true("flags", || names(&first).len() == 5);
        first.finish();
        origin.kill();
        let mut client = server.connect();
        let whole = text(&mut client, "unleash-features");
        for (damage, words) in damages(&whole) {
            client.expect(&["SET", "unleash-features", &damage], b"+OK\r\n");
            assert_refused(gateway(&origin.address, &more), words);
        }
        client.expect(&["SET", "unleash-features", &whole], b"+OK\r\n");
        client.expect(&["SET", "unleash-tokens", "{\"weirBackup\":1,"], b"+OK\r\n");
        assert_refused(gateway(&origin.address, &more), "unleash-tokens: no list of tokens");
        client.call(&["DEL", "unleash-features"]);
        client.expect(&["LPUSH", "unleash-features", "a list"], b":1\r\n");
        assert_refused(gateway(&origin.address, &more), "WRONGTYPE");
        client.call(&["DEL", "unleash-features"]);
        client.expect(&["SETRANGE", "unleash-features", "67200000", "x"], b":67200001\r\n");
        assert_refused(gateway(&origin.address, &more), "its reply has more than");
    }

    #[test]
    fn documents_of_unleash_edge_in_redis_are_served() {
        let (server, mut origin) = (Server::start(Kind::Redis), FlagOrigin::start());
        origin.kill();
        fill(&server);
        let gateway = gateway(&origin.address, &table(&server.address, ""));
        until_true("the flags of Unleash Edge", || get(&gateway.address, FEATURES, SAVED).status == 200);
        assert_eq!(get(&gateway.address, FEATURES, SAVED).names(), ["of-edge"]);
        gateway.finish();
    }
}

mod s3 {
    use super::*;

    fn variables(secret: &str) -> Vec<(String, String)> {
        let mut all = environment();
        for (name, value) in
            [("AWS_ACCESS_KEY_ID", ACCESS_KEY.0), ("AWS_SECRET_ACCESS_KEY", secret), ("AWS_SESSION_TOKEN", "")]
        {
            all.push((name.to_owned(), value.to_owned()));
        }
        all
    }

    /// The bucket in the path of requests to an address, or in their host.
    fn table(is_path_style: bool, more: &str) -> String {
        format!(
            "validation_timeout = \"0s\"\n[listener.flags.backup_s3]\nupstream = \"bucket\"\nbucket = \"flags\"\n\
             region = \"{REGION}\"\npath_style = {is_path_style}\n{more}"
        )
    }

    fn upstream(server: &BucketServer, host: &str) -> String {
        let port = server.address.text().rsplit(':').next().expect("a port").to_owned();
        let tls = server
            .certificates
            .as_ref()
            .map_or_else(String::new, |files| format!("[upstream.tls]\nca_file = \"{}\"\n", files.authority.display()));
        format!("[[upstream]]\nname = \"bucket\"\nendpoints = [\"{host}:{port}\"]\n{tls}")
    }

    fn gateway(origin: &Address, server: &BucketServer, more: &str) -> Gateway {
        before_with(origin, more, &upstream(server, "127.0.0.1"), &variables(ACCESS_KEY.1))
    }

    fn check_start(server: &BucketServer, host: &str, more: &str, variables: &[(String, String)]) {
        let (mut origin, tables) = (FlagOrigin::start(), upstream(server, host));
        let first = before_with(&origin.address, more, &tables, variables);
        until_true("flags", || names(&first).len() == 5);
        let served = names(&first);
        first.finish();
        for name in ["unleash-features.json", "unleash-tokens.json"] {
            let saved = std::fs::read_to_string(server.object(name)).expect("an object");
            assert!(saved.starts_with("{\"weirBackup\":1,"), "{saved}");
            let bare = saved.split_once('\n').expect("a seal").1;
            assert!(serde_json::from_str::<serde_json::Value>(bare).is_ok(), "{bare}");
        }
        origin.kill();
        let restored = before_with(&origin.address, more, &tables, variables);
        until_true("the flags of the backup", || names(&restored) == served);
        restored.wait_log("flags are those of the backup");
        restored.finish();
    }

    #[test]
    fn a_start_without_the_server_serves_the_flags_of_a_bucket() {
        for tls in [false, true] {
            let server = BucketServer::start(tls);
            check_start(&server, "127.0.0.1", &table(true, ""), &variables(ACCESS_KEY.1));
            let mut named = environment();
            named.push(("BUCKET_KEY_ID".to_owned(), ACCESS_KEY.0.to_owned()));
            named.push(("BUCKET_KEY".to_owned(), ACCESS_KEY.1.to_owned()));
            let keys = "access_key_id = \"env:BUCKET_KEY_ID\"\nsecret_access_key = \"env:BUCKET_KEY\"";
            check_start(&server, "localhost", &table(false, keys), &named);
        }
    }

    #[test]
    fn a_wrong_key_and_a_bucket_that_is_not_there_are_named_and_serving_goes_on() {
        let (server, origin) = (BucketServer::start(false), FlagOrigin::start());
        let other = table(true, "").replace("bucket = \"flags\"", "bucket = \"other\"");
        let other_region = table(true, "").replace(REGION, "eu-test-2");
        for (more, secret, words) in [
            (table(true, ""), "bucket-wrong-key-0123456789", "403 SignatureDoesNotMatch"),
            (other, ACCESS_KEY.1, "404 NoSuchBucket"),
            (other_region, ACCESS_KEY.1, "400 "),
        ] {
            let gateway = before_with(&origin.address, &more, &upstream(&server, "127.0.0.1"), &variables(secret));
            gateway.wait_log("the backup of flags cannot be used");
            gateway.wait_log(words);
            until_true("flags", || names(&gateway).len() == 5);
            let log = ended(gateway);
            assert!(log.contains("the backup of flags cannot be written"), "{log}");
            for secret in [secret, "X-Amz-Signature"] {
                assert!(!log.contains(secret), "{log}");
            }
        }
    }

    #[test]
    fn a_bucket_that_is_out_of_reach_is_named_and_serves_as_soon_as_it_is_back() {
        let (mut server, mut origin) = (BucketServer::start(false), FlagOrigin::start());
        let first = gateway(&origin.address, &server, &table(true, ""));
        until_true("flags", || names(&first).len() == 5);
        let served = names(&first);
        first.finish();
        server.kill();
        let without = gateway(&origin.address, &server, &table(true, ""));
        without.wait_log("the backup of flags cannot be used");
        until_true("flags", || names(&without).len() == 5);
        assert!(ended(without).contains("the backup of flags cannot be written"));
        origin.kill();
        let waiting = gateway(&origin.address, &server, &table(true, ""));
        waiting.wait_log("the server cannot be reached");
        assert_eq!(get(&waiting.address, FEATURES, BACKEND).status, 503);
        server.restart();
        until("the flags of the backup", Duration::from_secs(60), || (names(&waiting) == served).then_some(()));
        waiting.finish();
    }

    #[test]
    fn f7_a_damaged_object_is_named_and_one_of_unleash_edge_is_served() {
        let (server, mut origin) = (BucketServer::start(false), FlagOrigin::start());
        let more = table(true, "");
        let first = gateway(&origin.address, &server, &more);
        until_true("flags", || names(&first).len() == 5);
        first.finish();
        origin.kill();
        let file = server.object("unleash-features.json");
        let whole = std::fs::read_to_string(&file).expect("an object");
        for (damage, words) in damages(&whole) {
            std::fs::write(&file, damage).expect("written");
            assert_refused(gateway(&origin.address, &server, &more), words);
        }
        std::fs::File::create(&file).and_then(|file| file.set_len(67_200_000)).expect("written");
        assert_refused(gateway(&origin.address, &server, &more), "it has more than");
        std::fs::write(&file, EDGE_FEATURES).expect("written");
        std::fs::write(server.object("unleash-tokens.json"), EDGE_TOKENS).expect("written");
        let restored = gateway(&origin.address, &server, &more);
        until_true("the flags of Unleash Edge", || get(&restored.address, FEATURES, SAVED).status == 200);
        assert_eq!(get(&restored.address, FEATURES, SAVED).names(), ["of-edge"]);
        restored.finish();
    }
}

#[test]
fn documents_of_unleash_edge_in_a_directory_are_served() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("unleash_features.json"), EDGE_FEATURES).expect("written");
    std::fs::write(folder.path().join("unleash_tokens.json"), EDGE_TOKENS).expect("written");
    let mut origin = FlagOrigin::start();
    origin.kill();
    let gateway = before(&origin.address, &format!("backup_dir = \"{}\"", folder.path().display()));
    until_true("the flags of Unleash Edge", || get(&gateway.address, FEATURES, SAVED).status == 200);
    assert_eq!(get(&gateway.address, FEATURES, SAVED).names(), ["of-edge"]);
    gateway.finish();
}

/// A disk of a few pages, until it is dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(folder.path());
        assert!(mount.status().expect("mount").success(), "a disk needs root");
        Self(folder)
    }

    /// Takes all that is free.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.path().join("filler")).expect("created");
        while std::io::Write::write_all(&mut file, &[b'x'; 4_096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_leaves_the_backup_before_and_is_named() {
    let disk = SmallDisk::mount();
    let folder = disk.0.path().join("backup");
    let more = format!("validation_timeout = \"0s\"\nbackup_dir = \"{}\"", folder.display());
    let mut origin = FlagOrigin::start();
    let first = before(&origin.address, &more);
    until_true("flags", || names(&first).len() == 5);
    let served = names(&first);
    first.finish();
    let files = || -> Vec<(std::ffi::OsString, Vec<u8>)> {
        let entries = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry"));
        let mut all: Vec<_> =
            entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).expect("a file"))).collect();
        all.sort();
        all
    };
    let whole = files();
    assert_eq!(whole.len(), 2);
    let second = before(&origin.address, &more);
    origin.replace(r#"{"version":2,"features":[{"name":"later","enabled":true,"strategies":[]}]}"#);
    until_true("other flags", || names(&second) == ["later"]);
    disk.fill();
    let log = ended(second);
    assert!(log.contains("the backup of flags cannot be written") && log.contains("No space left"), "{log}");
    assert_eq!(files(), whole, "the copies before, and no part of others");
    origin.kill();
    let restored = before(&origin.address, &more);
    until_true("the flags of the backup", || names(&restored) == served);
    restored.finish();
}
