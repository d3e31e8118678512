//! Logins of clients and logins at servers, without sockets. Cases P1 to P9, P19 to P21 are those of the list of hostile input.

mod clients;
mod hostile_clients;
mod hostile_servers;
mod support;
mod together;
