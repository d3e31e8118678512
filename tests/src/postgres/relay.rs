//! A relay before a server, which disturbs logins and cancel requests.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::postgres::torture::wire::message;
use crate::stream::Address;

/// Code of a cancel request, in place of a version.
const CANCEL: u32 = 80_877_102;

/// The relay's action for the connections that come from now on.
#[derive(Clone, Debug, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It refuses each login with this SQLSTATE.
    Refuse(&'static str),
    /// It closes each connection behind the startup packet.
    Close,
    /// It forwards a cancel request so much later, and leaves its connection open until then.
    DelayCancel(Duration),
}

/// A relay on a port of its own. Its threads end with the test program.
pub struct Relay {
    /// Where it listens.
    pub address: Address,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    fault: Fault,
    logins: u32,
}

impl Relay {
    /// Starts one before the server at `target`.
    ///
    /// # Panics
    /// If no port can be bound.
    #[must_use]
    pub fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("bound"));
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || drop(serve(client, target, &state)));
            }
        });
        Self { address, state }
    }

    /// Its action from now on.
    ///
    /// # Panics
    /// If one of its threads has panicked.
    pub fn set(&self, fault: Fault) {
        self.state.lock().expect("no panic").fault = fault;
    }

    /// Logins that have begun.
    ///
    /// # Panics
    /// If one of its threads has panicked.
    #[must_use]
    pub fn logins(&self) -> u32 {
        self.state.lock().expect("no panic").logins
    }
}

fn serve(mut client: TcpStream, target: SocketAddr, state: &Mutex<State>) -> std::io::Result<()> {
    let mut packet = vec![0; 8];
    client.read_exact(&mut packet)?;
    let number = |at: usize| u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let (bytes, code) = (number(0) as usize, number(4));
    packet.resize(bytes, 0);
    client.read_exact(&mut packet[8..])?;
    let fault = {
        let mut state = state.lock().expect("no panic");
        state.logins += u32::from(code != CANCEL);
        state.fault.clone()
    };
    match fault {
        Fault::Refuse(code_of_error) if code != CANCEL => {
            let fields = format!("SFATAL\0VFATAL\0C{code_of_error}\0Mrefused by the relay\0\0");
            return client.write_all(&message(b'E', fields.as_bytes()));
        }
        Fault::Close if code != CANCEL => return Ok(()),
        Fault::DelayCancel(delay) if code == CANCEL => std::thread::sleep(delay),
        _ => {}
    }
    let mut server = TcpStream::connect(target)?;
    server.write_all(&packet)?;
    let (mut to, mut from) = (server.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || {
        let copied = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
        copied
    });
    std::io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}
