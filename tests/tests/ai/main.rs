//! Language models: the SDKs of providers against the lab's origin, directly and through the gateway; its bytes and its books; and the
//! load of the lab.

mod faults;
mod load;
mod sdks;
mod through;
mod truth;
