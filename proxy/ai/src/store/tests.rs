use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::mpsc,
};

use weir_engine::settings::Address;
use weir_spend::shared::ClaimSettings;

use super::*;

#[test]
fn a_process_that_has_handed_its_name_over_says_nothing_more_in_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let (begun, has_begun) = mpsc::channel();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let (mut said, mut chunk) = (Vec::new(), [0; 4_096]);
        begun.send(()).expect("the test");
        // It is slow: the process is paused before it has logged in.
        thread::sleep(Duration::from_millis(300));
        stream.write_all(b"$0\r\n\r\n$4\r\nhash\r\n").expect("two replies");
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            said.extend_from_slice(&chunk[..count]);
        }
        said
    });
    let folder = tempfile::tempdir().expect("a folder");
    let settings = StoreSettings {
        endpoints: vec![Address::Socket(address)],
        tls: None,
        username: None,
        password: None,
        prefix: "weir:".to_owned(),
        claims: ClaimSettings::default(),
    };
    let store = SharedStore::start(&settings, folder.path(), &Ledger::default()).expect("a thread");
    has_begun.recv().expect("a connection");
    assert!(store.pause(), "no call is under way");
    drop(store);
    let said = String::from_utf8(server.join().expect("the server")).expect("text");
    assert!(said.contains("INFO") && said.contains("SCRIPT") && !said.contains("\r\nEVALSHA\r\n"), "{said}");
}
