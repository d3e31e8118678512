//! Replica sets: roles, read preferences, members, and the loss of a primary.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use weir_mongodb_codec::message::Flags;

use crate::support::{
    Client, Gateway, Setup, command, greeted, inner, integer, is_ok,
    server::{Act, Says, Server},
    until,
};

fn insert(client: &mut Client) -> Vec<u8> {
    client.ask(|body| {
        body.string("insert", "orders");
        body.string("$db", "shop");
    })
}

fn read(client: &mut Client, mode: &str) -> Vec<u8> {
    client.ask(|body| {
        body.string("find", "orders");
        body.document("$readPreference", |preference| preference.string("mode", mode));
        body.string("$db", "shop");
    })
}

#[test]
fn reads_go_where_their_preference_says() {
    let primary = Server::member(true, |_| Act::ok());
    let secondary = Server::member(false, |_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[secondary.address, primary.address]));
    let mut client = greeted(&gateway);
    assert!(is_ok(&insert(&mut client)) && is_ok(&read(&mut client, "primary")));
    assert!(is_ok(&read(&mut client, "secondary")) && is_ok(&read(&mut client, "secondaryPreferred")));
    assert_eq!((primary.count("insert"), primary.count("find"), secondary.count("find")), (1, 1, 2));
}

#[test]
fn one_client_reads_from_all_secondaries_in_turn() {
    let primary = Server::member(true, |_| Act::ok());
    let secondaries = [Server::member(false, |_| Act::ok()), Server::member(false, |_| Act::ok())];
    let gateway = Gateway::start(Setup::new(&[primary.address, secondaries[0].address, secondaries[1].address]));
    let mut client = greeted(&gateway);
    until("both are known", || {
        assert!(is_ok(&read(&mut client, "secondary")));
        secondaries.iter().all(|secondary| secondary.count("find") > 0)
    });
    let before = secondaries[0].count("find");
    for _ in 0..10 {
        assert!(is_ok(&read(&mut client, "secondary")));
    }
    assert_eq!((secondaries[0].count("find") - before, primary.count("find")), (5, 0));
}

#[test]
fn a_read_preference_is_short() {
    let server = Server::member(true, |_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    let mut of = |bytes: usize| {
        client.ask(|body| {
            body.string("find", "orders");
            body.document("$readPreference", |preference| {
                preference.string("mode", "nearest");
                preference.string("text", "x".repeat(bytes));
            });
            body.string("$db", "shop");
        })
    };
    assert_eq!(integer(&of(1 << 20), "code"), Some(2));
    assert!(is_ok(&of(3_000)));
    assert_eq!(server.count("find"), 1);
}

#[test]
fn a_primary_that_steps_down_says_so_and_the_next_write_goes_to_its_successor() {
    let has_stepped_down = Arc::new(AtomicBool::new(false));
    let flag = has_stepped_down.clone();
    let old = Server::member(true, move |_| if flag.load(Ordering::SeqCst) { Act::error(10_107) } else { Act::ok() });
    let new = Server::member(false, |_| Act::ok());
    let gateway = Gateway::start(Setup::new(&[old.address, new.address]));
    let mut client = greeted(&gateway);
    assert!(is_ok(&insert(&mut client)));
    has_stepped_down.store(true, Ordering::SeqCst);
    old.change(|says| says.is_primary = false);
    assert_eq!(integer(&insert(&mut client), "code"), Some(10_107), "drivers see the server's own error");
    let electing = new.clone();
    let election = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        electing.change(|says| says.is_primary = true);
    });
    // It waits for the election.
    assert!(is_ok(&insert(&mut client)));
    election.join().unwrap();
    assert_eq!(new.count("insert"), 1);
}

#[test]
fn the_members_that_a_set_names_take_the_place_of_the_seeds() {
    let primary = Server::member(true, |_| Act::ok());
    let seed = Server::member(false, |_| Act::ok());
    let hosts = vec![primary.address.to_string(), seed.address.to_string()];
    primary.change(|says| says.hosts.clone_from(&hosts));
    seed.change(|says| says.hosts.clone_from(&hosts));
    let mut setup = Setup::new(&[seed.address]);
    setup.upstream.replica_set = Some("rs0".to_owned());
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    assert!(is_ok(&insert(&mut client)), "the primary was found");
    assert_eq!(primary.count("insert"), 1);
    // A member that leaves is used no more.
    primary.change(|says| says.hosts = vec![says.hosts[0].clone()]);
    until("no connection to it is left", || seed.open() == 0);
    assert!(is_ok(&insert(&mut client)));
}

#[test]
fn a_server_of_another_set_gets_nothing() {
    let other = Server::new(Says { set_name: Some("rs1"), ..Says::default() }, |_| Act::ok());
    let own = Server::member(true, |_| Act::ok());
    let mut setup = Setup::new(&[other.address, own.address]);
    setup.upstream.replica_set = Some("rs0".to_owned());
    own.change(|says| says.hosts = vec![own.address.to_string()]);
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    for _ in 0..5 {
        assert!(is_ok(&insert(&mut client)));
    }
    assert_eq!((own.count("insert"), other.seen().len()), (5, 0));
}

#[test]
fn a_cursor_stays_with_the_member_that_has_it() {
    let of = |id: i64| {
        move |seen: &crate::support::server::Seen| match &*seen.name {
            "find" => Act::batch("firstBatch", id),
            "getMore" => Act::batch("nextBatch", id),
            _ => Act::ok(),
        }
    };
    let primary = Server::member(true, of(1));
    let secondary = Server::member(false, of(2));
    let gateway = Gateway::start(Setup::new(&[primary.address, secondary.address]));
    let mut client = greeted(&gateway);
    assert!(is_ok(&read(&mut client, "primary")) && is_ok(&read(&mut client, "secondary")));
    let more = |client: &mut Client, id: i64| {
        is_ok(&client.ask(|body| {
            body.int64("getMore", id);
            body.string("collection", "orders");
            body.string("$db", "shop");
        }))
    };
    let mut another = greeted(&gateway);
    for _ in 0..3 {
        assert!(more(&mut client, 1) && more(&mut client, 2) && more(&mut another, 2));
    }
    assert_eq!((primary.count("getMore"), secondary.count("getMore")), (3, 6));
}

#[test]
fn workers_share_cursors_servers_and_what_they_present() {
    let primary = Server::member(true, |seen| match &*seen.name {
        "find" => Act::batch("firstBatch", 77),
        "getMore" => Act::batch("nextBatch", 77),
        _ => Act::ok(),
    });
    let seed = Server::member(false, |_| Act::ok());
    let hosts = vec![primary.address.to_string(), seed.address.to_string()];
    primary.change(|says| says.hosts.clone_from(&hosts));
    seed.change(|says| says.hosts.clone_from(&hosts));
    let mut setup = Setup::new(&[seed.address]);
    setup.upstream.replica_set = Some("rs0".to_owned());
    setup.workers = 3;
    let gateway = Gateway::start(setup);
    let mut clients: Vec<_> = (0..3).map(|worker| gateway.client_on(worker)).collect();
    for client in &mut clients {
        assert_eq!(integer(&client.hello(false), "maxWireVersion"), Some(21));
        assert!(is_ok(&insert(client)), "each worker knows the primary");
    }
    assert!(is_ok(&read(&mut clients[0], "primary")));
    for client in &mut clients {
        let more = client.ask(|body| {
            body.int64("getMore", 77);
            body.string("collection", "orders");
            body.string("$db", "shop");
        });
        assert!(is_ok(&more));
    }
    assert_eq!((primary.count("getMore"), seed.seen().len()), (3, 0));
    // The connections of a small pool go where they are needed.
    for round in 0..30 {
        assert!(is_ok(&insert(&mut clients[round % 3])));
    }
    primary.change(|says| says.wire = 17);
    until("a new client of each worker sees it", || {
        (0..3).all(|worker| integer(&gateway.client_on(worker).hello(false), "maxWireVersion") == Some(17))
    });
}

#[test]
fn a_monitor_hears_at_once_of_an_error_that_makes_its_driver_doubt() {
    let server = Server::member(true, |_| Act::error(10_107));
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut monitor = gateway.client();
    let first = monitor.hello(false);
    let version = |name| {
        let value = inner(&first, "topologyVersion", name).expect("a version");
        (value.as_object_id(), value.as_integer())
    };
    let (process, counter) = (version("processId").0.expect("an id"), version("counter").1.expect("a number"));
    let id = monitor.next_id();
    monitor.send(&command(id, Flags::empty(), |body| {
        body.int32("hello", 1);
        body.document("topologyVersion", |version| {
            version.object_id("processId", process);
            version.int64("counter", counter);
        });
        body.int64("maxAwaitTimeMS", 60_000);
        body.string("$db", "admin");
    }));
    assert_eq!(integer(&insert(&mut greeted(&gateway)), "code"), Some(10_107));
    let news = monitor.message().expect("a reply long before its time");
    let now = inner(&news, "topologyVersion", "counter").and_then(|value| value.as_integer());
    assert!(now > Some(counter));
}

#[test]
fn an_error_of_the_write_concern_makes_a_look_come_at_once() {
    let server = Server::member(true, |_| {
        Act::reply(|body| {
            body.document("writeConcernError", |error| error.int32("code", 189));
            body.double("ok", 1.0);
        })
    });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.heartbeat_interval = Duration::from_secs(60);
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    let before = server.looks();
    assert!(is_ok(&insert(&mut client)), "the error is the client's to judge");
    until("a look has come", || server.looks() > before + 1);
    // Another reason than a step-down.
    let full = Server::member(true, |_| {
        Act::reply(|body| {
            body.document("writeConcernError", |error| error.int32("code", 64));
            body.double("ok", 1.0);
        })
    });
    let mut setup = Setup::new(&[full.address]);
    setup.upstream.heartbeat_interval = Duration::from_secs(60);
    let gateway = Gateway::start(setup);
    let mut client = greeted(&gateway);
    assert!(is_ok(&insert(&mut client)));
    let before = full.looks();
    assert!(is_ok(&insert(&mut client)));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(full.looks(), before);
}

#[test]
fn several_servers_behind_one_endpoint_are_used_as_one() {
    let server = Server::standalone(|seen| {
        if seen.name == "find" {
            std::thread::sleep(Duration::from_millis(100));
        }
        Act::ok()
    });
    // The monitor has the first connection.
    server.change(|says| says.processes = vec![[1; 12], [2; 12]]);
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut clients: Vec<_> = (0..6).map(|_| greeted(&gateway)).collect();
    for client in &mut clients {
        let id = client.next_id();
        client.send(&command(id, Flags::empty(), |body| {
            body.string("find", "orders");
            body.string("$db", "shop");
        }));
    }
    assert!(clients.iter_mut().all(|client| is_ok(&client.message().expect("a reply"))));
    assert!(server.seen().iter().all(|seen| seen.connection % 2 == 0), "one process gets all");
    let refused = [("upstream", "servers"), ("reason", "greeting")];
    assert!(gateway.counter("weir_lane_connect_failures_total", &refused) > 0);
}

#[test]
fn a_server_that_starts_again_behind_open_connections_is_another_one() {
    let server = Server::standalone(|seen| match &*seen.name {
        "find" => Act::batch("firstBatch", 77),
        _ => Act::ok(),
    });
    server.change(|says| says.processes = vec![[1; 12]]);
    let gateway = Gateway::start(Setup::new(&[server.address]));
    let mut client = greeted(&gateway);
    assert!(is_ok(&insert(&mut client)));
    let before = server.seen().last().map(|seen| seen.connection);
    // As a balancer that sends the monitor elsewhere.
    server.change(|says| says.processes = vec![[2; 12]]);
    until("the connection of before is closed", || server.open() == 1);
    assert!(is_ok(&insert(&mut client)));
    assert_ne!(server.seen().last().map(|seen| seen.connection), before);
}
