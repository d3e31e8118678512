//! The relay between real sockets.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::{Relay, Speaker, Splitter};

/// Longest wait for bytes that have to come.
const LIMIT: Duration = Duration::from_secs(20);

fn command(words: &[&str]) -> Vec<u8> {
    let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{bulks}", words.len()).into_bytes()
}

/// Replies to every request with its last bulk, until the connection ends.
fn echo(mut socket: TcpStream) {
    let (mut splitter, mut bytes) = (Splitter::new(Speaker::Client), Vec::new());
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = socket.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..length]);
        while let Some(length) = splitter.next(&bytes).unwrap() {
            // The values of this test hold no `$`.
            let bulk = bytes[..length].iter().rposition(|byte| *byte == b'$').unwrap();
            socket.write_all(&bytes[bulk..length]).unwrap();
            bytes.drain(..length);
        }
    }
}

fn expect(client: &mut TcpStream, value: &str) {
    let wanted = format!("${}\r\n{value}\r\n", value.len());
    let mut got = vec![0; wanted.len()];
    client.read_exact(&mut got).unwrap();
    assert!(got == wanted.as_bytes(), "another reply than {:.20}...", value);
}

#[test]
fn every_client_gets_its_own_replies_in_order() {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let behind = origin.local_addr().unwrap();
    let relaying = thread::spawn(move || {
        let mut relay = Relay::new(listener, behind, Duration::from_micros(50)).unwrap();
        loop {
            if let Err(error) = relay.turn() {
                break error;
            }
        }
    });
    let socket = origin.accept().unwrap().0;
    let server = socket.try_clone().unwrap();
    let echoing = thread::spawn(move || echo(socket));
    let connect = || {
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client
    };
    let (mut slow, mut quick, mut leaver, mut rude) = (connect(), connect(), connect(), connect());

    // A request that comes in two parts does not mix with those of others, nor hold them up.
    let request = command(&["GET", "one"]);
    slow.write_all(&request[..7]).unwrap();
    quick.write_all(&command(&["GET", "two"])).unwrap();
    expect(&mut quick, "two");
    slow.write_all(&request[7..]).unwrap();
    expect(&mut slow, "one");

    // A client that leaves, or is disconnected, does not cost others their replies.
    leaver.write_all(&command(&["GET", "gone"]).repeat(10)).unwrap();
    leaver.shutdown(Shutdown::Both).unwrap();
    rude.write_all(b"PING\r\n").unwrap();
    assert_eq!(rude.read(&mut [0; 8]).unwrap(), 0, "closed without a reply");

    // More than the sockets hold: what is not taken waits in the relay.
    let value = "x".repeat(64 << 10);
    let pipeline = command(&["GET", &value]).repeat(400);
    let mut writer = slow.try_clone().unwrap();
    let writing = thread::spawn(move || writer.write_all(&pipeline));
    for number in 0..100 {
        let text = number.to_string();
        quick.write_all(&command(&["GET", &text])).unwrap();
        expect(&mut quick, &text);
    }
    writing.join().unwrap().unwrap();
    for _ in 0..400 {
        expect(&mut slow, &value);
    }

    server.shutdown(Shutdown::Both).unwrap();
    echoing.join().unwrap();
    assert!(relaying.join().unwrap().to_string().contains("server"));
}
