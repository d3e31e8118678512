//! The old process as the new one sees it.

use std::{io, net::TcpListener, os::fd::OwnedFd};

use socket2::Socket;
use weir_engine::{handover::Channel, settings::Address};

use super::{
    Inheritance, VARIABLE,
    connection::MovedConnection,
    message::{Message, PROTOCOL, PeerEvent, SocketOf, receive},
    orders::{Order, Pause},
};
use crate::gateway::Inherited;

/// Numbers that are left to the connections which the old process still accepts. Default 1 Mi: more than come in the time.
const IDS_LEFT: u64 = 1 << 20;

/// The process that started this one for an upgrade. It waits.
pub struct Predecessor {
    channel: Channel,
}

impl Predecessor {
    /// If this process was started for an upgrade.
    ///
    /// # Errors
    /// It should have been, and there is no channel.
    pub fn find() -> Result<Option<Self>, String> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let channel = Channel::from_stdin();
        let channel =
            channel.map_err(|error| format!("{VARIABLE} is set, but {error}; unset it for an ordinary start"))?;
        Ok(Some(Self { channel }))
    }

    /// Receives the hand-over.
    ///
    /// # Errors
    /// It has ended, or speaks another language.
    pub fn inheritance(&self) -> Result<Inheritance, String> {
        let Message::Hello { protocol, pid, restart_epoch, next_connection_id, takes_orders } = self.receive()?.0
        else {
            return Err("the running process did not begin with hello".to_owned());
        };
        if protocol != PROTOCOL {
            return Err(format!(
                "the running process speaks version {protocol} of the upgrade, this program version {PROTOCOL}: restart instead"
            ));
        }
        let mut got = Inheritance {
            restart_epoch: restart_epoch + 1,
            predecessor: Some(pid),
            first_connection_id: next_connection_id.saturating_add(IDS_LEFT),
            takes_orders,
            ..Inheritance::default()
        };
        loop {
            let (message, descriptors) = self.receive()?;
            let Message::Sockets { sockets, is_last } = message else {
                return Err(format!("the running process said {message:?} among its sockets"));
            };
            if sockets.len() != descriptors.len() {
                return Err(format!("{} sockets were named and {} came", sockets.len(), descriptors.len()));
            }
            for (of, descriptor) in sockets.into_iter().zip(descriptors) {
                match of {
                    SocketOf::Listener(bind) => add(&mut got.listeners, &bind, descriptor)?,
                    SocketOf::Admin(bind) => got.admin = Some((bind, TcpListener::from(descriptor))),
                }
            }
            if is_last {
                return Ok(got);
            }
        }
    }

    /// Says that this process could serve, and waits until it shall. `untaken` are listeners that it does not want,
    /// `movable` addresses at which it goes on with connections, `state` the directory of its budgets. The orders of operators that it
    /// goes on with.
    ///
    /// # Errors
    /// The old process has ended, or has called it off.
    pub fn wait_take(
        &self,
        untaken: &Inherited,
        movable: Vec<String>,
        state: Option<String>,
    ) -> Result<Vec<Order>, String> {
        let untaken = untaken.iter().map(|(bind, _)| bind.to_string()).collect();
        self.say(&Message::Ready { pid: std::process::id(), untaken, movable, state })?;
        let (pauses, more) = match self.receive()?.0 {
            Message::Take { pauses, more } => (pauses, more),
            other => return Err(format!("the running process said {other:?} and not take")),
        };
        let mut all: Vec<Order> = pauses.into_iter().flat_map(Pause::orders).collect();
        for _ in 0..more {
            match self.receive()?.0 {
                Message::Orders { orders } => all.extend(orders),
                other => return Err(format!("the running process said {other:?} among its orders")),
            }
        }
        Ok(all)
    }

    /// Says that this process serves. Through what comes back the old one sends its connections: see [`take_messages`].
    pub fn serving(self) -> Channel {
        // If it is gone, this process is all there is.
        let _ = self.say(&Message::Serving);
        self.channel
    }

    /// Says why this process will not serve.
    pub fn fail(&self, reason: &str) {
        let _ = Message::failed(reason).send(&self.channel, &[]);
    }

    fn say(&self, message: &Message) -> Result<(), String> {
        message.send(&self.channel, &[]).map_err(|error| format!("cannot speak to the running process: {error}"))
    }

    fn receive(&self) -> Result<(Message, Vec<OwnedFd>), String> {
        match receive(&self.channel) {
            Ok(PeerEvent::Message(message, descriptors)) => Ok((message, descriptors)),
            Ok(PeerEvent::End | PeerEvent::Nothing) => {
                Err("the running process has ended, or has called the upgrade off".to_owned())
            }
            Err(error) => Err(format!("cannot hear the running process: {error}")),
        }
    }
}

/// Gives `take` the connections that come, and `over` the numbers of cancel requests that are over, until the process at the other end
/// has ended.
pub fn take_messages(channel: &Channel, mut take: impl FnMut(MovedConnection, OwnedFd), over: impl Fn(u64)) {
    loop {
        match receive(channel) {
            Ok(PeerEvent::Message(Message::Connection(connection), mut sockets)) => {
                if let Some(socket) = sockets.pop() {
                    take(*connection, socket);
                }
            }
            Ok(PeerEvent::Message(Message::CancelOver { number }, _)) => over(number),
            Ok(PeerEvent::Message(..) | PeerEvent::Nothing) => {}
            Ok(PeerEvent::End) => return,
            // No room for one more descriptor: that connection is lost, the next may find some.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!(%error, "a connection of the process before this one was lost");
            }
            Err(error) => return tracing::error!(%error, "the process before this one is no longer heard"),
        }
    }
}

fn add(listeners: &mut Inherited, bind: &str, descriptor: OwnedFd) -> Result<(), String> {
    let address: Address = bind.parse().map_err(|error| format!("the running process listens at {bind}: {error}"))?;
    let socket = Socket::from(descriptor);
    is_listening(&socket).map_err(|error| format!("the socket of {bind} cannot be used: {error}"))?;
    match listeners.iter_mut().find(|(known, _)| *known == address) {
        Some((_, sockets)) => sockets.push(socket),
        None => listeners.push((address, vec![socket])),
    }
    Ok(())
}

fn is_listening(socket: &Socket) -> io::Result<()> {
    if socket.is_listener()? { Ok(()) } else { Err(io::Error::other("it does not listen")) }
}
