//! Workers: connections are spread evenly, and the driver is the one that was asked for.

use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway, driver};
use weir_tests::server::{Kind, Server};

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
fn the_driver_is_the_one_that_was_asked_for() {
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

/// Each worker binds with `SO_REUSEPORT`, so that a replacement may start beside the old gateway; by accident it is told.
#[test]
fn a_second_gateway_on_the_same_port_serves_and_is_warned() {
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address);
    let first = Gateway::start(config.clone());
    let second = Gateway::start(config);
    second.wait_log("another process listens here too");
    first.finish();
    second.connect().expect(&["PING"], b"+PONG\r\n");
}
