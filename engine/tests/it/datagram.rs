//! Datagrams on both drivers: their bounds, their senders, and what has no room.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, mpsc},
    time::Duration,
};

use weir_engine::{
    Worker,
    datagram::Datagrams,
    settings::{DriverChoice, RuntimeSettings},
};

/// The longest payload of UDP over IPv4.
const LONGEST: usize = 65_507;
/// It ends the worker.
const END: &[u8] = b"end";

/// A worker that sends each datagram back to its sender until [`END`] comes, and its address.
fn echo(driver: DriverChoice) -> (SocketAddr, Worker) {
    let (bound, address) = mpsc::channel();
    let settings = RuntimeSettings { driver, ..RuntimeSettings::default() };
    let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
        let socket = Datagrams::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        bound.send(socket.local_address().expect("bound")).expect("the test waits");
        loop {
            let (datagram, sender) = socket.receive().await.expect("no error on loopback");
            if &*datagram == END {
                return;
            }
            assert!(socket.send(&datagram, sender).expect("it fits"), "loopback has room");
        }
    });
    (address.recv().expect("it starts"), worker.expect("the worker starts"))
}

fn client() -> UdpSocket {
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit can be set");
    client
}

fn each_sender_gets_its_own_back(driver: DriverChoice) {
    let (address, worker) = echo(driver);
    let clients = [client(), client()];
    let mut received = vec![0; LONGEST + 1];
    for round in 0..200_usize {
        for (number, client) in clients.iter().enumerate() {
            // Several at a time, so that one event stands for more than one datagram.
            let sent: Vec<Vec<u8>> = (0..3).map(|at| vec![(round + number) as u8; (round * 41 + at) % 1_400]).collect();
            sent.iter()
                .for_each(|datagram| assert_eq!(client.send_to(datagram, address).expect("sent"), datagram.len()));
            for datagram in &sent {
                let (count, sender) = client.recv_from(&mut received).expect("it comes back");
                assert!(sender == address && received[..count] == **datagram, "round {round} of client {number}");
            }
        }
    }
    let longest = vec![7; LONGEST];
    clients[0].send_to(&longest, address).expect("sent");
    assert_eq!(clients[0].recv(&mut received).expect("it comes back"), LONGEST);
    clients[0].send_to(END, address).expect("sent");
    worker.join().expect("no panic");
}

#[test]
fn each_sender_gets_its_own_back_on_io_uring() {
    each_sender_gets_its_own_back(DriverChoice::IoUring);
}

#[test]
fn each_sender_gets_its_own_back_on_polling() {
    each_sender_gets_its_own_back(DriverChoice::Polling);
}

#[test]
fn a_datagram_that_is_too_long_is_refused_and_the_socket_goes_on() {
    let settings = RuntimeSettings { driver: DriverChoice::Polling, ..RuntimeSettings::default() };
    let worker = Worker::start(0, None, &settings, Arc::default(), || async {
        let socket = Datagrams::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let own = socket.local_address().expect("bound");
        assert!(socket.send(&[0; LONGEST + 1], own).is_err());
        assert!(socket.send(b"short", own).expect("it fits"));
        let (datagram, sender) = socket.receive().await.expect("it comes");
        assert_eq!((&*datagram, sender), (&b"short"[..], own));
    });
    worker.expect("the worker starts").join().expect("no panic");
}
