//! Budgets that several gateways share in a real Redis server: used up to less than a request and not beyond, whatever happens to a gateway
//! or to the server. `script` compares the script of the store with its model.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use weir_tests::ai::{AiOrigin, KEY, environment, gateway_with_key, usage};
use weir_tests::deadline::{until, until_true};
use weir_tests::gateway::{Gateway, secret_file};
use weir_tests::http::HttpClient;
use weir_tests::server::{Kind, Options, Server};
use weir_tests::stream::{Address, Stream};

mod ends;
mod failover;
mod first;
mod script;

/// Clients of each gateway at a time.
const CLIENTS: usize = 4;

/// The most tokens that one of these requests reserves: 100 of output, and the prompt by three bytes a token.
const RESERVED_MAX: u64 = 150;

/// The response to a chat of some 30 tokens, on a connection of its own. `None`: the gateway is gone.
fn send(address: &Address, user: &str) -> Option<String> {
    let body = format!(
        "{{\"model\":\"m\",\"user\":\"{user}\",\"max_tokens\":100,\"messages\":[{{\"role\":\"user\",\"content\":\"[weir prompt=10 \
         bytes=80 events=2]\"}}]}}"
    );
    let mut client = HttpClient::over(Stream::connect(address).ok()?);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.try_send(format!("{head}{body}")).then(|| String::from_utf8_lossy(&client.to_end()).into_owned())
}

fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or_default()
}

/// A store, and gateways that share the budget of [`KEY`] in it.
struct Stand {
    store: Server,
    origin: AiOrigin,
    states: Vec<TempDir>,
    gateways: Vec<Gateway>,
}

fn store_table(store: &Server, more: &str) -> String {
    format!("[ai.store]\nendpoints = [\"{}\"]\n{more}", store.address.text())
}

impl Stand {
    fn new(kind: Kind, options: Options, gateways: usize, day_tokens: u64) -> Self {
        let (store, origin) = (Server::start_with(kind, options), AiOrigin::start());
        let mut stand = Self { store, origin, states: Vec::new(), gateways: Vec::new() };
        (0..gateways).for_each(|_| stand.add(day_tokens, ""));
        stand
    }

    fn add(&mut self, day_tokens: u64, more: &str) {
        let table = store_table(&self.store, more);
        self.add_with(day_tokens, &table);
    }

    /// With this table of the store.
    fn add_with(&mut self, day_tokens: u64, table: &str) {
        let state = tempfile::tempdir().expect("a folder");
        let key = format!("day_tokens = {day_tokens}\n");
        self.gateways.push(gateway_with_key(&self.origin, state.path(), &key, table));
        self.states.push(state);
    }

    /// Load on all gateways until `stop`, or until each client has found the budget used up. Returns the requests that were served.
    fn load(&self, stop: &AtomicBool) -> usize {
        let served = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for (number, gateway) in self.gateways.iter().enumerate() {
                for client in 0..CLIENTS {
                    let served = &served;
                    let user = format!("u{number}-{client}");
                    scope.spawn(move || client_loop(&gateway.address, &user, stop, served));
                }
            }
        });
        served.into_inner()
    }

    /// The load for a time.
    fn load_for(&self, time: Duration) -> usize {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| self.load(&stop));
            std::thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            load.join().expect("the load")
        })
    }

    /// The load to the end of the budget.
    fn use_up(&self) {
        self.load(&AtomicBool::new(false));
    }

    /// Tokens that were charged by all gateways.
    fn charged(&self) -> u64 {
        self.gateways.iter().for_each(Gateway::wait_at_rest);
        self.states.iter().map(|state| charged(state.path())).sum()
    }

    /// The budget is used up to less than a request, and not beyond; and each gateway says so.
    fn finish_used_up(self, day_tokens: u64) {
        // A usage line follows its response within a tenth of a second.
        let charged = until("the budget to be used up in the usage logs", Duration::from_secs(5), || {
            let charged = self.charged();
            (charged + RESERVED_MAX > day_tokens).then_some(charged)
        });
        assert!(charged <= day_tokens, "{charged} of {day_tokens}");
        for gateway in &self.gateways {
            until_true("the use by all gateways in the list of keys", || {
                let tokens = key_use(gateway);
                let elsewhere = tokens["used_elsewhere"].as_u64().expect("it is shared");
                tokens["used"].as_u64().expect("tokens") + elsewhere == charged
            });
        }
        self.gateways.into_iter().for_each(Gateway::finish);
    }
}

/// The tokens of the day of [`KEY`], as the admin API has them.
fn key_use(gateway: &Gateway) -> Value {
    let list = gateway.admin.request("GET", "/api/v1/ai/keys/sdk", &[], "").expect("a response").json();
    list["keys"][0]["usage"]["day_tokens"].clone()
}

fn charged(state: &Path) -> u64 {
    usage(state).iter().map(|line| line["charged_tokens"].as_u64().expect("tokens")).sum()
}

/// Sends requests until `stop`, or until the budget is used up for it ten times in a row.
fn client_loop(address: &Address, user: &str, stop: &AtomicBool, served: &AtomicUsize) {
    let mut refused = 0;
    while !stop.load(Ordering::Relaxed) && refused < 10 {
        let Some(response) = send(address, user) else { return };
        match status(&response) {
            "200" => {
                served.fetch_add(1, Ordering::Relaxed);
                refused = 0;
            }
            // The rest is at another gateway for a moment.
            "503" => {
                assert!(response.contains("\"overloaded\"") && response.contains("retry-after: 1"), "{response}");
                refused = 0;
                std::thread::sleep(Duration::from_millis(20));
            }
            "429" => {
                assert!(response.contains("insufficient_quota"), "{response}");
                refused += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
            // Killed meanwhile.
            "" => return,
            _ => panic!("{response}"),
        }
    }
}

#[test]
fn two_gateways_use_one_budget_up_and_not_more() {
    for kind in Kind::ALL {
        let stand = Stand::new(kind, Options::default(), 2, 20_000);
        stand.use_up();
        let granted = stand.gateways[0].metrics().sum_where("weir_ai_store_claims_total", &[("outcome", "granted")]);
        assert!(granted >= 2.0 && stand.gateways[0].metric("weir_ai_store_in_contact") == 1.0, "{granted}");
        stand.finish_used_up(20_000);
    }
}

#[test]
fn a_gateway_that_has_nothing_to_do_gives_its_part_back() {
    let mut stand = Stand::new(Kind::Valkey, Options::default(), 0, 5_000);
    // A gateway without requests learns of the others' use at a third of it.
    (0..3).for_each(|_| stand.add(5_000, "claim_ttl = \"30s\"\n"));
    until_true("each gateway to have a part", || {
        stand.gateways.iter().all(|gateway| key_use(gateway)["claimed"].as_u64() > Some(0))
    });
    let (served, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    client_loop(&stand.gateways[0].address, "alone", &stop, &served);
    let given = |gateway: &Gateway| {
        gateway.metrics().sum_where("weir_ai_store_claims_total", &[("outcome", "given_back")]) > 0.0
    };
    assert!(stand.gateways[1..].iter().all(given), "{} served", served.into_inner());
    assert!(charged(stand.states[1].path()) + charged(stand.states[2].path()) == 0);
    stand.finish_used_up(5_000);
}

#[test]
fn a_gateway_that_is_killed_goes_on_with_its_own_part() {
    let mut stand = Stand::new(Kind::Valkey, Options::default(), 2, 40_000);
    let stop = AtomicBool::new(false);
    let identity = |stand: &Stand| std::fs::read(stand.states[0].path().join("store-identity")).expect("an identity");
    let before = identity(&stand);
    for _ in 0..2 {
        stop.store(false, Ordering::Relaxed);
        let id = stand.gateways[0].process().id();
        let pid = rustix::process::Pid::from_raw(i32::try_from(id).expect("an id")).expect("an id");
        std::thread::scope(|scope| {
            scope.spawn(|| stand.load(&stop));
            std::thread::sleep(Duration::from_millis(250));
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is killed");
            stop.store(true, Ordering::Relaxed);
        });
        drop(stand.gateways[0].start_again(&environment()));
    }
    assert_eq!(identity(&stand), before);
    stand.use_up();
    let crashed =
        usage(stand.states[0].path()).iter().filter(|line| line["flags"].to_string().contains("crash")).count();
    println!("{crashed} requests were charged in full");
    stand.finish_used_up(40_000);
}

#[test]
fn a_store_that_restarts_or_loses_its_data_grants_nothing_twice() {
    let flags = ["--appendonly", "yes", "--appendfsync", "always"].map(str::to_owned).to_vec();
    let mut stand = Stand::new(Kind::Valkey, Options { flags, ..Options::default() }, 2, 60_000);
    let epochs = |stand: &Stand| stand.gateways[1].metric("weir_ai_store_epochs_total");
    assert!(stand.load_for(Duration::from_millis(300)) > 0);
    // With its data.
    stand.store.restart();
    until_true("the restart to be noticed", || epochs(&stand) == 1.0);
    stand.load_for(Duration::from_millis(300));
    stand.store.connect().expect(&["FLUSHALL"], b"+OK\r\n");
    until_true("the loss to be noticed", || epochs(&stand) >= 2.0);
    // Within the grace, and while the first gateway alone has requests.
    let (served, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| client_loop(&stand.gateways[0].address, "alone", &stop, &served));
        std::thread::sleep(Duration::from_secs(6));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(served.into_inner() > 0);
    for gateway in &stand.gateways {
        let log = gateway.log();
        // A gateway with a later revision than the one that has noticed the loss first begins another epoch.
        assert!((2..=3).contains(&log.matches("puts back what it knows").count()), "{log}");
    }
    stand.use_up();
    stand.finish_used_up(60_000);
}

/// How often the log has these words.
fn times(gateway: &Gateway, words: &str) -> usize {
    gateway.log().matches(words).count()
}

#[test]
fn without_the_store_the_operator_decides() {
    let mut stand = Stand::new(Kind::Valkey, Options::default(), 1, 30_000);
    stand.add(30_000, "on_failure = \"refuse\"\n");
    stand.add(30_000, "on_failure = \"local\"\n");
    stand.load_for(Duration::from_millis(100));
    stand.store.kill();
    for gateway in &stand.gateways {
        until_true("the loss of contact", || gateway.metric("weir_ai_store_in_contact") == 0.0);
    }
    let status_of = |gateway: &Gateway| status(&send(&gateway.address, "u").expect("a response")).to_owned();
    let [claimed, refuse, local] = &stand.gateways[..] else { panic!("three") };
    assert_eq!(status_of(claimed), "200", "its part is not used up");
    assert_eq!(status_of(refuse), "503");
    let end = Instant::now() + Duration::from_secs(15);
    while status_of(claimed) == "200" {
        assert!(Instant::now() < end, "its part has an end");
    }
    let response = send(&claimed.address, "u").expect("a response");
    assert!(response.contains("\"overloaded\"") && response.contains("retry-after: 1"), "{response}");
    assert_eq!(status_of(local), "200");
    let tokens = key_use(claimed);
    assert!(tokens["used"].as_u64() <= tokens["claimed"].as_u64(), "{tokens}");
    for gateway in &stand.gateways {
        assert_eq!(times(gateway, "the store of budgets does not respond"), 1, "{}", gateway.log());
        assert!(gateway.metrics().sum_where("weir_ai_store_failures_total", &[("reason", "connect")]) > 0.0);
    }
    stand.store.restart();
    for gateway in &stand.gateways {
        until_true("the store to answer", || gateway.metric("weir_ai_store_in_contact") == 1.0);
        assert_eq!(times(gateway, "the store of budgets responds again"), 1);
    }
    stand.use_up();
    stand.finish_used_up(30_000);
}

#[test]
fn a_gateway_takes_its_part_through_an_upgrade() {
    let mut stand = Stand::new(Kind::Valkey, Options::default(), 2, 30_000);
    stand.load_for(Duration::from_millis(200));
    let mut old = stand.gateways[0].upgrade();
    assert!(old.wait(Duration::from_secs(15)).success());
    assert_eq!(times(&stand.gateways[0], "has the identity of this gateway"), 0);
    stand.use_up();
    stand.finish_used_up(30_000);
}

#[test]
fn a_store_with_tls_and_a_password_is_used_and_a_wrong_password_is_named_once() {
    let options = Options { tls: true, password: Some("secret-of-the-store".to_owned()), ..Options::default() };
    let (store, origin) = (Server::start_with(Kind::Redis, options), AiOrigin::start());
    let (state, folder) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (address, ca) =
        (store.tls_address.as_ref().expect("TLS"), &store.certificates.as_ref().expect("TLS").authority);
    let table = |password: &str, name: &str| {
        let file = secret_file(folder.path(), name, password);
        format!(
            "[ai.store]\nendpoints = [\"{}\"]\npassword = {{ file = \"{}\" }}\n[ai.store.tls]\nca_file = \"{}\"\n\
             server_name = \"localhost\"\n",
            address.text(),
            file,
            ca.display()
        )
    };
    let good = gateway_with_key(&origin, state.path(), "day_tokens = 10000\n", &table("secret-of-the-store", "good"));
    assert_eq!(status(&send(&good.address, "u").expect("a response")), "200");
    assert_eq!(good.metric("weir_ai_store_in_contact"), 1.0);
    let other = tempfile::tempdir().expect("a folder");
    let bad = gateway_with_key(&origin, other.path(), "day_tokens = 10000\n", &table("wrong", "bad"));
    bad.wait_log("WRONGPASS");
    assert_eq!(status(&send(&bad.address, "u").expect("a response")), "503");
    assert_eq!(times(&bad, "WRONGPASS"), 1);
    assert!(!bad.log().contains("secret-of-the-store") && !good.log().contains("secret-of-the-store"));
    good.finish();
    bad.finish();
}
