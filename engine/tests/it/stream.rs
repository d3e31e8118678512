//! Streams under back-pressure, on both drivers: every byte arrives once and in order, whichever side is slow.

use std::{
    cell::RefCell,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    rc::Rc,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use weir_base::permit::{Budget, ByteLease};
use weir_engine::{
    Stream, StreamOptions, Watermarks, Worker,
    settings::{DriverChoice, RuntimeSettings},
};

const BYTES: usize = 24 << 20;
const MARKS: Watermarks = Watermarks { high: 256 << 10, low: 64 << 10 };

/// The byte at `at` of the test pattern; a period that no buffer size divides.
fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

/// Runs `serve` on a worker with one end of a connection; the other end is given back.
fn on_worker<F>(driver: DriverChoice, serve: impl FnOnce(Stream) -> F + Send + 'static) -> (TcpStream, Worker)
where
    F: Future<Output = ()> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
    let (server, _) = listener.accept().expect("accepts");
    let settings = RuntimeSettings { driver, ..RuntimeSettings::default() };
    let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
        let stream = Stream::new(server.into(), StreamOptions { marks: MARKS }).expect("a fresh socket");
        serve(stream).await;
    });
    (client, worker.expect("the worker starts"))
}

fn a_paused_reader_loses_nothing(driver: DriverChoice) {
    let (told, outcome) = mpsc::channel();
    let (mut client, worker) = on_worker(driver, move |mut stream| async move {
        let (mut at, mut chunks) = (0, 0);
        while let Ok(Some(chunk)) = stream.reader.receive().await {
            for &byte in chunk.iter() {
                assert_eq!(byte, pattern(at), "byte {at}");
                at += 1;
            }
            chunks += 1;
            if chunks % 7 == 0 {
                weir_engine::sleep(Duration::from_millis(1)).await;
            }
        }
        told.send(at).expect("the test waits");
    });
    let bytes: Vec<u8> = (0..BYTES).map(pattern).collect();
    client.write_all(&bytes).expect("the server reads");
    drop(client);
    assert_eq!(outcome.recv_timeout(Duration::from_secs(60)), Ok(BYTES));
    worker.join().expect("no panic");
}

fn a_slow_peer_gets_every_byte(driver: DriverChoice) {
    let (mut client, worker) = on_worker(driver, |stream| async move {
        let mut at = 0;
        while at < BYTES {
            let count = (BYTES - at).min(10_007);
            stream.output.with(|buffer| buffer.extend((at..at + count).map(pattern)));
            at += count;
            assert!(stream.output.buffered() <= MARKS.high + 10_007, "the high-water mark holds");
            stream.output.relieved().await;
        }
        stream.close(Duration::from_secs(60)).await;
    });
    let (mut at, mut buffer) = (0, vec![0; 70_001]);
    loop {
        let count = client.read(&mut buffer).expect("no reset");
        if count == 0 {
            break;
        }
        for &byte in &buffer[..count] {
            assert_eq!(byte, pattern(at), "byte {at}");
            at += 1;
        }
        if at % 5 == 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
    assert_eq!(at, BYTES);
    worker.join().expect("no panic");
}

/// Bytes within `budget` are charged while they wait, and released as they leave; beyond it the output is congested early.
#[test]
fn an_output_is_charged_for_the_bytes_that_wait() {
    const PIECE: usize = 20_000;
    let (mut client, worker) = on_worker(DriverChoice::Polling, |stream| async move {
        let lease = ByteLease::with_step(Budget::new(2 * PIECE as u64 + 1), 1);
        stream.output.charge_to(Some(Rc::new(RefCell::new(lease.empty()))));
        let piece: Vec<u8> = (0..PIECE).map(pattern).collect();
        let mut seen = Vec::new();
        for _ in 0..3 {
            stream.output.append(&piece);
            seen.push((lease.in_use() as usize, stream.output.is_congested()));
        }
        assert_eq!(seen, [(PIECE, false), (2 * PIECE, false), (2 * PIECE, true)], "the third has no room");
        stream.output.relieved().await;
        assert!(stream.output.drained(Duration::from_secs(60)).await && lease.in_use() == 0, "all has left");
        stream.output.append(&piece);
        assert_eq!(lease.in_use() as usize, PIECE);
        stream.output.charge_to(None);
        assert_eq!(lease.in_use(), 0, "it is charged to nobody any more");
        let lease = ByteLease::with_step(Budget::new(1 << 20), 1);
        stream.output.charge_to(Some(Rc::new(RefCell::new(lease.empty()))));
        stream.output.append(&vec![0; 2 * MARKS.high]);
        assert!(lease.in_use() as usize >= 2 * MARKS.high && stream.output.is_congested(), "above the mark too");
        stream.close(Duration::from_secs(60)).await;
    });
    let mut received = Vec::new();
    client.read_to_end(&mut received).expect("no reset");
    assert_eq!(received.len(), 4 * PIECE + 2 * MARKS.high);
    worker.join().expect("no panic");
}

#[test]
fn a_peer_that_leaves_within_a_turn_is_seen_when_the_kernel_is_asked() {
    let (told, outcome) = mpsc::channel();
    let (go, left) = mpsc::channel();
    let (mut client, worker) = on_worker(DriverChoice::Auto, move |stream| async move {
        let watch = stream.reader.peer_watch();
        let before = watch.has_ended_now();
        told.send(before).expect("the test waits");
        // The worker looks at no socket meanwhile.
        left.recv_timeout(Duration::from_secs(60)).expect("the client leaves");
        told.send(watch.has_ended_now()).expect("the test waits");
    });
    client.write_all(&[1]).expect("a byte that nobody reads");
    assert_eq!(outcome.recv_timeout(Duration::from_secs(60)), Ok(false));
    drop(client);
    // Within one machine the end is there at once.
    thread::sleep(Duration::from_millis(20));
    go.send(()).expect("the worker waits");
    assert_eq!(outcome.recv_timeout(Duration::from_secs(60)), Ok(true));
    worker.join().expect("no panic");
}

#[test]
fn a_paused_reader_loses_nothing_on_io_uring() {
    a_paused_reader_loses_nothing(DriverChoice::IoUring);
}

#[test]
fn a_paused_reader_loses_nothing_on_polling() {
    a_paused_reader_loses_nothing(DriverChoice::Polling);
}

#[test]
fn a_slow_peer_gets_every_byte_on_io_uring() {
    a_slow_peer_gets_every_byte(DriverChoice::IoUring);
}

#[test]
fn a_slow_peer_gets_every_byte_on_polling() {
    a_slow_peer_gets_every_byte(DriverChoice::Polling);
}
