//! An imported configuration of twemproxy: the program itself and Weir answer the same requests alike, and find the same keys.

use weir_tests::client::Client;
use weir_tests::deadline::{WAIT, until};
use weir_tests::gateway::Gateway;
use weir_tests::import::import;
use weir_tests::port;
use weir_tests::process::Process;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::{Address, Stream};

const KEYS: usize = 300;

fn config(port: u16, servers: &[Server]) -> String {
    let list: String = servers.iter().map(|server| format!("   - {}:1\n", server.address.text())).collect();
    format!(
        "cache:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n  hash_tag: \"{{}}\"\n  distribution: ketama\n  \
         timeout: 5000\n  backlog: 512\n  servers:\n{list}"
    )
}

#[test]
fn twemproxy_and_weir_with_its_configuration_answer_alike() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start(Kind::Redis)).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (theirs, admin) = (port::free(), port::free().to_string());
    let file = folder.path().join("nutcracker.yml");
    std::fs::write(&file, config(theirs, &servers)).expect("written");
    let words = ["nutcracker", "-s", &admin, "-a", "127.0.0.1", "-c", &file.to_string_lossy()].map(str::to_owned);
    let mut nutcracker = Process::start("nutcracker", &words, &folder.path().join("log"), &[]);
    let theirs = Address::port(theirs);
    until("nutcracker to listen".to_owned(), WAIT, || Stream::connect(&theirs).ok());
    let port = port::free();
    let imported = import("twemproxy", &config(port, &servers));
    assert_eq!(imported.notes, "", "every key has a counterpart");
    let gateway = Gateway::with_text(&imported.toml, Address::port(port));
    let (mut old, mut new) = (Client::connect(&theirs), Client::connect(&gateway.address));
    // Written through one and read through the other, both ways: each key is on the server that the other looks at.
    for n in 0..KEYS {
        let (first, second) = (format!("a:{n}"), format!("{{tag{}}}:{n}", n % 7));
        old.expect(&["SET", &first, &n.to_string()], b"+OK\r\n");
        new.expect(&["SET", &second, &n.to_string()], b"+OK\r\n");
        let value = format!("${}\r\n{n}\r\n", n.to_string().len());
        new.expect(&["GET", &first], value.as_bytes());
        old.expect(&["GET", &second], value.as_bytes());
    }
    let requests: [&[&str]; 12] = [
        &["PING"],
        &["GET", "none"],
        &["MGET", "a:1", "a:2", "none", "a:3"],
        &["INCR", "{c}:n"],
        &["HSET", "{c}:h", "f", "v"],
        &["HGETALL", "{c}:h"],
        &["HGET", "a:1", "f"],
        &["LPUSH", "{c}:l", "x", "y"],
        &["LRANGE", "{c}:l", "0", "-1"],
        &["EXPIRE", "{c}:l", "100"],
        &["TYPE", "{c}:l"],
        &["DEL", "{c}:n", "{c}:h", "{c}:l", "none"],
    ];
    let replies = |client: &mut Client| requests.map(|words| String::from_utf8_lossy(&client.call(words)).into_owned());
    assert_eq!(replies(&mut old), replies(&mut new));
    let sizes: Vec<Vec<u8>> = servers.iter().map(|server| server.connect().call(&["DBSIZE"])).collect();
    // These keys are alike, and ketama may leave one server out.
    let used = sizes.iter().filter(|size| *size != b":0\r\n").count();
    assert!(used >= 2, "keys are spread: {sizes:?}");
    nutcracker.kill();
}
