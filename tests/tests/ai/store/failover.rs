//! A primary and its replica, with a password and, for Redis, with TLS on all their connections. The wheel of Valkey has no TLS.

use super::*;

const PASSWORD: &str = "secret-of-the-store";

const CHANGE: &str = "another server is the store of budgets now";

/// Two servers, of which the second follows the first, and two gateways that know both.
struct Pair {
    first: Server,
    /// Its store is the second server.
    stand: Stand,
    _folder: TempDir,
}

/// Where others reach a server.
fn address(server: &Server) -> &Address {
    server.tls_address.as_ref().unwrap_or(&server.address)
}

/// Makes `server` a follower of `primary`.
fn follow(server: &Server, primary: &Server) {
    let port = address(primary).tcp().port().to_string();
    server.connect().expect(&["REPLICAOF", "127.0.0.1", &port], b"+OK\r\n");
}

fn wait_synchronised(replica: &Server) {
    until_true("the replica to have the data", || replica.info("replication", "master_link_status") == "up");
}

impl Pair {
    fn new(kind: Kind, day_tokens: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let words = ["--masterauth", PASSWORD, "--repl-diskless-sync-delay", "0"];
        let mut options = Options { password: Some(PASSWORD.to_owned()), ..Options::default() };
        (options.tls, options.flags) = (kind == Kind::Redis, words.map(str::to_owned).to_vec());
        if options.tls {
            options.flags.extend(["--tls-replication", "yes"].map(str::to_owned));
        }
        let first = Server::start_with(kind, options.clone());
        let mut tls = String::new();
        if let Some(files) = &first.certificates {
            tls = format!("[ai.store.tls]\nca_file = \"{}\"\nserver_name = \"localhost\"\n", files.authority.display());
            // A replica verifies its primary, so both have the certificate of one authority.
            let (certificate, key, authority) = (&files.server, &files.server_key, &files.authority);
            for (word, file) in
                [("--tls-cert-file", certificate), ("--tls-key-file", key), ("--tls-ca-cert-file", authority)]
            {
                options.flags.extend([word.to_owned(), file.display().to_string()]);
            }
        }
        let second = Server::start_with(kind, options);
        follow(&second, &first);
        wait_synchronised(&second);
        let file = secret_file(folder.path(), "password", PASSWORD);
        let table = format!(
            "[ai.store]\nendpoints = [\"{}\", \"{}\"]\npassword = {{ file = \"{file}\" }}\n{tls}",
            address(&first).text(),
            address(&second).text(),
        );
        let mut stand = Stand { store: second, origin: AiOrigin::start(), states: Vec::new(), gateways: Vec::new() };
        (0..2).for_each(|_| stand.add_with(day_tokens, &table));
        Self { first, stand, _folder: folder }
    }

    /// Load on both gateways while `change` happens to the servers, and until each gateway has met the second one.
    fn load_through(&mut self, change: impl FnOnce(&mut Server, &Server)) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| self.stand.load(&stop));
            until_true("each gateway to serve", || self.stand.gateways.iter().all(|one| used(one) > 0));
            change(&mut self.first, &self.stand.store);
            for gateway in &self.stand.gateways {
                until_true("the second server to be the store", || times(gateway, CHANGE) == 1);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(load.join().expect("the load") > 0);
        });
        for gateway in &self.stand.gateways {
            assert!(gateway.log().contains("puts back what it knows"), "{}", gateway.log());
        }
    }
}

fn used(gateway: &Gateway) -> u64 {
    key_use(gateway)["used"].as_u64().expect("tokens")
}

#[test]
fn a_replica_that_is_promoted_takes_the_budget_over() {
    for kind in Kind::ALL {
        let mut pair = Pair::new(kind, 40_000);
        pair.load_through(|first, second| {
            first.kill();
            second.connect().expect(&["REPLICAOF", "NO", "ONE"], b"+OK\r\n");
        });
        pair.stand.use_up();
        pair.stand.finish_used_up(40_000);
    }
}

#[test]
fn a_primary_that_becomes_the_replica_is_left_for_its_successor() {
    for kind in Kind::ALL {
        let mut pair = Pair::new(kind, 40_000);
        // The connections to the old primary stay open, and it refuses writes.
        pair.load_through(|first, second| {
            second.connect().expect(&["REPLICAOF", "NO", "ONE"], b"+OK\r\n");
            follow(first, second);
        });
        wait_synchronised(&pair.first);
        pair.stand.use_up();
        pair.stand.finish_used_up(40_000);
    }
}
