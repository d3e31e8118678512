//! Writes that want no reply, where something goes wrong.

use std::time::Duration;

use weir_mongodb_codec::message::Flags;

use crate::support::{
    Client, Gateway, Setup, command, greeted, is_ok,
    server::{Act, Server},
    until,
};

/// Its client gets no reply, and a later write must not overtake one that was left out.
#[test]
fn m14_a_write_without_a_reply_that_gets_no_server_ends_its_connection() {
    let server = Server::standalone(|seen| if seen.name == "find" { Act::Silence } else { Act::ok() });
    let mut setup = Setup::new(&[server.address]);
    setup.upstream.pool.pool_size = 1;
    setup.listener.queue_wait_timeout = Duration::from_secs(1);
    let gateway = Gateway::start(setup);
    let (mut busy, mut writer) = (greeted(&gateway), greeted(&gateway));
    let request = |client: &mut Client, name: &'static str, flags| {
        let id = client.next_id();
        command(id, flags, |body| {
            body.string(name, "orders");
            body.string("$db", "shop");
        })
    };
    let find = request(&mut busy, "find", Flags::empty());
    busy.send(&find);
    until("the one connection is busy", || server.count("find") == 1);
    let [first, second] = [Flags::MORE_TO_COME, Flags::empty()].map(|flags| request(&mut writer, "insert", flags));
    writer.send(&[first, second].concat());
    assert!(writer.message().is_none(), "no reply is left out in silence");
    drop(busy);
    assert!(is_ok(&greeted(&gateway).ask(|body| {
        body.string("count", "orders");
        body.string("$db", "shop");
    })));
    assert_eq!(server.count("insert"), 0);
}

/// The id of a request is its client's choice. A reply to it must not pass for the reply to the ping behind it.
#[test]
fn m8_no_client_forges_the_end_of_a_write_without_a_reply() {
    for is_left in [false, true] {
        for id in (0..4).map(|number| i32::MIN + number) {
            // It replies to each write, and the reply to the ping comes by itself.
            let server = Server::standalone(|seen| {
                if matches!(&*seen.name, "insert" | "ping") {
                    std::thread::sleep(Duration::from_millis(60));
                }
                Act::ok()
            });
            let mut setup = Setup::new(&[server.address]);
            setup.upstream.pool.pool_size = 1;
            let gateway = Gateway::start(setup);
            let (mut writer, mut reader) = (greeted(&gateway), greeted(&gateway));
            writer.send(&command(id, Flags::MORE_TO_COME, |body| {
                body.string("insert", "orders");
                body.string("$db", "shop");
            }));
            until("the write has come", || server.count("insert") == 1);
            if is_left {
                drop(writer);
            }
            for _ in 0..3 {
                assert!(is_ok(&reader.find()), "{id}, {is_left}");
            }
            let labels = [("listener", "test"), ("reason", "mongodb_reply_order"), ("culprit", "upstream")];
            assert_eq!(gateway.counter("weir_violations_total", &labels), 0);
        }
    }
}
