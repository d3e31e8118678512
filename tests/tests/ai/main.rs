//! Language models: the SDKs of providers, and the load of the lab, against its origin.

mod load;
mod sdks;
