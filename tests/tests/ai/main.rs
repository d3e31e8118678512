//! Language models: the SDKs of providers against the lab's origin, directly and through the gateway; its bytes and its books; and the
//! load of the lab; and each SDK in front of the other provider. Keys that the admin API issues, and its view of requests.

mod faults;
mod keys;
mod load;
mod sdks;
mod through;
mod translated;
mod truth;
