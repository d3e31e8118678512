//! Language models: the SDKs of providers against the lab's origin, directly and through the gateway; its bytes and its books; and the
//! load of the lab; each SDK in front of the other provider; the exact cache; keys that the admin API issues, and its view of requests.

mod cache;
mod faults;
mod keys;
mod load;
mod sdks;
mod through;
mod translated;
mod truth;
