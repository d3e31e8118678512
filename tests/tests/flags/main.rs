//! Feature flags: the shared specification through the gateway, a real Unleash server and its SDKs, rights of tokens, outages, the protocol
//! itself, and hostile clients and servers.

mod access;
mod backups;
mod contexts;
mod counts;
mod coverage;
mod crowd;
mod hostile;
mod http2;
mod isolation;
mod outages;
mod parity;
mod protocol;
mod reconnects;
mod sdks;
mod specification;
mod traffic;
mod upstream;
