//! Workers: connections are spread evenly, the driver is the one that was requested, and no other process shares their port.

use std::path::Path;

use weir_tests::client::Client;
use weir_tests::deadline::{self, WAIT, until_true};
use weir_tests::gateway::{Config, Gateway, driver, program};
use weir_tests::port;
use weir_tests::process::Process;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Address;

fn connections_per_worker(gateway: &Gateway) -> Vec<f64> {
    let metrics = gateway.metrics();
    let per_worker = metrics.by("weir_worker_connections", "worker");
    per_worker.into_values().collect()
}

#[test]
fn eight_connections_on_two_workers_spread_four_and_four() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).workers(2));
    for round in 0..5 {
        let mut clients: Vec<Client> = (0..8).map(|_| gateway.connect()).collect();
        for client in &mut clients {
            client.expect(&["PING"], b"+PONG\r\n");
        }
        deadline::until_true(format!("round {round}: 4 and 4"), || connections_per_worker(&gateway) == [4.0, 4.0]);
        drop(clients);
        deadline::until_true("the connections to go", || connections_per_worker(&gateway) == [0.0, 0.0]);
    }
}

#[test]
fn connections_that_come_at_once_are_spread_too() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).workers(2));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let address = gateway.address.clone();
            std::thread::spawn(move || {
                (0..5)
                    .map(|_| {
                        let mut client = Client::connect(&address);
                        client.expect(&["PING"], b"+PONG\r\n");
                        client
                    })
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let clients: Vec<Client> = threads.into_iter().flat_map(|thread| thread.join().expect("clients connect")).collect();
    // The gauge is written by the workers in their own time.
    deadline::until_true("40 connections to be counted", || {
        connections_per_worker(&gateway).iter().sum::<f64>() == 40.0
    });
    let spread = connections_per_worker(&gateway);
    assert!(spread.iter().all(|count| (18.0..=22.0).contains(count)), "40 connections on two workers: {spread:?}");
    drop(clients);
}

#[test]
fn the_driver_is_the_configured_one() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).workers(2));
    let drivers = gateway.metrics().by("weir_worker_driver_info", "driver");
    let running: Vec<&str> = drivers.iter().filter(|(_, count)| **count > 0.0).map(|(name, _)| name.as_str()).collect();
    assert_eq!(running.len(), 1, "one driver on all workers: {drivers:?}");
    match driver() {
        "polling" => assert_eq!(running, ["polling"]),
        "io_uring" => assert!(running[0].starts_with("io_uring"), "{running:?}"),
        // Without this check all tests could run with polling, and none with io_uring. Kernels before 6.6 do not have the file:
        // there nothing says whether io_uring may be used.
        _ => match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").as_deref().map(str::trim) {
            Ok("0") => assert!(running[0].starts_with("io_uring"), "{running:?}"),
            Ok("2") => assert_eq!(running, ["polling"]),
            _ => {}
        },
    }
    let listed = gateway.admin.get("/api/v1/workers").json();
    let workers = listed["workers"].as_array().expect("a list of workers");
    assert_eq!(workers.len(), 2);
    for worker in workers {
        assert_eq!(worker["driver"], running[0]);
        assert_eq!(worker["stalled"], false);
    }
}

/// `weir run` with this configuration, whatever becomes of it.
fn run(config: &Config, folder: &Path, name: &str) -> Process {
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, config.text(port::free())).expect("the configuration can be written");
    let words = [program().display().to_string(), "run".into(), "--config".into(), file.display().to_string()];
    Process::start("weir", &words, &folder.join(format!("{name}.log")), &[])
}

/// Each worker binds with `SO_REUSEPORT`, which would let a second process take half of the connections in silence.
#[test]
fn a_second_gateway_on_the_same_port_does_not_start_and_names_the_first() {
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address).workers(2);
    let mut first = Gateway::start(config.clone());
    let folder = tempfile::tempdir().expect("a folder");
    let mut second = run(&config, folder.path(), "second");
    let status = second.wait(WAIT);
    let said = second.log();
    assert!(!status.success(), "{said}");
    let holder = format!("process {} (weir) listens there already", first.process().id());
    let listener = "free the address, or give the listener \"test\" another bind";
    for words in [&*config.bind.text(), &holder, listener, "weir upgrade", "reuse_port = true"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    (0..8).for_each(|_| first.connect().expect(&["PING"], b"+PONG\r\n"));
    // The port of a program without `SO_REUSEPORT` cannot be shared.
    let alone = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut taken = config;
    taken.bind = Address::port(alone.local_addr().expect("bound").port());
    let mut third = run(&taken, folder.path(), "third");
    let status = third.wait(WAIT);
    let said = third.log();
    let own = format!("process {} (", std::process::id());
    assert!(!status.success() && said.contains(&own) && !said.contains("reuse_port"), "{said}");
    first.finish();
}

#[test]
fn of_two_gateways_that_start_at_once_at_most_one_serves() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..4 {
        let config = Config::to(&server.address).workers(2);
        let mut both = ["a", "b"].map(|name| run(&config, folder.path(), &format!("{name}{round}")));
        let is_over = |one: &mut Process| one.try_wait().is_some();
        until_true("one of them to give up", || both.iter_mut().any(is_over));
        let refused = both.iter_mut().find_map(|one| is_over(one).then(|| one.log())).expect("one is over");
        // The other one listens, or has only bound so far.
        let names_the_other =
            ["listens there already", "a process that is starting"].iter().any(|text| refused.contains(text));
        assert!(refused.contains("cannot bind") && names_the_other, "{refused}");
    }
}

#[test]
fn gateways_share_a_port_if_both_say_so() {
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address).listener("reuse_port = true");
    let first = Gateway::start(config.clone());
    let second = Gateway::start(config);
    first.finish();
    second.connect().expect(&["PING"], b"+PONG\r\n");
}

#[test]
fn a_reload_does_not_take_the_port_of_another_process() {
    let server = Server::start(Kind::Redis);
    let mut other = Gateway::before(&server);
    let gateway = Gateway::before(&server);
    let (own, theirs) = (gateway.address.text(), other.address.text());
    gateway.rewrite(|text| text.replace(&own, &theirs));
    let response = gateway.admin.post("/api/v1/reload", "");
    assert!(
        response.status == 422 && response.body.contains(&format!("process {} (weir)", other.process().id())),
        "{}",
        response.body
    );
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    // From one address to all of them: what is in the way is its own.
    gateway.rewrite(|text| text.replace(&theirs, &own.replace("127.0.0.1", "0.0.0.0")));
    let response = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(response.json()["outcome"], "applied", "{}", response.body);
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
}

#[test]
fn a_second_origin_of_the_lab_names_the_address_and_the_first() {
    let bind = Address::port(port::free()).text();
    let folder = tempfile::tempdir().expect("a folder");
    for kind in ["redis", "http", "tcp"] {
        let start = |name: &str| {
            let words = [&*program().display().to_string(), "lab", "origin", kind, "--bind", &bind].map(str::to_owned);
            Process::start(name, &words, &folder.path().join(name), &[])
        };
        let mut first = start(&format!("{kind}-first"));
        first.wait_ready(|| std::net::TcpStream::connect(&bind).is_ok());
        let mut second = start(&format!("{kind}-second"));
        let status = second.wait(WAIT);
        let said = second.log();
        let expected = format!("cannot listen on {bind}: process {} (weir)", first.id());
        assert!(!status.success() && said.contains(&expected), "{kind}: {said}");
        first.signal("TERM");
        first.wait(WAIT);
    }
}
