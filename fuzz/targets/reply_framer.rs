//! libFuzzer entry of `weir_fuzz::reply_framer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::reply_framer(data));
