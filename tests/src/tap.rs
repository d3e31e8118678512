//! A tap between the gateway and an origin: it passes bytes on and keeps them.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::stream::Address;

/// Bytes of one connection.
#[derive(Clone, Debug, Default)]
pub struct Tapped {
    /// From the gateway.
    pub sent: Vec<u8>,
    /// From the origin.
    pub received: Vec<u8>,
    /// The gateway has ended its direction.
    pub is_ended: bool,
}

/// A running tap. Its threads end with the gateway's connections.
pub struct Tap {
    /// Where it listens.
    pub address: Address,
    connections: Arc<Mutex<Vec<Tapped>>>,
}

impl Tap {
    /// In front of an origin.
    ///
    /// # Panics
    /// If no port can be bound.
    pub fn before(origin: &Address) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("an address"));
        let connections = Arc::<Mutex<Vec<Tapped>>>::default();
        let (all, origin) = (connections.clone(), origin.tcp());
        // It ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let number = {
                    let mut all = lock(&all);
                    all.push(Tapped::default());
                    all.len() - 1
                };
                // An end that is gone is gone for both.
                let _ = connect(stream, origin, number, &all);
            }
        });
        Self { address, connections }
    }

    /// Connections that the gateway has not ended.
    pub fn open(&self) -> usize {
        lock(&self.connections).iter().filter(|connection| !connection.is_ended).count()
    }

    /// Every connection so far.
    pub fn connections(&self) -> Vec<Tapped> {
        lock(&self.connections).clone()
    }
}

fn lock(all: &Mutex<Vec<Tapped>>) -> MutexGuard<'_, Vec<Tapped>> {
    all.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn connect(client: TcpStream, origin: SocketAddr, number: usize, all: &Arc<Mutex<Vec<Tapped>>>) -> std::io::Result<()> {
    let server = TcpStream::connect(origin)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to, of) = (client.try_clone()?, server.try_clone()?, all.clone());
    std::thread::spawn(move || {
        pass(from, to, |bytes| match bytes {
            [] => lock(&of)[number].is_ended = true,
            bytes => lock(&of)[number].sent.extend_from_slice(bytes),
        })
    });
    let of = all.clone();
    std::thread::spawn(move || pass(server, client, |bytes| lock(&of)[number].received.extend_from_slice(bytes)));
    Ok(())
}

/// Keeps bytes before it passes them on: a test that has seen a response finds its request. Nothing: the end.
fn pass(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let mut chunk = [0; 64 * 1024];
    loop {
        match from.read(&mut chunk) {
            Ok(count @ 1..) => {
                keep(&chunk[..count]);
                if to.write_all(&chunk[..count]).is_err() {
                    let _ = from.shutdown(Shutdown::Both);
                    return;
                }
            }
            Ok(0) => {
                keep(&[]);
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Err(_) => {
                keep(&[]);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}
