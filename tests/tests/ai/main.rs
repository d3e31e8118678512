//! Language models: the SDKs of providers against the lab's origin, directly and through the gateway; its bytes and its books; and the
//! load of the lab; each SDK in front of the other provider; and the exact cache.

mod cache;
mod faults;
mod load;
mod sdks;
mod through;
mod translated;
mod truth;
