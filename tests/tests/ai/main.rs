//! Language models: the SDKs of providers against the lab's origin, directly and through the gateway; its bytes and its books; and the
//! load of the lab; each SDK in front of the other provider; and the SDKs of MCP and A2A in front of their own servers.

mod faults;
mod load;
mod mcp;
mod sdks;
mod through;
mod translated;
mod truth;
