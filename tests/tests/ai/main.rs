//! Language models: the SDKs of providers against the lab's origin, directly and through the gateway; its bytes and its books; and the
//! load of the lab; each SDK in front of the other provider; the exact cache; keys that the admin API issues, and its view of requests;
//! upgrades of the program; budgets that several gateways share; and the SDKs of MCP and A2A in front of their own servers.

mod cache;
mod faults;
mod health;
mod idle_streams;
mod isolation;
mod keys;
mod load;
mod mcp;
mod mcp_federation;
mod prompts;
mod requests;
mod sdks;
mod store;
mod through;
mod traffic;
mod translated;
mod truth;
mod upgrade;
